"""C libraries of models whose results have shapes that data decide, within bounds."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.runtime.tsm import from_manifest, to_manifest

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile C")
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: str,
    **constants: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [onnx.ValueInfoProto(name=o) for o in outputs.split()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def selecting(n: int | str, m: int | str) -> onnx.ModelProto:
    """Places, rows and pieces of x, boxes, and between them a sum of the usual kind."""
    nodes = [
        node("NonZero", "x", "places"),
        node("ReduceSum", "x", "sum"),
        node("Compress", "x keep", "rows", axis=0),
        node("TopK", "x k", "best at"),
        node("Slice", "x begin end", "piece"),
        node("Unique", "k2", "distinct first back count"),
        node("NonMaxSuppression", "boxes scores three", "kept"),
        node("Relu", "x", "y"),
    ]
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "x": (F32, [n, m]), "keep": (BOOL, [n]), "k": (I64, [1]), "begin": (I64, [2]),
        "end": (I64, [2]), "k2": (I64, [n]), "boxes": (F32, [1, m, 4]), "scores": (F32, [1, 2, m]),
    }  # fmt: skip
    outputs = "places sum rows best at piece distinct first back count kept y"
    return model(nodes, inputs, outputs, three=np.array([3]))


def selected(n: int, m: int) -> dict[str, np.ndarray]:
    corners = RNG.random((1, m, 2))
    return {
        "x": RNG.integers(-1, 2, (n, m)).astype(np.float32),
        "keep": RNG.integers(0, 2, n).astype(bool),
        "k": np.array([RNG.integers(1, m + 1)]),
        "begin": np.array([RNG.integers(0, n), 0]),
        "end": np.array([n, RNG.integers(0, m + 1)]),
        "k2": RNG.integers(0, 3, n),
        "boxes": np.concatenate([corners, corners + 0.2], 2).astype(np.float32),
        "scores": RNG.random((1, 2, m)).astype(np.float32),
    }


class Options(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("weights", ctypes.c_char_p),
        ("weights_data", ctypes.c_void_p), ("weights_bytes", ctypes.c_int64),
        ("threads", ctypes.c_int64), ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p),
        ("verify", ctypes.c_int32),
    )  # fmt: skip


class Library:
    """A library called `some`, by ctypes."""

    def __init__(self, path: Path, exe: ts.Executable) -> None:
        self.exe = exe
        self.c = ctypes.CDLL(str(path))
        self.c.some_arena_bytes.restype = ctypes.c_int64
        self.model = ctypes.c_void_p()
        options = Options(2, ctypes.sizeof(Options), threads=2)
        assert self.c.some_create(ctypes.byref(options), ctypes.byref(self.model)) == 0

    def run(self, inputs: Mapping[str, np.ndarray], *extents: int) -> list[np.ndarray]:
        """The outputs of a run in memory of the largest sizes, with guards behind."""
        specs = self.exe.outputs
        given = (ctypes.c_int64 * max(len(extents), 1))(*extents)
        shapes = (ctypes.c_int64 * sum(len(s.shape) for s in specs))()
        assert self.c.some_sizes(self.model, given, shapes) == 0
        most = self._shapes(shapes)
        bytes_ = self.c.some_arena_bytes(self.model, given)
        arena = np.zeros(bytes_ + 64, np.uint8)
        at = arena.ctypes.data + -arena.ctypes.data % 64
        held = [np.ascontiguousarray(inputs[s.name]) for s in self.exe.inputs]
        room = [
            np.full(int(np.prod(m)) * s.dtype.bytes + 16, 0xA5, np.uint8)
            for m, s in zip(most, specs, strict=True)
        ]
        addresses = [
            (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
            for arrays in (held, room)
        ]
        code = self.c.some_run(self.model, given, *addresses, ctypes.c_void_p(at))
        assert code == 0, code
        assert self.c.some_found(self.model, given, ctypes.c_void_p(at), shapes) == 0
        found = []
        for s, r, m, shape in zip(specs, room, most, self._shapes(shapes), strict=True):
            assert all(a <= b for a, b in zip(shape, m, strict=True))
            assert (r[-16:] == 0xA5).all()
            count = int(np.prod(shape)) * s.dtype.bytes
            found.append(r[:count].view(s.dtype.numpy).reshape(shape))
        return found

    def _shapes(self, flat: Any) -> list[tuple[int, ...]]:
        rest = [*flat]
        return [tuple(rest.pop(0) for _ in s.shape) for s in self.exe.outputs]


def check(library: Library, inputs: Mapping[str, np.ndarray], *extents: int) -> None:
    found = library.run(inputs, *extents)
    for a, b in zip(found, library.exe.run(inputs).values(), strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sizes", [("n", "m"), (6, 9)])
def test_results_have_the_shapes_that_a_run_finds(
    sizes: tuple[int | str, int | str], tmp_path: Path
) -> None:
    exe = ts.compile(selecting(*sizes), threads=2)
    assert len(exe.program.grown) == 9
    made = exe.export(tmp_path, "some", weights="inside")
    library = Library(made.library, exe)
    is_open = isinstance(sizes[0], str)
    header = made.header.read_text()
    bound = "[2, m * n]" if is_open else "[2, 54]"
    assert f"Output 0: a run finds its extents, which are at most {bound}" in header.replace(
        "n * m", "m * n"
    )
    for n, m in ((6, 9), (1, 1), (13, 4), (2, 40)) if is_open else ((6, 9), (6, 9)):
        inputs = selected(n, m)
        check(library, inputs, *([n, m] if is_open else []))
        inputs["x"][...] = 1  # as much as there may be
        inputs["keep"][...] = True
        inputs["k"][...] = m
        check(library, inputs, *([n, m] if is_open else []))


def test_branches_of_different_sizes(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [node(*made)], name, [], [helper.make_tensor_value_info(f"{name}_y", F32, None)]
        )
        for name, made in {
            "with": ("Concat", "past x", "with_y"),
            "without": ("Identity", "x", "without_y"),
        }.items()
    ]
    branches[0].node[0].attribute.append(helper.make_attribute("axis", 0))
    chosen = helper.make_node(
        "If", ["use"], ["y"], then_branch=branches[0], else_branch=branches[1]
    )
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "use": (BOOL, []), "past": (F32, ["p", 3]), "x": (F32, ["n", 3]),
    }  # fmt: skip
    made = model([chosen], inputs, "y")
    exe = ts.compile(made, dynamic={"p": (0, 100)}, threads=2)
    library = Library(exe.export(tmp_path, "some", weights="inside").library, exe)
    order = [s.name for s in exe.program.symbols]
    for use in (True, False):
        for p, n in ((0, 1), (5, 2), (100, 4)):
            inputs_ = {
                "use": np.array(use),
                "past": RNG.random((p, 3)).astype(np.float32),
                "x": RNG.random((n, 3)).astype(np.float32),
            }
            check(library, inputs_, *({"p": p, "n": n}[s] for s in order))


def test_an_instance_tells_the_shape_of_the_last_run(tmp_path: Path) -> None:
    made = model([node("NonZero", "x", "y")], {"x": (F32, ["n"])}, "y")
    exe = ts.compile(made, threads=1)
    library = Library(exe.export(tmp_path, "some", weights="inside").library, exe)
    c, instance = library.c, ctypes.c_void_p()
    extents, shape = (ctypes.c_int64 * 1)(8), (ctypes.c_int64 * 2)()
    assert c.some_instance_create(library.model, extents, ctypes.byref(instance)) == 0
    size, data = ctypes.c_int64(), ctypes.c_void_p()
    for x in (np.ones(8, np.float32), np.zeros(8, np.float32), np.eye(8, dtype=np.float32)[3]):
        address = ctypes.c_void_p(x.ctypes.data)
        assert c.some_set_input(instance, ctypes.c_int64(0), address, ctypes.c_int64(32)) == 0
        assert c.some_instance_run(instance) == 0
        assert c.some_instance_shape(instance, ctypes.c_int64(0), shape) == 0
        places = ctypes.byref(data), ctypes.byref(size)
        assert c.some_get_output(instance, ctypes.c_int64(0), *places) == 0
        (wanted,) = x.nonzero()
        assert [*shape] == [1, len(wanted)] and size.value == 8 * len(wanted)
        found = np.frombuffer(ctypes.string_at(data.value or 0, size.value), np.int64)
        np.testing.assert_array_equal(found, wanted)
    c.some_instance_destroy(instance)


def test_what_has_no_bound_is_named(tmp_path: Path) -> None:
    made = model(
        [node("Range", "a b c", "y"), node("NonZero", "x", "z")],
        {"a": (I64, []), "b": (I64, []), "c": (I64, []), "x": (F32, ["n"])},
        "y z",
    )
    exe = ts.compile(made)
    with pytest.raises(
        ts.UsageError, match=r"the sizes of y: i64\[y.0\] depend on data, as found by 'y', without"
    ):
        exe.export(tmp_path, "some")
    made = model([node("NonZero", "x", "y")], {"x": (F32, [4])}, "y")
    for settings in ({"format": "plugin"}, {"format": "c", "targets": ("cortex-m4",)}):
        with pytest.raises(ts.UsageError, match=r"known.*found y: i64\[1,y.0\], as found by 'y'; "):
            ts.export(made, tmp_path, "some", **settings)  # type: ignore[arg-type]  # settings


def test_a_damaged_bound_is_refused() -> None:
    made = model([node("NonZero", "x", "y")], {"x": (F32, ["n"])}, "y")
    program = ts.compile(made).program
    assert program.bounds == ((0, (1, "n")),)
    files = {s: f"code/{i}.o" for i, s in enumerate(program.objects)}
    for bound in ([0, [1]], [1, [1, 1]], [0, [1, -1]], [0, [1, 1 << 40]]):
        manifest = {**to_manifest(program, files), "parts": {}, "bounds": [bound]}
        with pytest.raises(ValueError, match=r"another rank|expected a number"):
            from_manifest(manifest)
