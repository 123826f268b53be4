"""A program of PyTorch: statements of Python, tensors for them, and its source.

A program is a module whose `forward` has one call to PyTorch a line.  It is made by random
(`draw.py`), run in eager mode (`eager.py`) and by other roads (`roads.py`), and made smaller where
it shows a defect (`shrink.py`).
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of a program.

    form: its text behind the `=`, with `{0}`, `{1}` in the place of operands.
    operands: names of the values that it uses.
    results: names of the values that it makes; none for a statement that only writes.
    """

    form: str
    operands: tuple[str, ...]
    results: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        expression = self.form.format(*self.operands)
        return f"{', '.join(self.results)} = {expression}" if self.results else expression


@dataclass(frozen=True, slots=True)
class Program:
    """A module with inputs for one or more runs.

    statements: in order.
    outputs: names of values, of inputs or of state that it returns.
    parameters, buffers: the module's tensors, by name.
    runs: for each run its inputs, by name.
    open_axes: by input and axis, the name of a dimension whose size differs between runs.
    gradients: whether the inputs and parameters that require gradients get them.
    """

    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    parameters: Tensors
    buffers: Tensors
    runs: tuple[Tensors, ...]
    open_axes: Mapping[str, Mapping[int, str]]
    gradients: bool = False

    @property
    def inputs(self) -> Tensors:
        """Those of the first run."""
        return self.runs[0]

    def module(self) -> torch.nn.Module:
        """A new module with tensors of its own."""
        made = _class_of(self.class_source)()
        for name, t in self.parameters.items():
            setattr(made, name, torch.nn.Parameter(copied(t).detach(), t.requires_grad))
        for name, t in self.buffers.items():
            made.register_buffer(name, copied(t))
        return made.eval()

    @property
    def class_source(self) -> str:
        """The source of the module without its tensors."""
        state = [f"{n} = self.{n}" for n in (*self.parameters, *self.buffers)]
        body = [*state, *(s.text for s in self.statements), f"return {_tuple(self.outputs)}"]
        lines = "".join(f"        {line}\n" for line in body)
        given = "".join(f", {n}" for n in self.inputs)
        return f"class Program(torch.nn.Module):\n    def forward(self{given}):\n{lines}"

    def source(self) -> str:
        """A whole script, which runs the program in eager mode."""
        head = "import torch\nimport torch.nn.functional as F\nfrom torch import inf, nan\n\n\n"
        lines = ["\n\nprogram = Program().eval()"]
        for name, t in self.parameters.items():
            lines.append(
                f"program.{name} = torch.nn.Parameter({_shown(t.detach())}, {t.requires_grad})"
            )
        lines += [f'program.register_buffer("{n}", {_shown(t)})' for n, t in self.buffers.items()]
        for name, axes in self.open_axes.items():
            lines.append(f"# open dimensions of {name}: {dict(axes)}")
        for run in self.runs:
            lines += [
                f"{n} = {_shown(t)}{'.requires_grad_()' if t.requires_grad else ''}"
                for n, t in run.items()
            ]
            lines.append(f"print(program({', '.join(run)}))")
        return head + self.class_source + "\n".join(lines) + "\n"


def copied(t: torch.Tensor) -> torch.Tensor:
    """A tensor with memory of its own and the same strides; a leaf that requires what `t` does."""
    storage = t.detach().untyped_storage().clone()
    fresh = torch.empty(0, dtype=t.dtype)
    fresh.set_(storage, t.storage_offset(), t.size(), t.stride())
    return fresh.requires_grad_(t.requires_grad)


def all_copied(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {n: copied(t) for n, t in tensors.items()}


@cache
def _class_of(source: str) -> Any:
    """The class of a source, which tracebacks and tracers can show."""
    name = f"<program {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    room = {"torch": torch, "F": torch.nn.functional, "inf": math.inf, "nan": math.nan}
    exec(compile(source, name, "exec"), room)
    return room["Program"]


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)},)" if len(names) == 1 else ", ".join(names)


def _shown(t: torch.Tensor) -> str:
    """An expression that makes the tensor, with its strides."""
    t = t.detach()
    if t.is_contiguous() and not t.storage_offset():
        flat = t.flatten().tolist()
        if len(flat) > 1 and all(v == flat[0] for v in flat):
            return f"torch.full({tuple(t.shape)}, {flat[0]}, dtype={t.dtype})"
        return f"torch.tensor({flat}, dtype={t.dtype}).reshape({tuple(t.shape)})"
    count = t.untyped_storage().nbytes() // t.element_size()
    whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage(), 0, (count,))
    places = f"{tuple(t.shape)}, {t.stride()}, {t.storage_offset()}"
    return f"torch.as_strided(torch.tensor({whole.tolist()}, dtype={t.dtype}), {places})"
