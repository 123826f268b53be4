"""`ts.grad`: gradients of whole models, compiled, agree with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import If, Loop
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import bool_, f32, f64, i64
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import GraphBuilder, Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.coupling import PairwiseCoupling
from tilesmith.ops.elementwise import Floor, StopGradient, Tanh
from tilesmith.ops.functions import exp, tanh
from tilesmith.ops.gather import Gather
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import Softmax
from tilesmith.ops.pool import AvgPool
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError

RELATIVE = 1e-4


def _assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= RELATIVE * np.abs(wanted).max()


def _of_module(module: Any, example: Any) -> None:
    """Compares the gradients of the module's inputs and weights with autograd's."""
    torch = pytest.importorskip("torch")
    named = dict(module.named_parameters())

    class AsInputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any, *weights: Any) -> Any:
            values = dict(zip(named, weights, strict=True))
            return torch.func.functional_call(self.inner, values, (x,))

    x = example.clone().requires_grad_()
    arguments = (x.detach(), *(p.detach().clone() for p in named.values()))
    graph = ts.value_and_grad(AsInputs().eval(), example_inputs=arguments)
    y = module.eval()(x)
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y.backward(cotangent)
    exe = ts.compile(graph)
    given = [a.numpy() for a in arguments]
    results = exe(*given, cotangent.numpy()) if y.shape else exe(*given)
    value, *gradients = results
    _assert_close(np.asarray(value), y.detach().numpy())
    for found, wanted in zip(gradients, (x, *named.values()), strict=True):
        _assert_close(np.asarray(found), wanted.grad.numpy())


def test_a_perceptron() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 7), nn.LogSoftmax(-1))
    _of_module(module, torch.randn(5, 12))


def test_a_convolutional_network_with_batch_norm() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1, groups=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 5),
    )  # fmt: skip
    _of_module(module, torch.randn(2, 3, 16, 16))


def test_a_transformer_block() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            nn = torch.nn
            self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = self.qkv(self.norms[0](x)).reshape(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, 16))
            return x + self.down(torch.nn.functional.silu(self.up(self.norms[1](x))))

    _of_module(Block(), torch.randn(2, 6, 16))


def test_a_row_that_is_masked_out_entirely_has_the_gradient_zero() -> None:
    torch = pytest.importorskip("torch")

    class Weights(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.aten._safe_softmax(x, -1)

    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    x[1], x[2, ::2] = -torch.inf, -torch.inf
    _of_module(Weights(), x)


def test_gradient_of_a_gradient() -> None:
    b = Builder()
    x = b.input("x", TensorType(f64, (3,)))
    graph = b.finish([(exp(x) * x * x).sum()], ["y"])
    second = ts.grad(ts.grad(graph, of="y"), "x", of="d_x")
    given = np.asarray([0.5, -1.0, 2.0])
    (name,) = second.output_names
    found = evaluate(second, {"x": given, "d_d_x": np.ones(3)})[name]
    np.testing.assert_allclose(found, np.exp(given) * (given * given + 4 * given + 2))


def test_second_gradient_of_a_derived_operator() -> None:
    b = Builder()
    x = b.input("x", TensorType(f64, (1, 1, 6)))
    y = b.add(AvgPool((3,), (2,), (1, 1)), x)
    graph = b.finish([(y * y * y).sum()], ["y"])
    second = ts.grad(ts.grad(graph), of="d_x")
    rng = np.random.default_rng(0)
    given, v = rng.standard_normal((1, 1, 6)), rng.standard_normal((1, 1, 6))
    first = ts.grad(graph)
    h = 1e-6
    slopes = [evaluate(first, {"x": given + s * h * v})["d_x"] for s in (1, -1)]
    found = evaluate(second, {"x": given, "d_d_x": v})[second.output_names[0]]
    np.testing.assert_allclose(found, (slopes[0] - slopes[1]) / (2 * h), atol=1e-6)


def test_open_dimensions_stay_open() -> None:
    n = symbol("n", 1, 64)
    b = Builder()
    x, w = b.input("x", TensorType(f32, (n, 2, 6, 6))), b.input("w", TensorType(f32, (4, 2, 3, 3)))
    y = tanh(b.add(Conv((1, 1), (1, 1, 1, 1)), x, w)).mean((2, 3))
    graph = ts.grad(b.finish([y.sum()], ["loss"]), ("x", "w"))
    assert graph.outputs[0].type.shape[0] is n
    exe = ts.compile(graph)
    rng = np.random.default_rng(0)
    for size in (1, 5):
        given = {v.name: rng.standard_normal((size if v.name == "x" else 4, *v.type.shape[1:]))
                 .astype(np.float32) for v in graph.inputs}  # fmt: skip
        wanted = evaluate(graph, given)
        for name, found in exe.run(given).items():
            _assert_close(found, wanted[name])


def test_weights_by_name_and_the_cotangent() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (2, 3)))
    w = b.constant(np.ones((3, 4), np.float32), "weight")
    graph = b.finish([b.add(MatMul(), x, w)], ["y"])
    made = ts.value_and_grad(graph, "weight")
    assert made.output_names == ("y", "d_weight")
    assert [v.name for v in made.inputs] == ["x", "d_y"]
    rng = np.random.default_rng(0)
    given, g = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (2, 4)))
    found = ts.compile(made).run({"x": given, "d_y": g})
    np.testing.assert_allclose(found["d_weight"], given.T @ g, rtol=1e-5)
    (only,) = ts.grad(graph, "weight").output_names
    assert only == "d_weight"


def test_lookups_add_where_an_index_occurs_twice() -> None:
    b = Builder()
    table, i = b.input("table", TensorType(f32, (5, 2))), b.input("i", TensorType(i64, (4,)))
    graph = ts.grad(b.finish([b.add(Gather(0), table, i).sum()], ["y"]))
    given = {"table": np.zeros((5, 2), np.float32), "i": np.asarray([1, 4, 1, -1])}
    found = ts.compile(graph).run(given)["d_table"]
    np.testing.assert_array_equal(found[:, 0], [0, 2, 0, 0, 2])


def test_a_stopped_gradient_counts_as_a_constant() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (3,)))
    graph = ts.grad(b.finish([(x * b.add(StopGradient(), x)).sum()], ["y"]))
    given = np.asarray([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(ts.compile(graph)(given), given)


def test_steps_have_the_gradient_zero() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (3,)))
    graph = ts.grad(b.finish([b.add(Floor(), x).sum()], ["y"]))
    np.testing.assert_array_equal(ts.compile(graph)(np.ones(3, np.float32)), np.zeros(3))


class OwnSquare(Op, abstract=True):
    """x * x, with a gradient of its own."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        return inputs[0] * inputs[0]

    def vjp(self, b: GraphBuilder, cotangents: Any, outputs: Any, *inputs: Any) -> Any:
        return cotangents[0] * inputs[0] * 20


def test_a_users_operator_may_have_a_gradient_of_its_own() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (3,)))
    graph = ts.grad(b.finish([b.add(OwnSquare(), x).sum()], ["y"]))
    given = np.asarray([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(evaluate(graph, [given])["d_x"], 20 * given)


def _slope(graph: Graph, given: dict[str, Any], name: str, weights: np.ndarray) -> Any:
    """The slope of the weighted first output along a direction of an input, and the direction."""
    direction = np.random.default_rng(1).standard_normal(given[name].shape)

    def weighted(t: float) -> float:
        changed = {**given, name: given[name] + t * direction}
        return float((evaluate(graph, changed)[graph.output_names[0]] * weights).sum())

    return (weighted(1e-6) - weighted(-1e-6)) / 2e-6, direction


def _check_slopes(graph: Graph, given: dict[str, Any], names: tuple[str, ...]) -> None:
    """Compares compiled gradients with finite differences."""
    (y, *_) = graph.outputs
    weights = np.random.default_rng(2).standard_normal(y.type.static_shape)
    found = ts.compile(ts.grad(graph, names)).run({**given, "d_y": weights})
    for name in names:
        slope, direction = _slope(graph, given, name, weights)
        assert (found[f"d_{name}"] * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("condition", [True, False])
def test_gradient_of_a_branch_is_that_of_the_branch_taken(condition: bool) -> None:
    kind = TensorType(f64, (3,))

    def branch(name: str) -> Graph:
        b = Builder(name)
        a, v = b.input("a", kind), b.input("v", kind)
        return b.finish([exp(a) * v if name == "then" else tanh(a) + a], ["r"])

    b = Builder()
    c, x, w = b.input("c", TensorType(bool_, ())), b.input("x", kind), b.input("w", kind)
    graph = b.finish([b.add(If(branch("then"), branch("other")), c, x, w)], ["y"])
    rng = np.random.default_rng(0)
    given = {v.name: rng.standard_normal(3) for v in graph.inputs}
    _check_slopes(graph, {**given, "c": np.asarray(condition)}, ("x", "w"))


def _recurrence(way: int) -> Graph:
    """A recurrence over five rows that uses the number of the iteration, too."""
    b = Builder("step")
    i, h = b.input("i", TensorType(i64, ())), b.input("h", TensorType(f64, (2, 4)))
    row, w = b.input("row", TensorType(f64, (2, 3))), b.input("w", TensorType(f64, (3, 4)))
    u = b.input("u", TensorType(f64, (4, 4)))
    now = tanh(b.add(MatMul(), row, w) + b.add(MatMul(), h, u))
    step = b.finish([now, now * now + i.cast(f64) * now], ["h", "each"])
    b = Builder()
    shapes = {"h": (2, 4), "x": (5, 2, 3), "w": (3, 4), "u": (4, 4)}
    inputs = [b.input(name, TensorType(f64, shape)) for name, shape in shapes.items()]
    last, each = b.add(Loop(step, 1, (way,), (way,), 5), *inputs)
    return b.finish([each * last], ["y"])


@pytest.mark.parametrize("way", [1, -1])
def test_gradient_of_a_loop_runs_backwards_over_a_trace(way: int) -> None:
    graph = _recurrence(way)
    rng = np.random.default_rng(0)
    given = {v.name: rng.standard_normal(v.type.static_shape) for v in graph.inputs}
    _check_slopes(graph, given, ("h", "x", "w", "u"))


def test_second_gradient_of_a_loop() -> None:
    graph = _recurrence(1)
    rng = np.random.default_rng(0)
    given = {v.name: rng.standard_normal(v.type.static_shape) for v in graph.inputs}
    first = ts.grad(graph, "w")
    given["d_y"] = rng.standard_normal((5, 2, 4))
    second = ts.grad(first, ("h", "u"), of="d_w")
    weights = rng.standard_normal((3, 4))
    results = evaluate(second, {**given, "d_d_w": weights})
    for name in ("h", "u"):
        slope, direction = _slope(first, given, name, weights)
        assert (results[f"d_{name}"] * direction).sum() == pytest.approx(slope, rel=1e-5)


def test_an_lstm() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Sequence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 6)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    _of_module(Sequence(), torch.randn(4, 2, 5))


def _small() -> Graph:
    b = Builder()
    x, i = b.input("x", TensorType(f32, (3,))), b.input("i", TensorType(i64, (3,)))
    z = b.input("z", TensorType(f32, ()))
    return b.finish([b.add(Tanh(), x).sum(), z, i], ["y", "other", "count"])


def test_wrong_names_and_types_are_refused() -> None:
    graph = _small()
    with pytest.raises(UsageError, match="no input or weight is named 'X'; there are x, i, z"):
        ts.grad(graph, "X")
    with pytest.raises(UsageError, match=r"no output is named 'yy'.*did you mean 'y'"):
        ts.grad(graph, "x", of="yy")
    with pytest.raises(ModelError, match="'i': expected a tensor of floats to differentiate"):
        ts.grad(graph, "i")
    with pytest.raises(ModelError, match="expected values on which y depends, found 'z'"):
        ts.grad(graph, ("x", "z"))


def test_all_nodes_without_a_gradient_are_named() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (2, 1)))
    y = b.add(PairwiseCoupling(2), x, loc="second")
    with pytest.raises(UnsupportedError, match="node 'second': pairwise_coupling has no gradient"):
        ts.grad(b.finish([y], ["y"]))


def _check_tangents(graph: Graph, given: dict[str, Any], names: tuple[str, ...]) -> None:
    """Compares compiled derivatives along a direction with finite differences."""
    rng = np.random.default_rng(3)
    tangents = {name: rng.standard_normal(given[name].shape) for name in names}
    made = ts.jvp(graph, names)
    found = ts.compile(made).run({**given, **{f"d_{n}": t for n, t in tangents.items()}})

    def changed(h: float) -> dict[str, Any]:
        return evaluate(graph, {**given, **{n: given[n] + h * t for n, t in tangents.items()}})

    ahead, behind = changed(1e-6), changed(-1e-6)
    for y in graph.output_names:
        np.testing.assert_allclose(found[f"d_{y}"], (ahead[y] - behind[y]) / 2e-6, 1e-5, 1e-7)


def test_forward_mode_of_a_loop() -> None:
    graph = _recurrence(-1)
    rng = np.random.default_rng(0)
    given = {v.name: rng.standard_normal(v.type.static_shape) for v in graph.inputs}
    _check_tangents(graph, given, ("h", "x", "w", "u"))


def test_forward_mode_has_a_tangent_for_scalars_and_weights_too() -> None:
    b = Builder()
    x, s = b.input("x", TensorType(f64, (3,))), b.input("s", TensorType(f64, ()))
    w = b.constant(np.asarray([1.0, -2.0, 0.5]), "w")
    graph = b.finish([(exp(x) * w).sum() * s, tanh(x * s)], ["y", "z"])
    given = {"x": np.asarray([0.5, -1.0, 2.0]), "s": np.asarray(1.5)}
    _check_tangents(graph, given, ("x", "s"))
    made = ts.jvp(graph, "w", of="y")
    assert [v.name for v in made.inputs] == ["x", "s", "d_w"]
    found = evaluate(made, {**given, "d_w": np.ones(3)})["d_y"]
    np.testing.assert_allclose(found, np.exp(given["x"]).sum() * 1.5)


def test_forward_mode_does_not_compute_the_gradient() -> None:
    b = Builder()
    x, w = b.input("x", TensorType(f64, (2, 3))), b.input("w", TensorType(f64, (3, 4)))
    made = ts.jvp(b.finish([tanh(b.add(MatMul(), x, w))], ["y"]), "x")
    assert sum(isinstance(n.op, MatMul) for n in made.nodes) == 2


def test_forward_mode_keeps_open_dimensions_open() -> None:
    n = symbol("n", 1, 64)
    b = Builder()
    x = b.input("x", TensorType(f64, (n, 4)))
    made = ts.jvp(b.finish([b.add(Softmax(1), x)], ["y"]))
    assert made.outputs[-1].type.shape[0] is n
    exe = ts.compile(made)
    rng = np.random.default_rng(0)
    for rows in (2, 5):
        given, t = rng.standard_normal((rows, 4)), rng.standard_normal((rows, 4))
        y, d = exe(given, t)
        np.testing.assert_allclose(d, y * (t - (y * t).sum(1, keepdims=True)))


def test_forward_mode_of_a_module_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32, 5), nn.LogSoftmax(-1),
    ).double()  # fmt: skip
    x, t = torch.randn(2, 2, 3, 8, 8, dtype=torch.float64)
    wanted = torch.func.jvp(module, (x,), (t,))
    found = ts.compile(ts.jvp(module, example_inputs=(x,)))(x.numpy(), t.numpy())
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-9, atol=1e-12)
