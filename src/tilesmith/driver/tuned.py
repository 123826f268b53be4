"""Decisions of tuning, and constraints of users, applied to a graph of fused groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tilesmith.graph.control import everywhere, kernels_in
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.graph.passes.repack import repack
from tilesmith.ir.layout import Layout
from tilesmith.perf.cost import Place
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.family import Family, group_family
from tilesmith.search_space.groups import GroupSpace, has_decisions, user_template
from tilesmith.search_space.space import Space
from tilesmith.search_space.templates import template_of
from tilesmith.search_space.workload import group_workload
from tilesmith.support.cache import cache_key
from tilesmith.support.errors import ScheduleError
from tilesmith.support.logs import logger
from tilesmith.te.knobs import Config, Decisions, values_from_json

from .kernels import tuned_body
from .passes import lower_loops
from .saved.program import kernel_cache
from .session import Session

_log = logger("records")


BELIEVED = 1.0
"""Decisions of a relative (a similar workload) are used if their predicted time is below this
multiple of the analytic kernel's.
"""


def apply_tuning(fused: Graph, session: Session) -> tuple[Graph, dict[Node, Decisions]]:
    """The graph with constants in the layouts of the best decisions, and decisions by node."""
    decisions: dict[Node, Decisions] = {}
    layouts: dict[Node, Mapping[int, Layout]] = {}
    check_constraints(fused, session)
    spaces = session.constraints.spaces if session.constraints is not None else {}
    if session.tuned is None and not spaces:
        return fused, decisions
    groups: dict[str, GroupSpace] = {}
    nodes: dict[str, list[Node]] = {}
    for graph, node in kernels_in(fused):
        assert isinstance(node.op, Fused)
        if (body := tuned_body(node.op.body)) is None:
            continue
        constants = [i for i, v in enumerate(node.inputs) if v in graph.constant]
        group = session.group(body, constants)
        workload = group_workload(group.body, constants, session.options.accuracy)
        groups.setdefault(workload, group)
        nodes.setdefault(workload, []).append(node)
    known = _Known(groups, session)
    best: dict[str, Decisions] = {}
    for workload in sorted(groups, key=lambda w: len(nodes[w]) * known.size(w), reverse=True):
        best[workload] = known.decisions(workload, spaces.get(workload))
    for workload, node in ((w, n) for w in groups for n in nodes[w]):
        chosen = best[workload]
        if not chosen:
            continue
        try:
            wanted = groups[workload].packed_layouts(Config(chosen))
            if (name := user_template(chosen)) is not None:
                session.outside.add(f"template {name}")
                if template_of(name) is None:
                    _miss(name)
                    continue
                groups[workload].schedule(Config(chosen))
        except ScheduleError as e:  # the record is from another version of Tilesmith
            if workload in spaces:
                raise
            _log.warning("a tuning record is not used: %s", e)
            continue
        decisions[node] = chosen
        if wanted:
            layouts[node] = wanted
    new = everywhere(lambda graph: repack(graph, layouts))(fused)
    again = dict(zip(_nodes(fused), _nodes(new), strict=True))
    return new, {again[n]: d for n, d in decisions.items()}


def _nodes(graph: Graph) -> list[Node]:
    return [n for _, n in kernels_in(graph)]


_missed: set[str] = set()


def _miss(name: str) -> None:
    """Warn once about records made with a template that is not registered in this process."""
    if name not in _missed:
        _missed.add(name)
        _log.warning(
            "records that use the template %r are not used: it is not registered here; "
            "ts.register_template it before compiling", name,
        )  # fmt: skip


class _Known:
    """Recorded decisions for the `groups` of a model, by workload.

    `fits`: number of groups to which decisions of a relative (a similar workload) may still be
    fitted.
    """

    def __init__(self, groups: Mapping[str, GroupSpace], session: Session) -> None:
        self.groups = groups
        self.session = session
        self.fits = max(1, int(session.fitted_share * len(groups)))
        self.threads = thread_count(session.options.threads)
        self._families: dict[str, Family] = {}

    def family(self, workload: str) -> Family:
        """The family of a group, computed when it is first needed."""
        if workload not in self._families:
            group = self.groups[workload]
            self._families[workload] = group_family(group.body, group.constants)
        return self._families[workload]

    def size(self, workload: str) -> float:
        """Work of the group: larger groups are fitted first."""
        is_open = self.session.tuned is not None and self.session.options.nearest
        return self.family(workload).size if is_open else 0.0

    def decisions(self, workload: str, space: Space | None) -> Decisions:
        """Decisions on record for a group, within the `space` that the user's constraints leave.

        If no decisions are on record, the result stands for the analytic choices: it is empty, or
        has the decisions in `space` that are nearest to these choices.
        """
        if space is None:
            return self._recorded(workload, lambda _: True)
        recorded = self._recorded(workload, lambda d: space.keeping(d) is not None)
        return space.keeping(recorded) or space.start

    def _recorded(self, workload: str, obeys: Callable[[Decisions], bool]) -> Decisions:
        session = self.session
        if session.tuned is None:
            return {}
        match = session.tuned(workload, lambda: self.family(workload), obeys)
        if match.is_exact:
            return match.decisions
        cache = kernel_cache(session.options)
        parts = (workload, session.options.key(), session.target.text, json.dumps(match.decisions))
        key = cache_key("refit", *parts, str(self.threads))
        blob = cache.get(key) if cache is not None else None
        if blob is not None:
            return values_from_json(json.loads(blob))
        if not self.fits:
            return {}
        self.fits -= 1
        with session.timings.stage("refit"):
            fitted = refit(self.groups[workload], match.decisions, session, self.threads)
        if cache is not None:
            cache.put(key, json.dumps(fitted).encode())
        return fitted


def refit(group: GroupSpace, wanted: Decisions, session: Session, threads: int) -> Decisions:
    """Decisions made for a relative of a group, adapted to the group as far as possible.

    No kernel is measured here.  So the result is empty unless the performance model predicts a gain
    over the analytic choices.
    """
    fitted = group.space().refitted(wanted)
    if not fitted:
        return {}
    try:
        ours, analytic = (
            predicted_seconds(group, chosen, session, threads) for chosen in (fitted, {})
        )
    except ScheduleError:
        return {}
    return fitted if ours < BELIEVED * analytic else {}


def predicted_seconds(
    group: GroupSpace,
    decisions: Decisions,
    session: Session,
    threads: int,
    constants: Place = "l3",
) -> float:
    """Seconds of a group's kernel in the performance model.

    constants: the level of memory that holds the group's constants.
    """
    quiet = Session(session.options, session.target)
    final = lower_loops(group.lower("k", Config(decisions)), quiet)
    places: list[Place] = ["l1"] * len(group.body.inputs)
    for i in group.constants:
        places[i] = constants
    return session.backend.predict(final, session.target, threads, places)


def group_space(node: Node, fused: Graph, session: Session) -> tuple[str, GroupSpace] | None:
    """The workload of a kernel's node in a graph of fused groups, and its possible schedules; None
    if there is nothing to decide.
    """
    assert isinstance(node.op, Fused)
    body = tuned_body(node.op.body)
    if body is None or not has_decisions(body, session.backend.rules):
        return None
    constants = [i for i, v in enumerate(node.inputs) if v in fused.constant]
    return group_workload(body, constants, session.options.accuracy), session.group(body, constants)


def check_constraints(fused: Graph, session: Session) -> None:
    """Check that the session's constraints allow some schedules of the kernels.

    Raises UsageError if they name a kernel or a knob that the model does not have.
    """
    constraints = session.constraints
    if constraints is None:
        return
    own = constraints.of_kernels()
    with session.timings.stage("constraints"):
        nodes = kernels_in(fused) if own.names else ()
        groups = dict(g for graph, n in nodes if (g := group_space(n, graph, session)) is not None)
        fresh = {w: g for w, g in groups.items() if w not in constraints.spaces}
        for group in fresh.values():
            for name, knob in group.known(own.names).items():
                constraints.knobs.setdefault(name, {}).update(dict.fromkeys(knob.options))
        constraints.check()
        constraints.spaces.update({w: g.space(own) for w, g in fresh.items()})
