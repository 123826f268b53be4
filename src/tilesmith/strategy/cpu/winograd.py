"""Schedules for Winograd convolutions: transforms around matrix products, by blocks of tiles.

    parallel over blocks of tiles
      input tiles -> V            per tile and vector of channels, in registers
      for column blocks of filters
        for points, rows of tiles
          M[point, tile] = sum over channels of V (broadcast) * weights (vectors)
        output tiles from M       per tile and vector of filters, in registers; epilogue, stored

V and M stay in the cache.  Weights that don't fit are prefetched a point ahead.  If the weights are
too large to be read again for every block, all of V is computed first, and each column block of
weights serves all tiles:

    parallel over tiles
      input tiles -> V
    parallel over column blocks of filters, blocks of tiles
      M, output tiles
"""

from __future__ import annotations

from typing import Any

from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.layout import NodeLayouts
from tilesmith.ir.expr import Load
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.ops.structure import product_of_loads, stages
from tilesmith.ops.winograd import WinogradConv
from tilesmith.strategy.group import Group
from tilesmith.strategy.winograd import schedule_half, schedule_products, schedule_transform
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

from .contraction import analyse, packed_layout
from .operands import prefetch_block
from .unrolling import unrolled_steps
from .winograd_cost import Blocking, Sizes, blocking

TILES = 2
"""The axis of the products, [x, y, tile, filter], that counts tiles."""


def winograd_op(body: Graph) -> WinogradConv | None:
    """The Winograd convolution in a fused group, if there is one."""
    return next((n.op for n in body.nodes if isinstance(n.op, WinogradConv)), None)


def winograd_layouts(node: Node, known: frozenset[int], target: Target) -> NodeLayouts:
    """Layouts of a Winograd convolution: channels last for the result, weights in column blocks in
    the order in which the products read them.
    """
    result = Layout.permuted((0, 2, 3, 1))
    if 1 not in known:
        return NodeLayouts({}, (result,))
    assert isinstance(node.op, WinogradConv)
    product = _product(stages(node.op.tensors(*(v.type for v in node.inputs)).outputs))
    c = analyse(product, frozenset(), product.axis[-1])
    assert c is not None
    packed = packed_layout(c, blocking(_sizes(node.op, product), target).tile)
    return NodeLayouts({1: packed} if packed is not None else {}, (result,))


def schedule_winograd(
    op: WinogradConv, s: Schedule, group: Group, target: Target, cfg: Config = ANALYTIC
) -> None:
    """Schedule a group that computes `op`, followed by elementwise epilogues."""
    product = _product(group.stages)
    v = _transformed_inputs(product)
    sizes = _sizes(op, product)
    b = blocking(sizes, target, cfg)
    half = v.op.inputs[0]
    (back,) = group.consumers(product)
    out = group.outputs[0]
    kept = {product, back, v.op, half.op, out.op}
    for stage in group.stages:
        if stage not in kept:
            s[stage.outputs[0]].compute_inline()
    block, columns, vector = _schedule_output(s[out], op, b, sizes.filters)
    schedule_half(s[back.outputs[0]], s[out], vector)
    points = product.outputs[0]
    lanes = min(b.tile.lanes, sizes.filters)
    steps = unrolled_steps(sizes.channels, b.tile.rows * b.tile.vectors, target)
    own, step = schedule_products(
        s, points, s[out], columns, TILES, b.tile.rows, lanes, steps=steps
    )
    x, y = s[points].axis[:2]
    point = s[points].fuse(x, y)
    weights = _factors(product)[1].buffer
    prefetch_block(own, group, weights, point, 1, step, True, target, cfg)
    inputs = s[v]
    inputs.set_scope("heap")
    if not b.shared:
        inputs.compute_at(s[out], block)
    tiles = schedule_transform(inputs, s[half], min(b.tile.lanes, sizes.channels))
    if tiles is not None and b.shared and b.parallel:
        inputs.parallel(tiles)


def _schedule_output(o: Any, op: WinogradConv, b: Blocking, filters: int) -> tuple[Any, Any, Any]:
    """Make the loops of the result.

    Returns the loops at which a block of V, the products of a column block, and one vector of a
    tile are computed.
    """
    n, f, y, z = o.axis
    rows, i = o.split(y, factor=op.m, tail="guard")
    across, j = o.split(z, factor=op.m, tail="guard")
    columns, inner = o.split(f, factor=min(b.tile.columns, filters))
    vector, lane = o.split(inner, factor=min(b.tile.lanes, filters))
    o.reorder(n, rows, across, columns, vector, i, j, lane)
    tile = o.fuse(n, rows, across)
    block, tile = o.split(tile, factor=b.tiles)
    o.reorder(*((columns, block) if b.shared else (block, columns)), tile, vector, i, j, lane)
    if b.shared:
        block = columns = o.fuse(columns, block)
    if b.parallel:
        o.parallel(block)
    o.unroll(i)
    o.unroll(j)
    o.vectorize(lane)
    return block, columns, vector


def _product(computes: tuple[Compute, ...]) -> Compute:
    return next(c for c in computes if c.reduce_axis)


def _factors(product: Compute) -> tuple[Load, Load]:
    """The loads of transformed inputs and of weights."""
    factors = product_of_loads(product)
    assert factors is not None
    return factors


def _transformed_inputs(product: Compute) -> Tensor:
    v = _factors(product)[0].buffer
    assert isinstance(v, Tensor) and isinstance(v.op, Compute)
    return v


def _sizes(op: WinogradConv, product: Compute) -> Sizes:
    _, _, tiles, filters = (expected(a.extent) for a in product.axis)
    (channels,) = (expected(a.extent) for a in product.reduce_axis)
    return Sizes(op.m, tiles, channels, filters)
