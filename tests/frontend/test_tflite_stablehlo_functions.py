"""StableHLO's gathers, scatters, reductions, windows, sorts, branches and convolutions in TFLite
files: against LiteRT where it has kernels, else against NumPy and PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tflite_cases import litert

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 3)).astype(np.float32)


def function(model: ModelWriter, kind: str, dtype: Any = np.float32, swapped: bool = False) -> None:
    """Add a subgraph of one operator on two numbers; with kind "" it returns the second."""
    g = model.graph("function")
    a, b = g.input((), dtype), g.input((), dtype)
    if not kind:
        g.output(b)
        return
    is_less = "COMPARE" in kind or kind in ("LESS", "GREATER")
    y = g.tensor((), np.bool_ if is_less else dtype)
    g.op(kind, [b, a] if swapped else [a, b], [y])
    g.output(y)


def one(
    kind: str,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[tuple[Any, Any]],
    options: str,
    combiner: str | None = None,
    stored: Sequence[int] = (),
    swapped: bool = False,
    **values: Any,
) -> bytes:
    model = ModelWriter()
    g = model.graph()
    numbers = [
        g.const(x) if i in stored else g.input(x.shape, x.dtype, f"x{i}")
        for i, x in enumerate(inputs)
    ]
    made = [g.tensor(shape, dtype, f"y{i}") for i, (shape, dtype) in enumerate(outputs)]
    g.op(kind, numbers, made, options, **values)
    g.output(*made)
    if combiner is not None:
        function(model, combiner, inputs[0].dtype, swapped)
    return model.bytes()


def run(content: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of the graph evaluator and of the compiled model, which must agree."""
    exact = [*evaluate(load(content), list(inputs)).values()]
    made = ts.compile(content, threads=1)(*inputs)
    for a, b in zip(made if isinstance(made, tuple) else (made,), exact, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    return exact


GATHERS: list[tuple[list[int], Any, dict[str, Any]]] = [
    # rows
    ([2, 5, 3], np.array([[3], [-1]]), {"offset_dims": [1, 2], "collapsed_slice_dims": [0],
     "start_index_map": [0], "index_vector_dim": 1, "slice_sizes": [1, 5, 3]}),
    # windows, whose starts are clamped
    ([2, 2, 3], np.array([[3, 1], [0, 9]]), {"offset_dims": [1, 2], "collapsed_slice_dims": [0],
     "start_index_map": [0, 1], "index_vector_dim": 1, "slice_sizes": [1, 2, 3]}),
    # elements, with the tuples along the first axis and no axis of their own
    ([2], np.array([[3, 1], [4, 0], [2, 2]]), {"collapsed_slice_dims": [0, 1, 2],
     "start_index_map": [0, 1, 2], "index_vector_dim": 0, "slice_sizes": [1, 1, 1]}),
    # another order of axes, and a part of an axis without an index
    ([2, 3, 2], np.array([0, 2, 1]), {"offset_dims": [0, 2], "collapsed_slice_dims": [0],
     "start_index_map": [0], "index_vector_dim": 1, "slice_sizes": [1, 2, 2]}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(GATHERS)))
def test_gather(number: int) -> None:
    shape, indices, values = GATHERS[number]
    indices = indices.astype(np.int32)
    content = one(
        "STABLEHLO_GATHER", [X, indices], [(shape, np.float32)], "StablehloGatherOptions", **values
    )
    (result,) = run(content, [X, indices])
    assert list(result.shape) == shape
    if number == 3:  # LiteRT crashes
        expected = X[indices, :2, :2].transpose(1, 0, 2)
    else:
        (expected,) = litert(content, [X, indices])
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", ""])
def test_scatter(kind: str) -> None:
    """Windows [2, 3] at rows and columns; one window is partly outside."""
    indices = np.array([[1, 0], [1, 3], [0, 4]], np.int32)
    updates = RNG.standard_normal((3, 2, 3)).astype(np.float32)
    values = {
        "update_window_dims": [1, 2],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0, 1],
        "index_vector_dim": 1,
    }
    arrays = [X, indices, updates]
    of = "StablehloScatterOptions"
    content = one("STABLEHLO_SCATTER", arrays, [(X.shape, np.float32)], of, kind,
                  update_computation_subgraph_index=1, **values)  # fmt: skip
    combine = {
        "STABLEHLO_ADD": np.add,
        "STABLEHLO_MULTIPLY": np.multiply,
        "STABLEHLO_MAXIMUM": np.maximum,
        "": lambda a, b: b,
    }[kind]
    expected = X.copy()
    for (row, column), window in zip(indices, updates, strict=True):
        for i in range(2):
            if column + i < X.shape[1]:
                expected[row, column + i] = combine(expected[row, column + i], window[i])
    (result,) = run(content, arrays)
    np.testing.assert_allclose(result, expected, 1e-6)


def test_scatter_of_a_transposed_operand() -> None:
    """Rows of the middle axis; all elements are inside, as LiteRT's kernel needs them."""
    indices, updates = np.array([4, 0], np.int32), RNG.random((4, 2, 3), np.float32)
    values = {
        "update_window_dims": [0, 2],
        "inserted_window_dims": [1],
        "scatter_dims_to_operand_dims": [1],
        "index_vector_dim": 1,
    }
    arrays = [X, indices, updates]
    of = "StablehloScatterOptions"
    content = one("STABLEHLO_SCATTER", arrays, [(X.shape, np.float32)], of, "STABLEHLO_ADD",
                  update_computation_subgraph_index=1, **values)  # fmt: skip
    expected = X.copy()
    expected[:, [4, 0]] += updates
    (result,) = run(content, arrays)
    np.testing.assert_allclose(result, expected, 1e-6)


@pytest.mark.parametrize(
    ("kind", "dtype", "ufunc"),
    [
        ("STABLEHLO_ADD", np.float32, np.add),
        ("MUL", np.float32, np.multiply),
        ("STABLEHLO_MAXIMUM", np.int32, np.maximum),
        ("MINIMUM", np.float32, np.minimum),
        ("STABLEHLO_OR", np.bool_, np.logical_or),
        ("LOGICAL_AND", np.bool_, np.logical_and),
    ],
)
def test_reduce(kind: str, dtype: Any, ufunc: np.ufunc) -> None:
    x = (X > -1) if dtype is np.bool_ else (X * 9).astype(dtype)
    init = np.array(ufunc.identity if ufunc.identity is not None else 3, dtype)
    content = one("STABLEHLO_REDUCE", [x, init], [((5,), dtype)], "StablehloReduceOptions", kind,
                  dimensions=[2, 0], body_subgraph_index=1)  # fmt: skip
    (result,) = run(content, [x, init])
    expected = ufunc(ufunc.reduce(x, (0, 2)), init)
    np.testing.assert_allclose(result, expected, 1e-5)
    assert result.dtype == np.dtype(dtype)


def test_reduce_window_of_stablehlo() -> None:
    values = {
        "window_dimensions": [1, 3, 2],
        "window_strides": [1, 2, 1],
        "base_dilations": [1, 2, 1],
        "window_dilations": [2, 1, 1],
        "padding": [0, 0, 1, 2, 0, 1],
    }
    init = np.array(0, np.float32)
    of = "StablehloReduceWindowOptions"
    content = one("STABLEHLO_REDUCE_WINDOW", [X, init], [((4, 5, 3), np.float32)], of,
                  "STABLEHLO_ADD", body_subgraph_index=1, **values)  # fmt: skip
    (result,) = run(content, [X, init])
    (expected,) = litert(content, [X, init])
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_reduce_window(number: int) -> None:
    init = np.array({1: 0, 2: 1, 3: 9, 4: -9}[number], np.float32)
    lists = [[2, 3, 1], [1, 2, 1], [2, 1, 1]]
    arrays = [X, init, *(np.array(v, np.int64) for v in lists)]
    content = one("REDUCE_WINDOW", arrays, [((2, 2, 3), np.float32)], "ReduceWindowOptions",
                  stored=range(2, 5), reduce_function=number)  # fmt: skip
    (result,) = run(content, [X, init])
    (expected,) = litert(content, [X, init])
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64])
def test_dilate(dtype: Any) -> None:
    x = (X * 9).astype(dtype)
    arrays = [x, np.array([1, 3, 2], np.int32), np.array(7, dtype)]
    content = one("DILATE", arrays, [((4, 13, 5), dtype)], "DilateOptions", stored=[1])
    (result,) = run(content, [x, arrays[2]])
    (expected,) = litert(content, [x, arrays[2]])
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("kind", "swapped"), [("LESS", False), ("GREATER", False), ("LESS", True)])
def test_sort(kind: str, swapped: bool) -> None:
    model = ModelWriter()
    g = model.graph()
    x, k = g.input((4, 5, 3), name="x0"), g.input((4, 5, 3), np.int32, "x1")
    y, m = g.tensor((4, 5, 3), name="y0"), g.tensor((4, 5, 3), np.int32, "y1")
    options = {"dimension": 1, "is_stable": True, "comparator_subgraph_index": 1}
    g.op("STABLEHLO_SORT", [x, k], [y, m], "StablehloSortOptions", **options)
    g.output(y, m)
    inner = model.graph("comparator")
    a, b = inner.input(()), inner.input(())
    inner.input((), np.int32), inner.input((), np.int32)
    z = inner.tensor((), np.bool_)
    inner.op(kind, [b, a] if swapped else [a, b], [z])
    inner.output(z)
    values = RNG.integers(-3, 3, (4, 5, 3)).astype(np.float32)
    places = np.arange(60, dtype=np.int32).reshape(4, 5, 3)
    is_descending = (kind == "GREATER") != swapped
    order = np.argsort(-values if is_descending else values, axis=1, kind="stable")
    result, moved = run(model.bytes(), [values, places])
    np.testing.assert_array_equal(result, np.take_along_axis(values, order, 1))
    np.testing.assert_array_equal(moved, np.take_along_axis(places, order, 1))


def test_convolution() -> None:
    """Images [N, H, W, C] and kernels [H, W, I, O], in two groups, with an input of gaps."""
    x = RNG.standard_normal((2, 6, 7, 4)).astype(np.float32)
    w = RNG.standard_normal((3, 2, 2, 6)).astype(np.float32)
    values = {
        "window_strides": [2, 1],
        "padding": [1, 2, 0, 1],
        "lhs_dilation": [1, 2],
        "rhs_dilation": [1, 2],
        "input_batch_dimension": 0,
        "input_feature_dimension": 3,
        "input_spatial_dimensions": [1, 2],
        "kernel_input_feature_dimension": 2,
        "kernel_output_feature_dimension": 3,
        "kernel_spatial_dimensions": [0, 1],
        "output_batch_dimension": 1,
        "output_feature_dimension": 0,
        "output_spatial_dimensions": [2, 3],
        "feature_group_count": 2,
        "batch_group_count": 1,
    }
    spread = torch.zeros(2, 4, 6, 13)
    spread[..., ::2] = torch.from_numpy(x).permute(0, 3, 1, 2)
    wide = torch.nn.functional.pad(spread, (0, 1, 1, 2))
    kernel = torch.from_numpy(w).permute(3, 2, 0, 1)
    expected = torch.nn.functional.conv2d(wide, kernel, stride=(2, 1), dilation=(1, 2), groups=2)
    expected = expected.permute(1, 0, 2, 3).numpy()
    of = "StablehloConvolutionOptions"
    content = one("STABLEHLO_CONVOLUTION", [x, w], [(expected.shape, np.float32)], of, stored=[1],
                  **values)  # fmt: skip
    (result,) = run(content, [x])
    np.testing.assert_allclose(result, expected, 1e-4, 1e-5)


def branch(model: ModelWriter, kind: str) -> GraphWriter:
    g = model.graph(kind)
    a, b = g.input((2,)), g.tensor((2,))
    g.op(kind, [a], [b])
    g.output(b)
    return g


@pytest.mark.parametrize("kinds", [["EXP", "NEG"], ["EXP"]])
def test_case(kinds: list[str]) -> None:
    model = ModelWriter()
    g = model.graph()
    i, x, y = g.input((), np.int32, "x0"), g.input((2,), name="x1"), g.tensor((2,), name="y")
    branches = list(range(1, len(kinds) + 1))
    g.op("STABLEHLO_CASE", [i, x], [y], "StablehloCaseOptions", branch_subgraph_indices=branches)
    g.output(y)
    for kind in kinds:
        branch(model, kind)
    given = np.array([1, 2], np.float32)
    for number in (0, 1, 5, -1):
        last = number != 0 and len(kinds) > 1
        (result,) = run(model.bytes(), [np.array(number, np.int32), given])
        np.testing.assert_allclose(result, -given if last else np.exp(given), 1e-6)


def test_while() -> None:
    model = ModelWriter()
    g, condition, body = model.graph(), model.graph("condition"), model.graph("body")
    x, y = g.input((), np.int32, "x0"), g.tensor((), np.int32, "y")
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    g.op("STABLEHLO_WHILE", [x], [y], "StablehloWhileOptions", **options)
    g.output(y)
    a, z = condition.input((), np.int32), condition.tensor((), np.bool_)
    condition.op("LESS", [a, condition.const(np.int32(100))], [z])
    condition.output(z)
    b, twice = body.input((), np.int32), body.tensor((), np.int32)
    body.op("STABLEHLO_ADD", [b, b], [twice])
    body.output(twice)
    (result,) = run(model.bytes(), [np.array(3, np.int32)])
    assert result == 192


def test_refusals() -> None:
    init = np.array(0, np.float32)
    of = "StablehloReduceOptions"
    for kind, message in (("STABLEHLO_SUBTRACT", "by sub"), ("", "keeps the last number")):
        content = one("STABLEHLO_REDUCE", [X, init], [((5, 3), np.float32)], of, kind,
                      dimensions=[0], body_subgraph_index=1)  # fmt: skip
        with pytest.raises(ts.UnsupportedError, match=message):
            load(content)
