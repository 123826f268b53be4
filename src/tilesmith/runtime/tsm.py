"""The `.tsm` file: a program in one file.

A ZIP archive without compression: `manifest.json`, `code/N.o` and `weights.bin`; for a program that
consists of parts also a file `parts/N.tsm` for each part.  The whole file is read into memory of
this process.  So overwriting or truncating the file later changes no executable.  A caller with a
cache may look for the weights there, so that processes share them (`find_weights`, `allocate`).

A bundle (`runtime.bundle`) holds a model compiled for several levels of a processor: `levels/N.tsm`
are archives without weights, the best level first, and `weights.bin` has the weights of all levels.

The cache keeps weights in separate files, which programs and processes share.  Archives in the
cache have no `weights.bin`; the manifest contains the file's name and checksum.  The file is mapped
into memory, which is safe: files of the cache are created by renaming and never changed.

The reader checks every name, size, offset and checksum before anything is allocated or linked.
The reader can't check the machine code, so load only files that you trust.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from tilesmith.codegen.context import ABI
from tilesmith.ir.target import Target
from tilesmith.support.cache import content_key
from tilesmith.support.errors import ModelError, ParseError, UsageError, VerifyError
from tilesmith.support.folders import is_stream, open_regular, writing, written

from .bundle import Span, best_level, check_levels, pooled
from .manifest import FORMAT, checksum, from_manifest, number, to_manifest
from .native import aligned_bytes
from .program import Blob, Program
from .signing import secret_key, sign_file, signed_contents
from .stubs import check_module_name, write_stubs

T = TypeVar("T")

_MANIFEST, _WEIGHTS = "manifest.json", "weights.bin"
_MANIFEST_LIMIT = 64 << 20
_CODE_LIMIT = 1 << 30
_PART_LIMIT = 1 << 46
_PIECE = 4 << 20  # bytes of weights that are read or written at once
_KEY = re.compile(r"[0-9a-f]{64}")
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
_DATE = (1980, 1, 1, 0, 0, 0)  # a constant date, so that the same program gives the same file


def save_program(
    program: Program,
    path: str | Path | IO[bytes],
    sign: str | Path | None = None,
    stubs: bool = False,
    lower: Sequence[Program] = (),
) -> None:
    """Write `program` to a file, which appears completely or not at all, or to a stream.

    sign: a secret key, with which the file is signed.
    stubs: whether to write a Python module that loads the file, and the module's type stub, into
        the same folder.
    lower: the same model compiled for lower levels of the processor, the best first.  The loader
        takes the first program that the machine can run.

    Raises UsageError if the folder does not exist or can't be written to, for a bad key, and for
    programs that can't be in one file.
    """
    programs = (program, *lower)
    if lower:
        check_levels(programs)
    if not isinstance(path, (str, os.PathLike)):
        if not hasattr(path, "write"):
            raise UsageError(f"save: expected a path or a stream, found {type(path).__name__}")
        if sign is not None or stubs:
            raise UsageError("sign and stubs write files beside the .tsm file; save it to a path")
        try:
            _write(programs, path)
        except (
            TypeError,
            ValueError,
            OSError,
        ) as e:  # the stream accepts text only, is closed, or can't be written
            raise UsageError(f"save: expected a stream of bytes, open for writing: {e}") from e
        return
    path = Path(path)
    if (sign is not None or stubs) and is_stream(path):
        raise UsageError(
            f"sign and stubs write files beside the .tsm file, but {str(path)!r} is a stream; "
            "save it to a file"
        )
    if sign is not None:
        secret_key(sign)  # refuse a bad key before anything is written
    if stubs:
        check_module_name(path)
    with writing(path):
        _save(programs, path)
        if sign is not None:
            sign_file(path, sign)
        if stubs:
            write_stubs(program, path)


def _save(programs: Sequence[Program], path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder {str(path.parent)!r} to write {path.name!r} to; make it first"
        )
    with written(path) as f:
        _write(programs, f)


def _write(programs: Sequence[Program], f: IO[bytes]) -> None:
    """Write one program, or a bundle of several."""
    if len(programs) == 1:
        write_program(programs[0], f)
    else:
        _write_bundle(programs, f)


FindWeights: TypeAlias = Callable[[str], Path | None]
"""A function from the `content_key` of weights to the path of a file with these weights.  Nobody
changes the file.  None: there is no such file.
"""

Allocate: TypeAlias = Callable[[int], Blob]
"""Maps a number of bytes to memory for weights."""


def write_program(program: Program, f: IO[bytes], weights: str | None = None) -> None:
    """Write a `.tsm` file to the beginning of a stream.

    weights: the `content_key` of the weights, if they are kept elsewhere; None puts them into the
        archive.
    """
    code = {
        symbol: (f"code/{i}.o", data) for i, (symbol, data) in enumerate(program.objects.items())
    }
    parts = {f"parts/{i}.tsm": to_bytes(p) for i, p in enumerate(program.parts)}
    manifest = to_manifest(program, {s: name for s, (name, _) in code.items()})
    manifest["parts"] = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    manifest["weights_key"] = weights or content_key(program.constants.data)
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo(_MANIFEST, _DATE), json.dumps(manifest).encode())
        for name, data in (*code.values(), *parts.items()):
            z.writestr(zipfile.ZipInfo(name, _DATE), data)
        if weights is None:
            _write_weights(z, [program.constants.data])


def _write_bundle(programs: Sequence[Program], f: IO[bytes]) -> None:
    """Write a bundle to the beginning of a stream."""
    pieces, spans = pooled(programs)
    levels: dict[str, bytes] = {}
    for i, program in enumerate(programs):
        out = io.BytesIO()
        write_program(program, out, content_key(program.constants.data))
        levels[f"levels/{i}.tsm"] = out.getvalue()
    rows = zip(programs, levels.items(), spans, strict=True)
    manifest = {
        "format": FORMAT,
        "abi": ABI,
        "levels": [
            {
                "file": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "target": program.target.to_json(),
                "weights": own,
            }
            for program, (name, data), own in rows
        ],
    }
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo(_MANIFEST, _DATE), json.dumps(manifest).encode())
        for name, data in levels.items():
            z.writestr(zipfile.ZipInfo(name, _DATE), data)
        _write_weights(z, pieces)


def _write_weights(z: zipfile.ZipFile, pieces: Sequence[memoryview]) -> None:
    info = zipfile.ZipInfo(_WEIGHTS, _DATE)
    info.file_size = sum(map(len, pieces))
    with z.open(info, "w") as entry:
        for data in pieces:
            for begin in range(0, len(data), _PIECE):
                entry.write(data[begin : begin + _PIECE])


def to_bytes(program: Program) -> bytes:
    """A `.tsm` file as bytes."""
    out = io.BytesIO()
    write_program(program, out)
    return out.getvalue()


def from_bytes(content: bytes) -> Program:
    """The program in the bytes of a `.tsm` file.  Raises ModelError if the file is damaged."""
    return load_program(content)


copyreg.pickle(Program, lambda program: (from_bytes, (to_bytes(program),)))


def is_compiled(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a `.tsm`: an archive with a manifest of Tilesmith's."""
    try:
        with open_regular(path) as f, zipfile.ZipFile(f) as z:
            return _MANIFEST in z.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def load_program(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    find_weights: FindWeights | None = None,
    require_signature: str | os.PathLike[str] | None = None,
    allocate: Allocate = aligned_bytes,
) -> Program:
    """The program in the file at `path`, or in the bytes of one.

    find_weights: finds a file of the weights, which is mapped instead of reading those in the
        archive.
    allocate: gives memory for the weights that are read from the archive, by their bytes.
    require_signature: the public key with which the file must be signed.

    Raises ModelError if the file is not a sound `.tsm`, SignatureError if it is not signed.
    """
    return _opened(
        path,
        require_signature,
        lambda name, f, z: _read(name, f, z, find_weights, allocate),
    )


def load_levels(path: str | os.PathLike[str]) -> tuple[Program, ...]:
    """The programs of all levels in a file, the best level first, whatever this machine can run.

    Raises ModelError if the file is not a sound `.tsm`.
    """
    return _opened(path, None, _read_all)


def _opened(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    require_signature: str | os.PathLike[str] | None,
    read: Callable[[Path, IO[bytes], zipfile.ZipFile], T],
) -> T:
    """The result of `read` for an archive.  `path` is the archive's path, or its bytes."""
    if isinstance(path, (bytes, bytearray, memoryview)):
        if require_signature is not None:
            raise UsageError("a signature is a file beside the .tsm file; give the file's path")
        content, path = bytes(path), Path("the given bytes")
    elif isinstance(path, (str, os.PathLike)):
        content, path = None, Path(path)
    else:
        raise UsageError(f"load: expected a path or bytes, found {type(path).__name__}")
    try:
        opened: IO[bytes]
        if content is not None:
            opened = io.BytesIO(content)
        elif require_signature is None:
            opened = open_regular(path)
        else:  # read the bytes that were checked, since the file may change meanwhile
            opened = io.BytesIO(signed_contents(path, Path(require_signature)))
        with opened as f, zipfile.ZipFile(f) as z:
            return read(path, f, z)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (
        OSError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zlib.error,
    ) as e:
        hint = "" if not isinstance(e, zipfile.BadZipFile) else "; models go to tilesmith.compile"
        raise ModelError(
            f"{path}: expected a .tsm file, found a damaged or different one ({e}){hint}"
        ) from e


def _read(
    path: Path,
    f: IO[bytes],
    z: zipfile.ZipFile,
    find_weights: FindWeights | None,
    allocate: Allocate,
    gather: Callable[[int], Blob] | None = None,
) -> Program:
    """The program in an archive.

    gather: reads the weights, of the given number of bytes, from the bundle that contains the
        archive.
    """
    entries = _entries(path, f, z)
    manifest = _manifest(path, z, entries)
    if "levels" in manifest and gather is None:
        targets, read = _levels(path, f, z, entries, manifest["levels"])
        return read(best_level(path, targets), find_weights, allocate)
    try:
        program, code, weights = from_manifest(manifest)
        key = manifest["weights_key"]
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError("the key of the weights is malformed")
    except (ParseError, VerifyError) as e:
        _bad(path, f"its manifest is malformed: {e}")
    except _MALFORMED as e:
        _bad(path, f"its manifest is malformed: {type(e).__name__}: {e}")
    own = {_WEIGHTS} if gather is None and (find_weights is None or _WEIGHTS in entries) else set()
    parts = manifest["parts"]
    if set(entries) != {_MANIFEST} | own | {c["file"] for c in code.values()} | {*parts}:
        _bad(path, "its entries are not those that the manifest lists")
    objects = {s: _checked(path, z, entries, c, _CODE_LIMIT) for s, c in code.items()}
    made_parts = [
        from_bytes(_checked(path, z, entries, {"file": name, "sha256": digest}, _PART_LIMIT))
        for name, digest in parts.items()
    ]
    if own and gather is None:
        gather = partial(_weights, path, f, entries[_WEIGHTS], allocate)
    blob = _shared(find_weights, key, weights, manifest.get("weights_checksum"))
    if blob is None:
        if gather is None:
            _bad(path, "the file of its weights is not there, has another size, or is damaged")
        blob = gather(weights)
        if checksum(blob) != manifest.get("weights_checksum"):
            _bad(path, "the weights do not match their checksum")
    return replace(program, constants=blob, objects=objects, parts=tuple(made_parts))


def _read_all(path: Path, f: IO[bytes], z: zipfile.ZipFile) -> tuple[Program, ...]:
    """The programs of all levels in an archive."""
    entries = _entries(path, f, z)
    manifest = _manifest(path, z, entries)
    if "levels" not in manifest:
        return (_read(path, f, z, None, aligned_bytes),)
    targets, read = _levels(path, f, z, entries, manifest["levels"])
    return tuple(read(number, None, aligned_bytes) for number in range(len(targets)))


def _levels(
    path: Path,
    f: IO[bytes],
    z: zipfile.ZipFile,
    entries: dict[str, zipfile.ZipInfo],
    levels: Any,
) -> tuple[list[Target], Callable[[int, FindWeights | None, Allocate], Program]]:
    """The targets of a bundle's levels, and a function that reads the program of a level."""
    try:
        names = {level["file"] for level in levels}
        targets = [Target.from_json(level["target"]) for level in levels]
        spans = [[_span(s) for s in level["weights"]] for level in levels]
    except _MALFORMED as e:
        _bad(path, f"its manifest is malformed: {type(e).__name__}: {e}")
    if set(entries) != {_MANIFEST, _WEIGHTS} | names or len(names) != len(targets) or not names:
        _bad(path, "its entries are not those that the manifest lists")

    def read(number: int, find_weights: FindWeights | None, allocate: Allocate) -> Program:
        data = io.BytesIO(_checked(path, z, entries, levels[number], _CODE_LIMIT))
        gather = partial(_gathered, path, f, entries[_WEIGHTS], allocate, spans[number])
        with zipfile.ZipFile(data) as level:
            return _read(path, data, level, find_weights, allocate, gather)

    return targets, read


def _span(value: Any) -> Span:
    begin, count = value
    return number(begin, _PART_LIMIT), number(count, _PART_LIMIT)


def _entries(path: Path, f: IO[bytes], z: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries of an archive by name; all of them are stored as they are."""
    file_size = f.seek(0, os.SEEK_END)
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in z.infolist():
        if info.filename in entries:
            _bad(path, f"entry {info.filename!r} appears twice")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            _bad(path, f"entry {info.filename!r} is compressed or encrypted")
        if info.file_size > file_size or info.compress_size != info.file_size:
            _bad(path, f"entry {info.filename!r} says it is larger than the file")
        entries[info.filename] = info
    _check_kind(path, entries)
    return entries


def _manifest(
    path: Path, z: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]
) -> dict[str, Any]:
    try:
        manifest = json.loads(_contents(path, z, entries, _MANIFEST, _MANIFEST_LIMIT))
    except (ValueError, RecursionError) as e:
        _bad(path, f"its manifest is not JSON ({e})")
    _check_version(path, manifest)
    return manifest


def _checked(
    path: Path,
    z: zipfile.ZipFile,
    entries: dict[str, zipfile.ZipInfo],
    entry: dict[str, Any],
    limit: int,
) -> bytes:
    """The contents of an entry whose name and checksum a manifest has."""
    data = _contents(path, z, entries, entry["file"], limit)
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        _bad(path, f"{entry['file']} does not match its checksum")
    return data


def _check_kind(path: Path, names: Iterable[str]) -> None:
    """Raises ModelError for archives of another kind.  The message names the function that reads
    that kind.
    """
    files = {name.rpartition("/")[2] for name in names}
    if _MANIFEST not in files and "data.pkl" in files:
        _bad(
            path,
            "it is pickled by PyTorch; load it with torch.load and give the module to "
            "tilesmith.compile with example inputs",
        )
    if _MANIFEST not in files and files & {"archive_format", "serialized_exported_program.json"}:
        _bad(path, "it is an archive of torch.export; give its path to tilesmith.compile")


def _check_version(path: Path, manifest: Any) -> None:
    """Raises ModelError if the file is valid but of another version."""
    version = manifest.get("format") if isinstance(manifest, dict) else None
    abi = manifest.get("abi") if version == FORMAT else ABI
    for what, is_, ours in (("format", version, FORMAT), ("native interface", abi, ABI)):
        if is_ != ours:
            raise ModelError(
                f"{path} has version {is_!r} of the {what}; this version of tilesmith reads "
                f"version {ours}: compile the model again"
            )


def _contents(
    path: Path, z: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], name: str, limit: int
) -> bytes:
    info = entries.get(name)
    if info is None:
        _bad(path, f"it has no entry {name!r}")
    if info.file_size > limit:
        _bad(path, f"entry {name!r} has {info.file_size} bytes, more than {limit}")
    return z.read(info)  # this also checks the CRC


def _weights(
    path: Path,
    f: IO[bytes],
    info: zipfile.ZipInfo,
    allocate: Allocate,
    size: int,
) -> Blob:
    """A private copy of the weights in the archive."""
    if info.file_size != size:
        _bad(path, f"the manifest says {size} bytes of weights, the archive {info.file_size}")
    return _gathered(path, f, info, allocate, [(0, size)], size)


def _gathered(
    path: Path,
    f: IO[bytes],
    info: zipfile.ZipInfo,
    allocate: Allocate,
    spans: Sequence[Span],
    size: int,
) -> Blob:
    """A private copy of parts of the weights in the archive, one after the other."""
    f.seek(info.header_offset)
    header = f.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        _bad(path, "its weights have no header")
    if sum(count for _, count in spans) != size:
        _bad(path, f"the pieces of its weights do not have {size} bytes together")
    start = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
    blob = allocate(size)
    filled = 0
    for begin, count in spans:
        f.seek(start + begin)
        into = blob[filled : filled + count].data
        read = f.readinto(into)  # type: ignore[attr-defined]  # both kinds of file have it
        if begin + count > info.file_size or read != count:
            _bad(path, "the weights end beyond the file")
        filled += count
    blob.flags.writeable = False
    return blob


def _shared(
    find_weights: FindWeights | None, key: str, size: int, expected: str | None
) -> Blob | None:
    """The weights in a separate file, mapped into memory; None if there is no sound file."""
    file = None if find_weights is None else find_weights(key)
    blob = None if file is None else mapped(file, size)
    return blob if blob is not None and checksum(blob) == expected else None


def mapped(file: Path, size: int) -> Blob | None:
    """A file of `size` bytes that nobody changes, mapped into memory; None if there is none."""
    try:
        if file.stat().st_size != size:
            return None
        return np.asarray(np.memmap(file, np.uint8, "r", shape=(size,)))
    except OSError:  # another process removed it
        return None


def _bad(path: Path, why: str) -> NoReturn:
    raise ModelError(f"{path}: not a sound .tsm file: {why}")
