"""The layouts that CPU kernels want: channels last for images, weights in column blocks."""

from __future__ import annotations

from tilesmith.graph.nodes import Node, Value
from tilesmith.graph.passes.fuse import node_structure
from tilesmith.graph.passes.layout import NodeLayouts, Policy
from tilesmith.ir.expr import Var, free_vars
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.target import Target
from tilesmith.ops.structure import loads, stages
from tilesmith.ops.winograd import WinogradConv
from tilesmith.te.tensor import Tensor

from .contraction import analyse, choose_tile, packed_layout, row_extent
from .winograd import winograd_layouts


def layout_policy(target: Target) -> Policy:
    """The policy for `graph.passes.layout.assign_layouts`."""

    def wanted(node: Node, inputs: tuple[Value, ...], known: frozenset[int]) -> NodeLayouts:
        kind = node_structure(node).kind
        if isinstance(node.op, WinogradConv):
            return winograd_layouts(node, known, target)
        if kind == "contraction":
            return _contraction(node, known, target)
        if kind in ("elementwise", "injective", "reduction"):
            return NodeLayouts({}, tuple(_followed(node, inputs, v) for v in node.outputs))
        return NodeLayouts({}, (None,) * len(node.outputs))

    return wanted


def _contraction(node: Node, known: frozenset[int], target: Target) -> NodeLayouts:
    tensors = node.op.tensors(*(v.type for v in node.inputs))
    op = next(s for s in stages(tensors) if s.reduce_axis)
    inputs = _placeholders(tensors)
    constants = frozenset(t for i, t in inputs.items() if i in known)
    rank = len(op.axis)
    contiguous = None if not rank or (rank > 2 and constants) else op.axis[-1]
    c = analyse(op, constants, contiguous)
    if c is None or c.vector is None:
        return NodeLayouts({}, (None,))
    v = op.axis.index(c.vector)
    result = None
    if v != rank - 1:
        result = Layout((*(LayoutDim(i) for i in range(rank) if i != v), LayoutDim(v)))
    operands = {}
    if c.w.buffer in constants:
        width = c.vector.extent if isinstance(c.vector.extent, int) else target.vector_lanes(4)
        tile = choose_tile(row_extent(c), width, target, c.w.dtype.bytes)
        packed = packed_layout(c, tile)
        if packed is not None:
            operands[next(i for i, t in inputs.items() if t is c.w.buffer)] = packed
    return NodeLayouts(operands, (result,))


def _placeholders(tensors: tuple[Tensor, ...]) -> dict[int, Tensor]:
    found = {}
    for s in stages(tensors):
        for t in s.inputs:
            if not stages((t,)):
                found[int(t.name[1:])] = t  # `Op.tensors` names its placeholders x0, x1, ...
    return found


def _followed(node: Node, inputs: tuple[Value, ...], out: Value) -> Layout | None:
    """The layout of the largest input whose axes are those of result `out`, one by one."""
    best: Value | None = None
    for v in inputs:
        if v.layout is None or v.type.rank != out.type.rank or v.layout.has_padding:
            continue
        if best is None or v.type.size > best.type.size:
            best = v
    if best is None or not _keeps_axes(node):
        return None
    return best.layout


def _keeps_axes(node: Node) -> bool:
    """True when output axis i is input axis i (shifted, strided, windowed or reduced) in every
    read of full rank.
    """
    tensors = node.op.tensors(*(v.type for v in node.inputs))
    for stage in stages(tensors):
        own: list[Var] = [a.var for a in stage.axis]
        spatial = set(own)
        for load in loads(stage):
            if len(load.indices) != len(own):
                continue
            for i, index in enumerate(load.indices):
                if not (free_vars(index) & spatial) <= {own[i]}:
                    return False
    return True
