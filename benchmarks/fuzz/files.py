"""Damaged files of every other kind than ONNX models: archives, arrays, records, descriptions,
keys, texts.

Each kind says what a sound file holds and what reads it.  A mutant has bytes changed, or, in JSON
and in ZIP archives, values and members, with sums that are right again.
"""

from __future__ import annotations

import io
import json
import math
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import children
import tilesmith as ts
from tflite_models import ModelWriter
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
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict

_SIGNED = b"content"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    suffix: of its name.
    make: the content of a sound file.
    read: what uses a file, whose path it gets.
    """

    suffix: str
    make: Callable[[], bytes]
    read: Callable[[Path], object]


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _written(write: Callable[[Path], object], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()


def _archive() -> bytes:
    program = torch.export.export(_network(), (torch.ones(2, 4),))
    return _written(lambda path: torch.export.save(program, path), "m.pt2")


def _script() -> bytes:
    traced = torch.jit.trace(_network(), torch.ones(2, 4))
    return _written(lambda path: traced.save(str(path)), "m.pt")


def _tsm() -> bytes:
    stream = io.BytesIO()
    entries.executable().save(stream)
    return stream.getvalue()


def _tflite() -> bytes:
    """A quantised network with a branch, a variable and a signature."""
    rng = np.random.default_rng(0)
    model = ModelWriter()
    g, first, then, otherwise = (model.graph(n) for n in ("main", "init", "then", "otherwise"))
    x = g.input((1, 6, 6, 4), np.int8, "x", scale=0.5, zero=3)
    made = [
        g.tensor(s, np.int8, scale=0.25, zero=-4) for s in ((1, 6, 6, 4), (1, 3, 3, 4), (1, 36))
    ]
    image, pooled, row = made
    w = g.const(rng.integers(-9, 9, (4, 3, 3, 4), np.int8), scale=np.full(4, 0.1), axis=0)
    bias = g.const(rng.integers(-99, 99, 4, np.int32), scale=np.full(4, 0.05), axis=0)
    g.op("CONV_2D", [x, w, bias], [image], "Conv2DOptions", stride_w=1, stride_h=1)
    window = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2}
    g.op("MAX_POOL_2D", [image], [pooled], "Pool2DOptions", padding=1, **window)
    g.op("RESHAPE", [pooled, g.const(np.array([1, -1], np.int32))], [row], "ReshapeOptions")
    matrix = g.const(rng.integers(-9, 9, (3, 36), np.int8), scale=0.1)
    stored, scores = g.tensor((1, 3), np.int8, scale=0.5), g.tensor((1, 3))
    g.op("FULLY_CONNECTED", [row, matrix, -1], [stored], "FullyConnectedOptions")
    g.op("DEQUANTIZE", [stored], [scores], "DequantizeOptions")
    handles = []
    for graph in (g, first):
        handles.append(graph.tensor((1,), "RESOURCE", name="handle"))
        graph.op("VAR_HANDLE", [], handles[-1:], "VarHandleOptions", shared_name="sum")
    ones = first.const(np.ones((1, 3), np.float32))
    first.op("ASSIGN_VARIABLE", [handles[1], ones], [])
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    before, total, more, y = (g.tensor((1, 3)) for _ in range(4))
    g.op("READ_VARIABLE", handles[:1], [before])
    g.op("ADD", [before, scores], [total], "AddOptions")
    g.op("ASSIGN_VARIABLE", [handles[0], total], [])
    is_more = g.tensor((1, 3), np.bool_)
    g.op("GREATER", [total, scores], [is_more], "GreaterOptions")
    any_more = g.tensor((), np.bool_)
    axes = g.const(np.array([0, 1], np.int32))
    g.op("REDUCE_ANY", [is_more, axes], [any_more], "ReducerOptions")
    for branch, kind in ((then, "EXP"), (otherwise, "NEG")):
        value, result = branch.input((1, 3)), branch.tensor((1, 3))
        branch.op(kind, [value], [result])
        branch.output(result)
    branches = {"then_subgraph_index": 2, "else_subgraph_index": 3}
    g.op("IF", [any_more, total], [more], "IfOptions", **branches)
    g.op("SOFTMAX", [more], [y], "SoftmaxOptions", beta=1.0)
    g.output(y)
    named = {
        "inputs": [{"name": "image", "tensor_index": x}],
        "outputs": [{"name": "scores", "tensor_index": y}],
        "signature_key": "serve",
    }
    model.signatures.append(named)
    return model.bytes()


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


_MOST_ELEMENTS = 1 << 16
"""Elements of inputs with which a mutant is run."""


def _run(executable: Any) -> None:
    given = {s.name for s in executable.inputs}
    specs = [s for s in executable.program.expected_inputs if s.name in given]
    if sum(math.prod(s.static_shape) for s in specs) <= _MOST_ELEMENTS:
        executable.run({s.name: np.ones(s.static_shape, s.dtype.numpy) for s in specs})


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


KINDS: dict[str, Kind] = {
    "pt2": Kind(".pt2", _archive, lambda p: _run(ts.compile(p, threads=1))),
    "tflite": Kind(".tflite", _tflite, lambda p: _run(ts.compile(p, threads=1))),
    "pt": Kind(".pt", _script, lambda p: _run(ts.compile(p, torch.ones(2, 4), threads=1))),
    "tsm": Kind(".tsm", _tsm, ts.load),
    "npz": Kind(".npz", _npz, read_arrays),
    "npy": Kind(".npy", _npy, read_arrays),
    "safetensors": Kind(".safetensors", _safetensors, read_safetensors),
    "records": Kind(".sqlite", _records, _with_records),
    "target": Kind(
        ".json",
        lambda: json.dumps(
            {"base": "x86-64-v3", "cores": 4, "ghz": 3.0, "l1_bytes": 32768, "l2_bytes": 1 << 19,
             "run_cycles": [2.0, 2.0, 2.0, 9.0]}
        ).encode(),
        lambda p: ts.build(entries.schedule(), [entries.A, entries.C], target(str(p))),
    ),
    "key": Kind(".pub", lambda: _signed()[0], _verify),
    "signature": Kind(".sig", lambda: _signed()[1], _verify),
    "schedule": Kind(".json", _steps, _replay),
    "graph": Kind(
        ".txt", lambda: print_graph(entries.graph()).encode(), lambda p: parse_graph(_text_of(p))
    ),
    "loops": Kind(".txt", _loops, lambda p: parse_func(_text_of(p))),
}  # fmt: skip

_ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 2, 1 << 31, 1 << 63, 1 << 70, 0.5, -1e308, "", "x",
                         "\0", "../x", "é", "a" * 500, [], {}, [[]], [1, 2], {"x": 1},
                         float("nan"), float("inf"))  # fmt: skip
_DEEP = (300, 900, 3000, 100_000)
"""Depths of lists in lists that a value is replaced by, now and then."""


@cache
def _sound(kind: str) -> bytes:
    return KINDS[kind].make()


def file_mutant(seed: int) -> tuple[str, bytes]:
    """The kind and the content of the mutant of a seed."""
    source = random.Random(seed)
    kind = source.choice([*KINDS])
    content = _sound(kind)
    for _ in range(source.choice((1, 1, 2, 3))):
        content = _changed(content, source)
    return kind, content


def _changed(content: bytes, source: random.Random) -> bytes:
    if content[:2] == b"PK" and source.random() < 0.8:
        try:
            return _other_member(content, source)
        except Exception:  # an earlier change damaged it
            pass
    if content[:1] in (b"{", b"[") and source.random() < 0.8:
        try:
            return _other_value(content, source)
        except (ValueError, RecursionError):
            pass
    return _other_bytes(content, source)


def _other_bytes(content: bytes, source: random.Random) -> bytes:
    changed = bytearray(content)
    at = source.randrange(len(changed) + 1)
    match source.randrange(5):
        case 0:
            del changed[at:]
        case 1:
            changed[at : at + source.randrange(1, 9)] = source.randbytes(source.randrange(9))
        case 2:
            changed[at:at] = changed[at : at + source.randrange(64)]
        case 3:
            changed[at : at + 8] = source.choice((b"\xff" * 8, bytes(8), b"\x80" + bytes(7)))
        case _:
            if at < len(changed):
                changed[at] ^= 1 << source.randrange(8)
    return bytes(changed)


def _other_member(content: bytes, source: random.Random) -> bytes:
    """A ZIP archive with one member changed, left out, renamed or there twice."""
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        members = [(i.filename, z.read(i)) for i in z.infolist()]
    n = source.randrange(len(members))
    name, data = members[n]
    match source.randrange(8):
        case 0:
            del members[n]
        case 1:
            members[n] = source.choice(("x", "../x", "", name + "x", name.upper())), data
        case 2:
            members.append((name, data))
        case _:
            members[n] = name, _changed(data, source)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", source.choice((0, 0, 0, zipfile.ZIP_DEFLATED))) as z:
        for member, held in members:
            z.writestr(zipfile.ZipInfo(member or "x"), held)
    return stream.getvalue()


def _other_value(content: bytes, source: random.Random) -> bytes:
    """JSON with one value, or one key, that is another."""
    root = json.loads(content)
    holders = list(_holders(root))
    holder = source.choice(holders) if holders else None
    new = source.choice(_ODD)
    if source.random() < 0.02:
        depth = source.choice(_DEEP)
        text = "[" * depth + "]" * depth
        return json.dumps([root]).encode().replace(b"[", b"[" + text.encode() + b",", 1)
    if not holder:
        return json.dumps(new).encode()
    key = source.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
    match source.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[source.choice(("x", "", key + "s"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.append(holder[key])
        case _:
            holder[key] = new
    return json.dumps(root).encode()


def _holders(value: Any) -> Iterator[Any]:
    """The lists and mappings in a JSON value that hold something."""
    if isinstance(value, (list, dict)) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def judge_file(seed: int) -> Verdict:
    """What becomes of the mutant of a seed in this process."""
    kind, content = file_mutant(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{KINDS[kind].suffix}"
        path.write_bytes(content)
        try:
            KINDS[kind].read(path)
        except (InternalError, VerifyError) as e:
            return Verdict(CRASHED, f"{kind}: {type(e).__name__}: {str(e)[:300]}")
        except TilesmithError as e:
            return Verdict(REFUSED, f"{kind}: {e}")
        except Exception as e:  # a defect, reported with its seed
            return Verdict(CRASHED, f"{kind}: {type(e).__name__}: {str(e)[:300]}")
    return Verdict(RIGHT, kind)


def file_verdicts(seeds: Sequence[int]) -> Iterator[Verdict]:
    """What becomes of the mutants of seeds, each in a child process."""
    for kind in KINDS:
        _sound(kind)  # once, for all children
    for v in children.each(seeds, judge_file, SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v
