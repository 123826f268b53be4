"""Schedules by rule, as a value: what a backend gives to rooms that work on any target."""

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

    expressions: the tensor expressions of a group that rules schedule.
    schedules: the schedules of a group by each rule that fits, the best first, and what they are
        about: these expressions, or others of the same group.
    generate: gives a schedule that is still empty the steps that fit any expression.
    is_generic: true for groups that are no more than their expressions: `generate` serves them.
    is_fixed: true for groups of primitive operators whose loops leave nothing to decide.
    packed_layouts: by input number, the layouts that decisions give to constants.
    versions: the open extent by which a group has two schedules, if there is one.
    lower_group: the kernel of a group, by rule, as a loop nest.
    lower_scheduled: the kernel of a group with a schedule of whatever origin.
    lower_plain: the kernel of a group by the simplest schedule, for which there is code where the
        rule's has none.
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
