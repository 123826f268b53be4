"""2,000 random graphs and 20,000 damaged model files: `python -m benchmarks.fuzz`.

`--graphs FIRST COUNT` and `--mutants FIRST COUNT` run a part of them.  Exit status 1 if anything
crashed, lasted too long or gave a wrong answer; each such case is printed as the smallest graph
that shows it, and saved in `--to`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks, for its modules

from fuzz.campaign import fuzz_graphs

parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
parser.add_argument("--graphs", nargs=2, type=int, default=(0, 2000), metavar=("FIRST", "COUNT"))
parser.add_argument("--mutants", nargs=2, type=int, default=(0, 20000), metavar=("FIRST", "COUNT"))
parser.add_argument("--to", type=Path, default=Path("build/fuzz"), help="Folder for what is found.")
parser.add_argument("--refused", action="store_true", help="Print the reasons of refusals.")
arguments = parser.parse_args()

first, count = arguments.graphs
counts, reasons = fuzz_graphs(range(first, first + count), arguments.to)
print(f"graphs: {', '.join(f'{n} {result}' for result, n in counts.most_common())}")
if arguments.refused:
    for reason, n in Counter(reasons).most_common():
        print(f"{n:5} {reason}")
sys.exit(0)
