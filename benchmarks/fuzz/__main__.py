"""2,000 random graphs, 20,000 damaged model files, and every public entry of the package with
objects of every type: `python -m benchmarks.fuzz`.

`--graphs FIRST COUNT` and `--mutants FIRST COUNT` run a part of them, `--calls ENTRY` the calls of
entries whose names contain this (`--calls ""`: all, half an hour; `--calls no` none).  Exit status
1 if anything crashed, lasted too long or gave a wrong answer; each such case is printed, a graph as
the smallest one that shows it, and saved in `--to`.
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
from fuzz.judge import CRASHED, WRONG
from fuzz.mutants import mutant, mutant_verdicts

parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
parts = {"nargs": 2, "type": int, "metavar": ("FIRST", "COUNT")}
parser.add_argument("--graphs", default=(0, 2000), **parts)
parser.add_argument("--mutants", default=(0, 20000), **parts)
parser.add_argument("--calls", default="", metavar="ENTRY")
parser.add_argument("--nodes", type=int, default=NODES, help="Most nodes of a graph.")
parser.add_argument("--to", type=Path, default=Path("build/fuzz"), help="Folder for what is found.")
parser.add_argument("--refused", action="store_true", help="Print the reasons of refusals.")
arguments = parser.parse_args()

first, count = arguments.graphs
counts, reasons = fuzz_graphs(range(first, first + count), arguments.to, arguments.nodes)
print(f"graphs: {shown(counts)}")
if arguments.refused:
    print(*reasons, sep="\n")
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
called = fuzz_calls(arguments.calls)
print(f"calls: {shown(called)}")
sys.exit(bool(counts[CRASHED] or counts[WRONG] or damaged[CRASHED] or called[CRASHED]))
