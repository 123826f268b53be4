"""The schedule rules of one kind of target, as a value that target-independent code can call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tilesmith.graph.nodes import Graph
from tilesmith.ir.layout import Layout
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule

from .group import Group
from .versions import Versions


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleRules:
    """The schedules of fused groups for one kind of target.

    expressions: returns the tensor expressions of a group that the rules schedule.
    schedules: yields schedules of a group, one from each rule that applies, best first.  Each comes
        with the expressions that it schedules, which may differ from `expressions`.
    generate: adds generic steps, which apply to any expression, to an empty schedule.
    is_generic: decides whether expressions describe all of a group, so that `generate` applies.
    is_fixed: decides whether the loops of a group of primitive operators leave nothing to tune.
    packed_layouts: returns the layouts that tuning decisions give to constants, by input number.
    versions: returns the symbolic extent whose value selects one of several schedules of a group;
        None for a group with one schedule.
    lower_group: returns the loop nest of a group's kernel, scheduled by the rules.
    lower_scheduled: returns the loop nest of a group's kernel with a given schedule.
    lower_plain: returns the loop nest of a group's kernel with the simplest schedule.  This loop
        nest compiles even if the rules' schedules don't.
    """

    expressions: Callable[[Graph], Group]
    schedules: Callable[[Graph, Target, Config], Iterator[tuple[Schedule, Group]]]
    generate: Callable[[Schedule, Group, Target, Config], None]
    is_generic: Callable[[Graph, Group], bool]
    is_fixed: Callable[[Graph], bool]
    packed_layouts: Callable[[Graph, Iterable[int], Target, Config], dict[int, Layout]]
    versions: Callable[[Graph], Versions | None]
    lower_group: Callable[[Graph, Target, str, Config], Func]
    lower_scheduled: Callable[[Schedule, Group, Target, str], Func]
    lower_plain: Callable[[Graph, Target, str], Func]
