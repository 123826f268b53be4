"""Values that an executable keeps from call to call, as a streaming model's buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.support.errors import UsageError

from .arrays import check_count
from .program import Program
from .runner import given_outputs


class States:
    """The states of one executable: arrays that each run reads and writes.

    Runs with states happen one after the other, even if several threads call.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        states = {program.inputs[i].name for _, i in program.states}
        self._first = {n: a for n, a in program.default_arrays.items() if n in states}
        self._lock = threading.Lock()
        self.arrays = {name: first.copy() for name, first in self._first.items()}

    def reset(self) -> None:
        """Set all states to their initial values, in the same arrays."""
        for name, first in self._first.items():
            self.arrays[name][...] = first

    def share(self, other: States) -> None:
        """Take the arrays of `other` for the states of the same name.  Raises UsageError if
        the types of such states differ, and if there are no such states.
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
        states = {name: a.copy() for name, a in self.arrays.items()} if copies else self.arrays
        return tuple(
            states[s.name] if s.name in states else next(left) for s in self._program.inputs
        )

    def calling(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A wrapper of `run`, a call of the program.  It takes and returns the inputs and outputs
        that are not states.
        """
        program = self._program
        is_single = len(program.caller_outputs) == 1
        is_state = [False] * len(program.outputs)
        for number, _ in program.states:
            is_state[number] = True

        def call(arrays: Sequence[Any], out: Any = None) -> Any:
            check_count(arrays, program.caller_inputs)
            if out is not None:
                rooms = iter(given_outputs(program.caller_outputs, out))
                out = [None if kept else next(rooms) for kept in is_state]
            with self._lock:
                values = run(self.joined(arrays), out)
            results = tuple(v for v, kept in zip(values, is_state, strict=True) if not kept)
            return results[0] if is_single else results

        return call
