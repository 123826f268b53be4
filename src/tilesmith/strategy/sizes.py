"""Schedules for all sizes at once.

Rules make a schedule for the expected sizes.  Its steps name stages and axes, not extents.  So the
same steps schedule the expressions of all sizes: tiles stay full, and loops get tails.  A loop that
is one vector at its expected extent becomes a loop of such vectors.  An unrolled loop becomes a
plain loop (`StageState.is_adaptable`).

The expressions of all sizes may have an additional stage, such as padding that the expected sizes
don't need.  No step names this stage, so it is inlined.

The expected sizes may be a special case: 224 is a multiple of 32, so nothing is padded there, and a
batch of one makes rows contiguous.  If loops can be fused only at the expected sizes, the group is
scheduled for sizes nearby.  If they can be fused nearby too, the group is scheduled for far larger
sizes (`typical_graph`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

from tilesmith.graph.bind import bind, expected_graph
from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import expected, expected_size, value_of
from tilesmith.loop.nodes import For, Func, Stmt, Store
from tilesmith.loop.visit import children
from tilesmith.support.errors import ModelError
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.steps.base import Step
from tilesmith.te.tensor import Compute, Tensor

from .access import condition_vars, is_one_run, known_strides, places
from .group import Group, group_tensors

_STEPS = (3, 5, 7, 11, 13, 17, 19, 23)
"""Offsets from the expected sizes.  They differ, so that coincidences between several sizes vanish.
"""

_FAR = 16
"""Factor on the expected sizes for a second attempt to fuse loops.  Nearby sizes do not reveal all
coincidences: a crop to 1024 covers a whole image of 224, which is contiguous.
"""

_MOST = 32
"""Upper bound on the average number of times that an element is computed.  With halos of tiles,
this number is far smaller.
"""


def for_all_sizes(schedule: Schedule, group: Group) -> Schedule:
    """The schedule of the symbolic expressions of `group` by the steps of `schedule`, which was
    made for the expected sizes.

    Raises ScheduleError if a step is illegal for a symbolic extent.
    """
    s = applied(schedule.steps, group.outputs)
    known = {stage.name for stage in schedule.stages}
    for stage in s.stages:
        if stage.name not in known and isinstance(stage.op, Compute) and not stage.op.reduce_axis:
            stage.compute_inline()
    stages = {n: replace(stage, is_adaptable=True) for n, stage in s.state.stages.items()}
    return Schedule(s.ops, replace(s.state, stages=stages), s.steps)


def typical_graph(body: Graph) -> Graph:
    """The fused group `body` at the sizes for which rules schedule it.  These are the expected
    sizes, unless some loops can be fused at the expected sizes only.  Groups with reductions always
    get the expected sizes.
    """
    near = expected_graph(body)
    runs = _runs_without_sums(near)
    if runs is None:
        return near
    for times in (1, _FAR):
        try:
            other = bind(body, _others(body.symbols, times))
        except (ValueError, ModelError):  # the sizes are inconsistent
            continue
        other_runs = _runs_without_sums(other)
        if other_runs is not None and not runs <= other_runs:
            return other
    return near


def _others(symbols: Iterable[Var], times: int) -> dict[Var, int]:
    """Sizes near `times` times the expected sizes, each with a different offset."""
    sizes: dict[Var, int] = {}
    for i, symbol in enumerate(symbols):
        size, step = times * expected(symbol), _STEPS[i % len(_STEPS)]
        high = symbol.sizes.high if symbol.sizes is not None else size + step
        sizes[symbol] = size + step if size + step <= high else max(min(size, high) - step, 1)
    return sizes


def _runs_without_sums(body: Graph) -> set[tuple[str, int, int]] | None:
    """`_runs` of a fused group; None if the group has reductions or its sizes are inconsistent."""
    try:
        group = group_tensors(body)
    except (ValueError, ModelError):
        return None
    return None if any(stage.reduce_axis for stage in group.stages) else _runs(group)


def _runs(group: Group) -> set[tuple[str, int, int]]:
    """(result, outer axis, inner axis) for each pair of axes that could be fused: every access of
    the result has one stride along both.
    """
    fusable = set()
    outputs = {t.op for t in group.outputs}
    kept = [s for s in group.stages if s in outputs]
    for op in kept:
        strides = [known_strides(t, indices, group.layout(t)) for t, indices in places(op, kept)]
        conditions = condition_vars(op, kept)
        for i, j in permutations(range(len(op.axis)), 2):
            outer, inner = op.axis[i], op.axis[j]
            extents = expected(outer.extent), expected(inner.extent)
            if 1 in extents or (
                not {outer.var, inner.var} & conditions
                and all(
                    is_one_run(s.get(outer.var, 0), s.get(inner.var, 0), extents[1])
                    for s in strides
                )
            ):
                fusable.add((op.name, i, j))
    return fusable


def explodes(func: Func, group: Group) -> bool:
    """Whether the kernel `func` of `group` recomputes far too much.  This happens if the part of a
    producer that a tile needs has no constant bound: each tile then computes the whole producer.
    """
    extents = ((a.extent for a in (*s.axis, *s.reduce_axis)) for s in group.stages)
    return stores(func) > _MOST * sum(map(expected_size, extents))


def stores(func: Func) -> int:
    """Number of stores that a loop nest executes at expected sizes; conditions count as true."""
    values = {p: expected(p) for p in func.params if isinstance(p, Var)}

    def inside(s: Stmt) -> int:
        if isinstance(s, Store):
            return 1
        if not isinstance(s, For):
            return sum(map(inside, children(s)))
        values[s.var] = 0
        try:
            times = max(value_of(s.extent, values), 0)
        except (KeyError, ValueError):  # the extent depends on data
            times = 1
        return times * inside(s.body)

    return inside(func.body)


def applied(steps: Iterable[Step], outputs: Iterable[Tensor]) -> Schedule:
    """The schedule of `outputs` made by `steps`, which were chosen for expected sizes."""
    s = create_schedule([t.op for t in outputs])
    for step in steps:
        s.apply(step)
    return s
