"""Second derivatives, by differentiating a gradient again, are PyTorch's in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.differentiate import differentiate
from tilesmith.ir.dtypes import f64
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as act
from tilesmith.ops.attention import Attention
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Div, Erf, Exp, Log, Mul, Pow, Sin, Sqrt, Tanh
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import GroupNorm, LayerNorm, LogSoftmax, RmsNorm, Softmax

torch = pytest.importorskip("torch")
F = torch.nn.functional
Shapes = tuple[tuple[int, ...], ...]
MATRIX: Shapes = ((3, 4),)
PAIR: Shapes = ((3, 4), (4,))
HEADS: Shapes = ((2, 3, 4), (2, 5, 4), (2, 5, 4))


@pytest.mark.parametrize(
    ("op", "shapes", "of_torch"),
    [
        (Exp(), MATRIX, torch.exp),
        (Log(), MATRIX, torch.log),
        (Sqrt(), MATRIX, torch.sqrt),
        (Sin(), MATRIX, torch.sin),
        (Tanh(), MATRIX, torch.tanh),
        (Erf(), MATRIX, torch.erf),
        (Mul(), PAIR, torch.mul),
        (Div(), PAIR, torch.div),
        (Pow(), PAIR, torch.pow),
        (act.Sigmoid(), MATRIX, torch.sigmoid),
        (act.Gelu(), MATRIX, F.gelu),
        (act.Silu(), MATRIX, F.silu),
        (act.Softplus(), MATRIX, F.softplus),
        (MatMul(), ((2, 3, 4), (4, 5)), torch.matmul),
        (Conv(), ((2, 3, 5, 5), (4, 3, 3, 3)), F.conv2d),
        (Conv(strides=(2, 2), groups=2), ((1, 4, 6, 6), (4, 2, 3, 3)), None),
        (ConvTranspose(), ((1, 3, 4, 4), (3, 2, 3, 3)), F.conv_transpose2d),
        (Softmax(-1), MATRIX, lambda x: F.softmax(x, -1)),
        (LogSoftmax(-1), MATRIX, lambda x: F.log_softmax(x, -1)),
        (LayerNorm(-1, 1e-5), PAIR, lambda x, w: F.layer_norm(x, (4,), w)),
        (RmsNorm(-1, 1e-5), PAIR, lambda x, w: F.rms_norm(x, (4,), w, 1e-5)),
        (GroupNorm(2, 1e-5), ((2, 4, 3), (4,), (4,)), lambda x, w, b: F.group_norm(x, 2, w, b)),
        (Attention(), HEADS, F.scaled_dot_product_attention),
        (Attention(is_causal=True), HEADS, lambda *x: _causal(*x)),
    ],
    ids=lambda v: v.name if isinstance(v, Op) else "",
)
def test_second_derivatives(op: Op, shapes: Shapes, of_torch: Callable[..., Any] | None) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, shape) for shape in shapes]
    b = Builder()
    inputs = [b.input(f"x{n}", TensorType(f64, shape)) for n, shape in enumerate(shapes)]
    graph = b.finish(b.add(op, *inputs), ["y"])
    first = differentiate(graph, [0], graph.inputs)
    of = range(1, 1 + len(shapes))
    second = differentiate(first, [*of], _used(first, len(shapes)))
    given = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    seeds = {v.name: rng.standard_normal(v.type.static_shape) for v in second.inputs}
    found = evaluate(second, {**seeds, **given})

    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    if of_torch is None:
        y = F.conv2d(*leaves, stride=2, groups=2)
    else:
        y = of_torch(*leaves)
    weight = torch.tensor(seeds["d_y"], requires_grad=True)
    gradients = torch.autograd.grad(y, leaves, weight, create_graph=True)
    total = sum(
        (g * torch.tensor(seeds[f"d_{first.output_names[n]}"])).sum()
        for n, g in zip(of, gradients, strict=True)
    )
    wanted = torch.autograd.grad(total, [*leaves, weight], allow_unused=True)
    names = [*(v.name for v in graph.inputs), "d_y"]
    results = [*found.values()][1 + len(shapes) :]
    by_name = dict(zip([v.name for v in _used(first, len(shapes))], results, strict=True))
    for name, expected in zip(names, wanted, strict=True):
        if expected is not None and expected.abs().max() > 0:
            np.testing.assert_allclose(by_name[name], expected.numpy(), rtol=1e-8, atol=1e-9)


def _used(graph: Graph, results: int) -> list[Value]:
    """The inputs of which the last `results` outputs are computed."""
    needed = {*graph.outputs[-results:]}
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.inputs)
    return [v for v in graph.inputs if v in needed]


def _causal(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
