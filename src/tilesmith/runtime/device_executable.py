"""A compiled model that runs on a device.

Weights are copied to the device once, and values stay there: in one arena, as the memory plan says.
A call copies its inputs there and its outputs back, and nothing else.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilesmith.codegen.kernel import LaunchCall
from tilesmith.codegen.packed import unpacked
from tilesmith.ir.expr import Const
from tilesmith.program.nodes import Arg, Copy, KernelCall, Step
from tilesmith.support.errors import DeviceError, ModelError
from tilesmith.support.logs import logger

from .arrays import (
    as_output,
    as_stored,
    at_home,
    check,
    check_apart,
    check_count,
    is_torch,
    stored_dtype,
    to_numpy,
    to_torch,
)
from .cuda import CudaDevice, Event
from .device import FAILURE_TYPE, Argument, OpenDevice, failure_of
from .device_memory import DeviceMemory, check_memory, device_memory
from .devices import is_there, opened, shares_memory
from .executable import Executable
from .limits import UNLIMITED, Limits
from .program import Program
from .shared_memory import is_shared
from .watch import Watch

if TYPE_CHECKING:
    from .profile import Profile

_Steps: TypeAlias = "list[tuple[Step, list[Callable[[], None]]]]"
"""Steps with what each does, one function after the other."""

_KEPT = 8
"""Sets of callers' arrays of which the launches are kept."""


_log = logger("device")


def log_fallback(target: str, reason: DeviceError) -> None:
    """Say that the CPU computes what a device was to compute."""
    _log.warning('target %r: the CPU answers from now on (fallback="cpu"): %s', target, reason)


_late: set[UnpredictedExecutable] = set()
"""Executables whose kernels may still run: they keep the memory that these use."""


class UnpredictedExecutable(Executable):
    """An executable with kernels of a device: the performance model knows CPUs only."""

    limits: Limits = UNLIMITED

    stand_in: Callable[[], Executable] | None = None
    """Makes the executable for the CPU that answers once the device has failed; None: none does."""

    _cpu: Executable | None = None

    def __init__(self, program: Program, limits: Limits, watch: Watch | None = None) -> None:
        """watch: of the calls of which this executable is a part (default: its own).

        Raises DeviceError if the program needs more memory than the limit.
        """
        check_memory(program, limits.memory)
        self.program = program
        self.limits = limits
        self._watch = watch or Watch(limits.seconds)
        self._single = len(program.outputs) == 1
        self._host = None
        self._input_names = dict.fromkeys(s.name for s in program.inputs)
        self._defaults = program.default_arrays
        self._output_names = [s.name for s in program.outputs]
        self._lock = Lock()

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """As `Executable` says.

        Raises DeviceError too, if the device fails and no CPU answers in its place, or can't since
        arrays lie on the device.
        """
        if named or (self._defaults and len(arrays) < len(self.inputs)):
            arrays = self._in_places(arrays, named)
        if self._cpu is None:
            try:
                found = self._on_device(arrays, out)
                _late.discard(self)
                return found
            except DeviceError as e:
                if self.limits.seconds is not None:
                    _late.add(self)
                given = out if isinstance(out, (tuple, list)) else (out,)
                if self.stand_in is None or any(map(is_shared, (*arrays, *given))):
                    raise
                log_fallback(self.program.target.name, e)
                self._cpu = self.stand_in()
        return self._cpu(*arrays, out=out)

    def _become(self, program: Program) -> None:
        if self._cpu is not None:
            assert self.stand_in is not None
            self._cpu = self.stand_in()
        else:
            self._start_over(program)

    @abstractmethod
    def _start_over(self, program: Program) -> None:
        """Be made again, for another program and with the same limits."""

    @abstractmethod
    def _on_device(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """A call, as `Executable` says.  Raises DeviceError if the device fails."""

    @property
    def memory(self) -> DeviceMemory:
        """What the executable takes of the device's memory while it lives, in bytes.

        Arrays of callers, and what the driver itself needs, are not in it.
        """
        return device_memory(self.program)

    def __reduce__(self) -> tuple[Any, ...]:
        """What `pickle` writes: the contents of a `.tsm` file, and the limits."""
        return type(self), (self.program, self.threads, self.limits), {"recipe": self.recipe}

    def profile(self, *arrays: Any, repeats: int = 10) -> Profile:
        """The time of each kernel on the given inputs, the least of `repeats` runs."""
        from .profile import Profile, unpredicted

        best, runs, whole = self._timed(self._by_place(arrays), repeats, both=True)
        return Profile(unpredicted(self.program, best, runs), whole, self.threads)


class DeviceExecutable(UnpredictedExecutable):
    """An `Executable` whose kernels run on a device; see `Executable` for how it is called.

    Calls from several threads follow each other.
    """

    def __init__(
        self,
        program: Program,
        threads: int | None = None,
        limits: Limits = UNLIMITED,
        *,
        opens: bool = True,
        watch: Watch | None = None,
    ) -> None:
        """threads: is ignored, since the device has its own.
        limits: what the executable may take of the device.
        opens: whether to use the device at once; else `open` does.
        watch: of the calls of which this executable is a part (default: its own).

        A program for a device that this machine lacks can be kept, saved and shown; calls fail.

        Raises DeviceError if the device can't be used, or if the program needs more memory than it
        has, or than the limit.
        """
        super().__init__(program, limits, watch)
        self.threads = threads or 1
        self._kernels = {name: unpacked(name, code) for name, code in program.objects.items()}
        self._shared: dict[tuple[int, ...], _Steps] = {}
        self._last: Event | None = None  # comes when the last call on a caller's stream is done
        self._is_open = False
        if opens and is_there(program.target):
            self.open()

    def _start_over(self, program: Program) -> None:
        DeviceExecutable.__init__(self, program, self.threads, self.limits)

    @property
    def launches(self) -> dict[str, tuple[LaunchCall, ...]]:
        """The launches of each kernel, by symbol."""
        return {symbol: k.launches for symbol, k in self._kernels.items()}

    def open(self, there: Mapping[int, Any] | None = None) -> None:
        """Copy the weights to the device and load the kernels, if that has not happened yet.

        there: by number, memory of the device that an input has already.

        Raises DeviceError if there is no device, or if it has not enough memory.
        """
        if self._is_open:
            return
        program = self.program
        self.device = device = opened(program.target).within(self._watch)
        self._constants = device.empty(program.constants.nbytes)
        device.write(self._constants, program.constants)
        self._arena = device.empty(program.arena_bytes)
        given = there or {}
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
        self._built = device.load(self._kernels.values())
        self._steps = self._bound(device, self._inputs, self._outputs)
        self._is_open = True

    def _bound(self, device: OpenDevice, inputs: Sequence[Any], outputs: Sequence[Any]) -> _Steps:
        """What each step does.

        device: with the queue that runs it.
        inputs, outputs: memory of each.
        """

        def place(a: Arg) -> tuple[Any, int]:
            """Memory of the device, and bytes behind its beginning."""
            if a.kind in ("input", "output"):
                return (inputs if a.kind == "input" else outputs)[a.index], a.offset
            memory = self._constants if a.kind == "constant" else self._arena
            return memory, a.index + a.offset

        return [(s, self._made(s, device, place)) for s in self.program.steps]

    def _made(
        self, step: Step, device: OpenDevice, place: Callable[[Arg], tuple[Any, int]]
    ) -> list[Callable[[], None]]:
        """What a step does."""
        if isinstance(step, Copy):
            (source, start), (to, end) = place(step.source), place(step.to)
            assert isinstance(step.bytes, int)
            size = step.bytes
            return [lambda: device.copy(to, end, source, start, size)]
        assert isinstance(step, KernelCall)
        kernel = self._kernels[step.symbol]
        given: list[Argument] = [a.index if a.kind == "scalar" else place(a) for a in step.args]
        given.append(place(step.workspace))
        found: list[Callable[[], None]] = []
        for launch in kernel.launches:
            made = device.kernel(self._built, launch.symbol)  # its own: it keeps arguments
            blocks = [int(n.value) for n in launch.blocks if isinstance(n, Const)]
            found.append(device.prepared(made, blocks, launch.threads, given, self._report))
        if kernel.messages:
            found.append(lambda: self._settle(device, step, kernel.messages))
        return found

    def _settle(self, device: OpenDevice, call: KernelCall, messages: tuple[str, ...]) -> None:
        """Raises ModelError if a thread noted a failure."""
        device.read(self._failure, self._report)
        failure = failure_of(self._failure)
        if failure is not None:
            self._clear(device)
            raise ModelError(f"{call.label or call.symbol}: {failure.text(messages)}")

    def _clear(self, device: OpenDevice) -> None:
        self._failure[...] = 0
        device.write(self._report, self._failure)

    def _on_device(self, arrays: tuple[Any, ...], out: Any) -> Any:
        if shares_memory(self.program.target):
            given = [g for g in self._given(out) if g is not None]
            if any(map(is_shared, (*arrays, *given))):
                return self._call_there(arrays, out)
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

    def _call_there(self, arrays: Sequence[Any], out: Any) -> Any:
        """As a call, with arrays of which some lie on the device."""
        from .shared_call import SharedCall  # few programs are called so

        check_count(arrays, self.inputs)
        with self._lock:
            self.open()
            self._watch.start()
            assert isinstance(self.device, CudaDevice)
            own = self._inputs, self._outputs
            call = SharedCall(self.program, self.device, arrays, self._given(out), own)
            device = call.device
            self._wait_for_last(device)
            call.copy_in()
            key = device.stream, *(m.address for m in (*call.inputs, *call.outputs))
            if key not in self._shared:
                if len(self._shared) == _KEPT:
                    del self._shared[next(iter(self._shared))]
                self._shared[key] = self._bound(device, call.inputs, call.outputs)
            self._start(device, self._shared[key])
            found = call.copy_out()
            self._last = device.mark()
        return found[0] if self._single else found

    def _run(self, stored: tuple[np.ndarray, ...], results: list[np.ndarray]) -> None:
        self.open()
        self._watch.start()
        self._wait_for_last(self.device)
        for memory, array in zip(self._inputs, stored, strict=True):
            self.device.write(memory, array)
        self.run_there()
        if self.program.in_place:
            self.device.finish()  # what fails does so before an input's array is written
        for memory, array in zip(self._outputs, results, strict=True):
            self.device.read(array, memory)

    def _wait_for_last(self, device: OpenDevice) -> None:
        """Let a call begin when the last one on a caller's stream is done with the memory."""
        if self._last is not None:
            assert isinstance(device, CudaDevice)
            device.after(self._last)
            self._last = None

    def run_there(self) -> None:
        """Run the kernels, from inputs that lie on the device, and leave the outputs there."""
        self.open()
        self._start(self.device, self._steps)

    def _start(self, device: OpenDevice, steps: _Steps) -> None:
        if any(k.messages for k in self._kernels.values()):
            self._clear(device)
        for _, starts in steps:
            for start in starts:
                start()

    def timed_there(self) -> np.ndarray:
        """Run the kernels as `run_there` does, one after the other.  Returns the seconds of each
        call by the clock of the host, from its start to its end.
        """
        self.open()
        self._watch.start()
        self._clear(self.device)
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
        check_count(arrays, self.inputs)
        found = []
        for given, spec in zip(arrays, self.inputs, strict=True):
            array = to_numpy(given, f"input {spec.name!r}", spec.dtype)
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
