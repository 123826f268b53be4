"""A tuning decision: the width of the column blocks in which constant weights are packed.

The layout pass packs weights for the analytic register tile, before groups exist.  A tuned group
may choose another width.  The width of its register tile follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.layout import Layout
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import product_of_loads, stages
from tilesmith.te.knobs import Config

from .contraction import column_block, tile_vectors
from .winograd import winograd_op


def packed_layouts(
    body: Graph, constants: Iterable[int], target: Target, cfg: Config
) -> dict[int, Layout]:
    """Layouts, by input number, of the `constants` of a fused body that must be packed again."""
    packed: dict[int, Layout] = {}
    for i in constants:
        value = body.inputs[i]
        column = column_block(value.layout)
        if value.layout is None or column is None:
            continue
        if winograd_op(body) is not None:
            continue  # the products of a Winograd convolution require this width
        axis, block = column.axis, column.block
        lanes = target.vector_lanes(_sum_bytes(body, value))
        columns = value.type.static_shape[axis]
        if block % lanes:
            continue  # only blocks of whole vectors can be chosen
        vectors = cfg.choice("vectors", tile_vectors(columns, lanes), block // lanes)
        if not same_dim(vectors * lanes, block):  # `vectors` is a symbol while features are traced
            packed[i] = _with_block(value.layout, axis, vectors * lanes)
    return packed


def _sum_bytes(body: Graph, weights: Value) -> int:
    """Bytes of an accumulator of the products with `weights`."""
    node = next(n for n in body.nodes if weights in n.inputs)
    outputs = node.op.tensors(*(v.type for v in node.inputs)).outputs
    return next(s.outputs[0].dtype.bytes for s in stages(outputs) if product_of_loads(s))


def _with_block(layout: Layout, axis: int, block: int) -> Layout:
    return Layout(
        tuple(
            replace(d, block=block) if d.axis == axis and d.part != "whole" else d
            for d in layout.dims
        )
    )
