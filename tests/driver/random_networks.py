"""Random networks: convolutions, pools, products, norms, attention and data movement in odd sizes.

Values are images (rank 4), sequences (rank 3) or rows (rank 2); each step takes one and gives one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Silu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add, Max, Mul, Neg, Sub, Tanh
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import GroupNorm, LayerNorm, RmsNorm, Softmax
from tilesmith.ops.pool import AvgPool, LpPool, MaxPool
from tilesmith.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from tilesmith.ops.resize import Resize
from tilesmith.ops.shape import DepthToSpace, Reshape, Transpose
from tilesmith.ops.slicing import Concat, Pad, Slice

Draw = Callable[[Sequence[Any]], Any]
"""Picks one of several."""

MOST_ELEMENTS = 30_000
"""Steps that would give a larger value are left out."""

_UNARY: tuple[Op, ...] = (
    Relu(), LeakyRelu(), Sigmoid(), Tanh(), Gelu(), HardSwish(), Silu(), Neg(),
)  # fmt: skip
_BINARY: tuple[Op, ...] = (Add(), Sub(), Mul(), Max())


class Networks:
    """One network in the making."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.b = Builder("random")
        self.rng = np.random.default_rng(draw(range(1000)))
        n, c = draw([1, 1, 2]), draw([1, 3, 8, 16, 20])
        h, w = draw([1, 5, 8, 13]), draw([1, 6, 9, 16])
        self.values: list[Value] = [
            self.b.input("x", TensorType(f32, (n, c, h, w))),
            self.b.input("t", TensorType(f32, (draw([1, 2]), draw([1, 5, 17]), draw([4, 16, 24])))),
        ]

    def finish(self, steps: int) -> Graph:
        for _ in range(steps):
            x = self.draw(self.values[-3:])
            move = self.draw(_MOVES[x.type.rank])
            y = move(self, x)
            if y is not None and y.type.size <= MOST_ELEMENTS and y.type.rank in _MOVES:
                self.values.append(y)
        outputs = dict.fromkeys([self.values[-1], self.draw(self.values[2:] or self.values)])
        return self.b.finish(tuple(outputs))

    def weight(self, *shape: int) -> Value:
        scale = math.sqrt(max(math.prod(shape[1:]), 1))
        return self.b.constant((self.rng.standard_normal(shape) / scale).astype(np.float32))

    def unary(self, x: Value) -> Value:
        return self.b.add(self.draw(_UNARY), x)

    def binary(self, x: Value) -> Value:
        shape = x.type.static_shape
        others = [v for v in self.values if v.shape == x.shape]
        channel = tuple(n if i == 1 or len(shape) < 3 else 1 for i, n in enumerate(shape))
        other = self.draw([*others, self.weight(*shape[-1:]), self.weight(*channel)])
        pair = (x, other) if self.draw([True, False]) else (other, x)
        return self.b.add(self.draw(_BINARY), *pair)

    def conv(self, x: Value) -> Value | None:
        _, c, h, w = x.type.static_shape
        kernel = (self.draw([1, 1, 2, 3, 3, 5]), self.draw([1, 1, 3, 3, 4]))
        pads = tuple(self.draw([0, 0, 1, 1, 2]) for _ in range(4))
        dilations = (self.draw([1, 1, 2]), self.draw([1, 1, 2]))
        reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
        if h + pads[0] + pads[2] < reach[0] or w + pads[1] + pads[3] < reach[1]:
            return None
        groups = self.draw([1, 1, 1, *(g for g in (2, 4, c) if c % g == 0)])
        out = self.draw([1, 2, 3]) * groups if groups > 1 else self.draw([1, 3, 8, 16, 17, 40])
        strides = (self.draw([1, 1, 2]), self.draw([1, 1, 2, 3]))
        op = Conv(strides, pads, dilations, groups)
        y = self.b.add(op, x, self.weight(out, c // groups, *kernel))
        return self.b.add(Add(), y, self.weight(out, 1, 1)) if self.draw([True, False]) else y

    def conv_transpose(self, x: Value) -> Value | None:
        c = x.type.static_shape[1]
        if x.type.size > 2000:
            return None
        groups = self.draw([1, 1, *(g for g in (2, c) if c % g == 0)])
        strides = (self.draw([1, 2]), self.draw([1, 2, 3]))
        op = ConvTranspose(strides, (0, 1, 1, 0), (1, 1), groups)
        return self.b.add(op, x, self.weight(c, self.draw([1, 4, 9]), 3, 3))

    def pool(self, x: Value) -> Value | None:
        kernel = (self.draw([1, 2, 3]), self.draw([1, 2, 3]))
        pads = tuple(self.draw([0, 0, 1]) if k > 1 else 0 for k in (*kernel, *kernel))
        _, _, h, w = x.type.static_shape
        if h + pads[0] + pads[2] < kernel[0] or w + pads[1] + pads[3] < kernel[1]:
            return None
        kind = self.draw([MaxPool, AvgPool, LpPool])
        return self.b.add(kind(kernel, (self.draw([1, 2]), self.draw([1, 2])), pads), x)

    def reduce(self, x: Value) -> Value:
        axes = self.draw([a for a in ((1,), (2,), (1, 2), (2, 3), (3,)) if max(a) < x.type.rank])
        kind = self.draw([ReduceMean, ReduceMax, ReduceSum])
        return self.b.add(kind(axes, self.draw([True, True, False])), x)

    def combine(self, x: Value) -> Value:
        """A mean or largest value back onto what it came from, as gates and norms do.

        Not less its mean: another mean would then be of rounding errors alone.
        """
        reduce, op = self.draw([(ReduceMean, Mul()), (ReduceMax, Sub())])
        return self.b.add(op, x, self.b.add(reduce((x.type.rank - 1,), True), x))

    def gate(self, x: Value) -> Value:
        """Squeeze and excitation."""
        c = x.type.static_shape[1]
        pooled = self.b.add(ReduceMean((2, 3), True), x)
        hidden = self.b.add(Relu(), self.b.add(Conv(), pooled, self.weight(4, c, 1, 1)))
        return self.b.add(
            Mul(), x, self.b.add(Sigmoid(), self.b.add(Conv(), hidden, self.weight(c, 4, 1, 1)))
        )

    def concat(self, x: Value) -> Value | None:
        axis = self.draw(range(1, x.type.rank))
        fits = [
            v
            for v in self.values
            if v.type.rank == x.type.rank
            and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)
        ]
        parts = [x, self.draw(fits), *([self.draw(fits)] if self.draw([True, False]) else [])]
        return self.b.add(Concat(axis), *parts)

    def slice(self, x: Value) -> Value:
        axis = self.draw(range(x.type.rank))
        n = x.type.static_shape[axis]
        start = self.draw(range(n))
        return self.b.add(Slice((start,), (n,), (axis,), (self.draw([1, 1, 2]),)), x)

    def pad(self, x: Value) -> Value:
        rank = x.type.rank
        pads = tuple(self.draw([0, 0, 1, 2]) for _ in range(2 * rank))
        return self.b.add(Pad(pads, "constant", self.draw([0.0, 0.0, 1.5])), x)

    def resize(self, x: Value) -> Value:
        n, c, h, w = x.type.static_shape
        sizes = (n, c, self.draw([h, 2 * h, h + 1]), self.draw([2 * w, w + 3]))
        return self.b.add(Resize(sizes, mode=self.draw(["nearest", "linear"])), x)

    def transpose(self, x: Value) -> Value:
        order = list(range(x.type.rank))
        perm = tuple(order.pop(self.draw(range(len(order)))) for _ in range(len(order)))
        return self.b.add(Transpose(perm), x)

    def reshape(self, x: Value) -> Value:
        shape = x.type.static_shape
        wanted = [(shape[0], -1), (1, *shape[:1], -1), (1, -1, 1, shape[-1])]
        if len(shape) == 4:
            wanted.append((shape[0], shape[1], -1))
        return self.b.add(Reshape(self.draw(wanted)), x)

    def depth_to_space(self, x: Value) -> Value | None:
        return self.b.add(DepthToSpace(2), x) if x.type.static_shape[1] % 4 == 0 else None

    def dense(self, x: Value) -> Value:
        k, m = x.type.static_shape[-1], self.draw([1, 5, 16, 33])
        if self.draw([True, True, False]):
            y = self.b.add(MatMul(), x, self.weight(k, m))
        else:
            y = self.b.add(MatMul(transpose_b=True), x, self.weight(m, k))
        return self.b.add(Add(), y, self.weight(m)) if self.draw([True, False]) else y

    def product(self, x: Value) -> Value:
        """With its own transpose."""
        last = x.type.rank - 1
        perm = (*range(last - 1), last, last - 1)
        other = self.b.add(Transpose(perm), self.draw([x, self.b.add(Relu(), x)]))
        return self.b.add(MatMul(), *((x, other) if self.draw([True, False]) else (other, x)))

    def attention(self, x: Value) -> Value:
        """Of several heads where they divide the width."""
        n, s, d = x.type.static_shape
        heads = self.draw([h for h in (1, 2, 4) if d % h == 0])

        def projected() -> Value:
            y = self.b.add(MatMul(), x, self.weight(d, d))
            y = self.b.add(Reshape((n, s, heads, d // heads)), y)
            return self.b.add(Transpose((0, 2, 1, 3)), y)

        q, k, v = projected(), projected(), projected()
        scores = self.b.add(MatMul(), q, self.b.add(Transpose((0, 1, 3, 2)), k))
        scores = self.b.add(Mul(), scores, self.b.constant(np.float32(1 / math.sqrt(d // heads))))
        if self.draw([True, False]):
            scores = self.b.add(Add(), scores, self.weight(n, 1, 1, s))
        y = self.b.add(MatMul(), self.b.add(Softmax(-1), scores), v)
        y = self.b.add(Transpose((0, 2, 1, 3)), y)
        return self.b.add(Reshape((n, s, d)), y)

    def norm(self, x: Value) -> Value:
        d = x.type.static_shape[-1]
        kind = self.draw(["layer", "rms", "softmax", "group"])
        if kind == "layer":
            return self.b.add(LayerNorm(-1), x, self.weight(d), self.weight(d))
        if kind == "rms":
            return self.b.add(RmsNorm(-1), x, self.weight(d))
        if kind == "group" and x.type.rank == 4 and d > 1:
            c = x.type.static_shape[1]
            return self.b.add(GroupNorm(1), x, self.weight(c), self.weight(c))
        return self.b.add(Softmax(self.draw(range(1, x.type.rank))), x)


_N = Networks
_ANY = [_N.unary, _N.unary, _N.binary, _N.binary, _N.reshape, _N.transpose, _N.concat, _N.slice]
_MOVES: dict[int, list[Callable[[Networks, Value], Value | None]]] = {
    2: [*_ANY, _N.dense, _N.dense, _N.product, _N.norm, _N.reduce, _N.combine, _N.pad],
    3: [*_ANY, _N.dense, _N.product, _N.attention, _N.norm, _N.norm, _N.reduce, _N.combine],
    4: [
        *_ANY, _N.conv, _N.conv, _N.conv, _N.conv, _N.conv_transpose, _N.pool, _N.pool, _N.pad,
        _N.resize, _N.gate, _N.norm, _N.reduce, _N.combine, _N.depth_to_space, _N.product,
    ],
}  # fmt: skip


def random_network(draw: Draw, steps: int) -> Graph:
    """A network of about `steps` steps."""
    return Networks(draw).finish(steps)
