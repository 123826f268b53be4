"""The gradient of each operator agrees with finite differences in f64, and with PyTorch's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.op_cases import CASES, Case
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.differentiate import differentiate, push_forward
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import f64
from tilesmith.ir.types import TensorType
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce as rd
from tilesmith.ops.activation import Relu
from tilesmith.ops.base import OPS, Op
from tilesmith.ops.doc import operators
from tilesmith.ops.gradients.dispatch import origin_of
from tilesmith.ops.gradients.doc import NONE, render
from tilesmith.ops.linalg import Det
from tilesmith.ops.pool import MaxPool
from tilesmith.ops.scan import CumMax, CumMin, Scan
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.table import FAMILIES
from tilesmith.support.errors import ModelError, UnsupportedError

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"
F32_INSIDE = {"dequantize_blocks", "dequantize", "deform_sample", "deform_conv"}
"""Operators that compute in f32 whatever their operands are, so differences of f64 are rounded."""


def _graph(op: Op, arrays: list[np.ndarray]) -> Graph:
    b = Builder()
    inputs = [
        b.input(f"x{i}", TensorType(to_dtype(a.dtype), a.shape)) for i, a in enumerate(arrays)
    ]
    results = b.add(op, *inputs)
    return b.finish(results if isinstance(results, tuple) else (results,))


def _as_f64(case: Case) -> list[np.ndarray]:
    return [a.astype(np.float64) if a.dtype == np.float32 else a for a in case.arrays()]


def _is_smooth(case: Case) -> bool:
    """Whether the case has finite floats only, elements, and a result of f64."""
    arrays = _as_f64(case)
    floats = [a for a in arrays if a.dtype == np.float64]
    if not floats or not all(np.isfinite(a).all() and a.size for a in floats):
        return False
    if isinstance(case.op, Scan) and case.op.exclusive and "log" in case.op.name:
        return False  # the first result is minus infinity
    if isinstance(case.op, ew.StopGradient) or getattr(case.op, "beta", 1.0) == 0.0:
        return False  # the gradient is not the slope; an operand is not read
    if isinstance(case.op, (ScatterElements, ScatterNd)) and case.op.reduction == "none":
        data, indices, updates = arrays
        count = evaluate(
            _graph(replace(case.op, reduction="add"), [data * 0, indices, updates * 0 + 1]),
            {"x0": data * 0, "x1": indices, "x2": updates * 0 + 1},
        )
        if max(y.max() for y in count.values()) > 1:
            return False  # updates share a place: the gradient is PyTorch's, not the slope
    if isinstance(case.op, Det) and (np.linalg.det(arrays[0]) == 0).any():
        return False
    try:
        graph = _graph(case.op, arrays)
    except ModelError:  # an operator of f32 only
        return False
    return any(v.dtype is f64 and 0 not in v.type.static_shape for v in graph.outputs)


def _differentiable() -> list[Case]:
    """Up to four cases of each operator."""
    chosen: dict[str, list[Case]] = {}
    for case in CASES:
        cls = type(case.op)
        of_class = chosen.setdefault(cls.name, [])
        is_known = cls not in NONE and origin_of(cls) != "none"
        if len(of_class) < 4 and is_known and _is_smooth(case):
            of_class.append(case)
    return [c for cs in chosen.values() for c in cs]


@pytest.mark.parametrize("case", _differentiable(), ids=str)
def test_gradient_is_that_of_finite_differences(case: Case) -> None:
    arrays = _as_f64(case)
    seed = zlib.crc32(str(case).encode())
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    graph = _graph(case.op, arrays)
    of = [n for n, v in enumerate(graph.outputs) if v.dtype is f64]
    floats = [v for v in graph.inputs if v.dtype is f64]
    read = {v for n in graph.nodes for v in n.inputs}
    made = differentiate(graph, of, [v for v in floats if v in read])
    again = parse_graph(print_graph(made), constants_of(made))
    assert print_graph(again) == print_graph(made)
    given = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    seeds = {v.name: rng.standard_normal(v.type.static_shape) for v in made.inputs}
    results = evaluate(made, {**seeds, **given})
    weights = [seeds.get(f"d_{graph.output_names[n]}", np.ones(())) for n in of]
    h, error = (2e-4, 2e-2) if case.op.name in F32_INSIDE else (1e-6, 1e-5)
    for v in floats:
        direction = rng.standard_normal(given[v.name].shape)

        def weighted(t: float, name: str = v.name, d: np.ndarray = direction) -> float:
            values = list(evaluate(graph, {**given, name: given[name] + t * d}).values())
            return sum(float((values[n] * w).sum()) for n, w in zip(of, weights, strict=True))

        slope = (weighted(h) - weighted(-h)) / (2 * h)
        found = float((results[f"d_{v.name}"] * direction).sum())
        assert found == pytest.approx(slope, rel=error, abs=error)


@pytest.mark.parametrize("case", _differentiable(), ids=str)
def test_forward_mode_is_the_transpose_of_reverse_mode(case: Case) -> None:
    arrays = _as_f64(case)
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    graph = _graph(case.op, arrays)
    of = [n for n, v in enumerate(graph.outputs) if v.dtype is f64]
    read = {v for n in graph.nodes for v in n.inputs}
    wrt = [v for v in graph.inputs if v.dtype is f64 and v in read]
    given = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    back, forth = differentiate(graph, of, wrt), push_forward(graph, of, wrt)
    weights = {v.name: rng.standard_normal(v.type.static_shape) for v in back.inputs}
    tangents = {f"d_{v.name}": rng.standard_normal(v.type.static_shape) for v in wrt}
    gradients = evaluate(back, {**weights, **given})
    derivatives = evaluate(forth, {**given, **tangents})
    backwards = sum((gradients[d] * t).sum() for d, t in tangents.items())
    results = [derivatives[f"d_{graph.output_names[n]}"] for n in of]
    seeds = [weights.get(f"d_{graph.output_names[n]}", np.ones(())) for n in of]
    forwards = sum((y * w).sum() for y, w in zip(results, seeds, strict=True))
    error = 1e-4 if case.op.name in F32_INSIDE else 1e-9
    assert forwards == pytest.approx(backwards, rel=error, abs=error)


def test_each_operator_has_a_gradient_or_a_reason() -> None:
    for module in FAMILIES:
        for op in operators(module.__name__):
            assert origin_of(op) != "none" or op in NONE, f"{op.name}: a rule or a reason"


def test_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == render(), "run: python -m tilesmith.ops.gradients.doc docs/gradients.md"


def test_operators_without_gradients_say_so() -> None:
    graph = _graph(OPS["pairwise_coupling"](3), [np.ones((2, 3), np.float32)])
    with pytest.raises(UnsupportedError, match="pairwise_coupling has no gradient: it is written"):
        differentiate(graph, [0], graph.inputs)


TIED = np.asarray([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, -1.0, 0.0]])
TIES: list[tuple[Op, Callable[..., Any]]] = [
    (rd.ReduceMax((1,), False), lambda t, x: x.amax(1)),
    (rd.ReduceMin((1,), False), lambda t, x: x.amin(1)),
    (ew.Clip(0.0, 3.0), lambda t, x: x.clamp(0.0, 3.0)),
    (Relu(), lambda t, x: t.relu(x)),
    (ew.Abs(), lambda t, x: x.abs()),
    (ew.Sign(), lambda t, x: x.sign()),
    (rd.ReduceL2((1,), False), lambda t, x: x.norm(dim=1)),
    (rd.ReduceProd((1,), False), lambda t, x: x.prod(1)),
    (CumMax(1), lambda t, x: x.cummax(1).values),
    (CumMin(1), lambda t, x: x.cummin(1).values),
    (OPS["softplus"](), lambda t, x: t.nn.functional.softplus(x)),
]


@pytest.mark.parametrize(("op", "function"), TIES, ids=lambda v: getattr(v, "name", ""))
def test_ties_and_corners_are_pytorchs(op: Op, function: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    graph = _graph(op, [TIED])
    made = differentiate(graph, [0], graph.inputs)
    x = torch.tensor(TIED, requires_grad=True)
    y = function(torch, x)
    g = np.random.default_rng(0).standard_normal(y.shape)
    y.backward(torch.from_numpy(g))
    found = evaluate(made, {"x0": TIED, "d_output": g})["d_x0"]
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("function", ["maximum", "minimum"])
def test_equal_operands_share_evenly_as_in_pytorch(function: str) -> None:
    torch = pytest.importorskip("torch")
    op = ew.Max() if function == "maximum" else ew.Min()
    a, b = TIED, TIED[::-1].copy()
    b[0] = a[0]
    graph = _graph(op, [a, b])
    made = differentiate(graph, [0], graph.inputs)
    x, y = (torch.tensor(v, requires_grad=True) for v in (a, b))
    getattr(torch, function)(x, y).sum().backward()
    found = evaluate(made, {"x0": a, "x1": b, "d_output": np.ones(a.shape)})
    np.testing.assert_array_equal(found["d_x0"], x.grad.numpy())
    np.testing.assert_array_equal(found["d_x1"], y.grad.numpy())


def test_max_pool_takes_the_first_maximum_as_pytorch_does() -> None:
    torch = pytest.importorskip("torch")
    x = np.zeros((1, 2, 5, 5))
    graph = _graph(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), [x])
    made = differentiate(graph, [0], graph.inputs)
    t = torch.tensor(x, requires_grad=True)
    torch.nn.functional.max_pool2d(t, 3, 2, 1).sum().backward()
    found = evaluate(made, {"x0": x, "d_output": np.ones((1, 2, 3, 3))})["d_x0"]
    np.testing.assert_array_equal(found, t.grad.numpy())


def test_updates_that_share_a_place_have_its_gradient_each_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    places, updates = np.asarray([[0, 2, 2, 1]]), np.arange(4.0)[None]
    graph = _graph(ScatterElements(1), [np.zeros((1, 5)), places, updates])
    made = differentiate(graph, [0], [graph.inputs[0], graph.inputs[2]])
    x, u = (torch.tensor(v, requires_grad=True) for v in (np.zeros((1, 5)), updates))
    g = np.random.default_rng(0).standard_normal((1, 5))
    x.scatter(1, torch.tensor(places), u).backward(torch.from_numpy(g))
    given = {"x0": np.zeros((1, 5)), "x1": places, "x2": updates, "d_output": g}
    found = evaluate(made, given)
    np.testing.assert_array_equal(found["d_x0"], x.grad.numpy())
    np.testing.assert_array_equal(found["d_x2"], u.grad.numpy())


@pytest.mark.parametrize(("reduction", "name"), [("mul", "prod"), ("max", "amax"), ("min", "amin")])
def test_scatters_with_zeros_and_ties_have_pytorchs_gradients(reduction: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    places = np.asarray([[0, 0, 2, 3, 3], [1, 2, 2, 2, 0]])
    updates = np.asarray([[2.0, 0.0, 3.0, -2.0, 1.0], [0.5, 0.0, 0.0, 4.0, 0.0]])
    graph = _graph(ScatterElements(1, reduction), [TIED, places, updates])
    made = differentiate(graph, [0], [graph.inputs[0], graph.inputs[2]])
    x, u = (torch.tensor(v, requires_grad=True) for v in (TIED, updates))
    y = x.scatter_reduce(1, torch.tensor(places), u, name)
    g = np.random.default_rng(0).standard_normal(y.shape)
    y.backward(torch.from_numpy(g))
    found = evaluate(made, {"x0": TIED, "x1": places, "x2": updates, "d_output": g})
    np.testing.assert_allclose(found["d_x0"], x.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(found["d_x2"], u.grad.numpy(), rtol=1e-12)
