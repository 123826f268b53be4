"""Small models with samples of their inputs."""

from __future__ import annotations

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu, Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import Gemm, MatMul
from tilesmith.ops.norm import BatchNorm, LayerNorm
from tilesmith.ops.pool import MaxPool
from tilesmith.ops.reduce import ReduceMean


def convolutional(seed: int = 0) -> Graph:
    """conv, batch norm, relu, max-pool, conv, relu, residual, mean, gemm: `x` f32[2,3,12,12] to
    `y` f32[2,5].
    """
    rng = np.random.default_rng(seed)
    b = Builder("convolutional")

    def weights(*shape: int):
        fan = np.prod(shape[1:])
        return b.constant((rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32), "w")

    def vector(n: int, low: float = -0.5, high: float = 0.5):
        return b.constant(rng.uniform(low, high, n).astype(np.float32))

    x = b.input("x", TensorType(f32, (2, 3, 12, 12)))
    y = b.add(Conv(pads=(1, 1, 1, 1)), x, weights(8, 3, 3, 3))
    statistics = vector(8, 0.5, 2), vector(8), vector(8), vector(8, 0.5, 2)
    y = b.add(BatchNorm(), y, *statistics, loc="first")
    y = b.add(MaxPool((2, 2), (2, 2)), b.add(Relu(), y))
    z = b.add(Conv(pads=(1, 1, 1, 1), groups=2), y, weights(8, 4, 3, 3), loc="second")
    z = b.add(Relu(), b.add(Add(), z, b.constant(rng.uniform(-1, 1, (8, 1, 1)).astype(np.float32))))
    z = b.add(ReduceMean((2, 3), False), b.add(Add(), y, z))
    z = b.add(Gemm(transpose_b=True), z, weights(5, 8), vector(5), loc="last")
    return b.finish(z, ["y"])


def transformer(seed: int = 0, outlier: float = 1.0) -> Graph:
    """layer norm, matmul, gelu, matmul, residual: `x` f32[4,16] to `y` f32[4,16].  Three channels
    of the norm are `outlier` times as large as others, as in trained transformers.
    """
    rng = np.random.default_rng(seed)
    b = Builder("transformer")
    scale = rng.uniform(0.5, 1.5, 16)
    scale[[2, 7, 11]] *= outlier
    x = b.input("x", TensorType(f32, (4, 16)))
    n = b.add(LayerNorm(), x, *(b.constant(a.astype(np.float32)) for a in (scale, scale * 0.1)))
    up = rng.standard_normal((16, 32)) / 4
    up[[2, 7, 11]] /= outlier
    y = b.add(MatMul(), n, b.constant(up.astype(np.float32), "w"), loc="up")
    y = b.add(Gelu(), b.add(Add(), y, b.constant(rng.uniform(-1, 1, 32).astype(np.float32))))
    down = (rng.standard_normal((32, 16)) / 6).astype(np.float32)
    y = b.add(MatMul(), y, b.constant(down, "w"), loc="down")
    return b.finish(b.add(Add(), x, y), ["y"])


def samples(graph: Graph, count: int = 4, seed: int = 1) -> list[np.ndarray]:
    """Normal inputs for a model with one input."""
    rng = np.random.default_rng(seed)
    shape = graph.inputs[0].type.static_shape
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]
