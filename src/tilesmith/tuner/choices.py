"""Choices of the whole model: which algorithm each convolution uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.ops.conv import Conv
from tilesmith.ops.winograd import SQUARES, WinogradConv
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.knobs import Decisions
from tilesmith.tuning.lookup import Match
from tilesmith.tuning.records import Key, Records, trial
from tilesmith.tuning.workload import convolution_workload

from .tasks import Compiled


def choose_algorithms(
    graph: Graph, session: Session, records: Records, plain: Compiled, go_on: Callable[[], bool]
) -> None:
    """Find the fastest algorithm of each convolution that has a choice, by the times of its kernels
    in variants of the whole model.
    """
    choices = convolutions(graph, session)
    threads = thread_count(session.options.threads)
    keys = {loc: Key.of(text, session.target.text, threads) for loc, text in choices.items()}
    if all(records.trials(key) for key in keys.values()):
        return  # decided before, or nothing to decide
    usual = _anchor_seconds(plain)
    best: dict[str, tuple[float, int | None]] = {k: (s, None) for k, s in usual.items()}
    for m in (0, *SQUARES):
        if not go_on():
            break
        forced = _forced(session, {text: {"algorithm": m} for text in choices.values()})
        found = _anchor_seconds(Compiled.of(graph, forced))
        for loc, seconds in found.items():
            if loc in best and seconds < best[loc][0]:
                best[loc] = (seconds, m)
    for loc, key in keys.items():
        if loc in best:
            seconds, m = best[loc]
            decisions: Decisions = {} if m is None else {"algorithm": m}
            records.add(trial(key, decisions, "ok", f"conv {loc}", "", seconds, usual[loc]))


def with_algorithms(graph: Graph, session: Session, records: Records) -> Session:
    """The session with the algorithms on record, and nothing else."""
    chosen = driver.lookup(records, session)
    texts = set(convolutions(graph, session).values())
    return _forced(session, {text: chosen(text).decisions for text in texts})


def _forced(session: Session, decisions: Mapping[str, Decisions]) -> Session:
    """The session with decisions for some workloads, by their texts, and nothing else."""
    return dataclasses.replace(session, tuned=lambda text, _=None: Match(decisions.get(text, {})))


def convolutions(graph: Graph, session: Session) -> dict[str, str]:
    """The workloads of the convolutions that have a choice, by the name of their source node."""
    asked: set[str] = set()

    def note(workload: str, family: object = None) -> Match:
        del family
        asked.add(workload)
        return Match({"algorithm": 0})

    fused = driver.optimise(graph, dataclasses.replace(session, tuned=note))
    found: dict[str, str] = {}
    for n in _anchors(fused).values():
        workload = convolution_workload(n, session.options.accuracy)
        if isinstance(n.op, Conv) and workload in asked:
            found[n.loc] = workload
    return found


def _anchors(fused: Graph) -> dict[Node, Node]:
    """The convolution in each kernel that has one with a name."""
    return {
        kernel: n
        for kernel in fused.nodes
        if isinstance(kernel.op, Fused)
        for n in kernel.op.body.nodes
        if isinstance(n.op, (Conv, WinogradConv)) and n.loc
    }


def _anchor_seconds(c: Compiled) -> dict[str, float]:
    return {n.loc: c.seconds[k] for k, n in _anchors(c.fused).items() if k in c.seconds}
