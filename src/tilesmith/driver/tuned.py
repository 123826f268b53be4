"""What tuning found, applied to a graph of fused groups."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from tilesmith.choices.family import group_family
from tilesmith.choices.groups import GroupSpace, lower_group, user_template
from tilesmith.choices.space import Space
from tilesmith.choices.templates import template_of
from tilesmith.choices.workload import group_workload
from tilesmith.codegen.math import expand_math
from tilesmith.graph.nodes import Fused, Graph, InPlace, Node
from tilesmith.graph.passes.repack import repack
from tilesmith.ir.layout import Layout
from tilesmith.perf.cost import Place, Setting, predict
from tilesmith.perf.kernel_work import work_of
from tilesmith.runtime.machine import machine
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.support.cache import cache_key
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config, Decisions, values_from_json

from .constrained import check_constraints
from .kernels import canonical
from .passes import run_loop_passes
from .programs import kernel_cache
from .session import Session

_log = logging.getLogger("tilesmith")


BELIEVED = 1.05
"""Of the analytic kernel's predicted time: decisions of a relative that are predicted to take
longer are not believed."""


def apply_tuning(fused: Graph, session: Session) -> tuple[Graph, dict[Node, Decisions]]:
    """The graph with constants packed as tuning found best, and its other decisions by node."""
    decisions: dict[Node, Decisions] = {}
    layouts: dict[Node, Mapping[int, Layout]] = {}
    check_constraints(fused, session)
    spaces = session.constraints.spaces if session.constraints is not None else {}
    if session.tuned is None and not spaces:
        return fused, decisions
    fitted: dict[str, Decisions] = {}
    for node in fused.nodes:
        if isinstance(node.op, InPlace):
            continue
        assert isinstance(node.op, Fused)
        constants = [i for i, v in enumerate(node.inputs) if v in fused.constant]
        group = GroupSpace(canonical(node.op.body), constants, session.target)
        workload = group_workload(group.body, constants)
        if workload not in fitted:
            space = spaces.get(workload)
            fitted[workload] = (
                _known_decisions(group, workload, session)
                if space is None
                else _obedient(space, group, workload, session)
            )
        found = fitted[workload]
        if not found:
            continue
        try:
            wanted = packed_layouts(node.op.body, constants, session.target, Config(found))
            if (name := user_template(found)) is not None:
                session.outside.add(f"template {name}")
                if template_of(name) is None:
                    _miss(name)
                    continue
                group.schedule(Config(found))
        except ScheduleError as e:  # of another version of us
            if workload in spaces:
                raise
            _log.warning("a tuning record is not used: %s", e)
            continue
        decisions[node] = found
        if wanted:
            layouts[node] = wanted
    new = repack(fused, layouts)
    again = dict(zip(fused.nodes, new.nodes, strict=True))
    return new, {again[n]: d for n, d in decisions.items()}


_missed: set[str] = set()


def _miss(name: str) -> None:
    """Warn, once, that records were made with a template that this process does not know."""
    if name not in _missed:
        _missed.add(name)
        _log.warning(
            "records that use the template %r are not used: it is not registered here; "
            "ts.register_template it before compiling", name,
        )  # fmt: skip


def _obedient(space: Space, group: GroupSpace, workload: str, session: Session) -> Decisions:
    """What records say of a group, where that is in the `space` that the user's constraints leave;
    else the analytic choices, as far as they are.
    """
    found = _known_decisions(group, workload, session, lambda d: space.keeping(d) is not None)
    return space.keeping(found) or space.start


def _known_decisions(
    group: GroupSpace,
    workload: str,
    session: Session,
    fits: Callable[[Decisions], bool] = lambda _: True,
) -> Decisions:
    """What records say of a group, where it `fits`; what they say of a relative is fitted to it."""
    if session.tuned is None:
        return {}
    match = session.tuned(workload, lambda: group_family(group.body, group.constants), fits)
    if match.is_exact:
        return match.decisions
    cache = kernel_cache(session.options)
    parts = (workload, session.options.key(), session.target.text, json.dumps(match.decisions))
    threads = thread_count(session.options.threads)
    key = cache_key("refit", *parts, str(threads))
    blob = cache.get(key) if cache is not None else None
    if blob is not None:
        return values_from_json(json.loads(blob))
    with session.timings.stage("refit"):
        found = refit(group, match.decisions, session, threads)
    if cache is not None:
        cache.put(key, json.dumps(found).encode())
    return found


def refit(group: GroupSpace, wanted: Decisions, session: Session, threads: int) -> Decisions:
    """Decisions made for a relative of a group, as far as they are possible for it; none when the
    performance model expects them to be slower than the analytic ones: nothing is measured here.
    """
    found = group.space().refitted(wanted)
    if not found:
        return {}
    try:
        ours, analytic = (
            predicted_seconds(group, chosen, session, threads) for chosen in (found, {})
        )
    except ScheduleError:
        return {}
    return found if ours <= BELIEVED * analytic else {}


def predicted_seconds(
    group: GroupSpace, decisions: Decisions, session: Session, threads: int
) -> float:
    """What the performance model expects of a group's kernel, its constants in the L3 cache."""
    cfg = Config(decisions)
    func = lower_group(group.packed(cfg), session.target, "k", cfg)
    quiet = Session(session.options, session.target)
    final = expand_math(run_loop_passes(func, quiet), session.target)
    places: list[Place] = ["l1"] * len(group.body.inputs)
    for i in group.constants:
        places[i] = "l3"
    work = work_of(final, session.target)
    return predict(work, machine(), session.target, Setting(threads, places)).seconds
