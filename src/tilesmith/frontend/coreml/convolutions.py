"""Core ML's convolutions, pools and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, add_bias, convolve, geometry
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim
from tilesmith.ops import conv as cv
from tilesmith.ops import matmul as mm
from tilesmith.ops import pool, rules
from tilesmith.ops.attention import Attention
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.functions import where
from tilesmith.ops.norm import MaskedSoftmax, Softmax

_PAD_TYPES = ("valid", "same", "same_lower", "custom")


def _geometry(n: MilNode, x: Value, kernel: Sequence[int]) -> Geometry:
    """The windows over x [N, C, spatial...], with the pads of pad_type "custom"."""
    pads: tuple[int, ...] = (0,)
    if n.text("pad_type", "valid", _PAD_TYPES) == "custom":
        pairs = n.ints("pad", (0,) * (2 * len(kernel)))
        pads = (*pairs[::2], *pairs[1::2])
    return geometry(n, x, kernel, n.ints("strides", (1,)), pads, n.ints("dilations", (1,)))


def _windows(n: MilNode, x: Value, kernel: Sequence[int]) -> Geometry:
    g = _geometry(n, x, kernel)
    pad_type = n.text("pad_type", "valid")
    if pad_type.startswith("same"):
        g.pads = g.same_pads(pad_type == "same")
    return g


def _operands(n: MilNode) -> tuple[Value, Value]:
    x, w = n.input("x"), n.input("weight")
    if x.type.rank < 3 or w.type.rank != x.type.rank:
        n.bad(f"expected images and filters of the same rank, found {x.type} and {w.type}")
    return x, w


@mil_op("conv")
def conv(n: MilNode) -> Result:
    x, w = _operands(n)
    g = _windows(n, x, n.shape(w)[2:])
    return add_bias(n, convolve(n, x, w, g, n.int("groups", 1)), n.optional("bias"))


@mil_op("conv_transpose")
def conv_transpose(n: MilNode) -> Result:
    """A transposed convolution.  If several result sizes are possible, `output_shape` decides."""
    x, w = _operands(n)
    g = _geometry(n, x, n.shape(w)[2:])
    rank, pad_type = len(g.kernel), n.text("pad_type", "valid")
    full = [
        extents.total((extents.product((e, s)), r - s))
        for e, s, r in zip(g.extents, g.strides, g.reach, strict=True)
    ]
    wanted: Sequence[Dim] | None = None
    if n.has("output_shape"):
        wanted = n.extents(n.input("output_shape"), "output_shape")[-rank:]
    elif pad_type.startswith("same"):
        wanted = [extents.product((e, s)) for e, s in zip(g.extents, g.strides, strict=True)]
    extra, cut = [0] * rank, [0] * rank
    if wanted is not None:
        surplus = [
            rules.static("conv_transpose", extents.difference(f, w), "a cut border")
            for f, w in zip(full, wanted, strict=True)
        ]
        if pad_type.startswith("same"):
            cut = [max(s, 0) for s in surplus]
            half = [c // 2 for c in cut]
            rest = [c - h for c, h in zip(cut, half, strict=True)]
            g.pads = (*half, *rest) if pad_type == "same" else (*rest, *half)
        else:
            cut = [a + b for a, b in zip(g.numbers() or (), (g.numbers() or ())[rank:])]
        extra = [c - s for c, s in zip(cut, surplus, strict=True)]
    op = cv.ConvTranspose(
        g.strides, g.numbers() or (), g.dilations, n.int("groups", 1), tuple(extra)
    )
    return add_bias(n, n.add(op, x, w), n.optional("bias"))


def _pool(n: MilNode, kind: type[pool.Op]) -> Result:
    x, kernel = n.input("x"), n.ints("kernel_sizes")
    g = _windows(n, x, kernel)
    settings = (g.kernel, g.strides, g.pads, g.dilations, n.flag("ceil_mode"))
    if kind is pool.AvgPool:
        counts = not n.flag("exclude_padding_from_average")
        return n.add(pool.AvgPool(*settings, counts), x)
    return n.add(kind(*settings), x)  # type: ignore[call-arg]


mil_op("max_pool")(partial(_pool, kind=pool.MaxPool))
mil_op("avg_pool")(partial(_pool, kind=pool.AvgPool))
mil_op("l2_pool")(partial(_pool, kind=pool.LpPool))


# Products


@mil_op("linear")
def linear(n: MilNode) -> Result:
    y = n.add(mm.MatMul(transpose_b=True), n.input("x"), n.input("weight"))
    bias = n.optional("bias")
    return y if bias is None else y + bias


@mil_op("matmul")
def matmul(n: MilNode) -> Result:
    op = mm.MatMul(n.flag("transpose_x"), n.flag("transpose_y"))
    return n.add(op, n.input("x"), n.input("y"))


@mil_op("einsum")
def einsum(n: MilNode) -> Result:
    return n.add(Einsum(n.text("equation")), *n.values("values"))


@mil_op("scaled_dot_product_attention")
def scaled_dot_product_attention(n: MilNode) -> Result:
    q, k, v = (n.input(name) for name in ("query", "key", "value"))
    mask = n.optional("attn_mask")
    if mask is None:
        return n.add(Attention(), q, k, v)
    scores = n.add(mm.MatMul(transpose_b=True), q * n.extent(q, -1) ** -0.5, k)
    if mask.dtype.is_bool:
        weights = n.add(MaskedSoftmax(-1), where(mask, scores, float("-inf")))
    else:
        weights = n.add(Softmax(-1), scores + mask)
    return n.add(mm.MatMul(), weights, v)
