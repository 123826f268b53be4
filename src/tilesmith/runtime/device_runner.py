"""A compiled model that runs on a device.

Weights are copied to the device once.  Intermediate values stay on the device, in one arena with
the offsets of the memory plan.  A call copies only its inputs and outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from tilesmith.codegen.packed import unpacked
from tilesmith.ir.expr import Const
from tilesmith.program.nodes import KernelCall
from tilesmith.program.run import Actions, Address, Memories, Run

from .arrays import at_home, check_count, stored_dtype
from .cuda import CudaDevice, Event
from .device import FAILURE_TYPE, Argument, OpenDevice, settle
from .device_memory import check_memory
from .devices import is_there, opened, shares_memory
from .given import stored_inputs
from .limits import UNLIMITED, Limits, Watch
from .program import Program
from .runner import Runner, Times, as_given, given_outputs, kept_outputs
from .shared_memory import is_shared

_Steps: TypeAlias = "list[tuple[KernelCall | None, list[Callable[[], None]]]]"
"""The steps in order: the kernel call (None for a copy), and the functions that run the step."""

_KEPT = 8
"""Upper bound on the number of sets of callers' arrays for which prepared launches are cached."""


class DeviceRunner(Runner):
    """A program whose kernels run on a device.

    Calls from several threads run one after the other.
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
        """threads: ignored, since the device has its own.
        limits: limits for the device's memory and time.
        opens: whether to open the device now instead of in `open`.
        watch: measures the time of calls; parts of one program share a watch (default: a new one).

        If this machine lacks the device, the program can still be kept, saved and shown, but not
        called.

        Raises DeviceError if the device can't be used, or if the program needs more memory than the
        device or the limit allows.
        """
        check_memory(program, limits.memory)
        self.program, self.threads, self.limits = program, threads or 1, limits
        self._watch = watch or Watch(limits.seconds)
        self._lock = Lock()
        self._kernels = {name: unpacked(name, code) for name, code in program.objects.items()}
        self._shared: dict[tuple[int, ...], _Steps] = {}
        self._last: Event | None = None  # completes when the last call on a caller's stream is done
        self._is_open = False
        if opens and is_there(program.target):
            self.open()

    def open(self, there: Mapping[int, Any] | None = None) -> None:
        """Copy the weights to the device and load the kernels, unless this was done before.

        there: by input number, device memory that the input already has.

        Raises DeviceError if there is no device, or if the device has not enough memory.
        """
        if self._is_open:
            return
        program = self.program
        self.device = device = opened(program.target).within(self._watch)
        self._constants = device.empty(program.constants.nbytes)
        device.write(self._constants, program.constants)
        self._arena = device.empty(program.arena_bytes)
        memory = there or {}
        self._inputs = [
            memory[i] if i in memory else device.empty(s.bytes)
            for i, s in enumerate(program.inputs)
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
        """The steps with the functions that run them.

        device: the device with the queue for the steps.
        inputs, outputs: the memory of each input and of each output.
        """
        steps: _Steps = []

        def copy(source: Address, to: Address, size: int) -> None:
            steps.append((None, [partial(device.copy, *to, *source, size)]))

        def call(step: KernelCall, args: Sequence[Argument]) -> None:
            kernel = self._kernels[step.symbol]
            starts: list[Callable[[], None]] = []
            for launch in kernel.launches:
                # Each launch needs its own kernel object, since the object stores the arguments.
                made = device.kernel(self._built, launch.symbol)
                blocks = [int(n.value) for n in launch.blocks if isinstance(n, Const)]
                starts.append(device.prepared(made, blocks, launch.threads, args, self._report))
            if kernel.messages:
                name = step.label or step.symbol
                starts.append(
                    partial(settle, device, self._failure, self._report, name, kernel.messages)
                )
            steps.append((step, starts))

        memories: Memories = {("constant", 0): self._constants, ("arena", 0): self._arena}
        memories |= {("input", i): memory for i, memory in enumerate(inputs)}
        memories |= {("output", i): memory for i, memory in enumerate(outputs)}
        Run(Actions(copy, kernel=call), memories).steps(self.program.steps)
        return steps

    def _clear(self, device: OpenDevice) -> None:
        self._failure[...] = 0
        device.write(self._report, self._failure)

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """Run the program (see `Runner`).  Raises DeviceError if the device fails."""
        outs = given_outputs(self.program.outputs, out)
        is_on_device = shares_memory(self.program.target) and any(
            is_shared(a) for a in (*arrays, *outs) if a is not None
        )
        if is_on_device:
            return self._call_there(arrays, outs)
        stored, outputs = stored_inputs(self.program, arrays), self.program.outputs
        outs = at_home(self.program, arrays, outs)
        kept = kept_outputs(self.program, stored, outs, outputs)
        results = [
            np.empty(s.static_shape, stored_dtype(s.dtype)) if k is None else k
            for s, k in zip(outputs, kept, strict=True)
        ]
        with self._lock:
            self._run(stored, results)
        typed = [r.view(s.dtype.numpy) for r, s in zip(results, outputs, strict=True)]
        return as_given(typed, outs, arrays)

    def _call_there(self, arrays: Sequence[Any], given: Sequence[Any]) -> Any:
        """Run the program on arrays of which some are on the device."""
        from .shared_call import SharedCall  # imported late: few programs need it

        check_count(arrays, self.program.inputs)
        with self._lock:
            self.open()
            self._watch.start()
            assert isinstance(self.device, CudaDevice)
            own = self._inputs, self._outputs
            call = SharedCall(self.program, self.device, arrays, given, own)
            device = call.device
            self._wait_for_last(device)
            call.copy_in()
            key = device.stream, *(m.address for m in (*call.inputs, *call.outputs))
            if key not in self._shared:
                if len(self._shared) == _KEPT:
                    del self._shared[next(iter(self._shared))]
                self._shared[key] = self._bound(device, call.inputs, call.outputs)
            self._start(device, self._shared[key])
            results = call.copy_out()
            self._last = device.mark()
        return results[0] if len(results) == 1 else results

    def _run(self, stored: tuple[np.ndarray, ...], results: list[np.ndarray]) -> None:
        self.open()
        self._watch.start()
        self._wait_for_last(self.device)
        for memory, array in zip(self._inputs, stored, strict=True):
            self.device.write(memory, array)
        self.run_there()
        if self.program.in_place:
            self.device.finish()  # report failures before an input's array is written
        for memory, array in zip(self._outputs, results, strict=True):
            self.device.read(array, memory)

    def _wait_for_last(self, device: OpenDevice) -> None:
        """Wait until the last call on a caller's stream no longer uses the memory."""
        if self._last is not None:
            assert isinstance(device, CudaDevice)
            device.after(self._last)
            self._last = None

    def run_there(self) -> None:
        """Run the kernels on inputs that are on the device, and leave the outputs there."""
        self.open()
        self._start(self.device, self._steps)

    def _start(self, device: OpenDevice, steps: _Steps) -> None:
        if any(k.messages for k in self._kernels.values()):
            self._clear(device)
        for _, starts in steps:
            for start in starts:
                start()

    def timed_there(self) -> np.ndarray:
        """Run the kernels like `run_there`, one after the other.  Returns the seconds of each call,
        from start to end, by the host's clock.
        """
        self.open()
        self._watch.start()
        self._clear(self.device)
        seconds: list[float] = []
        for step, starts in self._steps:
            self.device.read(self._failure, self._report)  # this waits for all earlier commands
            begin = time.perf_counter()
            for start in starts:
                start()
            self.device.read(self._failure, self._report)
            if step is not None:
                seconds.append(time.perf_counter() - begin)
        return np.array(seconds)

    @property
    def memory(self) -> tuple[Any, ...]:
        """The device memory of each input, then of each output."""
        self.open()
        return (*self._inputs, *self._outputs)

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        self.open()
        stored = stored_inputs(self.program, arrays)
        results = [np.empty(s.static_shape, stored_dtype(s.dtype)) for s in self.program.outputs]
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
        return Times(best, np.ones(len(best), np.int64), whole)
