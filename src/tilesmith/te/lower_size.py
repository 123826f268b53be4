"""Lowering: limits on the code size of unrolled and vectorised loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilesmith.ir.expr import post_order
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.support.errors import ScheduleError

from .lower_plan import StageLoop, StagePlan
from .state import At

MOST_OPERATIONS = 1 << 15
"""Upper bound on the operations of a kernel after unrolling.  At this bound, compilation takes some
seconds and the code exceeds any instruction cache.
"""

# A stage with at most this many copies does not count towards `MOST_OPERATIONS`.  Its code is large
# only if its expression is, and no schedule changes the expression.
_FEW_COPIES = 32
_LANES = 16  # A vector operation of more lanes counts as several.


def copies_around(plans: Mapping[str, StagePlan], plan: StagePlan) -> int:
    """The number of copies of the nest of `plan` made by the loops around it."""
    return math.prod(_copies(loop) for loop in loops_around(plans, plan))


def check_code(plans: Mapping[str, StagePlan]) -> None:
    """Raises ScheduleError if unrolled and vectorised loops make too much code."""
    sizes: dict[str, int] = {}
    for name, plan in plans.items():
        copies = copies_around(plans, plan) * math.prod(map(_copies, _written(plan)))
        if copies > _FEW_COPIES:
            sizes[name] = copies * len({n for body in plan.body for n in post_order(body)})
    total = sum(sizes.values())
    if total <= MOST_OPERATIONS:
        return
    name = max(sizes, key=sizes.__getitem__)
    loops = (*loops_around(plans, plans[name]), *plans[name].loops)
    expanded = (f"{x.name} ({x.kind}, {x.extent} iterations)" for x in loops if _copies(x) > 1)
    raise ScheduleError(
        f"the schedule makes {total} operations of code, at most {MOST_OPERATIONS} are allowed; "
        f"{sizes[name]} of them are {name}, because of the loops {', '.join(expanded)}: split such "
        "a loop, and unroll or vectorise only the inner part"
    )


def _written(plan: StagePlan) -> tuple[StageLoop, ...]:
    """The loops of a stage that become code, without the loops that a tensor intrinsic computes."""
    tensorized = plan.stage.tensorized
    return tuple(plan.loops if tensorized is None else plan.loops[: plan.depth(tensorized[0])])


def _copies(loop: StageLoop) -> int:
    """The number of copies of its body into which a loop expands."""
    if not LOOP_KINDS[loop.kind].is_expanded or not isinstance(loop.extent, int):
        return 1
    return loop.extent if LOOP_KINDS[loop.kind].is_ordered else -(-loop.extent // _LANES)


def loops_around(plans: Mapping[str, StagePlan], plan: StagePlan) -> Iterator[StageLoop]:
    """The loops of other stages around the nest of `plan`, inner ones first."""
    while isinstance(plan.stage.attach, At):
        place = plan.stage.attach
        plan = plans[place.stage]
        yield from reversed(plan.loops[: plan.depth(place.axis) + 1])
