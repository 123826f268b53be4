#!/usr/bin/env python3
"""Compare models of other frameworks with the frameworks' own results:
`python benchmarks/formats/check.py FOLDER... [--only TEXT] [--page FILE]`.

A script beside this one, run where the framework is installed, writes a folder, which is best named
after the format: in each case's folder lie `model.EXT` (a file or a folder) and `io.npz` with the
arrays `input:NAME` and `output:NAME`, and `tolerance` if the case has its own.  Prints the cases
that differ or fail, and how many are equal.  `--page` writes a page with a table of operators for
each folder: docs/formats-conformance.md.  The exit code is 1 if fewer than 97% of a folder's cases
are equal.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.support.errors import OpenShapesError, UnsupportedError

REQUIRED = 0.97
WEIGHTS = (".bin", ".caffemodel", ".info", ".params", ".pdiparams", ".weights")
"""Endings of a model's second file."""


def difference(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> str:
    """How an output differs; empty if it is equal."""
    if found.shape != wanted.shape:
        return f"shape {list(found.shape)}, expected {list(wanted.shape)}"
    if wanted.dtype.kind not in "fc":
        return "" if np.array_equal(found, wanted) else "other integers"
    if np.allclose(found, wanted, tolerance, tolerance * max(1.0, _largest(wanted)), True):
        return ""
    return f"largest difference {np.abs(found - wanted).max():.3g}"


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def model_of(case: Path) -> Path:
    """The file to compile."""
    found = (p for p in case.iterdir() if re.match(r"model(\.|-symbol)", p.name))
    return min(found, key=lambda p: (p.suffix in WEIGHTS, p.name))


def check(case: Path, tolerance: float) -> str:
    """What is wrong with a case; empty if nothing is."""
    model = str(model_of(case))
    with np.load(case / "io.npz") as arrays:
        inputs = {n[6:]: arrays[n] for n in arrays.files if n.startswith("input:")}
        wanted = {n[7:]: arrays[n] for n in arrays.files if n.startswith("output:")}
        tolerance = float(arrays["tolerance"]) if "tolerance" in arrays.files else tolerance
    try:
        exe = ts.compile(model)
    except OpenShapesError:
        exe = ts.compile(model, shapes={n: a.shape for n, a in inputs.items()})
    results = exe.run(inputs)
    if not set(wanted) <= set(results):  # the writer did not know our names: by order
        results = dict(zip(wanted, results.values(), strict=True))
    for name, array in wanted.items():
        if why := difference(np.asarray(results[name]), array, tolerance):
            return f"output {name!r}: {why}"
    return ""


@dataclass(slots=True)
class Findings:
    """What the cases of a format showed.

    cases, equal, refused: numbers of cases.
    of_operators: the cases with each operator, and the equal ones of these.
    """

    cases: int = 0
    equal: int = 0
    refused: int = 0
    of_operators: Counter[str] = field(default_factory=Counter)
    equal_of_operators: Counter[str] = field(default_factory=Counter)

    @property
    def is_enough(self) -> bool:
        return self.cases > 0 and self.equal >= REQUIRED * self.cases


def findings(folder: Path, only: str, tolerance: float) -> Findings:
    """Check the cases of a folder, and print those that are not equal."""
    result = Findings()
    for case in sorted(p.parent for p in folder.glob("*/io.npz") if only in p.parent.name):
        refused = False
        try:
            why = check(case, tolerance)
        except Exception as e:
            why, refused = f"{type(e).__name__}: {e}", isinstance(e, UnsupportedError)
        result.cases += 1
        result.equal += not why
        result.refused += refused
        kinds = inspect(model_of(case)).operators
        result.of_operators.update(set(kinds))
        result.equal_of_operators.update(() if why else set(kinds))
        if why:
            print(f"{case.name}: {why[:300]}", flush=True)
    print(f"{folder.name}: {result.equal} of {result.cases} equal", flush=True)
    return result


def page(formats: dict[str, Findings]) -> str:
    lines = [
        "# Conformance of formats",
        "",
        "Generated models, mostly of one operator each, run by Tilesmith and by the framework that",
        "wrote them.  Integers must be equal, and floats within 1e-4 of the largest element unless",
        "a case says more.  The scripts in `benchmarks/formats` write the models, and `check.py`",
        "with `--page` writes this page.",
        "TFLite and ONNX have [pages](tflite-conformance.md) of their [own](conformance.md).",
        "",
        "| format | cases | equal | refused | different | share |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, f in formats.items():
        counts = f.cases, f.equal, f.refused, f.cases - f.equal - f.refused
        row = " | ".join(map(str, counts))
        lines.append(f"| {name} | {row} | {f.equal / f.cases:.1%} |")
    for name, f in formats.items():
        lines += ["", f"## {name}", "", "| operator | cases | equal |", "| --- | ---: | ---: |"]
        lines += [
            f"| {kind} | {count} | {f.equal_of_operators[kind]} |"
            for kind, count in sorted(f.of_operators.items())
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    formats = {f.name: findings(f, options.only, options.tolerance) for f in options.folders}
    if options.page is not None:
        options.page.write_text(page(formats))
    return 0 if all(f.is_enough for f in formats.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
