"""2,000 random graphs, 1,000 random PyTorch programs, 10,000 random schedules, 20,000 damaged ONNX
models, 10,000 damaged files of other kinds, and every public entry of the package with objects of
every type: `python -m benchmarks.fuzz`.

`--graphs FIRST COUNT`, `--programs FIRST COUNT`, `--schedules FIRST COUNT`, `--mutants FIRST COUNT`
and `--files FIRST COUNT` run a part of them, `--roads NAME,...` programs by some of the roads into
the compiler, `--calls ENTRY` the calls of entries whose names contain this (`--calls ""`: all, half
an hour; `--calls no` none), `--sample COUNT` some of those.  Exit status 1 if anything crashed,
lasted too long or gave a wrong answer; each such case is printed, a graph as the smallest one that
shows it, a schedule with the fewest steps, and saved in `--to`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks, for its modules

from fuzz.calls import fuzz_calls
from fuzz.campaign import fuzz_graphs, shown
from fuzz.cases import NODES
from fuzz.files import file_mutant, file_verdicts
from fuzz.judge import CRASHED, WRONG
from fuzz.mutants import mutant, mutant_verdicts
from fuzz.programs.campaign import fuzz_programs
from fuzz.programs.campaign import shown as shown_by_road
from fuzz.programs.draw import STATEMENTS
from fuzz.programs.roads import ROADS
from fuzz.schedules.campaign import fuzz_schedules

parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
parts = {"nargs": 2, "type": int, "metavar": ("FIRST", "COUNT")}
parser.add_argument("--graphs", default=(0, 2000), **parts)
parser.add_argument("--programs", default=(0, 1000), **parts)
parser.add_argument("--roads", type=lambda s: s.split(","), default=[*ROADS])
parser.add_argument("--schedules", default=(0, 10000), **parts)
parser.add_argument("--mutants", default=(0, 20000), **parts)
parser.add_argument("--files", default=(0, 10000), **parts)
parser.add_argument("--calls", default="", metavar="ENTRY")
parser.add_argument("--sample", type=int, metavar="COUNT", help="Most calls, drawn from all.")
parser.add_argument("--nodes", type=int, default=NODES, help="Most nodes of a graph.")
parser.add_argument("--statements", type=int, default=STATEMENTS, help="Most of a program.")
parser.add_argument("--to", type=Path, default=Path("build/fuzz"), help="Folder for what is found.")
parser.add_argument("--refused", action="store_true", help="Print the reasons of refusals.")
arguments = parser.parse_args()

first, count = arguments.graphs
counts, reasons = fuzz_graphs(range(first, first + count), arguments.to, arguments.nodes)
print(f"graphs: {shown(counts)}")
if arguments.refused:
    print(*reasons, sep="\n")
first, count = arguments.programs
programs, refusals = fuzz_programs(
    range(first, first + count), arguments.to, arguments.roads, arguments.statements
)
print(f"programs: {shown_by_road(programs)}")
if arguments.refused:
    print(*(f"{n} times: {reason}" for reason, n in refusals.most_common()), sep="\n")
first, count = arguments.schedules
steps = fuzz_schedules(range(first, first + count), arguments.to)
print(f"schedules: {shown(steps)}")
first, count = arguments.mutants
seeds = range(first, first + count)
damaged: Counter[str] = Counter()
for seed, verdict in zip(seeds, mutant_verdicts(seeds), strict=True):
    damaged[verdict.result] += 1
    if damaged.total() % 1000 == 0:
        print(f"mutants to {seed}: {shown(damaged)}", flush=True)
    if verdict.result == CRASHED:
        print(f"mutant {seed}: {verdict.reason}", flush=True)
        arguments.to.mkdir(parents=True, exist_ok=True)
        (arguments.to / f"mutant-{seed}.onnx").write_bytes(mutant(seed))
print(f"mutants: {shown(damaged)}")
first, count = arguments.files
seeds = range(first, first + count)
other: Counter[str] = Counter()
for seed, verdict in zip(seeds, file_verdicts(seeds), strict=True):
    other[verdict.result] += 1
    if verdict.result == CRASHED:
        kind, content = file_mutant(seed)
        print(f"file {seed}, {kind}: {verdict.reason}", flush=True)
        arguments.to.mkdir(parents=True, exist_ok=True)
        (arguments.to / f"file-{seed}.{kind}").write_bytes(content)
print(f"files: {shown(other)}")
called = fuzz_calls(arguments.calls, arguments.sample)
print(f"calls: {shown(called)}")
bad = sum(n for (_, result), n in programs.items() if result in (CRASHED, WRONG))
sys.exit(
    bool(
        bad
        or counts[CRASHED]
        or counts[WRONG]
        or steps[CRASHED]
        or steps[WRONG]
        or damaged[CRASHED]
        or other[CRASHED]
        or called[CRASHED]
    )
)
