"""Runners, which run the program of an `Executable` in different ways.

`HostRunner` calls native code of this process, `DeviceRunner` starts kernels of a device, and
`PartsRunner` runs programs of both.  `SizedRunner` wraps several runners and chooses by size.
`GuardedRunner` wraps a device's runner and uses the CPU if the device fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilesmith.support.errors import ModelError

from .arrays import as_output, beginning, check_apart, is_torch, listing, to_torch
from .limits import UNLIMITED, Limits
from .program import Program, TensorSpec

if TYPE_CHECKING:
    from tilesmith.perf.machine import Machine

Sizes: TypeAlias = Mapping[str, int]
"""Extents by the name of their symbol."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of the calls of a program.

    seconds: minimum time of each call.
    runs: number of times that each call ran in the last run.
    whole: seconds of the fastest run of the normal main function (see `both` of `Runner.timed`).
    extents: extents of the program's symbols in these runs.
    host: seconds of a run in each host function, by node and operator.
    """

    seconds: np.ndarray
    runs: np.ndarray
    whole: float
    extents: tuple[int, ...] = ()
    host: tuple[tuple[str, float], ...] = ()


class Runner(ABC):
    """A program that is ready to run.

    program: the program; if there are programs for single sizes too, the one for all sizes.
    threads: number of threads on the CPU.
    limits: limits for a device.
    """

    program: Program
    threads: int
    limits: Limits = UNLIMITED

    @abstractmethod
    def __init__(self, program: Program, threads: int | None, limits: Limits) -> None: ...

    @property
    def machine(self) -> Machine:
        """The rates of the CPU on which the program runs, measured at first use."""
        from .rates import machine  # running a model needs no compiler; measuring needs it

        return machine()

    @abstractmethod
    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """The results of a run on all inputs in order.  See `Executable` for `out`."""

    @abstractmethod
    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        """Minimum times of `repeats` runs.

        both: whether to time as many runs of the normal main function too.
        """

    def trim(self) -> int:
        """Return unused memory to the system.  Returns the number of bytes."""
        return 0  # memory on a device is kept

    def variants(self) -> Variants:
        """The runners among which a call chooses, each with its sizes."""
        return [({}, self)]

    def again(self) -> Runner:
        """A second runner of the same program."""
        return type(self)(self.program, self.threads, self.limits)

    def become(self, program: Program) -> None:
        """Replace the program, for all later runs."""
        type(self).__init__(self, program, self.threads, self.limits)


Variants: TypeAlias = "Sequence[tuple[Sizes, Runner]]"


def given_outputs(specs: tuple[TensorSpec, ...], out: Any) -> tuple[Any, ...]:
    """For each output, the caller's array in `out`, or None.  Raises ModelError if `out` has a
    wrong number of arrays.
    """
    count = len(specs)
    if out is None:
        return (None,) * count
    outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(outputs) != count:
        raise ModelError(f"out: expected {count} arrays ({listing(specs)}), found {len(outputs)}")
    return outputs


def kept_outputs(
    program: Program, stored: Sequence[Any], given: Sequence[Any], specs: Sequence[TensorSpec]
) -> list[Any]:
    """For each output, the memory of the caller's array in `given`, or None.

    stored: the inputs in the form of native memory.
    specs: the outputs of this run.

    Raises ModelError for an array that can't hold its output, UsageError for one that shares memory
    with another argument.
    """
    kept = [None if g is None else as_output(g, s) for g, s in zip(given, specs, strict=True)]
    homes = {i for _, i in program.in_place}
    named = ((f"input {s.name!r}", a) for s, a in zip(program.inputs, stored, strict=True))
    check_apart(
        [n for i, n in enumerate(named) if i not in homes],
        [(f"output {s.name!r}", k) for s, k in zip(specs, kept, strict=True) if k is not None],
    )
    return kept


def as_given(results: Sequence[Any], given: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """The results in the caller's form: the caller's arrays, new arrays, or torch tensors if an
    input is one.  A single result is not put into a tuple.
    """
    fresh = map(to_torch, results) if any(map(is_torch, arrays)) else results
    outputs = tuple(
        f if g is None else beginning(g, f.shape) for f, g in zip(fresh, given, strict=True)
    )
    return outputs[0] if len(outputs) == 1 else outputs
