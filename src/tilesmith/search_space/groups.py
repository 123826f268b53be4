"""Fused groups as search spaces: the strategy's schedules, generated ones, and users' own.

The knob `schedule` selects the source: "strategy" (the default), "sketch" (rules, see
`strategy.sketch`), or "user:NAME" (a registered template).  The knobs of sketches are called
`sketch.…`, those of a template `NAME.…`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilesmith.graph.bind import bind
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import constants_of
from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.strategy.attempts import first_lowered, operators
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.strategy.sizes import explodes, for_all_sizes, typical_graph
from tilesmith.strategy.versions import expecting, renamed
from tilesmith.support.errors import ModelError, ScheduleError
from tilesmith.support.logs import logger
from tilesmith.te.knobs import ANALYTIC, Config, Decisions, Knob, Value
from tilesmith.te.schedule import Schedule

from .constraints import Constraints, same
from .space import Space
from .templates import template_of, templates_for

SCHEDULE, STRATEGY, SKETCH, USER = "schedule", "strategy", "sketch", "user:"

_log = logger("schedule")


def user_template(decisions: Decisions) -> str | None:
    """The name of the registered template to which decisions belong, if any."""
    chosen = str(decisions.get(SCHEDULE, ""))
    return chosen.removeprefix(USER) if chosen.startswith(USER) else None


def origins_of(body: Graph, rules: ScheduleRules) -> list[str]:
    """The options of the knob `schedule` for a fused body."""
    group = group_tensors(body)
    generated = [SKETCH] if rules.is_generic(body, group) else []
    return [STRATEGY, *(USER + t.name for t in templates_for(body, group)), *generated]


def has_decisions(body: Graph, rules: ScheduleRules) -> bool:
    """Whether decisions affect the kernel of a fused body.

    Decisions do not affect a plain concatenation, a body written as loops, or a body of constants.
    """
    primitive = all(n.op.is_primitive() for n in body.nodes)
    return primitive and not rules.is_fixed(body) and not constants_of(body)


def schedules_of(
    body: Graph,
    target: Target,
    rules: ScheduleRules,
    cfg: Config = ANALYTIC,
    origins: Sequence[str] | None = None,
) -> Iterator[tuple[Schedule, Group]]:
    """The schedules that `cfg` selects for a fused group, the best first.  Each comes with its
    tensor expressions.

    origins: the result of `origins_of`; None to compute it here.
    """
    chosen = cfg.choice(SCHEDULE, origins or (lambda: origins_of(body, rules)), STRATEGY)
    if chosen == STRATEGY:
        return rules.schedules(body, target, cfg)
    group = group_tensors(body)
    s = group.schedule()
    if chosen == SKETCH:
        rules.generate(s, group, target, cfg.under(SKETCH))
        return iter([(s, group)])
    name = chosen.removeprefix(USER)
    template = template_of(name)
    if template is None:
        raise ScheduleError(f"the template {name!r} is not registered any more")
    template.schedule(cfg.under(name), s, group)
    return iter([(s, group)])


def schedule_group(
    body: Graph,
    target: Target,
    rules: ScheduleRules,
    cfg: Config = ANALYTIC,
    origins: Sequence[str] | None = None,
) -> tuple[Schedule, Group]:
    """The first schedule of `schedules_of`, with its tensor expressions."""
    return next(schedules_of(body, target, rules, cfg, origins))


def lower_group(
    body: Graph, target: Target, rules: ScheduleRules, name: str, cfg: Config = ANALYTIC
) -> Func:
    """The kernel of a fused group as a loop nest.  Its parameters are the group's inputs, then the
    outputs, then the symbols of the extents.
    """
    # operators that are written as loops need no schedule
    written = any(n.op.is_irregular() for n in body.nodes)
    if body.symbols and not written:
        try:
            versions = rules.versions(body)
            several = versions.sizes if versions is not None and versions.most else ({},)
            try:
                funcs = [_lower_open(body, sizes, target, rules, name, cfg) for sizes in several]
            except (ScheduleError, ModelError) as e:
                if cfg.chosen or len(several) == 1:
                    raise
                _log.info("%s: one version for few and for many: %s", operators(body), e)
                funcs = [_lower_open(body, {}, target, rules, name, cfg)]
            func = funcs[0] if versions is None or len(funcs) == 1 else versions.joined(*funcs)
            if versions is None or not versions.has_one:
                return func
            one = lower_group(bind(body, {versions.extent: 1}), target, rules, name, cfg)
            return versions.with_one(one, func)
        except (ScheduleError, ModelError) as e:  # for instance, the group can't have these sizes
            if cfg.chosen:
                raise
            _log.info("%s: open sizes become plain loops: %s", operators(body), e)
        group = group_tensors(body)
        return rules.lower_scheduled(group.schedule(), group, target, name)
    if cfg.chosen.get(SCHEDULE, STRATEGY) == STRATEGY:
        return rules.lower_group(body, target, name, cfg)
    return rules.lower_scheduled(*schedule_group(body, target, rules, cfg), target, name)


def _lower_open(
    body: Graph,
    sizes: Mapping[Var, int],
    target: Target,
    rules: ScheduleRules,
    name: str,
    cfg: Config,
) -> Func:
    """The kernel for all sizes.  Its schedule is made for the expected sizes, or for those in
    `sizes`.

    Raises ScheduleError if every schedule recomputes too much.
    """
    extents = (a.extent for s in group_tensors(body).stages for a in s.reduce_axis)
    if not all(isinstance(n, int) for n in extents):
        cfg = replace(cfg, open_sums=True)
    if user_template(cfg.chosen) is None and any(expected(v) != n for v, n in sizes.items()):
        cfg = replace(cfg, chosen={}, seen=None)  # the decisions were made for expected sizes
    near = typical_graph(bind(body, sizes))
    body, names = expecting(body, sizes)
    by_rule = cfg.chosen.get(SCHEDULE, STRATEGY) == STRATEGY
    group = rules.expressions(body) if by_rule else group_tensors(body)

    def lowered(s: Schedule, _: Group) -> Func | None:
        func = rules.lower_scheduled(for_all_sizes(s, group), group, target, name)
        if not explodes(func, group):
            return renamed(func, names)
        _log.info("%s: a schedule would compute too much for some sizes", operators(body))
        return None

    return first_lowered(schedules_of(near, target, rules, cfg), lowered, body, cfg)


@dataclass(frozen=True, eq=False)
class GroupSpace:
    """The schedules of a fused body.

    body: the group (see `driver.canonical`).
    constants: numbers of the inputs whose packing is one of the decisions.
    target: the machine.
    rules: makes the target's schedules by rule.
    """

    body: Graph
    constants: Sequence[int]
    target: Target
    rules: ScheduleRules

    @cached_property
    def origins(self) -> list[str]:
        """The values of the knob `schedule`."""
        return origins_of(self.body, self.rules)

    def packed(self, cfg: Config) -> Graph:
        """The body with constants packed as decided."""
        return with_packing(self.body, self.packed_layouts(cfg))

    def packed_layouts(self, cfg: Config) -> dict[int, Layout]:
        """New layouts of constants that decisions change, by input number."""
        return self.rules.packed_layouts(self.body, self.constants, self.target, cfg)

    def lower(self, name: str, cfg: Config = ANALYTIC) -> Func:
        """The kernel that `cfg` selects, with its constants packed, as a loop nest."""
        return lower_group(self.packed(cfg), self.target, self.rules, name, cfg)

    def schedule(self, cfg: Config) -> tuple[Schedule, Group]:
        """The schedule that `cfg` selects, with its tensor expressions.

        Raises ScheduleError for impossible decisions.
        """
        return schedule_group(self.packed(cfg), self.target, self.rules, cfg, self.origins)

    @cached_property
    def _plain(self) -> Space:
        return Space(self.schedule)

    def known(self, names: Collection[str] = ()) -> dict[str, Knob]:
        """The knobs of the analytic schedule.

        If a knob in `names` is not among them, the result also has the knobs that exist when one of
        these knobs has another value.
        """
        return self._plain.reachable(names)

    def space(self, constraints: Constraints | None = None) -> Space:
        """The search space under the constraints.  Constraints on knobs and values that it lacks
        are ignored.

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
            k: existing
            for k, values in constraints.forbid.items()
            if len(known.get(k, ())) > 1 and (existing := [v for v in values if is_option(k, v)])
        }
        return Space(self.schedule, pinned, forbidden, own)
