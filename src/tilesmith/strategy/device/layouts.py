"""Layouts on devices: channels last, where neighbouring threads compute neighbouring channels.

Neighbouring threads of a convolution then read neighbouring weights, and equal or neighbouring
elements of the image, for any strides and borders.  The same holds for pools.  Products of matrices
are row-major.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Node, Value
from tilesmith.graph.passes.layout import Choice, LayoutPolicy, NodeLayouts, plain
from tilesmith.ir.expr import Load, index_of
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.cpu.contraction import contraction_of
from tilesmith.strategy.cpu.layouts import ByAxes
from tilesmith.te.tensor import IterVar

OTHER = 1.0
"""Cost of reading a value in another order than that of a product's result, in passes over the
value.  It is less than the two passes of a relayout, so this cost alone never causes a relayout.
"""


class _ChannelsLast(ByAxes):
    def fixed(self, node: Node, known: frozenset[int]) -> NodeLayouts | None:
        if self.about(node)[0].kind != "contraction":
            return None
        types = tuple(v.type for v in node.inputs)
        tensors = node.op.tensors(*types)
        c = contraction_of(tensors, known)
        if c is None or c.vector is None or index_of(c.op.axis, c.vector) == len(c.op.axis) - 1:
            return NodeLayouts({}, (None,))
        result = Layout.with_innermost(len(c.op.axis), index_of(c.op.axis, c.vector))
        number = next((i for i, t in enumerate(tensors.inputs) if t is c.w.buffer), None)
        weights = _weights(c.w, c.vector)
        operands = {number: weights} if number in known and weights is not None else {}
        return NodeLayouts({i: w for i, w in operands.items() if i is not None}, (result,))

    def reading(self, node: Node, number: int, layout: Choice, result: Choice) -> float:
        if self.about(node)[0].kind != "contraction":
            return super().reading(node, number, layout, result)
        value = node.inputs[number]
        wanted = result if result is not None and result.rank == value.type.rank else None
        moved = value.dtype.bytes * expected_size(value.shape)
        return OTHER * moved * (plain(layout, value) != plain(wanted, value))

    def relayout(self, value: Value) -> float:
        return 2.0 * expected_size(value.shape) * value.dtype.bytes


def _weights(w: Load, vector: IterVar) -> Layout | None:
    """The layout of weights that a product needs for an image with channels last."""
    across = next((n for n, i in enumerate(w.indices) if i is vector.var), None)
    if across is None:
        return None
    others = [n for n in range(len(w.indices)) if n != across]
    return Layout(tuple(map(LayoutDim, (*others[1:], *others[:1], across))))


def channels_last(target: Target) -> LayoutPolicy:
    """The policy that stores results of convolutions with their channels last."""
    return _ChannelsLast(target)
