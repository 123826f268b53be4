"""Many programs by every road, what became of them, and the smallest one for each defect."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

import children

from ..judge import CRASHED, REFUSED, RIGHT, WRONG, Verdict
from .draw import STATEMENTS, random_program
from .judge import MEMORY, SECONDS, judge
from .shrink import shrunk

OTHERWISE = "right, where PyTorch's own capture gives what eager mode does not"


def verdicts(
    items: Sequence[tuple[int, str]], statements: int = STATEMENTS
) -> Iterator[tuple[int, str, Verdict]]:
    """What becomes of the programs of seeds, each by a road.  Those without gradients have none to
    train.

    The process must have run no threads of PyTorch: forked children would wait for them.
    """
    torch.set_num_threads(1)
    torch._logging.set_logs(all=logging.ERROR)
    warnings.simplefilter("ignore")

    def of_item(item: tuple[int, str]) -> Verdict | None:
        program = random_program(item[0], statements)
        if item[1] == "training" and not program.gradients:
            return None
        return judge(program, item[1])

    found = children.each(items, of_item, SECONDS, MEMORY)
    for (seed, road), v in zip(items, found, strict=True):
        if v is not None:
            yield seed, road, Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


def fuzz_programs(
    seeds: Sequence[int], to: Path, roads: Sequence[str], statements: int, shrink: bool = True
) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Judges the programs of seeds; prints and saves the smallest program of each that crashed or
    is wrong.  The counts of roads and results, and of reasons of refusals.
    """
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    last = None
    items = [(seed, road) for seed in seeds for road in roads]
    for seed, road, verdict in verdicts(items, statements):
        counts[road, verdict.result] += 1
        if seed != last and seed % 50 == 49:
            print(f"programs to {seed}: {shown(counts)}", flush=True)
        last = seed
        if verdict.result == REFUSED:
            reasons[_kind(verdict.reason)] += 1
        elif verdict.result == RIGHT and verdict.reason:
            counts[road, OTHERWISE] += 1
        elif verdict.result in (WRONG, CRASHED):
            program = random_program(seed, statements)
            if shrink:
                program, verdict = shrunk(program, road, verdict)
            text = f"# seed {seed}, {road}: {verdict.result}: {verdict.reason}"
            text = text.replace("\n", "\n# ") + "\n" + program.source()
            print(text, flush=True)
            to.mkdir(parents=True, exist_ok=True)
            (to / f"program-{seed}-{road}.py").write_text(text, encoding="utf-8")
    return counts, reasons


def shown(counts: Counter[tuple[str, str]]) -> str:
    """`module: 197 right, 3 refused; trace: 200 right`."""
    roads = dict.fromkeys(road for road, _ in counts)
    return "; ".join(
        f"{road}: " + ", ".join(f"{n} {r}" for (o, r), n in counts.most_common() if o == road)
        for road in roads
    )


def _kind(reason: str) -> str:
    """A refusal without what is this program's alone."""
    what = reason.partition(":")[0]
    if "cannot be compiled" in reason and (named := re.findall(r"aten\.\w+\.\w+", reason)):
        return f"{what}: {named[0]}: {re.sub(r'[0-9]+', 'N', reason[-60:])}"
    line = next((s for s in reason.splitlines() if s.strip()), "")
    return re.sub(r"\b[vxpbs]\d+\w*|\d+", "N", line)[:160]
