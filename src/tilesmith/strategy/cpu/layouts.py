"""Costs of layouts on CPUs: contractions write channels last and read weights in column blocks.

A contraction broadcasts elements of one factor, whose layout hardly matters, and loads vectors of
the other.  Other kernels run along the innermost axis of their results.  An operand with another
innermost axis is read element by element, or transposed in registers.
"""

from __future__ import annotations

import math
from functools import lru_cache

from tilesmith.graph.control import Control
from tilesmith.graph.nodes import Node, Value
from tilesmith.graph.passes.fuse import node_structure
from tilesmith.graph.passes.layout import Choice, LayoutPolicy, NodeLayouts, plain
from tilesmith.ir.expr import Load, Var, free_vars, index_of
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.ops.base import Op
from tilesmith.ops.structure import (
    Structure,
    loads,
    product_of_loads,
    stages,
    zero_padding,
)
from tilesmith.ops.winograd import WinogradConv
from tilesmith.strategy.access import address, expand
from tilesmith.strategy.windows import window_layout
from tilesmith.te.tensor import Compute, Tensor

from .contraction import (
    RegisterTile,
    analyse,
    best_tile,
    contraction_of,
    is_worth_sharing,
    outer_extent,
    packed_layout,
    row_distance,
    row_extent,
)
from .dot_instructions import dot_for
from .full_lanes import with_full_lanes
from .operands import walked_axis
from .sampling import lanes_layout, samples
from .scaled_chunks import blocked_operands, scaled_chunks
from .tile_dots import tile_block
from .winograd import winograd_layouts

ACROSS = 4.0
"""Cost of reading a value in another order than its memory order, in a kernel with other work.  The
unit is one pass over the value; a copy takes two passes.  Measured on depthwise and grouped
convolutions.
"""


class ByAxes:
    """Layout policy: contractions decide; other kernels follow their result's innermost axis."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seen: dict[Node, tuple[Structure, bool]] = {}

    def about(self, node: Node) -> tuple[Structure, bool]:
        """The structure of a node, and whether `_keeps_axes` holds.  Cached, since both are the
        same for all operands and layouts.
        """
        if node not in self.seen:
            s = node_structure(node)
            runs_along = s.kind not in ("contraction", "opaque")
            keeps = runs_along and _keeps_axes(node.op, _types(node))
            self.seen[node] = s, keeps
        return self.seen[node]

    def fixed(self, node: Node, known: frozenset[int]) -> NodeLayouts | None:
        if isinstance(node.op, WinogradConv):
            return winograd_layouts(node, known, self.target)
        if self.about(node)[0].kind == "contraction":
            return _contraction(node, known, self.target)
        return None

    def favourite(self, node: Node) -> Layout | None:
        return lanes_layout(node, self.target) if self.about(node)[0].samples else None

    def is_free(self, node: Node) -> bool:
        s, keeps_axes = self.about(node)
        return keeps_axes if s.kind in ("elementwise", "reduction") else s.kind == "injective"

    def reading(self, node: Node, number: int, layout: Choice, result: Choice) -> float:
        value = node.inputs[number]
        layout = plain(layout, value)
        if isinstance(node.op, Control):
            return 0.0 if layout is None else math.inf
        moved = _bytes(value)
        s, keeps_axes = self.about(node)
        if s.kind == "contraction":
            written = node.outputs[0]
            along = _copied_along(
                node.op, _types(node), number, _innermost(plain(result, written), written)
            )
            if along is not None and _innermost(layout, value) != along:
                return ACROSS * moved
            read = _vector_read(node.op, _types(node), number)
            wanted = result if read and result and result.rank == value.type.rank else None
            across = wanted is not None and not _same(layout, wanted, value)
            return ACROSS * moved * across
        if s.samples and s.kind == "injective":
            gathered = _gathered(node, number, layout, result)
            return _moving(node, number, layout, result) * moved if gathered is None else gathered
        if s.kind == "opaque" or (s.kind == "reduction" and s.reduced is not None):
            return 0.0  # the kernel follows the memory order, so every layout costs the same
        if keeps_axes:
            other_rank = value.type.rank != node.outputs[0].type.rank
            return 0.0 if other_rank or _same(layout, result, value) else ACROSS * moved
        return _moving(node, number, layout, result) * moved

    def relayout(self, value: Value) -> float:
        return 2.0 * _bytes(value) + self.target.model.parallel_bytes


def layout_policy(target: Target) -> LayoutPolicy:
    """The policy for `graph.passes.layout.assign_layouts`."""
    return ByAxes(target)


def _types(node: Node) -> tuple[TensorType, ...]:
    return tuple(v.type for v in node.inputs)


def _bytes(value: Value) -> float:
    """Bytes of the value."""
    return value.dtype.bytes * expected_size(value.shape)


def _same(a: Layout | None, b: Layout | None, value: Value) -> bool:
    """True if the elements of `value` have the same order in both layouts."""
    if a is b:
        return True
    a, b = (x or Layout.row_major(value.type.rank) for x in (a, b))
    if a.has_padding or b.has_padding:
        return a == b
    one, other = ([d.axis for d in x.dims if not same_dim(value.shape[d.axis], 1)] for x in (a, b))
    return one == other


def _contraction(node: Node, known: frozenset[int], target: Target) -> NodeLayouts:
    tensors = node.op.tensors(*_types(node))
    chunks = scaled_chunks(stages(tensors.outputs))
    if chunks is not None:
        blocked = blocked_operands(chunks, target)
        numbers = ((i, t) for i, t in enumerate(tensors.inputs) if i in known and t in blocked)
        return NodeLayouts({i: blocked[t] for i, t in numbers}, (None,))
    c = contraction_of(tensors, known)
    if c is None or c.vector is None:
        return NodeLayouts({}, (None,))
    op, constants = c.op, frozenset(tensors.inputs[i] for i in known)
    if not constants:
        c = with_full_lanes(c, target)
    assert c.vector is not None
    rank, v = len(op.axis), index_of(op.axis, c.vector)
    result = None
    if v != rank - 1:
        result = Layout.with_innermost(rank, v)
    operands = {}
    if c.w.buffer in constants:
        width = expected(c.vector.extent)
        distance = row_distance(c) * c.x.dtype.bytes
        outer = outer_extent(c)
        size = op.outputs[0].dtype.bytes
        rows = row_extent(c)
        block = tile_block(c, target, rows)
        if block is not None:
            lanes = target.vector_lanes(size)
            tile, depth = RegisterTile(1, block.width // lanes, lanes), block.depth
        else:
            dot = dot_for(c, target)
            depth, scratch = (1, 0) if dot is None else (dot.extents[-1], dot.scratch)
            tile, _ = best_tile(
                rows, width, target, size, row_bytes=distance, outer=outer, scratch=scratch,
                is_shared=is_worth_sharing(c, target),
            )  # fmt: skip
        packed = packed_layout(c, tile, depth)
        if packed is not None:
            operands[next(i for i, t in enumerate(tensors.inputs) if t is c.w.buffer)] = packed
    return NodeLayouts(operands, (result,))


def _is_made_of(x: Tensor, operand: Tensor) -> bool:
    """Whether `x` is `operand` or is computed from it."""
    return operand is x or any(operand in set(s.inputs) for s in stages((x,)))


def _gathered(node: Node, number: int, layout: Choice, result: Choice) -> float | None:
    """Extra bytes for reading operand `number` at data-dependent indices; None for other operands.
    Each lane gathers, unless the lanes' axis is contiguous in the operand.
    """
    sampled = samples(node)
    if sampled is None or number not in sampled.counts:
        return None
    (written,) = node.outputs
    along = sampled.shared[number].get(_innermost(result, written))
    if along is not None and along == _innermost(layout, node.inputs[number]):
        return 0.0
    return ACROSS * _bytes(written) * sampled.counts[number]


@lru_cache(maxsize=4096)
def _vector_read(op: Op, types: tuple[TensorType, ...], number: int) -> bool:
    """Whether a contraction loads operand `number`, which is not a weight, in vectors along the
    innermost axis of its result.  Depthwise and Winograd convolutions do.
    """
    if isinstance(op, WinogradConv):
        return number == 0
    tensors = op.tensors(*types)
    contraction = next(s for s in stages(tensors.outputs) if product_of_loads(s))
    c = analyse(contraction, frozenset(), None)
    if c is None or c.vector is None or not c.is_batched:
        return False
    assert isinstance(c.x.buffer, Tensor)
    return _is_made_of(c.x.buffer, tensors.inputs[number])


@lru_cache(maxsize=4096)
def _copied_along(op: Op, types: tuple[TensorType, ...], number: int, innermost: int) -> int | None:
    """The innermost axis of the padded copy that a contraction makes of operand `number`.  None if
    it needs no copy, or if the copy may have any order.

    innermost: the contiguous axis of the result, along which lanes run.  The copy of the factor
        that is loaded in vectors runs along the lanes.  The copy of the other factor runs along the
        reduction axis, or along the lanes where both factors have that axis (depthwise).
    """
    if isinstance(op, WinogradConv):
        return None
    tensors = op.tensors(*types)
    contraction = next(s for s in stages(tensors.outputs) if product_of_loads(s))
    has_lanes = 0 < len(contraction.axis) == tensors.outputs[0].rank
    along = contraction.axis[innermost] if has_lanes else None
    c = analyse(contraction, frozenset(), along)
    if c is None:
        return None
    operand = tensors.inputs[number]
    for load in (c.x, c.w):
        copy = load.buffer
        if not isinstance(copy, Tensor) or not isinstance(copy.op, Compute):
            continue
        if operand.rank != copy.rank or not _is_made_of(copy, operand):
            continue
        if load is c.x:
            return walked_axis(c, copy)
        # If another stage computes `w`, such as a transposition, the kernel packs it.
        if zero_padding(copy.op) is not None and c.vector is not None:
            return next(i for i, e in enumerate(load.indices) if c.vector.var in free_vars(e))
    return None


def _innermost(layout: Layout | None, value: Value) -> int:
    return value.type.rank - 1 if layout is None else layout.dims[-1].axis


@lru_cache(maxsize=8192)
def _keeps_axes(op: Op, types: tuple[TensorType, ...]) -> bool:
    """Whether index i of every read of full rank depends on output axis i only, or on no axis."""
    outputs = op.tensors(*types).outputs
    for stage in stages(outputs):
        own: list[Var] = [a.var for a in stage.axis]
        spatial = set(own)
        for load in loads(stage):
            if len(load.indices) != len(own):
                continue
            for i, index in enumerate(load.indices):
                if not (free_vars(index) & spatial) <= {own[i]}:
                    return False
    return all(t.rank == outputs[0].rank for t in outputs)


def _moving(node: Node, number: int, layout: Choice, result: Choice) -> float:
    """Passes over an operand of a node that only moves elements: 0 if elements are in place
    already, 2 for a sequential copy, 3 for a copy that reorders.
    """
    if len(node.inputs) != 1 or len(node.outputs) != 1 or not node.outputs[0].type.is_static:
        return 2.0 + (layout is not None) + (result is not None)
    (tensor,) = node.op.tensors(*_types(node)).outputs
    op = tensor.op
    assert isinstance(op, Compute)
    read = expand(op)[0]
    rank, shape = node.inputs[number].type.rank, node.outputs[0].type.static_shape
    if not isinstance(read, Load) or not isinstance(read.buffer, Tensor):
        return 2.0 + (layout is not None) + (result is not None)
    order = result or Layout.row_major(len(shape))
    strided = address(read.buffer, read.indices, layout or Layout.row_major(rank))
    if strided is None:  # not affine: a reshape, which keeps row-major order
        return 0.0 if layout is None and result is None else 3.0
    steps = [strided[0].get(a.var, 0) for a in op.axis]
    if window_layout(steps, shape, order) is not None:
        return 0.0
    inner = next((d.axis for d in reversed(order.dims) if shape[d.axis] != 1), None)
    return 2.0 if inner is None or steps[inner] in (0, 1) else 3.0
