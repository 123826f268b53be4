"""Graphs that several tests use, and Hypothesis strategies that make random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import f32, i32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu, Relu, Sigmoid
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Clip,
    Div,
    Exp,
    Identity,
    Max,
    Mul,
    Neg,
    Pow,
    Sub,
    Where,
)
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import BatchNorm, Softmax
from tilesmith.ops.reduce import ReduceMax, ReduceSum
from tilesmith.ops.shape import Expand, Reshape, Transpose


def conv_net(channels: int = 4) -> Graph:
    """conv, bias, batch normalisation, relu, a residual and a classifier."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    b = Builder("net")
    x = b.input("x", TensorType(f32, (1, 3, 8, 8)))
    y = b.add(Conv(pads=(1, 1, 1, 1)), x, b.constant(weights(channels, 3, 3, 3), "w0"), loc="conv0")
    y = b.add(Add(), y, b.constant(weights(channels, 1, 1)))
    statistics = [weights(channels) for _ in range(3)] + [np.abs(weights(channels)) + 0.5]
    y = b.add(BatchNorm(), y, *(b.constant(s) for s in statistics), loc="bn0")
    y = b.add(Relu(), y)
    z = b.add(Conv(), y, b.constant(weights(channels, channels, 1, 1), "w1"), loc="conv1")
    y = b.add(Add(), y, z, name="sum")
    y = b.add(Reshape((1, -1)), b.add(ReduceSum((2, 3)), y))
    y = b.add(MatMul(), y, b.constant(weights(channels, 10), "w2"))
    y = b.add(Softmax(), b.add(Mul(), y, b.constant(np.float32(0.125))))
    return b.finish(y, ["y"])


_UNARY = (Relu(), Sigmoid(), Neg(), Abs(), Identity(), Exp(), Clip(-1, 2), Clip(min=0.0), Gelu())
_BINARY = (Add(), Sub(), Mul(), Max(), Div())
_NUMBERS = (0.0, -0.0, 1.0, 2.0, -1.0, 0.25, 3.0)


@st.composite
def random_graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    """Graphs of a few nodes over matrices and their reshapes, rich in constants."""
    b = Builder("random")
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    values: list[Value] = [
        b.input("x", TensorType(f32, (rows, columns))),
        b.input("i", TensorType(i32, (rows, columns))),
    ]

    def pick(*, rank: int | None = None, is_float: bool = True) -> Value:
        fits = [v for v in values if v.dtype.is_float == is_float and rank in (None, v.type.rank)]
        return draw(st.sampled_from(fits))

    def constant(like: Value) -> Value:
        static = like.type.static_shape
        shape = draw(st.sampled_from([(), (1,), static, static[-1:]]))
        return b.constant(np.full(shape, draw(st.sampled_from(_NUMBERS)), like.dtype.numpy))

    def step() -> Any:
        kind = draw(st.integers(0, 9))
        if kind <= 1:
            return b.add(draw(st.sampled_from(_UNARY)), pick())
        if kind <= 3:
            x = pick()
            same = [v for v in values if v.type == x.type]
            y = constant(x) if draw(st.booleans()) else draw(st.sampled_from(same))
            pair = (x, y) if draw(st.booleans()) else (y, x)
            return b.add(draw(st.sampled_from(_BINARY)), *pair)
        if kind == 4:
            x = pick()
            return b.add(Pow(), x, b.constant(np.float32(draw(st.sampled_from((1, 2, 3, -1))))))
        if kind == 5:
            x = pick(rank=2)
            return b.add(
                Transpose(
                    draw(st.sampled_from(((1, 0), (0, 1)))),
                ),
                x,
            )
        if kind == 6:
            x = pick()
            wanted = draw(st.sampled_from([(-1,), x.shape, (1, -1), (x.shape[0], -1)]))
            return b.add(Reshape(wanted), x)
        if kind == 7:
            x = pick(rank=2)
            other = b.add(Transpose((1, 0)), draw(st.sampled_from([x, pick(rank=2)])))
            if other.shape[0] != x.shape[1]:
                other = b.add(Transpose((1, 0)), x)
            return b.add(MatMul(), x, other)
        if kind == 8:
            x = pick()
            wide = b.add(Expand((2, *x.shape)), x) if x.type.rank < 3 else x
            cond = b.constant(np.full((), draw(st.booleans())))
            return b.add(Where(), cond, wide, b.add(Neg(), wide))
        n = pick(is_float=False)
        c = b.constant(np.full((), draw(st.integers(-3, 3)), np.int32))
        values.append(b.add(draw(st.sampled_from((Add(), Mul()))), n, c))
        if draw(st.booleans()):
            return b.add(Cast(f32), values[-1])
        return b.add(ReduceMax((0,), True), pick())

    for _ in range(draw(st.integers(1, most))):
        value = step()
        if value.type.is_static and value.type.size <= 64:
            values.append(value)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return b.finish(outputs, [f"y{i}" for i in range(len(outputs))])


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal floats and small integers for every input."""
    rng = np.random.default_rng(seed)
    return {
        v.name: (rng.standard_normal(v.type.static_shape) * 2).astype(v.dtype.numpy)
        for v in graph.inputs
    }
