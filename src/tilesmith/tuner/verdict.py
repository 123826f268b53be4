"""The final check: the model with the decisions on record against the untuned one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.graph.nodes import Graph
from tilesmith.runtime.executable import Executable
from tilesmith.strategy.knobs import Decisions
from tilesmith.support.measure import interleave, ratio
from tilesmith.tuning.records import Key, Records, Trial

from .tasks import random_array

CHECK_ROUNDS = 7
"""Turns of each executable in the final check."""


@dataclass
class Chosen:
    """Decisions from the records for a compilation, and which trials they are."""

    records: Records
    target: str
    threads: int
    used: dict[Key, Trial] = field(default_factory=dict)

    def __call__(self, workload: str) -> Decisions:
        key = Key.of(workload, self.target, self.threads)
        found = self.records.best(key)
        if found is None:
            return {}
        self.used[key] = found
        return found.candidate


def better_of(
    graph: Graph, session: Session, plain: Executable, records: Records, threads: int
) -> tuple[Executable, float]:
    """The executable with the decisions on record, or `plain` where that is no slower; in that case
    the decisions are marked as worse.
    """
    chosen = Chosen(records, session.target.text, threads)
    tuned = Executable(
        driver.compile_program(graph, dataclasses.replace(session, tuned=chosen)),
        session.options.threads,
    )
    if not chosen.used:
        return plain, 1.0
    rng = np.random.default_rng(0)
    inputs = [random_array(rng, s) for s in plain.inputs]
    samples = interleave(
        {"untuned": lambda: plain(*inputs), "tuned": lambda: tuned(*inputs)}, rounds=CHECK_ROUNDS
    )
    speedup = ratio(samples["untuned"], samples["tuned"])
    if speedup > 1:
        return tuned, speedup
    worse = "the model as a whole was slower with it"
    records.add(
        *(dataclasses.replace(t, status="worse", cause=worse) for t in chosen.used.values())
    )
    return plain, 1.0
