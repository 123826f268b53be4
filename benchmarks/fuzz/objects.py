"""One object of every type, for places where another type is meant.

Each is made anew, since a call may use it up.
"""

from __future__ import annotations

import collections
import io
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import torch

import tilesmith as ts
from tilesmith import te

from . import entries


class Unwilling(Exception):
    """What objects raise that refuse to answer; their own affair if it reaches the caller."""


def _refuse(*_: Any) -> Any:
    raise Unwilling("this object answers nothing")


def unwilling(*methods: str, base: type = object) -> Any:
    """An object whose methods of these names raise."""
    return type("Unwilling", (base,), dict.fromkeys(methods, _refuse))()


def lying(**members: Any) -> Any:
    """An object with these members; those that are functions are its methods."""
    return type("Lying", (), members)()


def _cyclic_list() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _cyclic_dict() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["x"] = found
    return found


def _deep(kind: Callable[[Any], Any], depth: int = 5000) -> Any:
    found = kind(1)
    for _ in range(depth):
        found = kind(found)
    return found


def _deep_sum(depth: int = 5000) -> Any:
    found = te.var("n") + 0
    for i in range(depth):
        found = found * 3 + te.var(f"n{i}")
    return found


def _interface(**changes: Any) -> Any:
    """An object that says where its memory lies: nowhere."""
    said = {"shape": (2, 4), "typestr": "<f4", "data": (0, False), "version": 3}
    return lying(__array_interface__=said | changes)


def _read_only() -> np.ndarray:
    array = np.ones((2, 4), np.float32)
    array.flags.writeable = False
    return array


def _structured() -> np.ndarray:
    return np.zeros(2, [("a", "f4"), ("b", "i8")])


def _quantised() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 0, torch.quint8)


class _Str(str):
    """A string of a class of its own."""


class _Endless(Mapping[str, Any]):
    """A mapping that has every key."""

    def __getitem__(self, key: str) -> Any:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["x"])

    def __len__(self) -> int:
        return 1


_NUMPY = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "longdouble", "complex64", "complex128", "S3", "U3",
          "datetime64[s]", "timedelta64[s]", "object")  # fmt: skip
_TORCH = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)  # fmt: skip

OBJECTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    **{f"int {n}": partial(int, n)
       for n in (0, 1, -1, 3, 64, 1 << 31, -(1 << 31), 1 << 63, -(1 << 63), 1 << 70)},
    **{f"float {n}": partial(float, n)
       for n in ("0.0", "-0.0", "0.5", "2.0", "-1.5", "1e308", "5e-324", "nan", "inf", "-inf")},
    "complex": lambda: 1j,
    **{f"str {s[:12]!r}": partial(str, s)
       for s in ("", "x", "i", "C", "f32", "native", "auto", "no such", "\0", "\n", "\ud800", "é",
                 "a" * 100_000, "{}", "../x", "/", "1", "-1", "%s", "*", "x=1,y")},
    "str subclass": lambda: _Str("i"),
    "bytes": lambda: b"abc",
    "bytes empty": bytes,
    "bytearray": lambda: bytearray(b"\xff" * 64),
    "memoryview": lambda: memoryview(b"\x08" * 64),
    "memoryview strided": lambda: memoryview(np.ones((4, 4), np.float32)[:, ::2]),
    "list empty": list,
    "list of ints": lambda: [1, 2],
    "list of negative ints": lambda: [-1, -2],
    "list of floats": lambda: [0.5, float("nan")],
    "list of strs": lambda: ["i", "j"],
    "list of None": lambda: [None],
    "list of lists": lambda: [[1, 2], [3]],
    "list of objects": lambda: [object(), {}],
    "list in itself": _cyclic_list,
    "list, deep": lambda: _deep(lambda x: [x]),
    "list, long": lambda: [1] * 100_000,
    "tuple empty": tuple,
    "tuple of ints": lambda: (8, 8),
    "tuple of one": lambda: (2,),
    "tuple, huge extents": lambda: (1 << 62, 1 << 62),
    "tuple, mixed": lambda: (1, "x", None),
    "namedtuple": lambda: collections.namedtuple("P", "a b")(1, 2),
    "dict empty": dict,
    "dict of ints": lambda: {"x": 1},
    "dict of arrays": lambda: {"x": np.ones((2, 4), np.float32)},
    "dict of None": lambda: {"x": None},
    "dict with int keys": lambda: {0: 1, 1: 2},
    "dict with odd keys": lambda: {None: 1, (1, 2): [3], "\0": {}},
    "dict in itself": _cyclic_dict,
    "dict, deep": lambda: _deep(lambda x: {"x": x}),
    "mapping of everything": _Endless,
    "OrderedDict": lambda: collections.OrderedDict(x=1),
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({"x"}),
    "range": lambda: range(4),
    "slice": lambda: slice(0, 2),
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "generator": lambda: (n for n in (1, 2)),
    "generator, failing": lambda: (_refuse() for _ in (1,)),
    "generator, endless": itertools.count,
    "iterator": lambda: iter([1, 2]),
    "map": lambda: map(str, [1]),
    "lambda": lambda: lambda: None,
    "lambda of anything": lambda: lambda *a, **k: None,
    "lambda that fails": lambda: _refuse,
    "function, built in": lambda: len,
    "method": lambda: [].append,
    "partial": lambda: partial(int, 1),
    "class": lambda: int,
    "class of ours": lambda: te.Tensor,
    "object": object,
    "type": lambda: type,
    "module": lambda: np,
    "exception": lambda: ValueError("x"),
    "exception class": lambda: KeyError,
    "lock": threading.Lock,
    "pattern": lambda: re.compile("x"),
    "namespace": lambda: SimpleNamespace(shape=(2, 4), dtype="float32", name="x"),
    "path": lambda: Path("x"),
    "path, pure": lambda: PurePosixPath("no/such"),
    "path of a folder": lambda: Path("."),
    "file, open": lambda: open(__file__, "rb"),  # noqa: SIM115
    "file, closed": lambda: _closed(),
    "file of text": lambda: io.StringIO("x"),
    "file in memory": lambda: io.BytesIO(b"x"),
    **{f"array {d}": partial(np.ones, (2, 4), d) for d in _NUMPY if d not in ("S3", "U3")},
    **{f"array {d}": partial(np.zeros, (2, 4), d) for d in ("S3", "U3", ml_dtypes.bfloat16)},
    "array 0-d": lambda: np.array(2),
    "array 0-d float": lambda: np.array(0.5, np.float32),
    "array empty": lambda: np.ones((0, 4), np.float32),
    "array 1-d": lambda: np.arange(4),
    "array 8x8": lambda: np.ones((8, 8), np.float32),
    "array, strided": lambda: np.ones((4, 8), np.float32)[::2, ::2],
    "array, reversed": lambda: np.ones((2, 4), np.float32)[:, ::-1],
    "array, strides of 0": lambda: np.broadcast_to(np.float32(1), (2, 4)),
    "array, transposed": lambda: np.ones((4, 2), np.float32).T,
    "array, other bytes": lambda: np.ones((2, 4), ">f4"),
    "array, read only": _read_only,
    "array, unaligned": lambda: np.frombuffer(bytes(33), np.float32, 8, 1).reshape(2, 4),
    "array, records": _structured,
    "array, masked": lambda: np.ma.masked_array([[1.0, 2.0]], [[True, False]]),
    "array of 32 dimensions": lambda: np.ones((1,) * 32, np.float32),
    "matrix": lambda: np.matrix([[1.0, 2.0]]),
    **{f"numpy {d}": partial(np.dtype(d).type, 3)
       for d in ("bool", "int8", "uint64", "int64", "float16", "float32", "complex64")},
    "numpy str": lambda: np.str_("i"),
    "numpy nan": lambda: np.float64("nan"),
    "dtype": lambda: np.dtype("float32"),
    "scalar type": lambda: np.float32,
    **{f"tensor {d}": partial(torch.ones, 2, 4, dtype=d) for d in _TORCH},
    "tensor 0-d": lambda: torch.tensor(2),
    "tensor empty": lambda: torch.ones(0, 4),
    "tensor meta": lambda: torch.ones(2, 4, device="meta"),
    "tensor sparse": lambda: torch.ones(2, 4).to_sparse(),
    "tensor sparse rows": lambda: torch.ones(2, 4).to_sparse_csr(),
    "tensor quantised": _quantised,
    "tensor conjugated": lambda: torch.ones(2, 4, dtype=torch.complex64).conj(),
    "tensor negated": lambda: torch.ones(2, 4, dtype=torch.complex64).conj().imag,
    "tensor with gradient": lambda: torch.ones(2, 4, requires_grad=True),
    "tensor expanded": lambda: torch.ones(1, 4).expand(2, 4),
    "tensor nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "tensor without memory": lambda: _without_memory(),
    "tensor dtype": lambda: torch.float32,
    "torch module": lambda: torch.nn.Linear(4, 4),
    "torch module class": lambda: torch.nn.Linear,
    "torch function": lambda: torch.relu,
    "DLPack, lying": lambda: lying(
        __dlpack__=lambda *_, **__: 5, __dlpack_device__=lambda *_: (1, 0)
    ),
    "DLPack, failing": lambda: lying(__dlpack__=_refuse, __dlpack_device__=_refuse),
    "DLPack, of a device": lambda: lying(
        __dlpack__=lambda *_, **__: None, __dlpack_device__=lambda *_: (2, 0)
    ),
    "interface at 0": _interface,
    "interface, short": lambda: _interface(data=b"abc"),
    "interface, of no type": lambda: _interface(typestr="?!"),
    "interface, no shape": lambda: _interface(shape=None),
    "interface, negative shape": lambda: _interface(shape=(-2, 4)),
    "interface of CUDA": lambda: lying(__cuda_array_interface__={"shape": (2, 4)}),
    "array function": lambda: lying(__array__=lambda *_, **__: 3),
    "array function, failing": lambda: lying(__array__=_refuse),
    "index, failing": lambda: unwilling("__index__", "__int__", "__float__"),
    "index, lying": lambda: lying(__index__=lambda _: "x"),
    "index": lambda: lying(__index__=lambda _: 2),
    "length, failing": lambda: unwilling("__len__", "__getitem__", "__iter__"),
    "length, negative": lambda: lying(__len__=lambda _: -1, __getitem__=lambda *_: 1),
    "length, huge": lambda: lying(__len__=lambda _: 1 << 62, __getitem__=_index_error),
    "iteration, failing": lambda: unwilling("__iter__"),
    "repr, failing": lambda: unwilling("__repr__", "__str__"),
    "repr of no str": lambda: lying(__repr__=lambda _: 5),
    "repr of lines": lambda: lying(__repr__=lambda _: "a\nb\n" * 1000),
    "equality, failing": lambda: unwilling("__eq__", "__hash__"),
    "equality of no bool": lambda: lying(__eq__=lambda *_: np.ones(3), __hash__=lambda _: 1),
    "truth, failing": lambda: unwilling("__bool__"),
    "hash, none": lambda: lying(__hash__=None),
    "attributes, all": lambda: lying(__getattr__=lambda *_: 5),
    "attributes, failing": lambda: unwilling("__getattr__"),
    "path, failing": lambda: unwilling("__fspath__"),
    "path of no str": lambda: lying(__fspath__=lambda _: 5),
    "call, failing": lambda: unwilling("__call__"),
    "str, failing": lambda: unwilling("__str__", "__repr__", "__format__", base=str),
    "te.Tensor": lambda: entries.C,
    "te.Tensor, another": lambda: te.placeholder((3,), "i32", "other"),
    "te.Tensor 0-d": lambda: te.placeholder((), "f32", "scalar"),
    "te.Compute": lambda: entries.C.op,
    "te.Placeholder": lambda: entries.A.op,
    "te.Schedule": lambda: entries.schedule(),
    "te.Schedule, another": lambda: te.create_schedule(entries.B.op),
    "te.Stage": lambda: entries.schedule()["C"],
    "te.Stage, another": lambda: entries.schedule()["B"],
    "te.Axis": lambda: entries.schedule()["C"]["i"],
    "te.IterVar": lambda: te.reduce_axis(8, "r"),
    "te.Reducer": lambda: entries.SELVES[te.Reducer](),
    "te reduction": lambda: entries.C.op.body[0],
    "te step": lambda: te.steps.Split("C", "i", 2),
    "te.LoopBuilder": lambda: te.LoopBuilder("b"),
    "expression": lambda: te.var("n") * 2 + 1,
    "expression of floats": lambda: entries.F * 0.5,
    "expression, bool": lambda: te.var("n") > 1,
    "expression, constant": lambda: te.const(3, "i64"),
    "expression, deep": _deep_sum,
    "DType": lambda: te.f32,
    "DType bool": lambda: te.bool_,
    "TensorType": lambda: entries.TensorType(te.f32, (2, 4)),
    "Executable": lambda: entries.executable(),
    "KernelFunction": lambda: entries.kernel(),
    "CompiledModule": lambda: entries.module(),
    "Graph": lambda: entries.graph(),
    "model": lambda: entries.model(),
    "Options": lambda: ts.Options(),
    "Options class": lambda: ts.Options,
    "Target": lambda: entries.SELVES[ts.Target](),
    "error of ours": lambda: ts.UsageError("x"),
    "operator": lambda: entries.SELVES[ts.Op](),
}  # fmt: skip


def _closed() -> Any:
    file = open(__file__, "rb")  # noqa: SIM115
    file.close()
    return file


def _without_memory() -> torch.Tensor:
    tensor = torch.ones(2, 4)
    tensor.untyped_storage().resize_(0)
    return tensor


def _index_error(*_: Any) -> Any:
    raise IndexError
