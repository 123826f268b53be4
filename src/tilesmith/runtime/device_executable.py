"""A compiled model that runs on a device.

Weights are copied to the device once, and values stay there: in one arena, as the memory plan says.
A call copies its inputs there and its outputs back, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesmith.codegen.kernel import DeviceKernel
from tilesmith.codegen.packed import unpacked
from tilesmith.codegen.steps import Arg, Copy, KernelCall, Step
from tilesmith.ir.expr import Const
from tilesmith.support.errors import ModelError

from .arrays import (
    as_output,
    as_stored,
    at_home,
    check,
    check_apart,
    is_torch,
    listing,
    stored_dtype,
    to_numpy,
    to_torch,
)
from .device import FAILURE_TYPE, Argument, failure_of
from .devices import is_there, opened
from .executable import Executable
from .program import Program

if TYPE_CHECKING:
    from .profile import Profile


class UnpredictedExecutable(Executable):
    """An executable with kernels of a device: the performance model knows CPUs only."""

    def profile(self, *arrays: Any, repeats: int = 10) -> Profile:
        """The time of each kernel on the given inputs, the least of `repeats` runs."""
        from .profile import Profile, unpredicted

        best, runs, whole = self._timed(arrays, repeats, both=True)
        return Profile(unpredicted(self.program, best, runs), whole, self.threads)


class DeviceExecutable(UnpredictedExecutable):
    """An `Executable` whose kernels run on a device; see `Executable` for how it is called.

    Calls from several threads follow each other.
    """

    def __init__(
        self,
        program: Program,
        threads: int | None = None,
        there: Mapping[int, Any] | None = None,
    ) -> None:
        """threads: is ignored, since the device has its own.
        there: by number, memory of the device that an input has already.

        A program for a device that this machine lacks can be kept, saved and shown; calls fail.

        Raises DeviceError if the device can't be used, or if it has not enough memory.
        """
        self.program = program
        self.threads = threads or 1
        self._single = len(program.outputs) == 1
        self._host = None
        self._input_names = dict.fromkeys(s.name for s in program.inputs)
        self._output_names = [s.name for s in program.outputs]
        self._lock = Lock()
        self._given_memory = dict(there or {})
        self._is_open = False
        if is_there(program.target):
            self.open()

    def open(self) -> None:
        """Copy the weights to the device and load the kernels, if that has not happened yet.

        Raises DeviceError if there is no device, or if it has not enough memory.
        """
        if self._is_open:
            return
        program = self.program
        self.device = device = opened(program.target)
        self._constants = device.empty(program.constants.nbytes)
        device.write(self._constants, program.constants)
        self._arena = device.empty(program.arena_bytes)
        given = self._given_memory
        self._inputs = [
            given[i] if i in given else device.empty(s.bytes) for i, s in enumerate(program.inputs)
        ]
        homes = dict(program.in_place)
        self._outputs = [
            self._inputs[homes[i]] if i in homes else device.empty(s.bytes)
            for i, s in enumerate(program.outputs)
        ]
        self._failure = np.zeros((), FAILURE_TYPE)
        self._report = device.empty(self._failure.nbytes)
        kernels = {name: unpacked(name, code) for name, code in program.objects.items()}
        built = device.load(kernels.values())
        self.launches = {symbol: k.launches for symbol, k in kernels.items()}
        self._steps = [(s, self._made(s, kernels, built)) for s in program.steps]
        self._is_open = True

    def _place(self, a: Arg) -> tuple[Any, int]:
        """Memory of the device, and bytes behind its beginning."""
        if a.kind == "input":
            return self._inputs[a.index], a.offset
        if a.kind == "output":
            return self._outputs[a.index], a.offset
        memory = self._constants if a.kind == "constant" else self._arena
        return memory, a.index + a.offset

    def _made(
        self, step: Step, kernels: Mapping[str, DeviceKernel], built: Any
    ) -> list[Callable[[], None]]:
        """What a step does.

        built: the program with all kernels.
        """
        device = self.device
        if isinstance(step, Copy):
            (source, start), (to, end) = self._place(step.source), self._place(step.to)
            assert isinstance(step.bytes, int)
            size = step.bytes
            return [lambda: device.copy(to, end, source, start, size)]
        assert isinstance(step, KernelCall)
        kernel = kernels[step.symbol]
        given: list[Argument] = [
            a.index if a.kind == "scalar" else self._place(a) for a in step.args
        ]
        given.append(self._place(step.workspace))
        found: list[Callable[[], None]] = []
        for launch in kernel.launches:
            made = device.kernel(built, launch.symbol)
            blocks = [int(n.value) for n in launch.blocks if isinstance(n, Const)]
            found.append(device.prepared(made, blocks, launch.threads, given, self._report))
        if kernel.messages:
            found.append(lambda: self._settle(step, kernel.messages))
        return found

    def _settle(self, call: KernelCall, messages: tuple[str, ...]) -> None:
        """Raises ModelError if a thread noted a failure."""
        self.device.read(self._failure, self._report)
        failure = failure_of(self._failure)
        if failure is not None:
            self._clear()
            raise ModelError(f"{call.label or call.symbol}: {failure.text(messages)}")

    def _clear(self) -> None:
        self._failure[...] = 0
        self.device.write(self._report, self._failure)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """As `Executable` says.  Raises DeviceError too, if the device fails."""
        stored = self._stored(arrays)
        given = at_home(self.program, arrays, self._given(out))
        kept = [
            None if g is None else as_output(g, s) for g, s in zip(given, self.outputs, strict=True)
        ]
        homes = {i for _, i in self.program.in_place}
        named = [(f"input {s.name!r}", a) for s, a in zip(self.inputs, stored, strict=True)]
        check_apart(
            [n for i, n in enumerate(named) if i not in homes],
            [(f"output {s.name!r}", k) for s, k in zip(self.outputs, kept) if k is not None],
        )
        results = [
            np.empty(s.static_shape, stored_dtype(s.dtype)) if k is None else k
            for s, k in zip(self.outputs, kept, strict=True)
        ]
        with self._lock:
            self._run(stored, results)
        typed = [r.view(s.dtype.numpy) for r, s in zip(results, self.outputs, strict=True)]
        fresh = map(to_torch, typed) if any(map(is_torch, arrays)) else typed
        found = tuple(f if g is None else g for f, g in zip(fresh, given, strict=True))
        return found[0] if self._single else found

    def _run(self, stored: tuple[np.ndarray, ...], results: list[np.ndarray]) -> None:
        self.open()
        for memory, array in zip(self._inputs, stored, strict=True):
            self.device.write(memory, array)
        self.run_there()
        for memory, array in zip(self._outputs, results, strict=True):
            self.device.read(array, memory)

    def run_there(self) -> None:
        """Run the kernels, from inputs that lie on the device, and leave the outputs there."""
        self.open()
        self._clear()
        for _, starts in self._steps:
            for start in starts:
                start()

    def timed_there(self) -> np.ndarray:
        """Run the kernels as `run_there` does, one after the other.  Returns the seconds of each
        call by the clock of the host, from its start to its end.
        """
        self.open()
        self._clear()
        seconds: list[float] = []
        for step, starts in self._steps:
            self.device.read(self._failure, self._report)  # waits for all that came before
            begin = time.perf_counter()
            for start in starts:
                start()
            self.device.read(self._failure, self._report)
            if isinstance(step, KernelCall):
                seconds.append(time.perf_counter() - begin)
        return np.array(seconds)

    @property
    def input_memory(self) -> tuple[Any, ...]:
        """Memory of the device, for each input."""
        self.open()
        return tuple(self._inputs)

    @property
    def output_memory(self) -> tuple[Any, ...]:
        """Memory of the device, for each output."""
        self.open()
        return tuple(self._outputs)

    def _stored(self, arrays: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        if len(arrays) != len(self.inputs):
            raise ModelError(
                f"expected {len(self.inputs)} inputs ({listing(self.inputs)}), found {len(arrays)}"
            )
        found = []
        for given, spec in zip(arrays, self.inputs, strict=True):
            array = to_numpy(given, f"input {spec.name!r}")
            check(array, spec, "input")
            found.append(as_stored(array))
        return tuple(found)

    def trim(self) -> int:
        """Nothing: memory of the device belongs to the executable."""
        return 0

    def _timed(
        self, arrays: tuple[Any, ...], repeats: int, both: bool = False
    ) -> tuple[np.ndarray, np.ndarray, float]:
        self.open()
        stored = self._stored(arrays)
        results = [np.empty(s.static_shape, stored_dtype(s.dtype)) for s in self.outputs]
        best = np.full(len(self.program.calls), np.inf)
        whole = float("inf")
        with self._lock:
            for _ in range(max(repeats, 1)):
                for memory, array in zip(self._inputs, stored, strict=True):
                    self.device.write(memory, array)
                best = np.minimum(best, self.timed_there())
                start = time.perf_counter()
                if both:
                    self._run(stored, results)
                whole = min(whole, time.perf_counter() - start)
        return best, np.ones(len(best), np.int64), whole
