"""Operators that read several elements for each result, at data-dependent indices (the pixels
around a point of a grid).

If lanes run along an axis of the points, each lane needs its own load (a gather).  If lanes run
along an axis that the operand shares, such as channels, the loads are vector loads, and the indices
are computed once for all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesmith.graph.nodes import Node
from tilesmith.ir.expr import free_vars, index_of
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.structure import loads, placed_by_data, stages, structure
from tilesmith.te.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Samples:
    """Reads at data-dependent indices.

    counts: reads per element of the result, by operand number.
    shared: for each operand, the axes of the result that are also axes of the operand.
    """

    counts: dict[int, int]
    shared: dict[int, dict[int, int]]


def samples(node: Node) -> Samples | None:
    """The sampling reads of a node that takes several samples per element; None for other nodes."""
    return _samples(node.op, tuple(v.type for v in node.inputs))


@lru_cache(maxsize=4096)
def _samples(op: Op, types: tuple[TensorType, ...]) -> Samples | None:
    tensors = op.tensors(*types)
    if len(tensors.outputs) != 1 or len(stages(tensors.outputs)) != 1:
        return None
    (stage,) = stages(tensors.outputs)
    counts: dict[int, int] = {}
    shared: dict[int, dict[int, int]] = {}
    for load in loads(stage):
        if not placed_by_data(load) or not isinstance(load.buffer, Tensor):
            continue
        number = index_of(tensors.inputs, load.buffer)
        if number not in structure(op, types).samples:
            continue
        used = [free_vars(i) for i in load.indices]
        walked = {
            a: d
            for a, axis in enumerate(stage.axis)
            for d, index in enumerate(load.indices)
            if index is axis.var and sum(axis.var in u for u in used) == 1
        }
        counts[number] = counts.get(number, 0) + 1
        before = shared.setdefault(number, walked)
        shared[number] = {a: d for a, d in walked.items() if before.get(a) == d}
    return Samples(counts, shared) if counts else None


def lanes_layout(node: Node, target: Target) -> Layout | None:
    """The result's layout with which the reads become vector loads.  None if it is row-major, or if
    there is no such layout.
    """
    sampled = samples(node)
    if sampled is None:
        return None
    (result,) = node.outputs
    rank, lanes = result.type.rank, target.vector_lanes(result.dtype.bytes)
    common = set[int].intersection(*map(set, sampled.shared.values()))
    fitting = [a for a in common if expected(result.shape[a]) >= lanes]
    if not fitting or max(fitting) == rank - 1:
        return None
    last = max(fitting)
    return Layout.with_innermost(rank, last)
