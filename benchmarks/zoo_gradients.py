#!/usr/bin/env python3
"""Gradients of the zoo's networks against PyTorch's, in f64: `python -m benchmarks.zoo_gradients
[NAMES]`.

A step of SGD with the learning rate 1 in training mode, on two small images or texts; the change of
a weight is its gradient.  Compared are the loss and the gradient of each parameter, as a vector:
the norm of the difference over the norm of PyTorch's.  Exit status 1 where one is above 1e-8.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tilesmith.training import SGD

BAR = 1e-8
NAMES = ("mobilenet_v2", "resnet18")
SIDE = 64
"""Pixels of an image's side."""


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A network in training mode without dropout, and its inputs."""
    import torch

    from zoo import build

    module, inputs, _ = build(name)
    module = module.double().train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if "input" in inputs:
        return module, (torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64),)
    return module, tuple(inputs.values())


def errors(name: str) -> tuple[float, float, str]:
    """The relative error of the loss, the largest of a gradient, and the parameter that has it."""
    import torch

    torch.manual_seed(0)
    module, inputs = network(name)
    labels: Any
    with torch.no_grad():
        predictions = copy.deepcopy(module)(*inputs)
    if predictions.ndim == 2:
        labels, loss, kind = (
            torch.tensor([3, 5]),
            torch.nn.functional.cross_entropy,
            "cross_entropy",
        )
    else:
        labels, loss, kind = torch.randn_like(predictions), torch.nn.functional.mse_loss, "mse"
    trainer = ts.Trainer(
        copy.deepcopy(module), loss=kind, optimizer=SGD(1.0), example_inputs=inputs
    )
    before = {n: w.copy() for n, w in trainer.weights.items()}
    batch = (*(x.numpy() for x in inputs), labels.numpy())
    (epoch,) = trainer.fit([batch])
    wanted = loss(module(*inputs), labels)
    wanted.backward()
    worst, where = 0.0, ""
    for n, p in module.named_parameters():
        exact = p.grad.numpy()
        error = np.linalg.norm(before[n] - trainer.weights[n] - exact) / np.linalg.norm(exact)
        if not error <= worst:
            worst, where = float(error), n
    return abs(epoch.measures["loss"] - wanted.item()) / wanted.item(), worst, where


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(NAMES)}")
    is_bad = False
    print("| network | error of the loss | largest error of a gradient | its parameter |")
    print("| --- | --- | --- | --- |")
    for name in parser.parse_args().names or NAMES:
        of_loss, worst, where = errors(name)
        is_bad |= not max(of_loss, worst) <= BAR
        print(f"| {name} | {of_loss:.1e} | {worst:.1e} | {where} |", flush=True)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
