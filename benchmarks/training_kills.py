#!/usr/bin/env python3
"""A training that is killed (SIGKILL) at random moments and resumed:
`python -m benchmarks.training_kills [KILLS]`.

A kill may cost at most the steps of one interval of checkpoints, and leaves a whole file.  After
all kills the training is finished; its weights must be those of one that nobody killed, bit by bit.
Raises AssertionError otherwise.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Tanh
from tilesmith.ops.matmul import MatMul
from tilesmith.runtime.weights import read_safetensors
from tilesmith.training import SGD

SIZE, ROWS = 96, 8
STEPS, EVERY = 20, 4
"""Steps of an epoch, and the interval of checkpoints."""
DELAY = 0.01
"""Seconds after the chosen step in which a kill comes: about the time of some steps and a write."""


def network() -> Graph:
    rng = np.random.default_rng(0)
    b = Builder("network")
    y = b.input("x", TensorType(f32, (ROWS, SIZE)))
    for name in ("first", "second"):
        w = b.constant((rng.standard_normal((SIZE, SIZE)) / 10).astype(np.float32), name)
        y = b.add(Tanh(), b.add(MatMul(), y, w))
    return b.finish([y], ["y"])


class Told:
    """The batches of an epoch.  With each, the number of steps so far is printed."""

    def __init__(self, trainer: ts.Trainer) -> None:
        self._trainer = trainer
        x, y = np.random.default_rng(1).uniform(-1, 1, (2, STEPS, ROWS, SIZE)).astype(np.float32)
        self._batches = list(zip(x, y, strict=True))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in self._batches:
            print(self._trainer.steps, flush=True)
            yield batch


def train(path: Path, epochs: int) -> None:
    """Train until `epochs` are done, from the checkpoint if there is one."""
    trainer = ts.Trainer(network(), loss="mse", optimizer=SGD(0.1, momentum=0.9), threads=1)
    if path.exists():
        trainer.restore(path)
    trainer.fit(Told(trainer), epochs, checkpoint=path, every=EVERY)


def child(path: Path, epochs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--train", str(path), str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def killed(path: Path, epochs: int, steps: int, delay: float) -> tuple[int, int]:
    """Kill a training `delay` seconds after it has made `steps` further steps.

    Returns the steps that it had made, and those of the checkpoint, whose arrays are all read.
    """
    running = child(path, epochs)
    assert running.stdout is not None
    told = [running.stdout.readline() for _ in range(steps + 1)]
    time.sleep(delay)
    running.kill()
    told += running.stdout.read().splitlines()
    assert running.wait() == -signal.SIGKILL, "the training ended, or failed, before the kill"
    found = read_safetensors(path) if path.exists() else {"train.step": np.zeros((), np.int64)}
    assert all(np.isfinite(a).all() for a in found.values())
    return int(told[-1]), int(found["train.step"])


def run(folder: Path, kills: int, seed: int) -> list[int]:
    """The steps that each kill cost."""
    rng = np.random.default_rng(seed)
    path, whole = folder / "killed.safetensors", folder / "whole.safetensors"
    epochs = kills + 1
    costs = []
    for _ in range(kills):
        steps, delay = int(rng.integers(1, STEPS)), float(rng.uniform(0, DELAY))
        made, kept = killed(path, epochs, steps, delay)
        costs.append(max(made - kept, 0))  # a checkpoint may be written just before it is told
        assert costs[-1] <= EVERY, f"{made} steps were made, the checkpoint has {kept}"
    for finished in (path, whole):
        running = child(finished, epochs)
        running.communicate()
        assert running.returncode == 0
    ends = [read_safetensors(p) for p in (path, whole)]
    assert {*ends[0]} == {*ends[1]}
    for name, a in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], a)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs=2, metavar=("FILE", "EPOCHS"), help="train, unharmed")
    given = parser.parse_args()
    if given.train:
        train(Path(given.train[0]), int(given.train[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        costs = run(Path(folder), given.kills, given.seed)
    print(f"{len(costs)} kills cost {sum(costs)} steps, {max(costs)} at most; interval {EVERY}")


if __name__ == "__main__":
    main()
