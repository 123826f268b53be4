"""Fused groups as search spaces: the strategy's schedules, generated ones, and users' own.

The knob `schedule` says which: "strategy" (the default), "sketch" (rules, see `strategy.sketch`),
    or "user:NAME" (a registered template).  The knobs of the last two are called `sketch.…` and
    `NAME.…`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import constants_of
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.strategy import cpu
from tilesmith.strategy.cpu import is_concat
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.sketch import schedule_expression
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import ANALYTIC, Config, Decisions, Knob, Value
from tilesmith.te.schedule import Schedule

from .constraints import Constraints, same
from .space import Space
from .templates import template_of, templates_for

SCHEDULE, STRATEGY, SKETCH, USER = "schedule", "strategy", "sketch", "user:"

_log = logging.getLogger("tilesmith")


def user_template(decisions: Decisions) -> str | None:
    """The name of the registered template to which decisions belong, if any."""
    chosen = str(decisions.get(SCHEDULE, ""))
    return chosen.removeprefix(USER) if chosen.startswith(USER) else None


def origins_of(body: Graph) -> list[str]:
    """The values of the knob `schedule` for a fused body."""
    group = group_tensors(body)
    generated = [SKETCH] if cpu.is_generic(body, group) else []
    return [STRATEGY, *(USER + t.name for t in templates_for(body, group)), *generated]


def has_decisions(body: Graph) -> bool:
    """True if decisions schedule the kernel of a fused body.

    They do not for a plain concatenation, for a body written as loops, or for one of constants.
    """
    primitive = all(n.op.is_primitive() for n in body.nodes)
    return primitive and not is_concat(body) and not constants_of(body)


def schedule_group(
    body: Graph, target: Target, cfg: Config = ANALYTIC, origins: Sequence[str] | None = None
) -> tuple[Schedule, Group]:
    """The schedule of a fused group that `cfg` decides on, and its tensor expressions.

    origins: the result of `origins_of`, if it is known.
    """
    chosen = cfg.choice(SCHEDULE, origins or (lambda: origins_of(body)), STRATEGY)
    if chosen == STRATEGY:
        return cpu.schedule(body, target, cfg)
    group = group_tensors(body)
    s = group.schedule()
    if chosen == SKETCH:
        schedule_expression(s, group, target, cfg.under(SKETCH))
        return s, group
    name = chosen.removeprefix(USER)
    template = template_of(name)
    if template is None:
        raise ScheduleError(f"the template {name!r} is not registered any more")
    template.schedule(cfg.under(name), s, group)
    return s, group


def lower_group(body: Graph, target: Target, name: str, cfg: Config = ANALYTIC) -> Func:
    """The kernel of a fused group as a loop nest (see `strategy.cpu.lower_group`)."""
    if cfg.chosen.get(SCHEDULE, STRATEGY) == STRATEGY:
        return cpu.lower_group(body, target, name, cfg)
    return cpu.lower_scheduled(*schedule_group(body, target, cfg), target, name)


@dataclass(frozen=True, eq=False)
class GroupSpace:
    """The schedules of a fused body.

    body: the group (see `driver.canonical`).
    constants: inputs by number whose packing is one of the decisions.
    target: the machine.
    """

    body: Graph
    constants: Sequence[int]
    target: Target

    @cached_property
    def origins(self) -> list[str]:
        """The values of the knob `schedule`."""
        return origins_of(self.body)

    def packed(self, cfg: Config) -> Graph:
        """The body with constants packed as decided."""
        return with_packing(self.body, packed_layouts(self.body, self.constants, self.target, cfg))

    def schedule(self, cfg: Config) -> tuple[Schedule, Group]:
        """Raises ScheduleError for impossible decisions."""
        return schedule_group(self.packed(cfg), self.target, cfg, self.origins)

    @cached_property
    def _plain(self) -> Space:
        return Space(self.schedule)

    def known(self, names: Collection[str] = ()) -> dict[str, Knob]:
        """The knobs of the analytic schedule.

        If some of `names` are not among them, also the knobs that other values of these bring
        along.
        """
        return self._plain.reachable(names)

    def space(self, constraints: Constraints | None = None) -> Space:
        """The search space, with those constraints for which it has knobs and values.

        A value without an alternative can't be forbidden.  A search starts from the strategy's
        schedule and from those of users' templates.
        """
        own = [{SCHEDULE: o} for o in self.origins if o.startswith(USER)]
        for start in own:
            try:
                self.schedule(Config(start))
            except ScheduleError as e:
                name = user_template(start)
                _log.warning("template %r can't be a start, by default it fails: %s", name, e)
        if constraints is None:
            return Space(self.schedule, starts=own) if own else self._plain
        known = {k: knob.options for k, knob in self.known(constraints.names).items()}

        def is_option(name: str, value: Value) -> bool:
            return any(same(o, value) for o in known.get(name, ()))

        pinned = {k: v for k, v in constraints.pins.items() if is_option(k, v)}
        forbidden = {
            k: found
            for k, values in constraints.forbid.items()
            if len(known.get(k, ())) > 1 and (found := [v for v in values if is_option(k, v)])
        }
        return Space(self.schedule, pinned, forbidden, own)
