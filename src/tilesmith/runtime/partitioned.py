"""A compiled model of which parts run on a device and parts on the CPU.

Values go from part to part where they are: on the device in its memory, on the host as arrays.
Only the program's `Transfer` steps copy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import LaunchCall
from tilesmith.program.nodes import PartCall, Results, Transfer
from tilesmith.program.text import head
from tilesmith.program.verify import verify
from tilesmith.support.errors import InternalError, ModelError, VerifyError

from .arrays import as_output, as_stored, at_home, beginning, check_apart, is_torch, to_torch
from .device_executable import DeviceExecutable, UnpredictedExecutable
from .devices import is_there
from .executable import Executable
from .limits import UNLIMITED, Limits
from .program import Program, TensorSpec


class PartitionedExecutable(UnpredictedExecutable):
    """An `Executable` whose parts run on a device and on the CPU; see `Executable` for how it is
    called.

    Calls from several threads follow each other.
    """

    def __init__(
        self, program: Program, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """threads: of the parts on the CPU.
        limits: what the executable may take of the device.

        A program for a device that this machine lacks can be kept, saved and shown; calls fail.

        Raises DeviceError if the device can't be used, or if the program needs more memory than it
        has, or than the limit.
        """
        super().__init__(program, limits)
        self._input_count = len(program.inputs)
        self._calls = [c for c in program.part_steps if isinstance(c, PartCall)]
        self._executables: list[Executable] = [
            Executable(part, threads)
            if part.target.device is None
            else DeviceExecutable(part, threads, opens=False, watch=self._watch)
            for part in program.parts
        ]
        self._specs: dict[int, TensorSpec] = {}  # of values on the device
        self._memory: dict[int, Any] = {}  # of the same values
        self._check_steps()
        self.threads = max((e.threads for e in self._executables), default=threads or 1)
        self._is_open = False
        if is_there(program.target):
            self.open()

    def open(self) -> None:
        """Make the parts on the device ready to run, if that has not happened yet.

        Raises DeviceError if there is no device, or if it has not enough memory.
        """
        if self._is_open:
            return
        for call, exe in zip(self._calls, self._executables, strict=True):
            if not isinstance(exe, DeviceExecutable):
                continue
            exe.open({i: self._memory[a] for i, a in enumerate(call.inputs) if a in self._memory})
            memory = (*exe.input_memory, *exe.output_memory)
            for place, found in zip((*call.inputs, *call.outputs), memory, strict=True):
                self._memory.setdefault(place, found)
        self._is_open = True

    def _start_over(self, program: Program) -> None:
        PartitionedExecutable.__init__(self, program, self.threads, self.limits)

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
        for step in self.program.transfers:
            if (step.to if step.to_device else step.source) not in self._specs:
                raise ModelError(f"the steps of the program do not fit its parts: {head(step)}")

    def _on_device(self, arrays: tuple[Any, ...], out: Any) -> Any:
        stored = self._stored(arrays)
        given = at_home(self.program, arrays, self._given(out))
        homes = {i for _, i in self.program.in_place}
        with self._lock:
            found = self._run(stored)
        specs = [
            s if s.dtype.is_host else TensorSpec(s.name, s.dtype, np.shape(r))
            for s, r in zip(self.outputs, found, strict=True)
        ]
        kept = [None if g is None else as_output(g, s) for g, s in zip(given, specs, strict=True)]
        check_apart(
            [
                (f"input {s.name!r}", a)
                for i, (s, a) in enumerate(zip(self.inputs, stored, strict=True))
                if i not in homes and not s.dtype.is_host
            ],
            [(f"output {s.name!r}", k) for s, k in zip(specs, kept, strict=True) if k is not None],
        )
        for k, r in zip(kept, found, strict=True):
            if k is not None:
                k[...] = as_stored(r)
        fresh = [
            to_torch(r) if any(map(is_torch, arrays)) and not s.dtype.is_host else r
            for r, s in zip(found, self.outputs, strict=True)
        ]
        results = tuple(
            f if g is None else beginning(g, np.shape(f)) for f, g in zip(fresh, given, strict=True)
        )
        return results[0] if self._single else results

    def _run(self, stored: Sequence[Any]) -> list[Any]:
        """The results, each an array of its own."""
        self.open()
        self._watch.start()
        values = self._inputs_of(stored)
        parts = iter(self._executables)
        for step in self.program.part_steps:
            if isinstance(step, PartCall):
                self._call_part(next(parts), step, values)
            elif isinstance(step, Transfer):
                self._transfer(step, values)
            else:
                assert isinstance(step, Results)
                return self._taken(step.values, values)
        raise InternalError("the program has no results")

    def _inputs_of(self, stored: Sequence[Any]) -> dict[int, Any]:
        """The first values: the inputs."""
        pairs = zip(stored, self.inputs, strict=True)
        views = (a if s.dtype.is_host else a.view(s.dtype.numpy) for a, s in pairs)
        return dict(enumerate(views))

    def _call_part(self, exe: Executable, step: PartCall, values: dict[int, Any]) -> None:
        if isinstance(exe, DeviceExecutable):
            exe.run_there()
            return
        found = exe(*(values[a] for a in step.inputs))
        results = (found,) if len(step.outputs) == 1 else found
        values.update(zip(step.outputs, results, strict=True))

    def _transfer(self, step: Transfer, values: dict[int, Any]) -> None:
        device = next(e for e in self._executables if isinstance(e, DeviceExecutable)).device
        place = step.to if step.to_device else step.source
        memory, spec = self._memory[place], self._specs[place]
        if step.to_device:
            device.write(memory, as_stored(values[step.source]))
            return
        values[step.to] = array = np.empty(spec.static_shape, spec.dtype.numpy)
        device.read(as_stored(array), memory)

    def _taken(self, places: Sequence[int], values: Mapping[int, Any]) -> list[Any]:
        """The results: inputs, and those of which there are two, are copied."""
        seen: set[int] = set()
        found: list[Any] = []
        for a in places:
            value = values[a]
            again = a < len(self.inputs) or a in seen
            found.append(value.copy() if again and isinstance(value, np.ndarray) else value)
            seen.add(a)
        return found

    @property
    def launches(self) -> dict[str, tuple[LaunchCall, ...]]:
        """The launches of each kernel of the device, by symbol."""
        exes = (e for e in self._executables if isinstance(e, DeviceExecutable))
        return {symbol: found for e in exes for symbol, found in e.launches.items()}

    def _timed(
        self, arrays: tuple[Any, ...], repeats: int, both: bool = False
    ) -> tuple[np.ndarray, np.ndarray, float]:
        stored = self._stored(arrays)
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
        return best, runs, whole

    def _timed_once(self, stored: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """The seconds of each call in one run, and how often it ran."""
        self.open()
        values = self._inputs_of(stored)
        parts = iter(self._executables)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for step in self.program.part_steps:
            if isinstance(step, Transfer):
                self._transfer(step, values)
            elif isinstance(step, PartCall):
                exe = next(parts)
                if isinstance(exe, DeviceExecutable):
                    seconds = exe.timed_there()
                    found.append((seconds, np.ones(len(seconds), np.int64)))
                    continue
                given = tuple(values[a] for a in step.inputs)
                self._call_part(exe, step, values)
                seconds, runs, _ = exe._timed(given, 1)
                found.append((seconds, runs[: len(seconds)]))
        all_seconds, all_runs = zip(*found) if found else ((np.zeros(0),), (np.zeros(0, int),))
        return np.concatenate(all_seconds), np.concatenate(all_runs)

    def trim(self) -> int:
        """Give memory that no call and no result of the parts uses back to the system."""
        return sum(e.trim() for e in self._executables)
