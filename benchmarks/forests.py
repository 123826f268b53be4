#!/usr/bin/env python3
"""Forests of scikit-learn against ONNX Runtime: `python -m benchmarks.forests`.

skl2onnx exports the models.  Each one is compiled for its number of rows alone, and once for any
number.  The programs take turns with one session of ONNX Runtime, whose inputs and outputs are
bound.  A ratio is ONNX Runtime's time over ours.  Exit status 1 where answers differ or a geometric
mean is below 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from sklearn import datasets, ensemble

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tables import table, verdict
from tilesmith.cli.engines import bound_run, onnxruntime_session
from tilesmith.support.measure import interleave, ratio

ROWS = (1, 16, 1000)
BAR = 1.0
CLOSE = 1e-4
"""The largest difference of an answer from ONNX Runtime's."""


def models() -> dict[str, tuple[Any, np.ndarray]]:
    """Trained models and their data f32[569,30]."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    x = x.astype(np.float32)
    made = {
        "random forest, 100 trees": ensemble.RandomForestClassifier(100, random_state=0),
        "extra trees, 100 trees": ensemble.ExtraTreesRegressor(100, random_state=0),
        "gradient boosting, 200 trees": ensemble.GradientBoostingClassifier(
            n_estimators=200, random_state=0
        ),
    }
    return {name: (model.fit(x, y), x) for name, model in made.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    lines, factors, met = [], {"fixed": [], "open": []}, True
    for name, (model, x) in models().items():
        options = {"zipmap": False} if hasattr(model, "predict_proba") else None
        exported = to_onnx(model, x[:1], options=options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "forest.onnx"
            path.write_bytes(exported.SerializeToString())
            session = onnxruntime_session(path, given.threads)
            anything = ts.compile(path, threads=given.threads)
            for rows in ROWS:
                batch = np.resize(x, (rows, x.shape[1]))
                feed = {session.get_inputs()[0].name: batch}
                fixed = ts.compile(path, threads=given.threads, shapes={"X": batch.shape})
                wanted = session.run(None, feed)
                for exe in (fixed, anything):
                    for found, want in zip(exe.run(feed).values(), wanted, strict=True):
                        met &= bool(np.allclose(found, want, CLOSE, CLOSE))
                times = interleave(
                    {
                        "fixed": lambda exe=fixed, batch=batch: exe(batch),
                        "open": lambda exe=anything, batch=batch: exe(batch),
                        "onnxruntime": bound_run(session, feed),
                    },
                    rounds=given.rounds,
                )
                for kind, found in factors.items():
                    found.append(ratio(times["onnxruntime"], times[kind]))
                lines.append([
                    name, str(rows), *(f"{times[k].median * 1e6:.1f}" for k in times),
                    *(f"{f[-1]:.2f}" for f in factors.values()),
                ])  # fmt: skip
    columns = ["model", "rows", "fixed, us", "any, us", "ONNX Runtime, us", "fixed", "any"]
    print(table("Forests, times and ONNX Runtime's over ours", columns, lines))
    for kind, found in factors.items():
        mean = geometric_mean(found)
        met &= mean >= BAR
        print(f"{kind}: {mean:.2f} (bar {BAR}): {verdict(mean >= BAR)}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
