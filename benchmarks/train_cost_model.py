#!/usr/bin/env python3
"""Train the cost model in the package, and judge it: `python benchmarks/train_cost_model.py`.

Learns from `data/records.jsonl.gz` (see `collect_records.py`) and prints how well candidates are
ordered that the model was not trained on: of other shapes of families that it knows (every workload
is left out once, with a quarter of its family), and of other families.  The analytic prior is
judged beside it.  `--write` trains on all workloads but the held-out ones and writes the model into
the package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.tuning.cost_model import PRETRAINED, Trees, require_lightgbm
from tilesmith.tuning.features import FEATURES
from tilesmith.tuning.features.kernel import SECONDS
from trial_data import Array, Measured, lost_by, measured, rank_correlation

FOLDS = 4
TOP = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """How well candidates of a workload were ordered: by the model and by the prior the rank
    correlation and what the best of their first eight loses to the best of all.
    """

    family: str
    count: int
    model: tuple[float, float]
    prior: tuple[float, float]

    @staticmethod
    def of(m: Measured, scores: Array) -> Judged:
        found = [
            (rank_correlation(s, m.ratios), lost_by(s, m.ratios, TOP))
            for s in (scores, m.features[:, SECONDS])
        ]
        return Judged(m.workload.family, len(m.ratios), found[0], found[1])


def by_shape(data: Sequence[Measured]) -> list[Judged]:
    """Every workload by a model that saw other shapes of its family."""
    numbers: dict[str, int] = {}
    folds: list[int] = []
    for m in data:
        folds.append(numbers.get(m.workload.family, 0) % FOLDS)
        numbers[m.workload.family] = numbers.get(m.workload.family, 0) + 1
    return _left_out(data, folds)


def by_family(data: Sequence[Measured]) -> list[Judged]:
    """Every workload by a model that saw nothing of its family."""
    return _left_out(data, [m.workload.family for m in data])


def _left_out(data: Sequence[Measured], parts: Sequence[Any]) -> list[Judged]:
    found = []
    for part in dict.fromkeys(parts):
        model = _train([m for m, p in zip(data, parts, strict=True) if p != part])
        mine = [m for m, p in zip(data, parts, strict=True) if p == part]
        found += [Judged.of(m, model.predict(m.features)) for m in mine]
    return found


def _train(data: Sequence[Measured]) -> Trees:
    features = np.concatenate([m.features for m in data])
    ratios = np.concatenate([m.ratios for m in data])
    groups = np.repeat(np.arange(len(data)), [len(m.ratios) for m in data])
    return Trees.trained(features, ratios, groups, FEATURES)


def table(judged: Sequence[Judged]) -> str:
    """Families and all together."""
    lines = [
        "| family | workloads | rank correlation | worst | prior | "
        f"best of {TOP} within 10% | prior |",
        "|---|---|---|---|---|---|---|",
    ]
    families = sorted({j.family for j in judged})
    lines += [_line(name, [j for j in judged if j.family == name]) for name in families]
    lines.append(_line("all", judged))
    return "\n".join(lines)


def _line(name: str, judged: Sequence[Judged]) -> str:
    mean: Callable[[list[float]], str] = lambda values: f"{np.mean(values):.2f}"  # noqa: E731
    near = [sum(j[1] <= 0.1 for j in side) for side in zip(*((j.model, j.prior) for j in judged))]
    model = [j.model[0] for j in judged]
    return (
        f"| {name} | {len(judged)} | {mean(model)} (median {np.median(model):.2f}) | "
        f"{min(model):.2f} | {mean([j.prior[0] for j in judged])} | "
        f"{near[0]}/{len(judged)} | {near[1]}/{len(judged)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PRETRAINED.name} instead")
    given = parser.parse_args()
    require_lightgbm()
    data = measured()
    if given.write:
        model = _train([m for m in data if not m.workload.is_held_out])
        PRETRAINED.write_text(model.text())
        print(f"{PRETRAINED.name}: {PRETRAINED.stat().st_size / 1e3:.0f} kB")
        held = [m for m in data if m.workload.is_held_out]
        print(f"\nHeld out\n\n{table([Judged.of(m, model.predict(m.features)) for m in held])}")
        return
    print(f"\nOther shapes of families seen\n\n{table(by_shape(data))}")
    print(f"\nOther families\n\n{table(by_family(data))}")


if __name__ == "__main__":
    main()
