"""Values that an executable keeps from call to call, as a streaming model's buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.support.errors import UsageError

from .arrays import check_count
from .program import Program, TensorSpec
from .runner import given_outputs


class States:
    """The states of one executable: arrays that each run reads and writes.

    Runs with states happen one after the other, even if several threads call.
    """

    def __init__(self, program: Program) -> None:
        outputs, inputs = (set(numbers) for numbers in zip(*program.states, strict=True))
        self._inputs, self._outputs = program.inputs, program.outputs
        self._is_state_input = [i in inputs for i in range(len(program.inputs))]
        self._is_state_output = [o in outputs for o in range(len(program.outputs))]
        self._first = {
            name: array
            for name, array in program.default_arrays.items()
            if any(program.inputs[i].name == name for i in inputs)
        }
        self._lock = threading.Lock()
        self.arrays: dict[str, np.ndarray] = {}
        self.reset()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The program's inputs that callers give."""
        pairs = zip(self._inputs, self._is_state_input, strict=True)
        return tuple(spec for spec, is_state in pairs if not is_state)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The program's outputs that callers get."""
        pairs = zip(self._outputs, self._is_state_output, strict=True)
        return tuple(spec for spec, is_state in pairs if not is_state)

    def reset(self) -> None:
        """Set all states to their initial values, in the same arrays."""
        for name, first in self._first.items():
            if name in self.arrays:
                self.arrays[name][...] = first
            else:
                self.arrays[name] = first.copy()

    def share(self, other: States) -> None:
        """Take the arrays of `other` for the states of the same name.  Raises UsageError for states
        of other types, and if there are none.
        """
        common = [name for name in self.arrays if name in other.arrays]
        for name in common:
            a, b = self.arrays[name], other.arrays[name]
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                raise UsageError(
                    f"state {name!r}: expected {a.dtype}{list(a.shape)} in both executables, found "
                    f"{b.dtype}{list(b.shape)}"
                )
        if not common:
            raise UsageError(
                f"expected states in common, found {', '.join(self.arrays)} and "
                f"{', '.join(other.arrays)}"
            )
        self.arrays |= {name: other.arrays[name] for name in common}
        self._lock = other._lock

    def joined(self, arrays: Sequence[Any], copies: bool = False) -> tuple[Any, ...]:
        """The program's inputs in order: items of `arrays`, and the states (or their copies) in
        between.
        """
        left = iter(arrays)
        return tuple(
            (self.arrays[spec.name].copy() if copies else self.arrays[spec.name])
            if is_state
            else next(left)
            for spec, is_state in zip(self._inputs, self._is_state_input, strict=True)
        )

    def calling(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A wrapper of `run`, a call of the program.  It takes and returns the inputs and outputs
        that are not states.
        """
        inputs, outputs = self.inputs, self.outputs
        is_single = len(outputs) == 1

        def call(arrays: Sequence[Any], out: Any = None) -> Any:
            check_count(arrays, inputs)
            if out is not None:
                rooms = iter(given_outputs(outputs, out))
                out = [None if is_state else next(rooms) for is_state in self._is_state_output]
            with self._lock:
                results = run(self.joined(arrays), out)
            pairs = zip(results, self._is_state_output, strict=True)
            kept = tuple(value for value, is_state in pairs if not is_state)
            return kept[0] if is_single else kept

        return call
