"""2,000 random graphs, 1,000 random PyTorch programs, 10,000 random schedules, 20,000 damaged ONNX
models, 10,000 damaged files of other kinds, 10,000 damaged texts of IRs, 20,000 attacks on an
agent, and every public entry of the package with objects of every type: `python -m
benchmarks.fuzz`.

Options name the only parts to run: `--graphs FIRST COUNT`, `--programs`, `--schedules`,
`--mutants`, `--files`, `--texts` and `--frames` alike, and `--calls ENTRY`, the calls of entries
whose names contain this (`--calls ""`: all, half an hour; `--sample COUNT`: some of those).
`--roads NAME,...` chooses roads of programs into the compiler.  `--kinds NAME,...` chooses kinds of
damaged files:
`--files 0 20000 --kinds darknet` damages Darknet's files only.  Exit status 1 if anything crashed,
lasted too long or gave a wrong answer; each such case is printed, a graph as the smallest one that
shows it, a schedule with the fewest steps, and saved in `--to`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks, for its modules

from fuzz.calls import fuzz_calls
from fuzz.campaign import fuzz_graphs, shown
from fuzz.cases import NODES
from fuzz.files import KINDS, file_mutant, file_verdicts
from fuzz.frames import fuzz_frames
from fuzz.judge import CRASHED, WRONG, Verdict
from fuzz.mutants import mutant, mutant_verdicts
from fuzz.programs.campaign import fuzz_programs
from fuzz.programs.campaign import shown as shown_by_road
from fuzz.programs.draw import STATEMENTS
from fuzz.programs.roads import ROADS
from fuzz.schedules.campaign import fuzz_schedules
from fuzz.texts import text_mutant, text_verdicts

parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
whole = {"graphs": 2000, "programs": 1000, "schedules": 10000, "mutants": 20000, "files": 10000,
         "texts": 10000, "frames": 20000}  # fmt: skip
for part, most in whole.items():
    parser.add_argument(f"--{part}", nargs=2, type=int, metavar=("FIRST", "COUNT"),
                        help=f"Default: 0 {most}, if no part is named.")  # fmt: skip
parser.add_argument("--roads", type=lambda s: s.split(","), default=[*ROADS])
parser.add_argument("--kinds", type=lambda s: s.split(","), default=[*KINDS])
parser.add_argument("--calls", metavar="ENTRY")
parser.add_argument("--sample", type=int, metavar="COUNT", help="Most calls, drawn from all.")
parser.add_argument("--nodes", type=int, default=NODES, help="Most nodes of a graph.")
parser.add_argument("--statements", type=int, default=STATEMENTS, help="Most of a program.")
parser.add_argument("--to", type=Path, default=Path("build/fuzz"), help="Folder for what is found.")
parser.add_argument("--refused", action="store_true", help="Print the reasons of refusals.")
arguments = parser.parse_args()
named = any(getattr(arguments, part) is not None for part in (*whole, "calls"))


def seeds_of(part: str) -> range:
    """The seeds of a part: none if others are named."""
    first, count = getattr(arguments, part) or (0, 0 if named else whole[part])
    return range(first, first + count)


def tried(
    name: str,
    verdicts: Callable[[Sequence[int]], Iterable[Verdict]],
    damaged: Callable[[int], tuple[str, Mapping[str, bytes]]],
) -> Counter[str]:
    """Judges the damaged files of a part, and prints and saves each that crashed.

    damaged: the kind of a seed's file, and the files by name.
    """
    seeds = seeds_of(name)
    found: Counter[str] = Counter()
    for seed, verdict in zip(seeds, verdicts(seeds), strict=True):
        found[verdict.result] += 1
        if found.total() % 1000 == 0:
            print(f"{name} to {seed}: {shown(found)}", flush=True)
        if verdict.result == CRASHED:
            kind, contents = damaged(seed)
            print(f"{name} {seed}, {kind}: {verdict.reason}", flush=True)
            for file, content in contents.items():
                path = arguments.to / f"{name}-{seed}-{kind}" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    print(f"{name}: {shown(found)}", flush=True)
    return found


def text_file(seed: int) -> tuple[str, dict[str, bytes]]:
    """The stage of a damaged text, and its files."""
    stage, text, constants = text_mutant(seed)
    return stage, {"mutant.txt": text.encode(), "mutant.npz": constants}


def other_file(seed: int) -> tuple[str, dict[str, bytes]]:
    """The kind and the files of a damaged file of the chosen kinds."""
    kind, files = file_mutant(seed, arguments.kinds)
    return kind, files.contents


counts, reasons = fuzz_graphs(seeds_of("graphs"), arguments.to, arguments.nodes)
print(f"graphs: {shown(counts)}")
if arguments.refused:
    print(*reasons, sep="\n")
programs, refusals = fuzz_programs(
    seeds_of("programs"), arguments.to, arguments.roads, arguments.statements
)
print(f"programs: {shown_by_road(programs)}")
if arguments.refused:
    print(*(f"{n} times: {reason}" for reason, n in refusals.most_common()), sep="\n")
steps = fuzz_schedules(seeds_of("schedules"), arguments.to)
print(f"schedules: {shown(steps)}")
mutants = tried("mutants", mutant_verdicts, lambda n: ("onnx", {"m.onnx": mutant(n)}))
files = tried("files", lambda seeds: file_verdicts(seeds, arguments.kinds), other_file)
texts = tried("texts", text_verdicts, text_file)
attacks = fuzz_frames(seeds_of("frames"))
print(f"frames: {shown(attacks)}")
called: Counter[str] = Counter()
if arguments.calls is not None or not named:
    called = fuzz_calls(arguments.calls or "", arguments.sample)
print(f"calls: {shown(called)}")
bad = sum(n for (_, result), n in programs.items() if result in (CRASHED, WRONG))
others = (counts, steps, mutants, files, texts, attacks, called)
sys.exit(bool(bad or any(found[CRASHED] or found[WRONG] for found in others)))
