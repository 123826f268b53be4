"""A compiled model of which parts run on a device and parts on the CPU.

Parts exchange values without copies: on the device in device memory, on the host as arrays.  Only
the program's `Transfer` steps copy values.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from tilesmith.program.nodes import PartCall, Results, Transfer
from tilesmith.program.run import Actions, Run
from tilesmith.program.text import head
from tilesmith.program.verify import verify
from tilesmith.support.errors import ModelError, VerifyError

from .arrays import as_stored, at_home
from .device_memory import check_memory
from .device_runner import DeviceRunner
from .devices import is_there
from .given import stored_inputs
from .host_runner import HostRunner
from .limits import UNLIMITED, Limits, Watch
from .program import Program, TensorSpec
from .runner import Runner, Times, as_given, given_outputs, kept_outputs


class PartsRunner(Runner):
    """A program whose parts run on a device and on the CPU.

    Calls from several threads run one after the other.
    """

    def __init__(
        self, program: Program, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """threads: number of threads of the CPU's parts.
        limits: limits for the device's memory and time.

        If this machine lacks the device, the program can still be kept, saved and shown, but not
        called.

        Raises DeviceError if the device can't be used, or if the program needs more memory than the
        device or the limit allows.
        """
        check_memory(program, limits.memory)
        self.program, self.limits = program, limits
        self._watch = Watch(limits.seconds)
        self._lock = Lock()
        self._calls = [c for c in program.steps if isinstance(c, PartCall)]
        self._runners = [
            HostRunner(part, threads)
            if part.target.device is None
            else DeviceRunner(part, threads, opens=False, watch=self._watch)
            for part in program.parts
        ]
        self._specs: dict[int, TensorSpec] = {}  # value number -> type on the device
        self._memory: dict[int, Any] = {}  # memory of the same values
        self._actions = Actions(part=self._call_part, transfer=self._transfer)
        self._check_steps()
        self.threads = max((runner.threads for runner in self._runners), default=threads or 1)
        self._is_open = False
        if is_there(program.target):
            self.open()

    def open(self) -> None:
        """Make the parts on the device ready to run, unless this was done before.

        Raises DeviceError if there is no device, or if the device has not enough memory.
        """
        if self._is_open:
            return
        for call, runner in zip(self._calls, self._runners, strict=True):
            if not isinstance(runner, DeviceRunner):
                continue
            runner.open(
                {i: self._memory[a] for i, a in enumerate(call.inputs) if a in self._memory}
            )
            self._device = runner.device
            for place, region in zip((*call.inputs, *call.outputs), runner.memory, strict=True):
                self._memory.setdefault(place, region)
        self._is_open = True

    def _check_steps(self) -> None:
        """Raises ModelError for steps that don't fit the parts."""
        try:
            verify(self.program.main)
        except VerifyError as e:
            raise ModelError(str(e)) from e
        for call, part in zip(self._calls, self.program.parts, strict=True):
            specs = (*part.inputs, *part.outputs)
            if (len(call.inputs), len(call.outputs)) != (len(part.inputs), len(part.outputs)):
                raise ModelError(f"the steps of the program do not fit its parts: {head(call)}")
            if part.target.device is not None:
                self._specs.update(zip((*call.inputs, *call.outputs), specs, strict=True))
        for step in self.program.steps:
            there, here = set[int](), set[int]()
            if isinstance(step, Transfer):
                there.add(step.to if step.to_device else step.source)
            elif isinstance(step, Results):
                here.update(step.values)
            if not there <= self._specs.keys() or here & self._specs.keys():
                raise ModelError(f"the steps of the program do not fit its parts: {head(step)}")

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """Run the program (see `Runner`).  Raises DeviceError if the device fails."""
        stored = stored_inputs(self.program, arrays)
        outputs = at_home(self.program, arrays, given_outputs(self.program.outputs, out))
        with self._lock:
            results = self._run(stored)
        if out is None and not self.program.in_place:
            return as_given(results, outputs, arrays)
        specs = [
            s if s.dtype.is_host else TensorSpec(s.name, s.dtype, np.shape(r))
            for s, r in zip(self.program.outputs, results, strict=True)
        ]
        kept = kept_outputs(self.program, stored, outputs, specs)
        for k, r in zip(kept, results, strict=True):
            if k is not None:
                k[...] = as_stored(r)
        return as_given(results, outputs, arrays)

    def _run(self, stored: Sequence[Any]) -> list[Any]:
        """The results, each in a separate array.  A result that is also an input or an earlier
        result is copied.
        """
        run = self._walked(stored, self._actions)
        seen = set(range(len(stored)))
        results: list[Any] = []
        for number in run.results:
            value = run.values[number]
            again = number in seen and isinstance(value, np.ndarray)
            results.append(value.copy() if again else value)
            seen.add(number)
        return results

    def _walked(self, stored: Sequence[Any], actions: Actions) -> Run:
        """The run of all steps on the inputs `stored`; `actions` execute the steps."""
        self.open()
        self._watch.start()
        pairs = zip(stored, self.program.inputs, strict=True)
        views = (a if s.dtype.is_host else a.view(s.dtype.numpy) for a, s in pairs)
        run = Run(actions, values=views)
        run.steps(self.program.steps)
        return run

    def _call_part(self, step: PartCall, values: Sequence[Any]) -> Iterable[Any]:
        runner = self._runners[step.part]
        if isinstance(runner, DeviceRunner):
            runner.run_there()
            return map(self._memory.__getitem__, step.outputs)
        computed = runner.call(tuple(values), None)
        return (computed,) if len(step.outputs) == 1 else computed

    def _transfer(self, step: Transfer, value: Any) -> Any:
        if step.to_device:
            memory = self._memory[step.to]
            self._device.write(memory, as_stored(value))
            return memory
        spec = self._specs[step.source]
        array = np.empty(spec.static_shape, spec.dtype.numpy)
        self._device.read(as_stored(array), value)
        return array

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        stored = stored_inputs(self.program, arrays)
        count = len(self.program.calls)
        best, runs, whole = np.full(count, np.inf), np.ones(count, np.int64), float("inf")
        with self._lock:
            for _ in range(max(repeats, 1)):
                start = time.perf_counter()
                if both:
                    self._run(stored)
                whole = min(whole, time.perf_counter() - start)
                seconds, runs = self._timed_once(stored)
                best = np.minimum(best, seconds)
        return Times(best, runs, whole)

    def _timed_once(self, stored: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """The seconds of each kernel call in one run, and how many times each call ran."""
        timed_parts: list[tuple[np.ndarray, np.ndarray]] = []

        def part(step: PartCall, values: Sequence[Any]) -> Iterable[Any]:
            runner = self._runners[step.part]
            if isinstance(runner, DeviceRunner):
                seconds = runner.timed_there()
                timed_parts.append((seconds, np.ones(len(seconds), np.int64)))
                return map(self._memory.__getitem__, step.outputs)
            results = self._call_part(step, values)
            times = runner.timed(tuple(values), 1)
            timed_parts.append((times.seconds, times.runs))
            return results

        self._walked(stored, replace(self._actions, part=part))
        seconds_of_parts, runs_of_parts = zip(*timed_parts, strict=True)
        return np.concatenate(seconds_of_parts), np.concatenate(runs_of_parts)

    def trim(self) -> int:
        return sum(runner.trim() for runner in self._runners)
