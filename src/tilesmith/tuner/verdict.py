"""The final check: the model with the decisions on record against the untuned one."""

from __future__ import annotations

import dataclasses

import numpy as np

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.graph.nodes import Graph
from tilesmith.runtime.executable import Executable
from tilesmith.support.measure import interleave, ratio
from tilesmith.tuning.records import Records

from .tasks import random_array

CHECK_ROUNDS = 7
"""Turns of each executable in the final check."""


def better_of(
    graph: Graph, session: Session, plain: Executable, records: Records
) -> tuple[Executable, float]:
    """The executable with the decisions on record, or `plain` where that is no slower; in that case
    the decisions are marked as worse.
    """
    chosen = driver.lookup(records, session)
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
        *(
            dataclasses.replace(t, key=key, status="worse", cause=worse)
            for key, t in chosen.used.items()
        )
    )
    return plain, 1.0
