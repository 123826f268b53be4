"""A smaller case that shows the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from .builder import Rejected, used
from .cases import Case, part, with_outputs
from .judge import Verdict, judge_apart

_MOST_TRIES = 40

C = TypeVar("C")


def smallest(
    case: C,
    verdict: Verdict,
    candidates: Callable[[C], Iterable[C]],
    judged: Callable[[C], Verdict],
    most: int,
) -> tuple[C, Verdict]:
    """The smallest case that was found with the same result, and its verdict.

    candidates: smaller ones than a case.
    most: so many are judged.
    """
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            tries += 1
            if tries > most:
                break
            found = judged(candidate)
            if found.result == verdict.result:
                case, verdict, smaller = candidate, found, True
                break
    return case, verdict


def shrunk(case: Case, verdict: Verdict) -> tuple[Case, Verdict]:
    """The smallest graph that was found with the same result, and its verdict."""
    return smallest(case, verdict, _candidates, lambda c: judge_apart([c])[0], _MOST_TRIES)


def _candidates(case: Case) -> Iterator[Case]:
    """Cases with fewer runs, fewer nodes, fewer outputs and simpler inputs."""
    if len(case.runs) > 1:
        yield from (Case(case.model, (inputs,)) for inputs in case.runs)
    names = [o.name for o in case.model.graph.output]
    if len(names) > 1:
        yield from (with_outputs(case, [name]) for name in names)
    if len(case.runs) > 1:
        return
    (inputs,) = case.runs
    count = len(case.model.graph.node)
    if count > 1:
        halves = [range(count // 2), range(count // 2, count)] if count > 3 else []
        without = [[i for i in range(count) if i != gone] for gone in reversed(range(count))]
        for kept in (*halves, *without):
            outputs = _results(case, kept)
            try:
                yield part(case.model, inputs, kept, outputs)
            except Rejected:
                continue
    for name, array in inputs.items():
        if array.dtype.kind not in "b" and array.size and np.unique(array).size > 1:
            simple = array.copy()
            simple[...] = array.ravel()[0]
            yield Case(case.model, (inputs | {name: simple},))


def _results(case: Case, kept: range | list[int]) -> list[str]:
    """The outputs of a part: those that nothing in it uses."""
    nodes = [case.model.graph.node[i] for i in kept]
    consumed = {n for node in nodes for n in used(node)}
    return [o for n in nodes for o in n.output if o and o not in consumed]
