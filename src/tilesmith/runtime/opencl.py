"""Memory and kernels of OpenCL devices, through pyopencl."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import DeviceKernel
from tilesmith.codegen.opencl import devices
from tilesmith.codegen.opencl.emit import translation_unit
from tilesmith.support.errors import DeviceError, InternalError

from .device import Argument
from .limits import Watch

_EMPTY = "__kernel void nothing(void) {}"
"""A program that every driver's compiler accepts, unless it does not support the device at all."""

_COMPLETE = 0
"""`CL_COMPLETE`: the status of a finished command.  A failed command has a lower status."""


class OpenClDevice:
    """A device with a queue, in which commands run in order."""

    def __init__(self, number: int) -> None:
        self._cl = devices.package()
        self.device = devices.device(number)
        with self._errors("the device can't be used"):
            self._context = self._cl.Context([self.device])
            self._queue = self._cl.CommandQueue(self._context)
        self._watch = Watch(None)

    def within(self, watch: Watch) -> OpenClDevice:
        """The same device and queue, with waits that obey the time limit of `watch`."""
        device = copy(self)
        device._watch = watch
        return device

    def _wait_in_time(self) -> None:
        if not self._watch.is_set:
            return
        with self._errors("a kernel failed"):
            last = self._cl.enqueue_marker(self._queue)
            self._queue.flush()
            self._watch.wait(self.device.name, lambda: last.command_execution_status > _COMPLETE)
            if last.command_execution_status < _COMPLETE:
                last.wait()  # raises the errors of earlier commands

    def finish(self) -> None:
        """Wait until all commands are done."""
        self._wait_in_time()
        with self._errors("a kernel failed"):
            self._queue.finish()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """A context that raises DeviceError for errors of the driver."""
        try:
            yield
        except self._cl.MemoryError as e:
            total = self.device.global_mem_size
            raise DeviceError(
                f"{self.device.name} has not enough memory: {what}; it has {total} bytes in all; "
                f"use smaller sizes ({e})"
            ) from None
        except self._cl.Error as e:
            raise DeviceError(f"{self.device.name}: {what}: {e}") from None

    def build(self, text: str, optimise: bool = True) -> Any:
        """A compiled program.

        optimise: whether the driver's compiler optimises.

        Raises InternalError if the driver's compiler refuses this text, DeviceError if it refuses
        every text.
        """
        program, refusal = self._built(text, optimise)
        if not refusal:
            return program
        _, refuses_any = self._built(_EMPTY, optimise)
        if refuses_any:
            raise DeviceError(
                f"the OpenCL compiler of {self.device.name} can't build an empty kernel; install a "
                f"newer driver, or choose another one of `tilesmith doctor`:\n{refuses_any}"
            )
        raise InternalError(
            f"the OpenCL compiler of {self.device.name} refuses the generated text:\n{refusal}"
        )

    def _built(self, text: str, optimise: bool) -> tuple[Any, str]:
        """A compiled program, and the reason if the driver's compiler refuses it."""
        with self._errors("a program can't be built"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyopencl turns each compiler message into a warning
            program = self._cl.Program(self._context, text)
            try:
                options = ["-cl-std=CL1.2", *([] if optimise else ["-cl-opt-disable"])]
                program.build(options=options, cache_dir=False)
            except self._cl.RuntimeError as e:
                return program, str(e)
            return program, ""

    def load(self, kernels: Iterable[DeviceKernel]) -> Any:
        """A program of kernels (see `OpenDevice`)."""
        return self.build(translation_unit(kernels))

    def kernel(self, program: Any, symbol: str) -> Any:
        """A new kernel object for a kernel of a program.  The object stores the arguments of a
        launch.
        """
        with self._errors(f"there is no kernel {symbol}"):
            return self._cl.Kernel(program, symbol)

    def assembly(self, program: Any) -> str:
        """The driver's compiled form of a program (see `OpenDevice`)."""
        with self._errors("a program can't be read"):
            (binary,) = program.get_info(self._cl.program_info.BINARIES)
        try:
            return binary.decode("ascii")
        except UnicodeDecodeError:
            return f"{len(binary)} bytes of machine code for {self.device.name}"

    def empty(self, size: int) -> Any:
        """Uninitialised memory of `size` bytes.  Raises DeviceError if there is too little
        memory.
        """
        with self._errors(f"expected {size} bytes in one piece"):
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(size, 1))

    def write(self, memory: Any, array: np.ndarray) -> None:
        """Copy an array to the device."""
        if array.nbytes:
            self._wait_in_time()
            with self._errors(f"{array.nbytes} bytes can't be copied to it"):
                self._cl.enqueue_copy(self._queue, memory, array, is_blocking=True)

    def read(self, array: np.ndarray, memory: Any) -> None:
        """Copy device memory into an array, after all earlier commands are done."""
        if array.nbytes:
            self._wait_in_time()  # else a queued copy could run after a timeout
            with self._errors("a kernel failed, or its results can't be read"):
                self._cl.enqueue_copy(self._queue, array, memory, is_blocking=True)

    def prepared(
        self,
        kernel: Any,
        blocks: Sequence[int],
        threads: Sequence[int],
        args: Sequence[Argument],
        report: Any,
    ) -> Callable[[], None]:
        """A function that starts a kernel (see `OpenDevice`), with a kernel object of its own."""
        size = tuple(b * t for b, t in zip(blocks, threads, strict=True))
        kept: list[Any] = []  # pyopencl's kernel does not keep the memory of its arguments alive
        for a in args:
            if isinstance(a, tuple):
                kept += [a[0], np.int64(a[1])]
            elif a is None:
                kept += [None, np.int64(0)]
            else:
                kept.append(np.int64(a))
        kept.append(report)
        what = (
            f"{kernel.function_name} can't start {prod(blocks)} blocks of {prod(threads)} threads"
        )
        with self._errors(what):
            kernel.set_args(*kept)

        def start() -> None:
            if all(blocks) and kept:
                with self._errors(what):
                    self._cl.enqueue_nd_range_kernel(self._queue, kernel, size, tuple(threads))

        return start

    def copy(self, to: Any, end: int, source: Any, start: int, size: int) -> None:
        """Copy `size` bytes from byte `start` of `source` to byte `end` of `to`."""
        if size:
            with self._errors(f"{size} bytes can't be copied on it"):
                self._cl.enqueue_copy(
                    self._queue, to, source, byte_count=size, src_offset=start, dst_offset=end
                )


@lru_cache(maxsize=8)
def opened(number: int) -> OpenClDevice:
    """The device `number` of this machine.  Raises DeviceError if it does not exist or can't be
    used.
    """
    return OpenClDevice(number)
