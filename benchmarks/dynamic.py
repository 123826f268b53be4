#!/usr/bin/env python3
"""One compilation for all sizes: `python -m benchmarks.dynamic DIR [--models NAME,...]`.

DIR holds the zoo with open dimensions, as `python benchmarks/zoo.py DIR --dynamic` exports it.

- At the expected size: the program for all sizes takes turns with the one for that size alone.
- Over many sizes: one program runs images and texts of many sizes, beside ONNX Runtime with one
  session.  Their answers are compared.  Programs for each of the sizes alone say what the ratio
  would be if nothing were open.

Each model runs in a process of its own with a time limit.  What is done is kept in the results file
at once: run again after an interruption, it goes on where it stopped (`--again` starts afresh).
Prints tables; exit status 1 where an answer differs or a bar is missed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children
import tilesmith as ts
from dynamic_models import detector, recogniser
from run import Results
from tables import table, verdict
from tilesmith.cli.compare import difference
from tilesmith.cli.engines import bound_run, onnxruntime_session
from tilesmith.cli.models import random_inputs
from tilesmith.runtime.executable import Executable
from tilesmith.support.measure import Samples, interleave, ratio

SLOWER, MEAN = 1.10, 1.05
"""At the expected size: the most that one model may take, and the geometric mean over models, in
times of the program for that size alone."""

KEPT = 0.9
"""Over many sizes: how much of the fixed programs' factor over ONNX Runtime must be left."""

CLOSE = 1e-3
"""The largest difference from ONNX Runtime's answer, relative to the largest magnitude."""

ENGINES = ("dynamic", "fixed", "onnxruntime")
"""What takes turns at each of many sizes."""

LIMIT = 900.0  # seconds for one model in one part

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A model that is run at many sizes.

    shapes: the inputs' shapes for one size of the list.
    expected: the size that the program is made fast for.
    sizes: the sizes that it runs.
    build: makes the model; None for one of the zoo.
    """

    shapes: Callable[..., dict[str, Shape]]
    expected: Shape
    sizes: Sequence[Shape]
    build: Callable[[], onnx.ModelProto] | None = None


def texts(sequence: int, batch: int = 1) -> dict[str, Shape]:
    return {"input_ids": (batch, sequence), "attention_mask": (batch, sequence)}


def images(batch: int, height: int, width: int) -> dict[str, Shape]:
    return {"input": (batch, 3, height, width)}


LENGTHS = (1, 2, 5, 8, 13, 16, 24, 32, 48, 64, 77, 96, 128, 160, 200, 256, 320, 384, 450, 512)
WIDTHS = (32, 33, 40, 57, 64, 80, 96, 100, 128, 160, 200, 240, 256, 320, 400, 512, 640, 1000, 1500,
          2048)  # fmt: skip
BATCHES = ((1, 160, 160), (1, 176, 176), (1, 192, 192), (1, 200, 200), (1, 224, 224),
           (1, 240, 320), (1, 256, 256), (1, 288, 288), (1, 320, 320), (2, 160, 160),
           (2, 224, 224), (3, 192, 256), (4, 160, 160), (4, 224, 224), (5, 176, 176),
           (6, 208, 208), (8, 160, 160), (8, 224, 224), (12, 160, 160), (16, 320, 320))  # fmt: skip
PLACES = ((64, 64), (64, 320), (97, 131), (128, 128), (160, 160), (160, 240), (192, 192),
          (200, 333), (224, 224), (240, 320), (256, 256), (288, 512), (320, 240), (320, 320),
          (333, 500), (384, 384), (416, 416), (480, 640), (512, 512), (640, 640))  # fmt: skip

CASES = {
    "bert_base": Case(texts, (128,), [(n,) for n in LENGTHS]),
    "resnet50": Case(images, (1, 224, 224), BATCHES),
    "recogniser": Case(lambda w: {"image": (1, 3, 32, w)}, (320,), [(w,) for w in WIDTHS],
                       recogniser),
    "detector": Case(lambda h, w: {"image": (1, 3, h, w)}, (320, 320), PLACES, detector),
}  # fmt: skip

EXPECTED: dict[str, dict[str, Shape]] = {
    **{name: images(1, 224, 224) for name in (
        "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "densenet121",
        "vit_b_16")},
    "bert_base": texts(128),
    "minilm": texts(64, batch=2),
}  # fmt: skip
"""The models of the zoo and the shapes that they are expected to have."""


@dataclass(frozen=True)
class Settings:
    """What the command line says.

    zoo: the folder of models.
    threads: number of threads of each engine.
    rounds: turns that each contender takes at each size.
    turn: seconds of one turn.
    sizes: how many of its sizes a model runs.
    """

    zoo: Path
    threads: int
    rounds: int
    turn: float
    sizes: int


def times(samples: Mapping[str, Samples], ours: str, theirs: str) -> dict[str, Any]:
    """A row's times in milliseconds; `ratio` of theirs over ours, by rounds and by minima."""
    a, b = samples[ours], samples[theirs]
    return {
        "engines": {name: s.as_dict() for name, s in samples.items()},
        "ratio": ratio(b, a),
        "of_minima": b.minimum / a.minimum,
    }


def at_expected(name: str, s: Settings) -> dict[str, Any]:
    """The program for all sizes and the one for the expected size, at that size."""
    path, shapes = s.zoo / f"{name}.onnx", EXPECTED[name]
    fixed = ts.compile(path, threads=s.threads, shapes=shapes)
    general = ts.compile(path, threads=s.threads, expected=shapes)
    arrays = random_inputs(fixed.inputs, seed=0)
    runs = {"fixed": lambda: fixed.run(arrays), "dynamic": lambda: general.run(arrays)}
    answers = [[*run().values()] for run in runs.values()]
    taken = interleave(runs, rounds=s.rounds, turn_seconds=s.turn)
    return {
        **times(taken, "fixed", "dynamic"),
        "difference": difference(*answers),
        "code": {"fixed": code_bytes(fixed), "dynamic": code_bytes(general)},
    }


def code_bytes(exe: Executable) -> int:
    return sum(map(len, exe.program.objects.values()))


def over_sizes(name: str, s: Settings) -> dict[str, Any]:
    """At many sizes: one program for all of them, a program for each alone, and ONNX Runtime."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = s.zoo / f"{name}.onnx"
        if case.build is not None:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(case.build(), path)
        general = ts.compile(path, threads=s.threads, expected=case.shapes(*case.expected))
        session = onnxruntime_session(path, s.threads)
        rows: list[dict[str, Any]] = []
        for size in spread(case.sizes, s.sizes):
            shapes = case.shapes(*size)
            fixed = ts.compile(path, threads=s.threads, shapes=shapes)
            rows.append({"size": size, **beside(session, general, fixed, s)})
    return {"sizes": rows}


def beside(session: Any, general: Executable, fixed: Executable, s: Settings) -> dict[str, Any]:
    """Times of the three on the same inputs, and the difference between answers."""
    arrays = random_inputs(fixed.inputs, seed=0)
    theirs = bound_run(session, arrays)
    runs = {
        "dynamic": lambda: general.run(arrays),
        "fixed": lambda: fixed.run(arrays),
        "onnxruntime": theirs,
    }
    ours, wanted = [*general.run(arrays).values()], [np.array(a) for a in theirs()]
    same_shapes = [a.shape for a in ours] == [a.shape for a in wanted]
    taken = interleave(runs, rounds=s.rounds, turn_seconds=s.turn, least=1)
    return {
        **times(taken, "dynamic", "onnxruntime"),
        "fixed": ratio(taken["onnxruntime"], taken["fixed"]),
        "difference": difference(wanted, ours) if same_shapes else math.inf,
    }


def spread(sizes: Sequence[Shape], count: int) -> list[Shape]:
    """`count` of the sizes, evenly chosen, the first among them; all if there are not as many."""
    step = max(len(sizes) / count, 1)
    return [sizes[int(i * step)] for i in range(min(count, len(sizes)))]


def expected_table(rows: Mapping[str, Any]) -> tuple[str, bool]:
    """The table of the first part, and whether its bars are met."""
    lines, ratios, met = [], [], True
    for name, r in rows.items():
        if "what" in r:
            lines.append([name, *[""] * 3, f"{r['failed']}: **missed**"])
            met = False
            continue
        engines, bytes_ = r["engines"], r["code"]
        is_fine = r["ratio"] <= SLOWER and r["difference"] <= CLOSE
        met &= is_fine
        ratios.append(r["ratio"])
        lines.append([
            name,
            *(f"{engines[e]['median_ms']:.2f} ({engines[e]['min_ms']:.2f})"
              for e in ("fixed", "dynamic")),
            f"{bytes_['dynamic'] / bytes_['fixed']:.2f}",
            f"{r['ratio']:.3f} ({r['of_minima']:.3f})" + ("" if is_fine else " **missed**"),
        ])  # fmt: skip
    if ratios:
        mean = geometric_mean(ratios)
        met &= mean <= MEAN
        lines.append(
            ["geometric mean", *[""] * 3, f"{mean:.3f} (<= {MEAN} {verdict(mean <= MEAN)})"]
        )
    title = "At the expected size: medians (minima) in ms"
    columns = ("model", "fixed", "dynamic", "code", "dynamic / fixed")
    return table(title, columns, lines), met


def sizes_tables(rows: Mapping[str, Any]) -> tuple[str, bool]:
    """The tables of the second part, and whether its bars are met."""
    texts, lines, met = [], [], True
    fixed, general = [], []
    for name, r in rows.items():
        if "what" in r:
            lines.append([name, "", "", f"{r['failed']}: **missed**"])
            met = False
            continue
        texts.append(table(
            f"{name}: medians (minima) in ms",
            ("size", *ENGINES, "difference", "onnxruntime / dynamic"),
            [size_line(x) for x in r["sizes"]],
        ))  # fmt: skip
        met &= all(x["difference"] <= CLOSE for x in r["sizes"])
        fixed.append(geometric_mean([x["fixed"] for x in r["sizes"]]))
        general.append(geometric_mean([x["ratio"] for x in r["sizes"]]))
        least = min(r["sizes"], key=lambda x: x["ratio"] / x["fixed"])
        lines.append([
            name, f"{fixed[-1]:.2f}", f"{general[-1]:.2f}", f"{general[-1] / fixed[-1]:.2f}",
            f"{least['ratio'] / least['fixed']:.2f} at {size_text(least)}",
        ])  # fmt: skip
    if general:
        means = geometric_mean(fixed), geometric_mean(general)
        kept = means[1] / means[0]
        met &= kept >= KEPT
        said = f"{kept:.2f} (>= {KEPT} {verdict(kept >= KEPT)})"
        lines.append(["geometric mean", *(f"{m:.2f}" for m in means), said, ""])
    columns = ("model", "a program for each size", "one for all", "kept", "least kept")
    texts.append(table("onnxruntime / tilesmith", columns, lines))
    return "\n".join(texts), met


def size_line(r: Mapping[str, Any]) -> list[str]:
    engines = (r["engines"][e] for e in ENGINES)
    said = f"{r['difference']:.1e}" + ("" if r["difference"] <= CLOSE else " **missed**")
    return [
        size_text(r),
        *(f"{e['median_ms']:.2f} ({e['min_ms']:.2f})" for e in engines),
        said,
        f"{r['ratio']:.2f} ({r['of_minima']:.2f})",
    ]


def size_text(r: Mapping[str, Any]) -> str:
    return "x".join(map(str, r["size"]))


def geometric_mean(numbers: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, numbers)))


def in_child(what: str, work: Callable[[str, Settings], Any], name: str, s: Settings) -> Any:
    """The result of `work`; a dictionary with the key `failed` if it fails or takes too long."""
    print(f"{what} {name} ...", file=sys.stderr, flush=True)
    start = time.perf_counter()
    (found,) = children.each([name], lambda n: work(n, s), LIMIT)
    print(f"{what} {name}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    if isinstance(found, children.Died):
        return {"what": f"{what} {name}", "failed": found.reason}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("zoo", type=Path, help="folder of models, by zoo.py --dynamic")
    parser.add_argument("--part", choices=("expected", "sizes"), help="only this one")
    parser.add_argument("--models", help="only these, separated by commas")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    parser.add_argument("--turn", type=float, default=0.05, help="seconds of one turn")
    parser.add_argument("--sizes", type=int, default=20, help="how many of its sizes a model runs")
    parser.add_argument("--results", type=Path, default=Path("benchmark-results/dynamic"))
    parser.add_argument("--again", action="store_true", help="measure everything again")
    given = parser.parse_args()
    s = Settings(given.zoo, given.threads, given.rounds, given.turn, given.sizes)
    wanted = given.models.split(",") if given.models else [*EXPECTED, *CASES]
    given.results.mkdir(parents=True, exist_ok=True)
    results = Results(given.results / "results.json", given.again, "")
    works = {"expected": (at_expected, EXPECTED), "sizes": (over_sizes, CASES)}
    for part, (work, models) in works.items():
        for name in models if given.part in (None, part) else ():
            if name in wanted:
                results.need(f"{part} {name}", partial(in_child, part, work, name, s))
    done = True
    for part, make in (("expected", expected_table), ("sizes", sizes_tables)):
        rows = {n.split()[1]: r for n, r in results.found["parts"].items() if n.startswith(part)}
        if rows:
            text, met = make(rows)
            print(text)
            done &= met
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
