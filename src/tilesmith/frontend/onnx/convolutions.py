"""ONNX's convolutions and pools, with their forms of padding."""

from __future__ import annotations

from tilesmith.frontend.common import windows
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import add_bias
from tilesmith.frontend.onnx.contractions import without_zero_point
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op, same_operator
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ops import conv as cv
from tilesmith.ops import deform, pool, rules

_LARGEST = 1 << 31
"""Upper bound on strides, dilations, pads and kernel extents of a model that is not damaged."""

_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def _numbers(
    n: OnnxNode, name: str, count: int, low: int, default: int | None = None
) -> tuple[int, ...]:
    """Attribute `name`, a list of `count` ints, each at least `low`."""
    numbers = n.attr_ints(name)
    if not numbers and default is not None:
        return (default,) * count
    if numbers is None or len(numbers) != count or any(not low <= v < _LARGEST for v in numbers):
        shown = None if numbers is None else list(numbers)
        n.bad(
            f"attribute {name!r}: expected {count} numbers from {low} to {_LARGEST - 1}, found "
            f"{shown}"
        )
    return numbers


class Geometry(windows.Geometry):
    """Kernel, strides, dilations and pads of a node, after `auto_pad`."""

    def __init__(
        self, n: OnnxNode, x: Value, kernel: tuple[int, ...], ceil_mode: bool = False
    ) -> None:
        rank = x.type.rank - 2
        if rank < 1:
            n.bad(f"expected an input [N, C, spatial...], found {x.type}")
        if len(kernel) != rank or any(not 1 <= k < _LARGEST for k in kernel):
            n.bad(f"kernel_shape: expected {rank} numbers >= 1 for {x.type}, found {list(kernel)}")
        strides = _numbers(n, "strides", rank, 1, 1)
        dilations = _numbers(n, "dilations", rank, 1, 1)
        self.auto_pad = n.attr_string("auto_pad", "NOTSET", among=_AUTO_PAD)
        self.ceil_mode = ceil_mode
        explicit = n.attr_ints("pads")
        pads = (0,) * (2 * rank)
        if self.auto_pad == "NOTSET":
            pads = _numbers(n, "pads", 2 * rank, -_LARGEST + 1, 0)
        elif explicit and any(explicit):
            n.bad(
                f"expected either pads or auto_pad, found pads {list(explicit)} and {self.auto_pad}"
            )
        super().__init__(x.type.shape[2:], kernel, strides, dilations, pads)

    def windowed(self) -> Geometry:
        """The geometry with the pads of a convolution or pool."""
        if self.auto_pad.startswith("SAME"):
            self.pads = self.same_pads(self.auto_pad == "SAME_UPPER")
        return self


def _kernel(n: OnnxNode, x: Value, w: Value) -> tuple[int, ...]:
    """The kernel's extents.  Attribute `kernel_shape`, if given, must equal them."""
    if w.type.rank != x.type.rank or w.type.rank < 3:
        n.bad(
            f"expected x [N, C, spatial...] and weights of the same rank, found {x.type} and "
            f"{w.type}"
        )
    kernel, stated = n.shape(w)[2:], n.attr_ints("kernel_shape")
    if stated and stated != kernel:
        n.bad(
            f"attribute 'kernel_shape': expected {list(kernel)} as the weights have, found "
            f"{list(stated)}"
        )
    return kernel


def convolve(n: OnnxNode, x: Value, w: Value) -> Value:
    """The convolution without bias that the node's attributes describe."""
    g = Geometry(n, x, _kernel(n, x, w)).windowed()
    return windows.convolve(n, x, w, g, _groups(n))


def _groups(n: OnnxNode) -> int:
    groups = n.attr_int("group", 1)
    if groups < 1:
        n.bad(f"attribute 'group': expected at least 1, found {groups}")
    return groups


@onnx_op("Conv", since=1)
def conv(n: OnnxNode) -> Result:
    return add_bias(n, convolve(n, n.input(0), n.input(1)), n.optional(2))


@onnx_op("ConvInteger", since=10)
def conv_integer(n: OnnxNode) -> Result:
    x = without_zero_point(n, n.input(0), n.optional(2), 1)
    return convolve(n, x, without_zero_point(n, n.input(1), n.optional(3), 0))


@onnx_op("ConvTranspose", since=1)
def conv_transpose(n: OnnxNode) -> Result:
    x, w = n.input(0), n.input(1)
    g = Geometry(n, x, _kernel(n, x, w))
    rank = len(g.kernel)
    extra = _numbers(n, "output_padding", rank, 0, 0)
    wanted = n.attr_ints("output_shape")
    scaled = [extents.product((e, s)) for e, s in zip(g.extents, g.strides, strict=True)]
    full = [
        extents.total((e, o + r - s))
        for e, s, o, r in zip(scaled, g.strides, extra, g.reach, strict=True)
    ]
    same = not wanted and g.auto_pad.startswith("SAME")
    if wanted or same:
        sizes = tuple(scaled) if same else (wanted or ())[-rank:]  # some models also give N and C
        if len(sizes) != rank or any(isinstance(w, int) and w < 1 for w in sizes):
            n.bad(f"attribute 'output_shape': expected {rank} extents, found {list(sizes)}")
        totals = [extents.difference(f, w) for f, w in zip(full, sizes, strict=True)]
        small = [as_dim(as_expr(t) // 2) for t in totals]
        large = [extents.difference(t, s) for t, s in zip(totals, small, strict=True)]
        g.pads = (*small, *large) if g.auto_pad == "SAME_UPPER" else (*large, *small)
    pads = tuple(rules.static(n.op_type, p, "a pad") for p in g.pads)
    y = n.add(cv.ConvTranspose(g.strides, pads, g.dilations, _groups(n), extra), x, w)
    return add_bias(n, y, n.optional(2))


@onnx_op("DeformConv", since=19)
def deform_conv(n: OnnxNode) -> Result:
    x, w, offset, bias, mask = *(n.input(i) for i in range(3)), n.optional(3), n.optional(4)
    kernel = n.attr_ints("kernel_shape") or n.shape(w)[2:]
    if kernel != n.shape(w)[2:]:
        n.bad(f"kernel_shape: expected that of weights {w.type}, found {list(kernel)}")
    g = Geometry(n, x, kernel)
    pads = tuple(rules.static(n.op_type, p, "a pad") for p in g.pads)
    op = deform.DeformConv(g.strides, pads, g.dilations, _groups(n), n.attr_int("offset_group", 1))
    return add_bias(n, n.add(op, x, w, offset, *([] if mask is None else [mask])), bias)


def _pool_geometry(n: OnnxNode, dilations_since: int, ceil_since: int) -> Geometry:
    kernel = n.attr_ints("kernel_shape")
    if kernel is None:
        n.bad("expected attribute 'kernel_shape', which is required; found none")
    if n.version < dilations_since and n.has("dilations"):
        n.bad(f"attribute 'dilations' exists since opset {dilations_since}")
    ceil = n.attr_flag("ceil_mode") if n.version >= ceil_since else False
    return Geometry(n, n.input(0), kernel, ceil).windowed()


@onnx_op("MaxPool", since=1)
def max_pool(n: OnnxNode) -> Result:
    g = _pool_geometry(n, dilations_since=10, ceil_since=10)
    column_major = n.attr_flag("storage_order") if n.version >= 8 else False
    window = (g.kernel, g.strides, g.pads, g.dilations, g.ceil_mode)
    if n.wants(1):
        return n.add(pool.MaxPoolIndices(*window, column_major), n.input(0))
    return n.add(pool.MaxPool(*window), n.input(0))


@onnx_op("AveragePool", since=1)
def average_pool(n: OnnxNode) -> Result:
    g = _pool_geometry(n, dilations_since=19, ceil_since=10)
    include = n.attr_flag("count_include_pad")
    return n.add(
        pool.AvgPool(g.kernel, g.strides, g.pads, g.dilations, g.ceil_mode, include), n.input(0)
    )


@onnx_op("LpPool", since=1)
def lp_pool(n: OnnxNode) -> Result:
    g = _pool_geometry(n, dilations_since=18, ceil_since=18)
    op = pool.LpPool(g.kernel, g.strides, g.pads, g.dilations, g.ceil_mode, _exponent(n))
    return n.add(op, n.input(0))


def _exponent(n: OnnxNode) -> int:
    """Attribute `p`, a float in opset 1."""
    if n.version > 1:
        return n.attr_int("p", 2)
    p = n.attr_float("p", 2.0)
    return int(p) if p.is_integer() else n.unsupported(f"a norm of p = {p}; p is a whole number")


same_operator(pool.GlobalAvgPool, "GlobalAveragePool")
same_operator(pool.GlobalMaxPool, "GlobalMaxPool")


@onnx_op("GlobalLpPool", since=1)
def global_lp_pool(n: OnnxNode) -> Result:
    return n.add(pool.GlobalLpPool(_exponent(n)), n.input(0))
