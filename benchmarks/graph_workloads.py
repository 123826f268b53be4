"""Families of small graphs, each with one fused group that matters, as functions of a shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu, Relu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import LayerNorm, Softmax
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.reduce import ReduceMean, ReduceSum

Shape = tuple[int, ...]


def dense(m: int, n: int, k: int) -> Graph:
    return _net(((m, k),), (MatMul(), (k, n)), Relu())


def batch_matmul(batch: int, m: int, k: int, n: int) -> Graph:
    return _net(((batch, m, k), (batch, k, n)), MatMul())


def conv(size: int, channels: int, filters: int, kernel: int, stride: int) -> Graph:
    op = Conv((stride, stride), (kernel // 2,) * 4)
    return _net(((1, channels, size, size),), (op, (filters, channels, kernel, kernel)), Relu())


def depthwise(size: int, channels: int, kernel: int, stride: int) -> Graph:
    op = Conv((stride, stride), (kernel // 2,) * 4, groups=channels)
    return _net(((1, channels, size, size),), (op, (channels, 1, kernel, kernel)))


def softmax(rows: int, columns: int) -> Graph:
    return _net(((rows, columns),), Softmax())


def layer_norm(rows: int, columns: int) -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType(f32, (rows, columns)))
    scale, bias = (b.constant(_weights(columns)) for _ in range(2))
    return b.finish((b.add(LayerNorm(), x, scale, bias),))


def row_mean(rows: int, columns: int) -> Graph:
    return _net(((rows, columns),), ReduceMean((1,)))


def column_sums(rows: int, columns: int) -> Graph:
    return _net(((rows, columns),), ReduceSum((0,)))


def gelu(rows: int, columns: int) -> Graph:
    return _net(((rows, columns),), Gelu())


def sum_of_two(size: int, channels: int) -> Graph:
    return _net(((1, channels, size, size),) * 2, Add(), Relu())


def max_pool(size: int, channels: int, kernel: int, stride: int) -> Graph:
    op = MaxPool((kernel, kernel), (stride, stride), (kernel // 2,) * 4)
    return _net(((1, channels, size, size),), op)


def mean_pool(size: int, channels: int, kernel: int, stride: int) -> Graph:
    return _net(((1, channels, size, size),), AvgPool((kernel, kernel), (stride, stride)))


GRAPHS: dict[str, Callable[..., Graph]] = {
    **{
        f.__name__: f
        for f in (
            dense, batch_matmul, conv, depthwise, softmax, layer_norm, row_mean, column_sums, gelu,
            sum_of_two, max_pool, mean_pool,
        )
    },
    "conv1x1": conv,
    "winograd": conv,
}  # fmt: skip


def _net(inputs: tuple[Shape, ...], *ops: Op | tuple[Op, Shape]) -> Graph:
    """Operators one after the other, the first on all inputs; some with weights of a shape."""
    b = Builder("net")
    values: tuple[Value, ...] = tuple(
        b.input(f"x{i}", TensorType(f32, shape)) for i, shape in enumerate(inputs)
    )
    for op in ops:
        if isinstance(op, tuple):
            op, shape = op
            values = (*values, b.constant(_weights(*shape)))
        values = (b.add(op, *values),)
    return b.finish(values)


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.1
