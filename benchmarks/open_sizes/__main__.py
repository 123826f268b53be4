"""Every operator with all of its dimensions open, at two sizes each: `python -m
benchmarks.open_sizes`.

Three families: the operators' own cases, ONNX's node tests (each dimension of each input under a
name of its own; where that is refused, with shared names) and PyTorch's samples (`torch.export`
with `Dim.AUTO`, and `torch.compile(dynamic=True)`; needs the package `expecttest`).  Results are
compared with the interpreter and with eager mode.

Prints what is not right, counts, and what differs from the table of refusals, `refused.txt`; exit
status 1 if anything is wrong, crashes or differs.  `--write` writes the table, `--family NAME`
and `--words WORD,...` run a part, `--all` also cases that are not in the table.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks, for its modules

from open_sizes import table

parser = argparse.ArgumentParser(prog="python -m benchmarks.open_sizes", description=__doc__)
parser.add_argument("--family", choices=table.FAMILIES, action="append")
parser.add_argument("--words", default="", help="parts of names, separated by commas")
parser.add_argument("--all", action="store_true", help="also cases that are not in the table")
parser.add_argument("--write", action="store_true", help="write the table of what was run")
given = parser.parse_args()

warnings.simplefilter("ignore")
words = [w for w in given.words.split(",") if w]
known = table.read() if table.TABLE.exists() else {}
rows, differs, defects = dict(known), 0, 0
for kind in given.family or table.FAMILIES:
    cases = table.family(kind)
    names = [*cases.names()] if given.all else cases.listed()
    names = [n for n in names if not words or any(w in n for w in words)]
    counts: Counter[str] = Counter()
    for name, outcomes in table.lines_of(cases, names):
        counts.update(f"{road} {o.result}".strip() for road, o in outcomes.items())
        line = table.shown(outcomes)
        defects += table.is_defect(outcomes)
        if line:
            reasons = (o.reason for o in outcomes.values() if o.reason)
            print(f"{kind}: {name}: {line}\n    {next(reasons, '')[:300]}", flush=True)
        if line != known.get((kind, name), "") and not given.all:
            differs += 1
            print(f"    the table has: {known.get((kind, name), 'right')}", flush=True)
        rows.pop((kind, name), None)
        if line:
            rows[kind, name] = line
    print(f"{kind}: {dict(counts)}", flush=True)
if given.write:
    table.write(rows)
sys.exit(1 if defects or (differs and not given.write) else 0)
