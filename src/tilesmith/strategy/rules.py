"""Schedules by rule, as a value: the interface of a backend to rooms that serve any target."""

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
    schedules: the schedules of a group by each rule that fits, the best first, each with the
        expressions that it schedules: these, or others of the same group.
    generate: adds the steps that fit any expression to an empty schedule.
    is_generic: whether expressions describe all of a group, so that `generate` fits it.
    is_fixed: whether a group of primitive operators has loops that leave nothing to decide.
    packed_layouts: by input number, the layouts that decisions give to constants.
    versions: the symbolic extent for whose sizes a group has several schedules, if there is one.
    lower_group: the kernel of a group, by rule, as a loop nest.
    lower_scheduled: the kernel of a group with any schedule.
    lower_plain: the kernel of a group by the simplest schedule, which can be compiled where the
        rule's can't.
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
