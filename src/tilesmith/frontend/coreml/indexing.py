"""Core ML's operators that read and write elements at indices."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.frontend.common.shaping import gathered
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import gather, scatter
from tilesmith.ops.base import Op
from tilesmith.ops.functions import reciprocal

_MODES = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "div": "mul",
          "max": "max", "min": "min"}  # fmt: skip


@mil_op("gather")
def gather_slices(n: MilNode) -> Result:
    x, indices = n.input("x"), n.input("indices")
    axis = n.axis(n.int("axis", 0), x.type.rank)
    return gathered(n, x, indices, axis, n.int("batch_dims", 0))


@mil_op("gather_along_axis")
def gather_along_axis(n: MilNode) -> Result:
    x = n.input("x")
    axis = n.axis(n.int("axis", 0), x.type.rank)
    return n.add(gather.GatherElements(axis), x, n.input("indices"))


@mil_op("gather_nd")
def gather_nd(n: MilNode) -> Result:
    return n.add(gather.GatherNd(n.int("batch_dims", 0)), n.input("x"), n.input("indices"))


def _scattered(n: MilNode, make: Callable[[str], Op], data: Value, at: Value, new: Value) -> Value:
    """`data` with `new` combined into the elements at the indices `at`, as the mode says."""
    mode = n.text("mode", "add", tuple(_MODES))
    new = -new if mode == "sub" else reciprocal(new) if mode == "div" else new
    return n.add(make(_MODES[mode]), data, at, new)


@mil_op("scatter_nd")
def scatter_nd(n: MilNode) -> Result:
    data, indices, new = n.input("data"), n.input("indices"), n.input("updates")
    return _scattered(n, scatter.ScatterNd, data, indices, new)


@mil_op("scatter_along_axis")
def scatter_along_axis(n: MilNode) -> Result:
    data, indices, new = n.input("data"), n.input("indices"), n.input("updates")
    axis = n.axis(n.int("axis", 0), data.type.rank)
    return _scattered(n, lambda by: scatter.ScatterElements(axis, by), data, indices, new)


@mil_op("scatter")
def scatter_slices(n: MilNode) -> Result:
    data, indices, new = n.input("data"), n.input("indices"), n.input("updates")
    axis, rank, places = n.int("axis", 0), data.type.rank, indices.type.rank
    axis = n.axis(axis, rank)
    # move `axis` of the data to the front, and in `new` the axes of the indices
    front = (axis, *range(axis), *range(axis + 1, rank))
    own = (*range(axis, axis + places), *range(axis), *range(axis + places, new.type.rank))
    slots = n.reshape(indices, (*indices.type.shape, 1))
    y = _scattered(n, scatter.ScatterNd, data.transpose(*front), slots, new.transpose(*own))
    return y.transpose(*range(1, axis + 1), 0, *range(axis + 1, rank))
