"""Repeated runs of an executable with bound inputs and outputs, like a graph executor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tilesmith.support.arguments import checked, checked_methods
from tilesmith.support.errors import ModelError, UsageError

from .arrays import check, check_inputs, check_names, listing
from .executable import Executable
from .given import as_array
from .program import TensorSpec

_UNBOUND = object()
"""Stands for an input that is not bound."""


@checked_methods(UsageError)
class Instance:
    """An executable with memory for one run at a time: `set_input`, `run`, `get_output`.

    All instances of an executable share its code, weights and states.  Each has its own outputs,
    which every run overwrites.  An output whose shape depends on data gets new memory in each run.
    Only one thread may use an instance at a time, but different instances can run in parallel.
    In a forked child an instance is idle, even if it was running in the parent.

    Inputs and outputs are named by their names or their positions.
    """

    @checked(UsageError)
    def __init__(self, exe: Executable) -> None:
        self.exe = exe
        homes = dict(exe.program.in_place)
        defaults = exe.program.optional_arrays
        self._inputs: list[Any] = [defaults.get(s.name, _UNBOUND) for s in exe.inputs]
        self._own = [
            None
            if i in homes or s.dtype.is_host or not s.is_static
            else np.empty(s.static_shape, s.dtype.numpy)
            for i, s in enumerate(exe.outputs)
        ]
        self._out: list[Any] = list(self._own)
        self._homes = homes
        self._results: tuple[Any, ...] | None = None
        self._runs: ThreadPoolExecutor | None = None
        self._future: Future[Any] | None = None
        self._process = os.getpid()

    def set_input(self, key: str | int, value: Any) -> None:
        """Bind an input: later runs read `value`, a NumPy array, a torch tensor or anything that
        NumPy views, of the input's type and shape.  A C-contiguous array is not copied.

        Raises ModelError for a wrong name, type or shape, UsageError during a submitted run.
        """
        self._check_idle()
        position = _position(key, "input", self.exe.inputs)
        spec = self.exe.inputs[position]
        array = value if spec.dtype.is_host else as_array(value, spec)
        if not spec.dtype.is_host:
            check(array, spec, "input")
        self._inputs[position] = array

    def set_output(self, key: str | int, array: Any) -> None:
        """Bind an output: later runs write to `array`, as to `out` of a call.  None restores the
        output's own memory.

        Raises ModelError for a wrong name or an output that lives in an input, UsageError while a
        submitted run is under way.  The array itself is checked by the run.
        """
        self._check_idle()
        position = _position(key, "output", self.exe.outputs)
        if position in self._homes:
            home = self.exe.inputs[self._homes[position]].name
            raise ModelError(
                f"output {self.exe.outputs[position].name!r} lives in the memory of input "
                f"{home!r}: bind that with set_input"
            )
        self._out[position] = self._own[position] if array is None else array

    def run(self) -> None:
        """Run the model on the bound inputs and outputs.

        Raises the errors of a call of the executable, ModelError if an input is not bound,
        UsageError during a submitted run.
        """
        self._check_idle()
        self._run(self._bound())

    def get_output(self, key: str | int) -> Any:
        """The output of the last run: a NumPy array, or the array that `set_output` bound.  The
        next run overwrites it.

        Raises ModelError for a wrong name, UsageError before the first run and while a submitted
        run is under way.
        """
        self._check_idle()
        position = _position(key, "output", self.exe.outputs)
        if self._results is None:
            raise UsageError("get_output: expected a run before it, found none that succeeded")
        return self._results[position]

    def submit(self) -> Future[Any]:
        """Start a run on the instance's own thread and return at once.

        The future's result is the result of a call of the executable, or the exception of the run.
        A callback of the future (`add_done_callback`) may bind other inputs and submit the next
        run.  Raises ModelError if an input is not bound, UsageError while a submitted run is under
        way.
        """
        self._check_idle()
        arrays = self._bound()
        if self._runs is None:
            self._runs = ThreadPoolExecutor(1, "tilesmith-instance")
        self._future = self._runs.submit(self._run, arrays)
        return self._future

    def _run(self, arrays: Sequence[Any]) -> Any:
        self._results = None
        results = self.exe._in_order(arrays, self._given())
        self._results = (results,) if len(self.exe.outputs) == 1 else tuple(results)
        return results

    def _given(self) -> Any:
        """The memory for the outputs, in the form of `out` of a call."""
        if all(array is None for array in self._out):
            return None
        return self._out[0] if len(self._out) == 1 else list(self._out)

    def _bound(self) -> list[Any]:
        absent = [s for s, a in zip(self.exe.inputs, self._inputs, strict=True) if a is _UNBOUND]
        if absent:
            raise ModelError(f"these inputs are not bound: {listing(tuple(absent))}; use set_input")
        return list(self._inputs)

    def _check_idle(self) -> None:
        if self._process != os.getpid():  # a fork copies neither the thread nor its run
            self._process, self._runs, self._future = os.getpid(), None, None
        if self._future is not None and not self._future.done():
            raise UsageError(
                "a submitted run of this instance is under way: wait for its future first, or make "
                "another instance"
            )


def _position(key: str | int, what: str, specs: tuple[TensorSpec, ...]) -> int:
    """The index of an input or output.  Raises ModelError if there is none."""
    if isinstance(key, str):
        (check_inputs((key,), specs) if what == "input" else check_names((key,), what, specs))
        return next(i for i, s in enumerate(specs) if s.name == key)
    if not isinstance(key, int) or not 0 <= key < len(specs):
        raise ModelError(
            f"expected the position of an {what} from 0 to {len(specs) - 1}, found {key!r}; the "
            f"{what}s are {listing(specs)}"
        )
    return key
