"""Many cases, what became of them, and the smallest graph for each that should not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

import children

from .cases import NODES, random_case, text_of
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, WRONG, Verdict, judge
from .shrink import shrunk

OTHERWISE = "right, where the reference evaluator gives what ONNX Runtime does not"


def verdicts(seeds: Sequence[int], nodes: int = NODES, opt_level: int = 2) -> Iterator[Verdict]:
    """What becomes of the cases of seeds, of up to so many nodes, at a level of LLVM's effort."""

    def of_seed(seed: int) -> Verdict:
        return judge(random_case(seed, nodes), opt_level)

    for v in children.each(seeds, of_seed, SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


def shown(counts: Counter[str]) -> str:
    """`197 right, 3 refused`."""
    return ", ".join(f"{n} {result}" for result, n in counts.most_common())


def fuzz_graphs(
    seeds: Sequence[int], to: Path, nodes: int = NODES
) -> tuple[Counter[str], list[str]]:
    """Judges the cases of seeds; prints and saves the smallest graph of each that crashed or is
    wrong.  The counts of results; the reasons of refusals, and of
    differences from the reference evaluator.
    """
    counts: Counter[str] = Counter()
    reasons = []
    for seed, verdict in zip(seeds, verdicts(seeds, nodes), strict=True):
        counts[verdict.result] += 1
        if counts.total() % 100 == 0:
            print(f"graphs to {seed}: {shown(counts)}", flush=True)
        if verdict.result == REFUSED:
            reasons.append(f"{seed}: {verdict.reason}")
        elif verdict.result == RIGHT and verdict.reason:
            counts[OTHERWISE] += 1
            reasons.append(f"{seed}: the reference evaluator: {verdict.reason}")
        elif verdict.result in (WRONG, CRASHED):
            case, verdict = shrunk(random_case(seed, nodes), verdict)
            text = f"seed {seed}: {verdict.result}: {verdict.reason}\n{text_of(case)}\n"
            print(text, flush=True)
            to.mkdir(parents=True, exist_ok=True)
            (to / f"{seed}.txt").write_text(text, encoding="utf-8")
            onnx.save(case.model, to / f"{seed}.onnx")
    return counts, reasons
