"""Damaged files of every other kind than ONNX models: models of other formats, archives, arrays,
records, descriptions, keys, texts.

Each kind writes sound files and says what reads them; `damage` changes one of them.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import children
import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.runtime.signing import make_keys, sign_file
from tilesmith.runtime.weights import read_safetensors
from tilesmith.search_space.records import Records
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import InternalError, TilesmithError, VerifyError

from . import entries
from .damage import changed
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict
from .models import MODELS, Kind, written

_SIGNED = b"content"


def _written(write: Callable[[Path], object], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()


def _tsm() -> bytes:
    stream = io.BytesIO()
    entries.executable().save(stream)
    return stream.getvalue()


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((2, 4), np.float32), n=np.arange(3))
    return stream.getvalue()


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((2, 4), np.float32))
    return stream.getvalue()


def _safetensors() -> bytes:
    head = {"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64)


def _records() -> bytes:
    def write(path: Path) -> None:
        options = ts.Options(records=path, jobs=1)
        choices: dict[str, Any] = {"seconds": 0.5, "trials": 2}
        ts.tune_expression([entries.A, entries.C], threads=1, options=options, **choices)

    return _written(write, "records.sqlite")


@cache
def _signed() -> tuple[bytes, bytes]:
    """A public key, and the signature of `_SIGNED` that fits it."""
    with tempfile.TemporaryDirectory() as folder:
        secret, public = make_keys(Path(folder) / "key")
        file = Path(folder) / "file"
        file.write_bytes(_SIGNED)
        return public.read_bytes(), sign_file(file, secret).read_bytes()


def _steps() -> bytes:
    s = entries.schedule()
    s["C"].split("i", factor=2)
    s["C"].reorder("k", "j")
    s["B"].compute_at("C", "io")
    s["C"].vectorize("j")
    s.cache_write("B", "stack")
    return s.to_json().encode()


def _loops() -> bytes:
    s = entries.schedule()
    return print_func(te.lower(s, [entries.A, entries.C])).encode()


def _replay(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    te.lower(te.Schedule.from_json(entries.C.op, text), [entries.A, entries.C])


def _verify(path: Path) -> None:
    """Verify `_SIGNED` with the key or the signature in a file, and the other one as it was."""
    file, key, signature = (path.parent / name for name in ("file", "file.pub", "file.sig"))
    file.write_bytes(_SIGNED)
    for place, content in zip((key, signature), _signed(), strict=True):
        if place != path:
            place.write_bytes(content)
    ts.verify(file, key)


def _with_records(path: Path) -> None:
    options = ts.Options(records=path, use_cache=False, jobs=1)
    ts.compile(entries.graph(), threads=1, options=options)
    with Records(path, read_only=True) as records:
        records.trials()
        records.families()


def _text_of(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def _target() -> bytes:
    described = {"base": "x86-64-v3", "cores": 4, "ghz": 3.0, "l1_bytes": 32768,
                 "l2_bytes": 1 << 19, "run_cycles": [2.0, 2.0, 2.0, 9.0]}  # fmt: skip
    return json.dumps(described).encode()


def _build_for(path: Path) -> None:
    ts.build(entries.schedule(), [entries.A, entries.C], target(str(path)))


KINDS: dict[str, Kind] = MODELS | {
    "tsm": Kind(written(".tsm", _tsm), ts.load),
    "npz": Kind(written(".npz", _npz), read_arrays),
    "npy": Kind(written(".npy", _npy), read_arrays),
    "safetensors": Kind(written(".safetensors", _safetensors), read_safetensors),
    "records": Kind(written(".sqlite", _records), _with_records),
    "target": Kind(written(".json", _target), _build_for),
    "key": Kind(written(".pub", lambda: _signed()[0]), _verify),
    "signature": Kind(written(".sig", lambda: _signed()[1]), _verify),
    "schedule": Kind(written(".json", _steps), _replay),
    "graph": Kind(
        written(".txt", lambda: print_graph(entries.graph()).encode()),
        lambda p: parse_graph(_text_of(p)),
    ),
    "loops": Kind(written(".txt", _loops), lambda p: parse_func(_text_of(p))),
}
"""All kinds by name."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a folder holds.

    main: the path of the file, or of the folder, that is read.
    contents: of all files, by path.
    """

    main: str
    contents: dict[str, bytes]


@cache
def _sound(kind: str) -> Files:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        main = KINDS[kind].make(folder)
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        contents = {str(p.relative_to(folder)): p.read_bytes() for p in files}
        return Files(str(main.relative_to(folder)), contents)


def file_mutant(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> tuple[str, Files]:
    """The kind, one of `kinds`, and the files of the mutant of a seed."""
    source = random.Random(seed)
    kind = source.choice(kinds)
    sound = _sound(kind)
    contents = dict(sound.contents)
    for _ in range(source.choice((1, 1, 2, 3))):
        path = source.choice([*contents])
        contents[path] = changed(contents[path], source)
    if len(contents) > 1 and source.random() < 0.02:
        del contents[source.choice([*contents])]
    return kind, Files(sound.main, contents)


def judge_file(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Verdict:
    """What becomes of the mutant of a seed in this process."""
    kind, files = file_mutant(seed, kinds)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.contents.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            KINDS[kind].read(Path(folder) / files.main)
        except (InternalError, VerifyError) as e:
            return Verdict(CRASHED, f"{kind}: {type(e).__name__}: {str(e)[:300]}")
        except TilesmithError as e:
            return Verdict(REFUSED, f"{kind}: {e}")
        except Exception as e:  # a defect, reported with its seed
            return Verdict(CRASHED, f"{kind}: {type(e).__name__}: {str(e)[:300]}")
    return Verdict(RIGHT, kind)


def file_verdicts(seeds: Sequence[int], kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Verdict]:
    """What becomes of the mutants of seeds, each in a child process."""
    for kind in kinds:
        _sound(kind)  # once, for all children
    for v in children.each(seeds, partial(judge_file, kinds=kinds), SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v
