"""Kernels on OpenCL devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import Kernel, LaunchCall
from tilesmith.codegen.opencl import devices
from tilesmith.codegen.opencl.prelude import FAILURE
from tilesmith.ir.expr import Expr
from tilesmith.ir.target import Target
from tilesmith.support.errors import DeviceError, InternalError, ModelError

from .arguments import Arguments, KernelFunction, dimension
from .native import Failure

FAILURE_TYPE = np.dtype([("codes", *FAILURE[0]), ("values", *FAILURE[1])])


def failure_of(noted: np.ndarray) -> Failure | None:
    """What a thread noted in memory of `FAILURE_TYPE`, if one did."""
    code, assertion, count, _ = noted["codes"].tolist()
    return Failure(code, 0, assertion, tuple(noted["values"].tolist()[:count])) if code else None


class OpenClDevice:
    """A device with a queue, in which commands run in order."""

    def __init__(self, number: int) -> None:
        self._cl = devices.package()
        self.device = devices.device(number)
        with self._errors("the device can't be used"):
            self._context = self._cl.Context([self.device])
            self._queue = self._cl.CommandQueue(self._context)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raises DeviceError for what the driver reports."""
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

    def build(self, text: str) -> Any:
        """A program.

        Raises InternalError if the driver's compiler refuses the text.
        """
        with self._errors("a program can't be built"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyopencl turns each message of a compiler into one
            program = self._cl.Program(self._context, text)
            try:
                program.build(options=["-cl-std=CL1.2"], cache_dir=False)
            except self._cl.RuntimeError as e:
                raise InternalError(
                    f"the OpenCL compiler of {self.device.name} refuses the generated text:\n{e}"
                ) from None
            return program

    def kernel(self, program: Any, name: str) -> Any:
        """A kernel of a program."""
        with self._errors(f"there is no kernel {name}"):
            return self._cl.Kernel(program, name)

    def binary(self, program: Any) -> str:
        """What the driver made of a program, if that is text; else its size."""
        with self._errors("a program can't be read"):
            (found,) = program.get_info(self._cl.program_info.BINARIES)
        try:
            return found.decode("ascii")
        except UnicodeDecodeError:
            return f"{len(found)} bytes of machine code for {self.device.name}"

    def empty(self, size: int) -> Any:
        """Uninitialised memory of so many bytes.  Raises DeviceError if there is not so much."""
        with self._errors(f"expected {size} bytes in one piece"):
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(size, 1))

    def write(self, memory: Any, array: np.ndarray) -> None:
        """Copy an array to the device."""
        if array.nbytes:
            with self._errors(f"{array.nbytes} bytes can't be copied to it"):
                self._cl.enqueue_copy(self._queue, memory, array, is_blocking=True)

    def read(self, array: np.ndarray, memory: Any) -> None:
        """Copy memory of the device into an array, once everything before it is done."""
        if array.nbytes:
            with self._errors("a kernel failed, or its results can't be read"):
                self._cl.enqueue_copy(self._queue, array, memory, is_blocking=True)

    def prepared(
        self, kernel: Any, blocks: Sequence[int], threads: Sequence[int], args: Sequence[Any]
    ) -> Callable[[], None]:
        """A function that starts a kernel of its own; without any blocks there is nothing to do."""
        size = tuple(b * t for b, t in zip(blocks, threads, strict=True))
        what = (
            f"{kernel.function_name} can't start {prod(blocks)} blocks of {prod(threads)} threads"
        )
        with self._errors(what):
            kernel.set_args(*args)

        kept = tuple(args)  # a kernel does not keep the memory that it is given

        def start() -> None:
            if all(blocks) and kept:
                with self._errors(what):
                    self._cl.enqueue_nd_range_kernel(self._queue, kernel, size, tuple(threads))

        return start

    def copy(self, to: Any, end: int, source: Any, start: int, size: int) -> None:
        """Copy memory of the device, so many bytes behind the beginnings."""
        if size:
            with self._errors(f"{size} bytes can't be copied on it"):
                self._cl.enqueue_copy(
                    self._queue, to, source, byte_count=size, src_offset=start, dst_offset=end
                )


@lru_cache(maxsize=8)
def opened(number: int) -> OpenClDevice:
    """A device of this machine.  Raises DeviceError if there is none, or it can't be used."""
    return OpenClDevice(number)


class DeviceFunction(KernelFunction):
    """A kernel that runs on a device: arrays are copied there, and the outputs back."""

    def __init__(
        self, kernel: Kernel, arguments: Arguments, target: Target, program: Any = None
    ) -> None:
        """program: what `OpenClDevice.build` made of the kernel's text; by default it is built when
        it is first needed.
        """
        super().__init__(kernel, arguments, target)
        assert target.device is not None
        assert kernel.parts is not None
        self._launches = kernel.parts.launches
        self._number = target.device.number
        self._given = program

    @property
    def _device(self) -> OpenClDevice:
        return opened(self._number)

    @cached_property
    def _program(self) -> Any:
        return self._given or self._device.build(self.kernel.text)

    def _made_kernels(self) -> dict[str, Any]:
        """The kernels, which will keep arguments."""
        symbols = [x.symbol for x in self._launches]
        return {s: self._device.kernel(self._program, s) for s in symbols}

    def __call__(self, *args: Any) -> None:
        """As `KernelFunction` says.  Raises DeviceError if the device has not enough memory, or
        fails.
        """
        self.bind(*args)()

    def bind(self, *args: Any) -> Callable[[], None]:
        """As `KernelFunction` says, with memory on the device that every call uses again."""
        arrays, values = self.arguments.checked(args)
        device, kernels = self._device, self._made_kernels()
        own = {_place(a): device.empty(a.nbytes) for a in arrays}
        size = dimension(self.kernel.workspace_bytes_shared, values)
        failure = np.zeros((), FAILURE_TYPE)
        report = device.empty(failure.nbytes) if self.kernel.messages else None
        given = [
            *(x for i in self.arguments.places for x in (own[_place(arrays[i])], np.int64(0))),
            *(np.int64(values[v]) for v in self.arguments.scalars),
            device.empty(size) if size else None,
            np.int64(0),
            report,
        ]
        launches = [
            (x, device.prepared(kernels[x.symbol], self._blocks(x, values), x.threads, given))
            for x in self._launches
        ]

        def run() -> None:
            for a in arrays:  # a kernel may leave elements of an output as they are
                device.write(own[_place(a)], a)
            if report is not None:
                failure[...] = 0
                device.write(report, failure)
            for launch, start in launches:
                start()
                if launch.stops and report is not None:
                    self._settle(report, failure)
            if report is not None:
                self._settle(report, failure)
            for a, written in zip(arrays, self.arguments.written, strict=True):
                if written:
                    device.read(a, own[_place(a)])

        return run

    def _blocks(self, launch: LaunchCall, values: Mapping[Expr, int]) -> list[int]:
        return [max(dimension(n, values), 0) for n in launch.blocks]

    def _settle(self, report: Any, failure: np.ndarray) -> None:
        """Raises ModelError if a thread noted a failure."""
        self._device.read(failure, report)
        found = failure_of(failure)
        if found is not None:
            raise ModelError(f"{self.kernel.symbol}: {found.text(self.kernel.messages)}")

    @property
    def assembly(self) -> str:
        """What the driver's compiler made of the program, if that is text; else its size."""
        return self._device.binary(self._program)


def _place(array: np.ndarray) -> tuple[int, int]:
    """Which memory an array is: two arguments may be the same."""
    return array.ctypes.data, array.nbytes
