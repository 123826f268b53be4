"""Schedule rules, tried in turn until the steps of one are legal.

A rule recognises a structure and adds steps for it.  A rule can't foresee every failure: for some
expressions one of its steps is illegal, or the schedule can't be lowered.  Then the group gets the
next rule's schedule, and the log (topic `schedule`) says so.  The last rule adds no steps, so it
suits every group.

Tuned decisions belong to the first rule that succeeds without them.  If that rule fails with them,
the decisions are impossible.  No other rule is tried then: tuning and its records need the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from tilesmith.graph.nodes import Graph
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import ScheduleError
from tilesmith.support.logs import logger
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule

from .group import Group

Rule: TypeAlias = Callable[[Config], "tuple[Schedule, Group] | None"]
"""A rule.  It returns a new schedule and the expressions that are scheduled.  It returns None if
the rule does not apply to the group.
"""

_log = logger("schedule")


def schedules(
    rules: Iterable[tuple[str, Rule]], body: Graph, cfg: Config
) -> Iterator[tuple[Schedule, Group]]:
    """Schedules of a group: one from each of the `rules` (names and functions) that applies.

    Raises ScheduleError for impossible decisions, and if every rule fails.
    """
    failed: ScheduleError | None = None
    is_made = False
    for name, rule in rules:
        try:
            scheduled = rule(cfg)
        except ScheduleError as e:
            if cfg.chosen and _fits(rule, cfg):
                raise
            failed = e
            _log.info("%s: the rule for %s does not fit: %s", operators(body), name, e)
            continue
        if scheduled is not None:
            is_made = True
            yield scheduled
    if failed is not None and not is_made:
        raise failed


def _fits(rule: Rule, cfg: Config) -> bool:
    """True if the rule makes a schedule without tuned decisions."""
    try:
        return rule(replace(cfg, chosen={}, seen=None)) is not None
    except ScheduleError:
        return False


def first_lowered(
    found: Iterable[tuple[Schedule, Group]],
    lower: Callable[[Schedule, Group], Func | None],
    body: Graph,
    cfg: Config,
) -> Func:
    """The kernel of the first schedule that `lower` accepts.  `lower` returns None for a schedule
    that it rejects.

    Raises the last ScheduleError if no schedule is accepted.  With tuned decisions, raises the
    first ScheduleError.
    """
    failed = ScheduleError(f"{operators(body)}: there is no schedule")
    for s, group in found:
        try:
            func = lower(s, group)
        except ScheduleError as e:
            if cfg.chosen:
                raise
            failed = e
            _log.info("%s: a schedule can't be carried out: %s", operators(body), e)
            continue
        if func is not None:
            return func
    raise failed


def operators(body: Graph) -> str:
    """The operators of a group.  They identify the group in messages, since fused groups have no
    names.
    """
    return "+".join(n.op.name for n in body.nodes)
