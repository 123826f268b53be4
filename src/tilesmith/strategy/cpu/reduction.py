"""Schedules for reductions: pooling, means, softmax and normalisation chains.

The output's loops are split at a *level*: outside it, axes that the group keeps (shared among threads); inside it,
the reduced axes and one vector of the axis that memory runs along.  Every other stage is computed at that level:

- memory runs along a kept axis (pooling in channels-last): accumulators are vectors, one lane per element;
- memory runs along a reduced axis (softmax over the last axis): the reduction is factored into one partial result
  per lane (`rfactor`), combined at the end of the row.

Values of a full row that are used twice or costly to compute are stored for the row; the rest is inlined.
"""

from __future__ import annotations

from typing import Any

from tilesmith.ir.expr import Call, Load, Var, post_order
from tilesmith.ir.layout import Layout
from tilesmith.ir.target import Target
from tilesmith.ops.structure import COSTLY, loads
from tilesmith.strategy.group import Group
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, IterVar, Reduce, Tensor

from .injective import PARALLEL_ELEMENTS

ROW_BYTES = 1 << 16
"""Largest row kept in a thread's stack buffer; longer rows are computed again where they are read."""

FACTORABLE = frozenset({"sum", "prod", "min", "max"})


def schedule_reductions(s: Schedule, group: Group, target: Target) -> None:
    """Schedule a group whose stages include reductions and no contraction that has a schedule of its own."""
    out = group.outputs[0].op
    assert isinstance(out, Compute)
    reducing = [st for st in group.stages if st.reduce_axis]
    layout = group.layout(group.outputs[0])
    order = [d.axis for d in layout.dims]
    domain = _domain(reducing[-1])
    chain = domain is not None and out is not reducing[-1] and _shape(out) == tuple(a.extent for a in domain)
    inside: list[int] = []
    if chain and domain is not None:
        reduce_vars = {a.var for st in reducing for a in st.reduce_axis}
        inside = [i for i, a in enumerate(domain) if a.var in reduce_vars]
    work = _work(group)
    accumulators = {st: st.outputs[0] for st in reducing}
    if out in accumulators and len(out.body) == 1:
        accumulators[out] = s.cache_write(group.outputs[0], "register")

    o = s[group.outputs[0]]
    outer = [i for i in order if i not in inside]
    rows = [i for i in order if i in inside]
    last = next((i for i in reversed(order) if out.axis[i].extent != 1), None)
    lanes = target.vector_lanes(max(group.outputs[0].dtype.bytes, reducing[-1].outputs[0].dtype.bytes))
    vertical = last is not None and last not in inside and _reads_along(group, reducing[0], last, out)
    loops = [o.axis[i] for i in outer]
    sizes = [_size(out.axis[i].extent) for i in outer]
    lane = None
    if vertical and last is not None:
        width = min(lanes, _size(out.axis[last].extent))
        at = outer.index(last)
        if width > 1:
            block, lane = o.split(o.axis[last], factor=width)
            loops[at], sizes[at] = block, -(-sizes[at] // width)
    body = [o.axis[i] for i in rows]
    o.reorder(*loops, *body, *([lane] if lane is not None else []))
    if not loops:  # everything is reduced: one trip
        loops, sizes = [body.pop(0)], [1] if body else sizes
    level = loops[-1]
    if work >= PARALLEL_ELEMENTS:
        level = _share(o, loops, sizes)
    if lane is not None:
        o.vectorize(lane)
    elif body:
        _vectorize_row(o, body[-1], _size(out.axis[rows[-1]].extent), lanes)
    for stage in reversed(group.stages):  # readers first: a stage goes where its reader is
        if stage.reduce_axis:
            if stage is not out or len(stage.body) == 1:
                _attach_reduction(s, group, stage, accumulators[stage], o, level, lanes, vertical)
        elif stage is not out:
            _attach(s, group, stage, out, o, level, lanes, chain)


def _share(o: Any, loops: list[Any], sizes: list[int]) -> Any:
    """Share the outer loops among threads; returns the innermost of them."""
    shared, extent = loops[0], sizes[0]
    rest = list(zip(loops[1:], sizes[1:], strict=True))
    while rest and extent < 16:
        axis, n = rest.pop(0)
        shared = o.fuse(shared, axis)
        extent *= n
    if extent > 1:
        o.parallel(shared)
    return rest[-1][0] if rest else shared


def _attach(
    s: Schedule, group: Group, stage: Compute, out: Compute, o: Any, level: Any, lanes: int, chain: bool
) -> None:
    handle = s[stage.outputs[0]]
    if not (chain and _stored(group, stage, out)):
        handle.compute_inline()
        return
    handle.compute_at(o, level)
    handle.set_scope("stack")
    if stage.axis:
        _vectorize_row(handle, handle.axis[-1], _size(stage.axis[-1].extent), lanes)


def _attach_reduction(
    s: Schedule, group: Group, stage: Compute, result: Tensor, o: Any, level: Any, lanes: int, vertical: bool
) -> None:
    handle = s[result]
    handle.compute_at(o, level)
    handle.set_scope("register")
    inner = _size(stage.reduce_axis[-1].extent)
    body = stage.body[0]
    if vertical:
        last = _innermost_axis(group, group.outputs[0].op)
        lane = handle.axis[last]
        others = [i for i in range(len(handle.axis)) if i != last]
        s.transform_layout(result, Layout.permuted((*others, last)))
        handle.reorder(*(x for x in handle.axis if x != lane), *handle.reduce_axis, lane)
        if _size(stage.axis[last].extent) > 1:
            handle.vectorize(lane)
        return
    factorable = len(stage.body) == 1 and isinstance(body, Reduce) and body.reducer.name in FACTORABLE
    if not factorable or inner < 2 * lanes:
        return
    width = lanes * 4 if inner >= 8 * lanes else lanes
    _, position = handle.split(handle.reduce_axis[-1], factor=width)
    partial = s[s.rfactor(result, position)]
    partial.compute_at(o, level)
    partial.set_scope("register")
    lane = partial.axis[0]
    partial.reorder(*(a for a in partial.leaf_axes if a != lane), lane)
    if width > lanes:
        many, lane = partial.split(lane, factor=lanes)
        partial.unroll(many)
    partial.vectorize(lane)
    for k in s[result].reduce_axis:
        s[result].unroll(k)


def _innermost_axis(group: Group, out: Any) -> int:
    layout = group.layout(group.outputs[0])
    return next(d.axis for d in reversed(layout.dims) if out.axis[d.axis].extent != 1)


def _vectorize_row(stage: Any, axis: Any, size: int, lanes: int) -> None:
    if size >= 2:
        _, lane = stage.split(axis, factor=min(lanes, size))
        stage.vectorize(lane)


def _domain(op: Compute) -> tuple[IterVar, ...] | None:
    """The axes of the tensor that a whole-axis reduction reads, in its dimension order."""
    by_var = {a.var: a for a in (*op.axis, *op.reduce_axis)}
    for load in loads(op):
        axes = []
        spatial = iter(op.axis)
        for index in load.indices:
            axis = by_var.get(index) if isinstance(index, Var) else next(spatial, None)
            if axis is None:
                return None
            axes.append(axis)
        return tuple(axes)
    return None


def _reads_along(group: Group, op: Compute, axis: int, out: Compute) -> bool:
    """True when the reduction keeps the output axis that memory runs along (so lanes are independent)."""
    return len(op.axis) == len(out.axis) and op.axis[axis].extent == out.axis[axis].extent


def _stored(group: Group, stage: Compute, out: Compute) -> bool:
    """Keep the values of a stage that is costly or read by several stages, when a row of it is small."""
    n = stage.outputs[0].dtype.bytes
    for a, b in zip(stage.axis, out.axis, strict=False):
        n *= _size(a.extent) if a.extent == b.extent else 1
    if not stage.axis or len(stage.axis) != len(out.axis):
        return False
    costly = any(isinstance(x, Call) and x.name in COSTLY | {"sqrt", "rsqrt"} for x in post_order(stage.body[0]))
    read = any(isinstance(x, Load) for x in post_order(stage.body[0]))
    row = stage.axis[-1].extent if isinstance(stage.axis[-1].extent, int) else ROW_BYTES
    return read and (costly or len(group.consumers(stage)) > 1) and row * stage.outputs[0].dtype.bytes <= ROW_BYTES


def _work(group: Group) -> int:
    most = 0
    for st in group.stages:
        n = 1
        for a in (*st.axis, *st.reduce_axis):
            n *= _size(a.extent)
        most = max(most, n)
    return most


def _shape(op: Compute) -> tuple[Any, ...]:
    return tuple(a.extent for a in op.axis)


def _size(extent: object) -> int:
    return extent if isinstance(extent, int) else 1 << 20
