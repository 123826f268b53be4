"""Five small networks whose IR is kept as text after every pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith import te
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import INDEX, If, Loop
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import bool_, f32, i32, u8
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.ops.activation import Relu, Sigmoid
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add, Cast, Clip, Div, Mul, Round, Sub, Tanh
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import BatchNorm, LayerNorm, Softmax
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.reduce import ReduceMean
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.slicing import Concat


class _Weights:
    """Constants that are the same in each run."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> Value:
        return self.builder.constant(self.rng.standard_normal(shape, np.float32))

    def statistics(self, channels: int) -> list[Value]:
        """Scale, bias, mean and variance of a batch normalisation."""
        return [*(self(channels) for _ in range(3)), self.builder.constant(
            np.abs(self.rng.standard_normal(channels, np.float32)) + 0.5
        )]  # fmt: skip


def residual() -> Graph:
    """A residual block with batch normalisation, two branches of one image, and a classifier."""
    b = Builder("residual")
    w = _Weights(b)
    x = b.input("x", TensorType(f32, (1, 16, 14, 14)))
    y = b.add(Conv(pads=(1, 1, 1, 1)), x, w(32, 16, 3, 3), loc="conv0")
    y = b.add(Relu(), b.add(BatchNorm(), y, *w.statistics(32), loc="bn0"))
    z = b.add(Conv(pads=(1, 1, 1, 1)), y, w(32, 32, 3, 3), loc="conv1")
    z = b.add(BatchNorm(), z, *w.statistics(32), loc="bn1")
    y = b.add(Relu(), b.add(Add(), z, y))
    wide = b.add(Conv(pads=(1, 1, 1, 1), strides=(2, 2)), y, w(8, 32, 3, 3), loc="wide")
    narrow = b.add(Conv(strides=(2, 2)), y, w(8, 32, 1, 1), loc="narrow")
    y = b.add(Mul(), b.add(Add(), wide, narrow), w(8, 1, 1))
    y = b.add(ReduceMean((2, 3)), y)
    y = b.add(MatMul(), b.add(Reshape((1, 8)), y), w(8, 10), loc="classifier")
    return b.finish(b.add(Add(), y, w(10)), ["y"])


def attention() -> Graph:
    """One head of attention with layer normalisation, and a gated product."""
    b = Builder("attention")
    w = _Weights(b)
    x = b.input("x", TensorType(f32, (1, 2, 12, 16)))
    h = b.add(LayerNorm(), x, w(16), w(16), loc="norm")
    q, k, v = (b.add(MatMul(), h, w(16, 16), loc=n) for n in ("query", "key", "value"))
    scores = b.add(MatMul(), q, b.add(Transpose((0, 1, 3, 2)), k), loc="scores")
    scores = b.add(Mul(), scores, b.constant(np.float32(0.25)))
    y = b.add(MatMul(), b.add(Softmax(), scores), v, loc="mix")
    y = b.add(Add(), b.add(MatMul(), y, w(16, 16), loc="project"), x)
    gate = b.add(Sigmoid(), b.add(Mul(), y, b.constant(np.float32(1))))
    again = b.add(Sigmoid(), y)
    return b.finish(b.add(Add(), b.add(Mul(), y, gate), again), ["y"])


def mobile() -> Graph:
    """A depthwise convolution, pooling, a dilated and a transposed convolution, concatenated."""
    b = Builder("mobile")
    w = _Weights(b)
    x = b.input("x", TensorType(f32, (1, 8, 12, 12)))
    y = b.add(Conv(pads=(1, 1, 1, 1), groups=8), x, w(8, 1, 3, 3), loc="depthwise")
    y = b.add(Clip(0.0, 6.0), b.add(BatchNorm(), y, *w.statistics(8)))
    y = b.add(Conv(), y, w(32, 8, 1, 1), loc="pointwise")
    b.add(Relu(), y, loc="unused")
    pooled = b.add(MaxPool((3, 3), pads=(1, 1, 1, 1)), y, loc="max")
    far = b.add(Conv(pads=(9, 9, 9, 9), dilations=(9, 9)), y, w(16, 32, 3, 3), loc="dilated")
    half = b.add(AvgPool((2, 2), strides=(2, 2)), y, loc="average")
    half = b.add(Conv(pads=(6,) * 4, dilations=(6, 6)), half, w(8, 32, 3, 3), loc="wide")
    up = b.add(ConvTranspose(strides=(2, 2)), half, w(8, 8, 2, 2), loc="up")
    return b.finish(b.add(Concat(1), pooled, far, up, loc="concat"), ["y"])


def quantised() -> Graph:
    """A product of bytes with scales, as QuantizeLinear and DequantizeLinear write it, one of
    integers, from the result of the first, and a function of bytes.
    """
    b = Builder("quantised")
    rng = np.random.default_rng(0)
    x = b.input("x", TensorType(u8, (6, 12)))
    zero, half = b.constant(np.int32(128)), b.constant(np.float32(0.5))
    whole = b.add(Sub(), b.add(Cast(i32), x), zero)
    scaled = b.add(Mul(), b.add(Cast(f32), whole), half)
    w = b.constant(rng.integers(-127, 128, (12, 24), np.int8))
    scales = b.constant(rng.uniform(0.1, 0.2, 24).astype(np.float32))
    weights = b.add(Mul(), b.add(Cast(f32), b.add(Cast(i32), w)), scales)
    y = b.add(Relu(), b.add(MatMul(), scaled, weights, loc="scaled"))
    steps = b.add(Round(), b.add(Div(), y, b.constant(np.float32(0.3))))
    limited = b.add(Clip(0.0, 255.0), b.add(Add(), steps, b.constant(np.float32(3))))
    again = b.add(Sub(), b.add(Cast(i32), b.add(Cast(u8), limited)), b.constant(np.int32(3)))
    v = b.constant(rng.integers(-127, 128, (24, 8), np.int8))
    z = b.add(MatMul(), again, b.add(Cast(i32), v), loc="whole")
    gate = b.add(Sigmoid(), b.add(Mul(), b.add(Cast(f32), x), half))
    bytes_ = b.add(Round(), b.add(Mul(), gate, b.constant(np.float32(255))))
    gate = b.add(Cast(u8), b.add(Clip(0.0, 255.0), bytes_))
    return b.finish([z, gate], ["z", "gate"])


def decoder() -> Graph:
    """A recurrent cell over a sequence, its gate the same in each step, with a cache that grows, a
    choice, and a scatter.
    """
    step = Builder("step")
    step.input("i", INDEX)
    h = step.input("h", TensorType(f32, (1, 8)))
    rows = symbol("rows", 0, LARGEST, 8)
    cache = step.input("cache", TensorType(f32, (rows, 4)))
    x = step.input("x", TensorType(f32, (1, 4)))
    u, w = step.input("u", TensorType(f32, (8, 8))), step.input("w", TensorType(f32, (4, 8)))
    scale = step.input("scale", TensorType(f32, (8,)))
    y = step.add(Add(), step.add(MatMul(), h, u, loc="state"), step.add(MatMul(), x, w))
    after = step.add(Mul(), step.add(Tanh(), y), step.add(Sigmoid(), scale))
    longer = step.add(Concat(0), cache, x, loc="cache")
    body = step.finish([after, longer, after], ["h", "cache", "seen"])
    types = (TensorType(f32, (1, 8)), TensorType(f32, (7, 4)), TensorType(f32, (6, 1, 8)))
    loop = Loop(body, 2, (1,), (-1,), 6, results=types, inside=(rows,))
    sides = []
    for name, op in (("then", Softmax()), ("otherwise", Relu())):
        side = Builder(name)
        seen, w = side.input("seen", TensorType(f32, (6, 1, 8))), side.input("w", u.type)
        sides.append(side.finish(side.add(op, side.add(MatMul(), seen, w)), ["y"]))
    b = Builder("decoder")
    weights = _Weights(b)
    flag, xs = b.input("flag", TensorType(bool_, ())), b.input("xs", TensorType(f32, (6, 1, 4)))
    gate = b.input("gate", TensorType(f32, (8,)))
    u = weights(8, 8)
    start = b.constant(np.zeros((1, 8), np.float32))
    h, seen_x, seen = b.add(loop, start, weights(1, 4), xs, u, weights(4, 8), gate, loc="loop")
    y = b.add(If(*sides), flag, seen, u, loc="if")
    first = b.constant(np.zeros((1, 1, 8), np.int64))
    y = b.add(ScatterElements(0), y, first, weights(1, 1, 8), loc="write")
    return b.finish([h, seen_x, y], ["h", "cache", "y"])


def triangular() -> Func:
    """A product whose left matrix is lower triangular, in tiles of 8x16."""
    n = 64
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, 16), name="B")
    k = te.reduce_axis(n, "k")
    c = te.compute(
        (n, 16),
        lambda i, j: te.sum(te.select(k.var <= i, a[i, k], 0.0) * b[k, j], axis=k),
        name="C",
    )
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "register")
    io, ii = s[c].split("i", factor=8)
    s[c].vectorize("j")
    s[total].compute_at(s[c], io)
    s[total].reorder("k", "i", "j")
    s[total].unroll("i")
    s[total].vectorize("j")
    s[c].unroll(ii)
    return te.lower(s, [a, b, c], "triangular")


INVARIANT = """\
def invariant(X: f32[6, 10], n: i64, Y: f32[6, 10]) -> Y:
    for i in range(6):
        for j in range(10):
            if i < n:
                Y[i, j] = X[i, j]
            if n <= i:
                Y[i, j] = 0.0
"""


ROWS = """
def rows(X: f32[9, 16], at: i64[4], Y: f32[4, 16]) -> Y:
    for i in range(4):
        for j in range(16):
            Y[i, j] = X[check_index(at[i], 9, i * 16 + j), j]
"""


def rows() -> Func:
    """Rows that are taken by index: the index is checked once for each row."""
    return parse_func(ROWS)


def invariant() -> Func:
    """A loop whose body has a condition on an argument and on the loop around it."""
    return parse_func(INVARIANT)


MODELS: dict[str, Callable[[], Graph]] = {
    "residual": residual,
    "attention": attention,
    "mobile": mobile,
    "decoder": decoder,
    "quantised": quantised,
}
