"""The HTML report of a tuning run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.graph.nodes import Graph
from tilesmith.runtime.executable import Executable
from tilesmith.search_space.records import Records
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text
from tilesmith.tuning.graph_choices import asked, key_of
from tilesmith.tuning.report import ChoiceFacts, collect, page
from tilesmith.tuning.scheduler import Progress
from tilesmith.tuning.tasks import random_array


def choices_made(graph: Graph, session: Session, records: Records) -> list[ChoiceFacts]:
    """The choices of graph passes for which values were tried."""
    lookup = driver.lookup(records, session)
    made: list[ChoiceFacts] = []
    for workload, question in asked(graph, dataclasses.replace(session, tuned=lookup)).items():
        name, default = question.knob.name, question.knob.default
        trials = records.trials(key_of(workload, session))
        tried: dict[object, float] = {t.candidate.get(name): t.ratio for t in trials}
        if tried:
            chosen = lookup(workload).decisions.get(name, default)
            sources = tuple(sorted(question.sources))
            made.append(ChoiceFacts(name, sources, default, chosen, tried))
    return made


def write_html(
    path: str | os.PathLike[str],
    title: str,
    states: Sequence[Progress],
    before: Executable,
    after: Executable,
    speedup: float,
    started: float,
    choices: Sequence[ChoiceFacts],
    stages: Mapping[str, float],
) -> None:
    """Write the report to `path`; see `collect` for the other arguments.  Raises UsageError."""
    rng = np.random.default_rng(0)
    inputs = [random_array(rng, s) for s in before.inputs]
    text = page(collect(title, states, before, after, inputs, speedup, started, choices, stages))
    try:
        write_text(Path(path), text)
    except OSError as e:
        raise UsageError(f"the report can't be written to {str(path)!r}: {e}") from e
