"""What a tutorial consists of, and how it is checked.

A tutorial is a function from sizes to what `ts.build` takes: a schedule (or "auto") and the
arguments, inputs before outputs.  Its body is the whole program.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

import tilesmith as ts
from tilesmith import te
from tilesmith.te.tensor import Placeholder

Program: TypeAlias = "tuple[te.Schedule | Literal['auto'], list[te.Tensor]]"


@dataclass(frozen=True)
class Tutorial:
    """A classic program of TVM's or Halide's documentation.

    program: makes the schedule and its arguments for given sizes.
    reference: the same in NumPy, from the input arrays to the output (a tuple of several).
    small, large: sizes for checking and for timing.
    original: where the program comes from.
    original_lines: lines of its algorithm and its schedule for CPUs there, each statement wrapped
        at 100 columns.
    below: integer inputs are drawn from 0 to below - 1.
    """

    program: Callable[..., Program]
    reference: Callable[..., Any]
    small: tuple[int, ...]
    large: tuple[int, ...]
    original: str
    original_lines: int
    below: int = 2

    @property
    def name(self) -> str:
        return self.program.__name__

    @property
    def lines(self) -> int:
        """Lines of the program's body, without its docstring, comments and blank lines."""
        function = ast.parse(textwrap.dedent(inspect.getsource(self.program))).body[0]
        assert isinstance(function, ast.FunctionDef)
        taken = {n for s in function.body[1:] for n in range(s.lineno, (s.end_lineno or 0) + 1)}
        source = textwrap.dedent(inspect.getsource(self.program)).splitlines()
        return sum(bool(source[n - 1].split("#")[0].strip()) for n in taken)

    def prepare(self, sizes: Sequence[int]) -> tuple[Callable[[], None], list[np.ndarray], Any]:
        """The built program as a call without arguments, its inputs, and its outputs, which the
        call writes.
        """
        schedule, args = self.program(*sizes)
        rng = np.random.default_rng(0)
        inputs = [self._drawn(rng, a) for a in args if isinstance(a.op, Placeholder)]
        outputs = [np.zeros(a.shape, a.dtype.numpy) for a in args[len(inputs) :]]
        run = ts.build(schedule, args, name=self.name).bind(*inputs, *outputs)
        return run, inputs, outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _drawn(self, rng: np.random.Generator, a: te.Tensor) -> np.ndarray:
        if a.dtype.is_int:
            return rng.integers(0, self.below, a.shape).astype(a.dtype.numpy)
        return rng.random(a.shape).astype(a.dtype.numpy)

    def error(self) -> float:
        """The largest difference from the reference at the small sizes, relative to the largest
        element of each output.
        """
        run, inputs, found = self.prepare(self.small)
        run()
        expected = self.reference(*inputs)
        pairs = zip(found, expected) if isinstance(found, tuple) else [(found, expected)]
        return max(
            float(np.abs(f.astype(np.float64) - e).max() / np.abs(e).max()) for f, e in pairs
        )
