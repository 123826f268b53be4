"""Kernels of fused groups for devices."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.graph.nodes import Graph
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.loop.launches import check_limits, launches
from tilesmith.loop.nodes import Func
from tilesmith.strategy import attempts
from tilesmith.strategy.cpu import lower_scheduled as lower_with_halos
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.irregular import is_irregular
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule

from .blocks import block_size
from .generic import schedule_elements, schedule_expression
from .implicit import implicit_group, schedule_implicit
from .irregular import lower_irregular
from .parallel import launch_parallel
from .streamed_attention import streamed_group


def schedules(
    body: Graph, target: Target, cfg: Config = ANALYTIC
) -> Iterator[tuple[Schedule, Group]]:
    """Schedules of a fused group, one from each rule that applies, best first, each with the tensor
    expressions that it schedules.
    """
    group = group_tensors(body)
    return attempts.schedules(
        (
            ("convolutions as products", lambda cfg: _implicit(group, target)),
            ("attention in chunks", lambda cfg: _streamed(group, target, cfg)),
            ("expressions", lambda cfg: _generated(group, target, cfg)),
            ("elements", lambda cfg: (_elements(group, target), group)),
        ),
        body,
        cfg,
    )


def _implicit(group: Group, target: Target) -> tuple[Schedule, Group] | None:
    implicit = implicit_group(group, target)
    tiled = None if implicit is None else schedule_implicit(implicit, target)
    return None if implicit is None or tiled is None else (tiled, implicit.group)


def _streamed(group: Group, target: Target, cfg: Config) -> tuple[Schedule, Group] | None:
    streamed = streamed_group(group, target)
    return None if streamed is None else _generated(streamed, target, cfg)


def _generated(group: Group, target: Target, cfg: Config) -> tuple[Schedule, Group]:
    s = group.schedule()
    generate(s, group, target, cfg)
    return s, group


def _elements(group: Group, target: Target) -> Schedule:
    """A schedule with a thread for each element."""
    s = group.schedule()
    schedule_elements(s, target)
    return s


def generate(s: Schedule, group: Group, target: Target, cfg: Config) -> None:
    """Give a schedule that is still empty the steps that fit any expression."""
    if not any(same_dim(a.extent, 0) for st in group.stages for a in (*st.axis, *st.reduce_axis)):
        schedule_expression(s, target, cfg)


def lower_scheduled(s: Schedule, group: Group, target: Target, name: str) -> Func:
    """The kernel of a group with a given schedule.

    Raises ScheduleError if a block needs more than the device has.
    """
    func = launch_parallel(lower_with_halos(s, group, target, name), block_size(target))
    assert target.device is not None
    check_limits(func, launches(func), target.device)
    return func


def lower_by_rule(body: Graph, target: Target, name: str, cfg: Config = ANALYTIC) -> Func:
    """The kernel of a fused group as a loop nest.  If the rules exceed a limit of the device, the
    kernel has a thread for each element.
    """
    if is_irregular(body):
        return lower_irregular(body, target, name)
    return attempts.first_lowered(
        schedules(body, target, cfg),
        lambda s, group: lower_scheduled(s, group, target, name),
        body,
        cfg,
    )


def lower_plain(body: Graph, target: Target, name: str) -> Func:
    """The kernel of a fused group with a thread for each element."""
    group = group_tensors(body)
    return lower_scheduled(_elements(group, target), group, target, name)


RULES = ScheduleRules(
    expressions=group_tensors,
    schedules=schedules,
    generate=generate,
    is_generic=lambda body, group: False,  # these schedules accept any expression
    is_fixed=lambda body: False,
    packed_layouts=lambda body, constants, target, cfg: {},
    versions=lambda body: None,
    lower_group=lower_by_rule,
    lower_scheduled=lower_scheduled,
    lower_plain=lower_plain,
)
