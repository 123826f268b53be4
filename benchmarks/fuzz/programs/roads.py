"""The roads of a program into the compiler, and each of them without it.

A road is a function of a program that gives what its runs give and leave.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch

import tilesmith as ts
import tilesmith.torch
from tilesmith.runtime.arrays import to_torch

from .eager import Outcome, outcomes
from .program import Program, all_copied

OPT_LEVEL = 0
"""LLVM's effort: a campaign compiles much and runs little."""

Road = Callable[[Program], list[Outcome]]


def _options() -> ts.Options:
    return ts.Options(opt_level=OPT_LEVEL)


def _example(program: Program) -> tuple[torch.Tensor, ...]:
    return tuple(t.detach() for t in all_copied(program.inputs).values())


def _dynamic(program: Program) -> dict[str, dict[int, str]] | None:
    return {n: dict(axes) for n, axes in program.open_axes.items()} or None


def _module(program: Program) -> list[Outcome]:
    """`ts.compile(module, example)`."""
    module = program.module()
    exe = ts.compile(
        module, _example(program), dynamic=_dynamic(program), threads=1, options=_options()
    )
    return outcomes(program, exe, module)


def _exported(program: Program, module: torch.nn.Module) -> Any:
    """The exported program, made as users make it."""
    dims: dict[str, Any] = {}
    shapes = {
        n: {a: dims.setdefault(d, torch.export.Dim(d, min=1)) for a, d in axes.items()}
        for n, axes in program.open_axes.items()
    }
    given = {n: shapes.get(n) for n in program.inputs} if shapes else None
    return torch.export.export(module, _example(program), dynamic_shapes=given)


def _export(program: Program) -> list[Outcome]:
    """PyTorch's exported program, by PyTorch."""
    module = program.module()
    called = _exported(program, module).module()
    return outcomes(program, called, called)


def _archive(program: Program) -> list[Outcome]:
    """`ts.compile` of the bytes of a `.pt2` file."""
    module = program.module()
    file = io.BytesIO()
    torch.export.save(_exported(program, module), file)
    exe = ts.compile(file.getvalue(), threads=1, options=_options())
    return outcomes(program, exe, _State(exe))


class _State(torch.nn.Module):
    """The state of a compiled module, as a module."""

    def __init__(self, exe: Any) -> None:
        super().__init__()
        self._exe = exe

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {n: to_torch(v) for n, v in self._exe.state_dict().items()}


def _traced(program: Program, module: torch.nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, _example(program), check_trace=False)


def _trace(program: Program) -> list[Outcome]:
    """`torch.jit.trace`, by PyTorch."""
    traced = _traced(program, program.module())
    traced.load_state_dict(program.module().state_dict())
    return outcomes(program, traced, traced)


def _script(program: Program) -> list[Outcome]:
    """`ts.compile` of what `torch.jit.trace` makes."""
    traced = _traced(program, program.module())
    traced.load_state_dict(program.module().state_dict())  # tracing ran it
    exe = ts.compile(
        traced, _example(program), dynamic=_dynamic(program), threads=1, options=_options()
    )
    return outcomes(program, exe, traced)


def _backend(program: Program) -> list[Outcome]:
    """`torch.compile` with Tilesmith's backend, and with gradients where the program has them."""
    options = {"opt_level": OPT_LEVEL, "threads": 1}
    return _through_dynamo(program, backend=tilesmith.torch.backend, options=options)


def _aot_eager(program: Program) -> list[Outcome]:
    """`torch.compile` with PyTorch's own operators."""
    return _through_dynamo(program, backend="aot_eager_decomp_partition")


def _through_dynamo(program: Program, **chosen: Any) -> list[Outcome]:
    torch._dynamo.reset()
    module = program.module()
    dynamic = True if program.open_axes else None
    compiled = torch.compile(module, dynamic=dynamic, **chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcomes(program, compiled, module)


ROADS: dict[str, Road] = {
    "module": _module,
    "archive": _archive,
    "trace": _script,
    "backend": _backend,
    "training": _backend,
}
PYTORCHS: dict[str, Road] = {
    "module": _export,
    "archive": _export,
    "trace": _trace,
    "backend": _aot_eager,
    "training": _aot_eager,
}
"""By road, PyTorch's part of it alone."""
WITH_GRADIENTS = ("training",)
"""The roads by which a program gets its gradients; the others are for programs without."""
