"""The roads from a module of PyTorch to native code, each as a function of the module's inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import tilesmith as ts

ROADS = ("module", "exported", "archive", "trace", "backend")
Call = Callable[..., Any]


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def compiled(
    road: str, module: torch.nn.Module, args: Sequence[Any], folder: Path, **options: Any
) -> Call:
    """The module by one road.  What would be left to PyTorch is an error."""
    options = {"threads": 1, "fallback": "error", **options}
    if road == "backend":
        torch._dynamo.reset()
        return torch.compile(module, backend=ts.torch.backend, options=options)
    if road == "module":
        return ts.compile(module, tuple(args), **options)
    if road == "trace":
        traced = torch.jit.trace(module, copy.deepcopy(tuple(args)), check_trace=False)
        return ts.compile(traced, tuple(args), **options)
    exported = torch.export.export(module, copy.deepcopy(tuple(args)))
    if road == "exported":
        return ts.compile(exported, **options)
    path = folder / "module.pt2"
    torch.export.save(exported, path)
    return ts.compile(path, **options)


def check(
    road: str, module: torch.nn.Module, args: Sequence[Any], folder: Path, **options: Any
) -> None:
    """Compare a road with eager mode: values, types and shapes."""
    with torch.no_grad():
        wanted = module(*copy.deepcopy(tuple(args)))
        found = compiled(road, module, args, folder, **options)(*copy.deepcopy(tuple(args)))
    torch.testing.assert_close(
        as_tensors(found), as_tensors(wanted), rtol=1e-4, atol=1e-5, equal_nan=True
    )


def as_tensors(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return tuple(map(as_tensors, x))
    return torch.as_tensor(x)
