"""Models at the edges of what a graph can be, from file to answer, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from small_models import model, network, node

import tilesmith as ts
from tilesmith import driver


def sample(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reference(made: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(made.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, want in expected.items():
        assert found[name].dtype == want.dtype and found[name].shape == want.shape, name
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6, err_msg=name)


RELU = node("Relu", "x", "r")
CONSTANT = {"c": np.arange(6, dtype=np.float32).reshape(2, 3)}
EDGES: dict[str, onnx.ModelProto] = {
    "an output that is an input": model([], {"x": [2, 3]}, ["x"]),
    "identity": model([node("Identity", "x", "y")], {"x": [2, 3]}, ["y"]),
    "an output that is a constant": model([RELU], {"x": [2, 3]}, ["r", "c"], CONSTANT),
    "only constants": model([node("Neg", "c", "y")], {}, ["c", "y"], CONSTANT),
    "an input nobody reads": model([RELU], {"x": [2, 3], "z": [4]}, ["r"]),
    "one value under two names": model(
        [RELU, node("Identity", "r", "a"), node("Identity", "r", "b")], {"x": [2, 3]}, ["b", "a"]
    ),
    "an output that is also read": model(
        [RELU, node("MatMul", "r c", "y"), node("Exp", "y", "z")],
        {"x": [4, 2]},
        ["z", "r", "y"],
        CONSTANT,
    ),
    "scalars": model([node("Add", "x x", "y"), node("Neg", "y", "z")], {"x": []}, ["y", "z"]),
    "no elements": model([RELU, node("MatMul", "r c", "y")], {"x": [0, 2]}, ["y"], CONSTANT),
    "a sum of nothing": model(
        [node("ReduceSum", "x a", "y", keepdims=0)],
        {"x": [3, 0]},
        ["y"],
        {"a": np.array([1])},
    ),
    "reshapes alone": model(
        [node("Reshape", "x s", "y"), node("Transpose", "y", "z", perm=[1, 0])],
        {"x": [2, 3]},
        ["y", "z"],
        {"s": np.array([3, 2])},
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, tmp_path: Path) -> None:
    made = EDGES[name]
    inputs = {
        i.name: sample(*(d.dim_value for d in i.type.tensor_type.shape.dim))
        for i in made.graph.input
    }
    expected = reference(made, inputs)
    exe = ts.compile(made)
    assert_same(exe.run(inputs), expected)
    exe.save(tmp_path / "model.tsm")
    assert_same(ts.load(tmp_path / "model.tsm").run(inputs), expected)
    assert all(k.passed for k in ts.check(made))


def test_results_never_share_memory() -> None:
    """With inputs, constants, each other or later results: a caller may write to them."""
    exe = ts.compile(model([node("Identity", "x", "y")], {"x": [2, 3]}, ["x", "y", "c"], CONSTANT))
    x = sample(2, 3)
    first, second = exe(x), exe(x)
    for y in first:
        assert not any(np.shares_memory(y, z) for z in (x, *second))
        y[:] = 7
    assert_same(exe.run({"x": x}), {"x": x, "y": x, "c": CONSTANT["c"]})


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
)
def test_element_types(dtype: str) -> None:
    kind = np.dtype(dtype)
    op = "Xor" if kind == np.bool_ else "Add"
    made = model(
        [node(op, "x c", "s"), node("Where", "m s x", "y"), node("Cast", "y", "f", to=1)],
        {"x": [3, 5]},
        ["y", "f"],
        {"c": np.ones(5, kind), "m": np.arange(15).reshape(3, 5) % 2 == 0},
        onnx.helper.np_dtype_to_tensor_dtype(kind),
    )
    x = np.random.default_rng(0).integers(0, 2 if kind == np.bool_ else 100, (3, 5)).astype(kind)
    s = np.logical_xor(x, np.ones(5, kind)) if kind == np.bool_ else x + np.ones(5, kind)
    y = np.where(np.arange(15).reshape(3, 5) % 2 == 0, s, x)
    assert_same(ts.compile(made).run({"x": x}), {"y": y, "f": y.astype(np.float32)})


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_open_dimensions(batch: int) -> None:
    """`shapes` closes them; a dimension that two inputs share must be the same in both."""
    made = model(
        [node("Add", "x z", "a"), node("MatMul", "a w", "b"), node("Softmax", "b", "y")],
        {"x": ["n", "k"], "z": ["n", 1]},
        ["y"],
        {"w": sample(6, 4)},
    )
    inputs = {"x": sample(batch, 6), "z": sample(batch, 1, seed=1)}
    exe = ts.compile(made, shapes={k: v.shape for k, v in inputs.items()})
    assert_same(exe.run(inputs), reference(made, inputs))
    assert all(k.passed for k in ts.check(made, shapes={"x": (batch, 6), "z": (batch, 1)}))


def test_an_open_dimension_stays_open() -> None:
    exe = ts.compile(model([RELU], {"x": ["n", 3]}, ["r"]))
    assert [exe(np.ones((n, 3), np.float32)).shape for n in (1, 5)] == [(1, 3), (5, 3)]


def test_shapes_that_an_open_dimension_can_not_have() -> None:
    made = model([RELU], {"x": ["n", 3]}, ["r"])
    for shapes in ({"x": (-1, 3)}, {"x": (2, 4)}, {"x": (2,)}):
        with pytest.raises(ts.ModelError, match="x"):
            ts.compile(made, shapes=shapes)


def test_every_way_to_name_a_model(tmp_path: Path) -> None:
    made = network()
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    x = sample(2, 3, 12, 12)
    expected = reference(made, {"x": x})
    for source in (
        made,
        made.SerializeToString(),
        path,
        str(path),
        driver.load_graph(driver.Request.of(path)),
    ):
        assert_same(ts.compile(source).run({"x": x}), expected)


@pytest.mark.parametrize("target", ["native", "x86-64", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_targets_and_threads(target: str, threads: int) -> None:
    x = sample(2, 3, 12, 12)
    exe = ts.compile(network(), target=target, threads=threads)
    assert_same(exe.run({"x": x}), reference(network(), {"x": x}))


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_optimisation_levels_and_verification(opt_level: int) -> None:
    options = ts.Options(opt_level=opt_level, verify_each=True, use_cache=False)
    x = sample(2, 3, 12, 12)
    exe = ts.compile(network(), options=options)
    assert_same(exe.run({"x": x}), reference(network(), {"x": x}))


def test_compiling_and_calling_from_several_threads_at_once() -> None:
    xs = [sample(2, 3, 12, 12, seed=i) for i in range(8)]
    expected = [reference(network(), {"x": x}) for x in xs]
    with ThreadPoolExecutor(4) as callers:
        made = list(callers.map(lambda _: ts.compile(network(), threads=2), range(4)))
        for exe in made:
            for found, want in zip(callers.map(exe, xs), expected, strict=True):
                assert_same({"y": found}, want)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = sample(2, 3, 12, 12)
    found = ts.compile(network())(torch.from_numpy(x))
    assert isinstance(found, torch.Tensor)
    assert_same({"y": found.numpy()}, reference(network(), {"x": x}))


def test_declared_types_are_those_of_the_file() -> None:
    made = network()
    exe = ts.compile(made)
    assert [str(s) for s in (*exe.inputs, *exe.outputs)] == ["x: f32[2,3,12,12]", "y: f32[2,10]"]
    assert made.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_movement_of_an_empty_extent() -> None:
    made = model([node("SpaceToDepth", "x", "y", blocksize=3)], {"x": (1, 3, 0, 3)}, ["y"])
    assert ts.compile(made)(np.zeros((1, 3, 0, 3), np.float32)).shape == (1, 27, 0, 1)
