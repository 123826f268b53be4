"""The `.tsm` file: a program in one file.

A ZIP archive without compression: `manifest.json`, `code/N.o` and `weights.bin`; for a program that
consists of parts also a file `parts/N.tsm` for each part.  The whole file is read into memory of
this process.  So overwriting or truncating the file later changes no executable.

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
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

import numpy as np

from tilesmith.codegen.context import ABI
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.target import Target
from tilesmith.perf.info import KernelInfo
from tilesmith.program.functions import ENTRY, OUTPUTS, SIZES
from tilesmith.program.json_values import from_json, to_json
from tilesmith.program.main import Main
from tilesmith.program.verify import DEPTH, verify
from tilesmith.support.cgroup import usable_memory
from tilesmith.support.errors import ModelError, ParseError, UsageError, VerifyError
from tilesmith.support.folders import is_stream, open_regular, written

from .native import ALIGNMENT, aligned_bytes
from .program import Program
from .signing import secret_key, sign_file, signed_contents
from .stubs import check_module_name, write_stubs

FORMAT = 14
_MANIFEST, _WEIGHTS = "manifest.json", "weights.bin"
_MANIFEST_LIMIT = 64 << 20
_CODE_LIMIT = 1 << 30
_PART_LIMIT = 1 << 46
_PIECE = 4 << 20  # bytes of weights that are read or written at once
_SUMMED = 64 << 10  # bytes per step of a checksum
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,255}")
_DATE = (1980, 1, 1, 0, 0, 0)  # a constant date, so that the same program gives the same file


def save_program(
    program: Program,
    path: str | Path | IO[bytes],
    sign: str | Path | None = None,
    stubs: bool = False,
) -> None:
    """Write `program` to a file, which appears completely or not at all, or to a stream.

    sign: a secret key, with which the file is signed.
    stubs: whether to write a Python module that loads the file, and the module's type stub, into
        the same folder.

    Raises UsageError if the folder does not exist or can't be written to, or for a bad key.
    """
    if not isinstance(path, (str, os.PathLike)):
        if not hasattr(path, "write"):
            raise UsageError(f"save: expected a path or a stream, found {type(path).__name__}")
        if sign is not None or stubs:
            raise UsageError("sign and stubs write files beside the .tsm file; save it to a path")
        try:
            write_program(program, path)
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
    try:
        _save(program, path)
        if sign is not None:
            sign_file(path, sign)
        if stubs:
            write_stubs(program, path)
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from e


def _save(program: Program, path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder {str(path.parent)!r} to write {path.name!r} to; make it first"
        )
    with written(path) as f:
        write_program(program, f)


FindWeights: TypeAlias = Callable[[str], Path | None]
"""Maps the file name of weights in a manifest to the file's path, or to None if there is no such
file.
"""


def write_program(program: Program, f: IO[bytes], weights: str | None = None) -> None:
    """Write a `.tsm` file to the beginning of a stream.

    weights: name of a file that contains the weights; None puts them into the archive.
    """
    code = {
        symbol: (f"code/{i}.o", data) for i, (symbol, data) in enumerate(program.objects.items())
    }
    parts = {f"parts/{i}.tsm": to_bytes(p) for i, p in enumerate(program.parts)}
    manifest = to_manifest(program, {s: name for s, (name, _) in code.items()})
    manifest["parts"] = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    if weights is not None:
        manifest["weights_apart"] = weights
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo(_MANIFEST, _DATE), json.dumps(manifest).encode())
        for name, data in (*code.values(), *parts.items()):
            z.writestr(zipfile.ZipInfo(name, _DATE), data)
        if weights is not None:
            return
        info = zipfile.ZipInfo(_WEIGHTS, _DATE)
        info.file_size = program.constants.nbytes
        with z.open(info, "w") as entry:
            data = program.constants.data
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
) -> Program:
    """The program in the file at `path`, or in the bytes of one.

    find_weights: finds the file of weights that are not in the archive.
    require_signature: the public key with which the file must be signed.

    Raises ModelError if the file is not a sound `.tsm`, SignatureError if it is not signed.
    """
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
            return _read(path, f, z, find_weights)
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
    path: Path, f: IO[bytes], z: zipfile.ZipFile, find_weights: FindWeights | None
) -> Program:
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
    try:
        manifest = json.loads(_contents(path, z, entries, _MANIFEST, _MANIFEST_LIMIT))
    except (ValueError, RecursionError) as e:
        _bad(path, f"its manifest is not JSON ({e})")
    _check_version(path, manifest)
    try:
        program, code, weights = from_manifest(manifest)
    except (ParseError, VerifyError) as e:
        _bad(path, f"its manifest is malformed: {e}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
        _bad(path, f"its manifest is malformed: {type(e).__name__}: {e}")
    apart = manifest.get("weights_apart") if find_weights is not None else None
    own = {_MANIFEST} if apart is not None else {_MANIFEST, _WEIGHTS}
    parts = manifest["parts"]
    if set(entries) != own | {c["file"] for c in code.values()} | {*parts}:
        _bad(path, "its entries are not those that the manifest lists")
    objects = {}
    for symbol, c in code.items():
        data = _contents(path, z, entries, c["file"], _CODE_LIMIT)
        if hashlib.sha256(data).hexdigest() != c["sha256"]:
            _bad(path, f"the code of {symbol} does not match its checksum")
        objects[symbol] = data
    made_parts = []
    for name, digest in parts.items():
        data = _contents(path, z, entries, name, _PART_LIMIT)
        if hashlib.sha256(data).hexdigest() != digest:
            _bad(path, f"{name} does not match its checksum")
        made_parts.append(from_bytes(data))
    if find_weights is not None and apart is not None:
        blob = _weights_apart(path, find_weights(apart), weights)
    else:
        blob = _weights(path, f, entries[_WEIGHTS], weights)
    if _checksum(blob) != manifest.get("weights_checksum"):
        _bad(path, "the weights do not match their checksum")
    return replace(program, constants=blob, objects=objects, parts=tuple(made_parts))


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


def _weights(path: Path, f: IO[bytes], info: zipfile.ZipInfo, size: int) -> np.ndarray:
    """A private copy of the weights in the archive."""
    f.seek(info.header_offset)
    header = f.read(30)
    if info.file_size != size or len(header) < 30 or header[:4] != b"PK\x03\x04":
        _bad(path, f"the manifest says {size} bytes of weights, the archive {info.file_size}")
    f.seek(info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30])))
    blob = aligned_bytes(size)
    if f.readinto(blob.data) != size:  # type: ignore[attr-defined]  # both kinds of file have it
        _bad(path, "the weights end beyond the file")
    blob.flags.writeable = False
    return blob


def _weights_apart(path: Path, file: Path | None, size: int) -> np.ndarray:
    """The weights in a separate file, mapped into memory."""
    if file is None or file.stat().st_size != size:
        _bad(path, "the file of its weights is not there, or has another size")
    return np.asarray(np.memmap(file, np.uint8, "r", shape=(size,)))


def _checksum(weights: np.ndarray) -> str:
    """A checksum that detects damage, computed at memory speed: a hash of the sums of 64 KB
    pieces.
    """
    whole = weights.size // _SUMMED * _SUMMED
    sums = weights[:whole].view(np.uint64).reshape(-1, _SUMMED // 8).sum(1)
    return hashlib.sha256(sums.tobytes() + weights[whole:].tobytes()).hexdigest()


# The manifest


def to_manifest(program: Program, files: dict[str, str]) -> dict[str, Any]:
    """`program` without its code and weights, as JSON values.

    files: archive name of each object.
    """
    return {
        "format": FORMAT,
        "abi": ABI,
        "target": program.target.to_json(),
        "main": to_json(program.main),
        "weights_checksum": _checksum(program.constants),
        "code": {
            s: {"file": files[s], "sha256": hashlib.sha256(data).hexdigest()}
            for s, data in program.objects.items()
        },
        "metadata": dict(program.metadata),
        "kernels": {s: info.to_json() for s, info in program.kernels.items()},
        "defaults": [list(pair) for pair in program.defaults],
        "bounds": [[i, list(shape)] for i, shape in program.bounds],
    }  # fmt: skip


def from_manifest(m: dict[str, Any]) -> tuple[Program, dict[str, dict[str, str]], int]:
    """The program without code and weights, the archive names of its code, and the size of the
    weights.

    Raises ValueError, KeyError, TypeError, ParseError or VerifyError for anything that
    `to_manifest` does not write.
    """
    target, main, code = Target.from_json(m["target"]), from_json(Main, m["main"]), m["code"]
    verify(main, code, usable_memory() or 1 << 46, DEPTH)
    inputs, outputs, weights = main.inputs, main.outputs, main.constant_bytes
    for symbol, c in code.items():
        if not _SYMBOL.fullmatch(symbol):
            raise ValueError(f"{symbol!r} is not a symbol")
        if not re.fullmatch(r"code/[0-9]{1,9}\.o", c["file"]) or not re.fullmatch(
            r"[0-9a-f]{64}", c["sha256"]
        ):
            raise ValueError(f"the code of {symbol} has a malformed file name or checksum")
    if ENTRY not in code and target.device is None:
        raise ValueError(f"there is no {ENTRY}")
    if not all(re.fullmatch(r"parts/[0-9]{1,9}\.tsm", name) for name in m["parts"]):
        raise ValueError("a part has a malformed file name")
    if len(m["parts"]) != main.parts:
        raise ValueError(f"there are {len(m['parts'])} parts of {main.parts}")
    if main.symbols and not main.parts and (SIZES not in code or main.size_values < OUTPUTS):
        raise ValueError(f"there is no {SIZES}")
    if not isinstance(m["metadata"], dict):
        raise ValueError("metadata is not an object")
    kernels = {s: KernelInfo.from_json(k) for s, k in m["kernels"].items() if s in code}
    defaults = tuple(
        (number(i, len(inputs) - 1), number(offset, weights)) for i, offset in m["defaults"]
    )
    for i, offset in defaults:
        spec = inputs[i]
        if (
            not spec.is_static
            or spec.dtype.is_host
            or offset % ALIGNMENT
            or offset + spec.bytes > weights
        ):
            raise ValueError(f"the default of input {spec} does not lie in the weights")
    bounds = tuple(
        (
            number(i, len(outputs) - 1),
            tuple(d if isinstance(d, str) else number(d, LARGEST) for d in shape),
        )
        for i, shape in m["bounds"]
    )
    if any(len(shape) != len(outputs[i].shape) for i, shape in bounds):
        raise ValueError("the largest shape of an output has another rank")
    program = Program(
        inputs, outputs, main.steps, main.arena_bytes, main.scratch_bytes, aligned_bytes(0), {},
        target, m["metadata"], kernels, main.symbols, main.size_values, main.in_place, (), defaults,
        bounds,
    )  # fmt: skip
    return program, code, weights


def number(value: Any, limit: int) -> int:
    """A number from 0 to a limit.  Raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"expected a number from 0 to {limit}, found {value!r}")
    return value


def _bad(path: Path, why: str) -> NoReturn:
    raise ModelError(f"{path}: not a sound .tsm file: {why}")
