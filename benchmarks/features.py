#!/usr/bin/env python3
"""Candidates featurised and scored per second on one core: `python benchmarks/features.py`.

For a product of matrices and a convolution, as templates with split factors as knobs: the time to
make the function of a structure, and then how many candidates per second go through it, as rows of
a matrix of knobs, with the analytic prior as their score; the same with the model in the package as
the score, where LightGBM is installed; and, beside it, candidates per second given as
dictionaries.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilesmith import te
from tilesmith.codegen.targets import host
from tilesmith.search_space.space import Space
from tilesmith.te.knobs import Config
from tilesmith.tuning.cost_model import PRETRAINED, Trees, has_lightgbm
from tilesmith.tuning.features import FEATURES, features_of, prior

ROWS = 100_000


def gemm(cfg: Config) -> Any:
    """A 1024x1024x1024 product, each axis in three or two levels."""
    n = 1024
    a, b = te.placeholder((n, n), "f32", "A"), te.placeholder((n, n), "f32", "B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    s = te.create_schedule(c.op)
    acc = s.cache_write(c, "register")
    io, im, ii = cfg.split("i", s[c], s[c].axis[0], parts=3)
    jo, jm, ji = cfg.split("j", s[c], s[c].axis[1], parts=3)
    s[c].reorder(io, jo, im, jm, ii, ji)
    s[c].vectorize(ji)
    s[c].parallel(io)
    s[acc].compute_at(s[c], jm)
    ko, ki = cfg.split("k", s[acc], s[acc].reduce_axis[0])
    s[acc].reorder(ko, ki, *s[acc].axis)
    for axis in (ki, s[acc].axis[0]):
        s[acc].unroll(axis)
    s[acc].vectorize(s[acc].axis[1])
    return s, [a, b, c]


def convolution(cfg: Config) -> Any:
    """A 3x3 convolution of a 56x56 image in channels-last order, with an epilogue."""
    size, channels, filters = 56, 64, 128
    x = te.placeholder((1, size + 2, size + 2, channels), "f32", "x")
    w = te.placeholder((3, 3, channels, filters), "f32", "w")
    u, v, c = te.reduce_axis(3, "u"), te.reduce_axis(3, "v"), te.reduce_axis(channels, "c")
    r = te.compute(
        (1, size, size, filters),
        lambda n, y, z, f: te.sum(x[n, y + u, z + v, c] * w[u, v, c, f], axis=(u, v, c)),
        "conv",
    )
    out = te.compute(r.shape, lambda n, y, z, f: te.maximum(r[n, y, z, f], 0.0), "out")
    s = te.create_schedule(out.op)
    o, acc = s[out], s[r]
    n_, y, z, f = o.axis
    fo, fi = cfg.split("filters", o, f)
    yo, yi = cfg.split("rows", o, y)
    zo, zi = cfg.split("columns", o, z)
    o.reorder(n_, fo, yo, yi, zo, zi, fi)
    o.parallel(fo)
    acc.set_scope("register")
    acc.compute_at(o, zo)
    _, _, rz, rf = acc.axis
    ru, rv, rc = acc.reduce_axis
    co, ci = cfg.split("channels", acc, rc)
    acc.reorder(co, ru, rv, ci, rz, rf)
    acc.unroll(rz)
    acc.vectorize(rf)
    return s, [x, w, out]


def fastest(f: Callable[[], Any], rounds: int = 10) -> float:
    """Seconds of the processor that the fastest of some calls takes."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        f()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="candidates")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    rng = random.Random(0)
    for template in (gemm, convolution):
        space = Space(template)
        start = time.process_time()
        function = features_of(space, host(), threads=2)
        structure = function.structure(space.start)
        make = time.process_time() - start
        candidates = [space.random(rng) for _ in range(1000)]
        some = structure.encode(candidates)
        knobs = np.resize(some, (given.rows, some.shape[1]))
        features = structure.features(knobs)
        seconds = fastest(lambda s=structure, k=knobs: prior(s.features(k)))
        learned = None
        if has_lightgbm():
            model = Trees.read(PRETRAINED, FEATURES)
            learned = seconds + fastest(lambda m=model, f=features: m.predict(f), rounds=3)
        by_name = fastest(lambda f=function, c=candidates: f(c))
        rows.append(
            {
                "what": template.__name__,
                "knobs": len(structure.columns),
                "features": features.shape[1],
                "symbolic": function.symbolic,
                "make_seconds": make,
                "rate": given.rows / seconds,
                "pretrained_rate": None if learned is None else given.rows / learned,
                "dictionary_rate": len(candidates) / by_name,
            }
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
