"""The windows of convolutions and pools, with the padding that makes a result as large as its
input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops import conv as cv
from tilesmith.ops import rules, slicing


@dataclass(slots=True)
class Geometry:
    """Windows over spatial axes; each field has an entry per axis.

    extents: the input's extents.
    kernel: taps of a window.
    strides: distances between windows.
    dilations: distances between taps.
    pads: elements before each axis, then after each axis.
    """

    extents: tuple[Dim, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """The elements that a window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def same_pads(self, more_after: bool = True) -> tuple[Dim, ...]:
        """SAME padding: the result's extent is the input's divided by the stride, rounded up.

        more_after: whether the larger half of an odd number of pads is after the axis.
        """
        small: list[Dim] = []
        large: list[Dim] = []
        for e, s, r in zip(self.extents, self.strides, self.reach, strict=True):
            # the start of the window that would follow the last one
            last = as_expr(extents.total((e, s - 1))) // s * s
            total = extents.larger(extents.total((as_dim(last - e), r - s)), 0)
            half = as_dim(as_expr(total) // 2)
            small.append(half)
            large.append(extents.difference(total, half))
        return (*small, *large) if more_after else (*large, *small)

    def numbers(self) -> tuple[int, ...] | None:
        """The pads as numbers; None if one depends on a symbolic extent."""
        pads = tuple(p for p in self.pads if isinstance(p, int))
        return pads if len(pads) == len(self.pads) else None


Numbers: TypeAlias = "int | Sequence[int]"
"""One number for all axes, or one for each."""


def geometry(
    n: NodeContext,
    x: Value,
    kernel: Numbers,
    strides: Numbers = 1,
    pads: Numbers = 0,
    dilations: Numbers = 1,
) -> Geometry:
    """The windows over the spatial axes of `x` [N, C, spatial...].

    pads: one number for all sides, one for both sides of each axis, or the elements before each
        axis and then after each.

    Raises ModelError for numbers that no window can have.
    """
    rank = x.type.rank - 2
    if rank < 1:
        n.bad(f"expected an input [N, C, spatial...], found {x.type}")
    before = [pads] if isinstance(pads, int) else list(pads)
    if len(before) == 2 * rank:
        before, after = before[:rank], before[rank:]
    else:
        after = before
    both = (*numbers(n, "pads", before, rank, -LARGEST), *numbers(n, "pads", after, rank, -LARGEST))
    return Geometry(
        x.type.shape[2:],
        numbers(n, "the kernel", kernel, rank, 1),
        numbers(n, "strides", strides, rank, 1),
        numbers(n, "dilations", dilations, rank, 1),
        both,
    )


def numbers(
    n: NodeContext, what: str, given: Numbers, count: int, least: int = 0
) -> tuple[int, ...]:
    """`given` as `count` numbers, each at least `least`; a single number stands for all.  Messages
    call them `what`.
    """
    each = (given,) if isinstance(given, int) else tuple(given)
    each = each * count if len(each) == 1 else each
    if len(each) != count or any(not least <= e <= LARGEST for e in each):
        n.bad(f"{what}: expected {count} numbers from {least} to {LARGEST}, found {list(each)}")
    return each


def convolve(n: NodeContext, x: Value, w: Value, g: Geometry, groups: int = 1) -> Value:
    """The convolution of x [N, C, ...] with w [OC, C / groups, kernel...], without a bias."""
    pads = g.numbers()
    if pads is None:  # the padding depends on an extent that only a run knows
        rank = len(g.kernel)
        x = n.add(slicing.Pad((0, 0, *g.pads[:rank], 0, 0, *g.pads[rank:])), x)
        pads = (0,) * (2 * rank)
    return n.add(cv.Conv(g.strides, pads, g.dilations, groups), x, w)


def add_bias(n: NodeContext, y: Value, bias: Value | None) -> Value:
    """`y` [N, C, ...] plus a number for each channel."""
    if bias is None:
        return y
    channels = y.type.shape[1]
    if not rules.equal_shapes("conv", bias.type.shape, (channels,)):
        n.bad(f"the bias: expected one number per channel, [{channels}], found {bias.type}")
    return y + n.reshape(bias, (channels, *[1] * (y.type.rank - 2)))


def channels_second(x: Value) -> Value:
    """Transpose [N, spatial..., C] to [N, C, spatial...]."""
    rank = x.type.rank
    return x.transpose(0, rank - 1, *range(1, rank - 1))


def channels_last(y: Value) -> Value:
    """Transpose [N, C, spatial...] to [N, spatial..., C]."""
    return y.transpose(0, *range(2, y.type.rank), 1)


def spread(n: NodeContext, x: Value, w: Value, g: Geometry) -> Value:
    """The transposed convolution of x [N, C, spatial...] with w [C, O, spatial...].  The pads are
    cut off the result.
    """
    pads = g.numbers()
    if pads is not None:
        return n.add(cv.ConvTranspose(g.strides, pads, g.dilations), x, w)
    y = n.add(cv.ConvTranspose(g.strides, (), g.dilations), x, w)
    cut, half = [extents.difference(0, p) for p in g.pads], len(g.kernel)
    return n.add(slicing.Pad((0, 0, *cut[:half], 0, 0, *cut[half:])), y)


def spread_to(n: NodeContext, x: Value, w: Value, g: Geometry, is_same: bool) -> Value:
    """The transposed convolution of x [N, C, spatial...] whose result has the extents of `g`.

    is_same: whether the convolution that is transposed has SAME padding; otherwise it has none.
    """
    before: list[Dim] = []
    after: list[Dim] = []
    for wanted, e, s, r in zip(g.extents, x.type.shape[2:], g.strides, g.reach, strict=True):
        full = extents.total((extents.product((e, s)), r - s))
        room = extents.total((wanted, s - 1 if is_same else s - r))
        windows = as_dim(as_expr(room) // s)
        total = extents.larger(
            extents.difference(extents.total((extents.product((windows, s)), r - s)), wanted), 0
        )
        before.append(as_dim(as_expr(total) // 2))
        after.append(extents.difference(extents.difference(full, wanted), before[-1]))
    return spread(n, x, w, replace(g, pads=(*before, *after)))
