#!/usr/bin/env python3
"""Compare models of other frameworks with the frameworks' own results:
`python benchmarks/formats/check.py FOLDER [--only TEXT]`.

A script beside this one, run where the framework is installed, writes the folder: in each case's
folder lie `model.EXT` (a file or a folder) and `io.npz` with the arrays `input:NAME` and
`output:NAME`, and `tolerance` if the case has its own.  Prints the cases that differ or fail, and
how many are equal.  The exit code is 1 if fewer than 97% are equal.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np

import tilesmith as ts
from tilesmith.support.errors import OpenShapesError

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


def check(case: Path, tolerance: float) -> str:
    """What is wrong with a case; empty if nothing is."""
    found = (p for p in case.iterdir() if re.match(r"model(\.|-symbol)", p.name))
    models = sorted(found, key=lambda p: (p.suffix in WEIGHTS, p.name))
    with np.load(case / "io.npz") as arrays:
        inputs = {n[6:]: arrays[n] for n in arrays.files if n.startswith("input:")}
        wanted = {n[7:]: arrays[n] for n in arrays.files if n.startswith("output:")}
        tolerance = float(arrays["tolerance"]) if "tolerance" in arrays.files else tolerance
    try:
        exe = ts.compile(str(models[0]))
    except OpenShapesError:
        exe = ts.compile(str(models[0]), shapes={n: a.shape for n, a in inputs.items()})
    results = exe.run(inputs)
    if not set(wanted) <= set(results):  # the writer did not know our names: by order
        results = dict(zip(wanted, results.values(), strict=True))
    for name, array in wanted.items():
        if why := difference(np.asarray(results[name]), array, tolerance):
            return f"output {name!r}: {why}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    cases = sorted(
        p.parent for p in options.folder.glob("*/io.npz") if options.only in p.parent.name
    )
    equal = 0
    for case in cases:
        try:
            why = check(case, options.tolerance)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
        equal += not why
        if why:
            print(f"{case.name}: {why[:300]}", flush=True)
    print(f"{equal} of {len(cases)} equal")
    return 0 if cases and equal >= REQUIRED * len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
