"""Tunes a small model until somebody kills it; a line for each trial that is stored.

Arguments: the cache folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tilesmith as ts
from tilesmith.driver.request import Request
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.scheduler import Progress

TEXT = """
graph net(%x: f32[64,96]) {
  const %w: f32[96,144] = @aa
  %0: f32[64,144] = matmul(%x, %w)
  %1: f32[64,144] = relu(%0)
  return %1 as "y"
}
"""


def graph() -> Graph:
    weights = np.random.default_rng(0).standard_normal((96, 144)).astype(np.float32)
    return parse_graph(TEXT, {"aa": weights})


def options(folder: Path) -> ts.Options:
    return ts.Options(cache_dir=folder, threads=1, jobs=2)


def main() -> None:
    told: set[tuple[str, str]] = set()

    def report(_stage: str, states: Sequence[Progress]) -> None:
        for s in states:
            for decisions in s.seen:
                if (line := (s.task.key.workload, decisions)) not in told:
                    told.add(line)
                    print(json.dumps(line), flush=True)

    tune_model(
        Request(graph(), options(Path(sys.argv[1]))), TuneOptions(seconds=3600, report=report)
    )


if __name__ == "__main__":
    main()
