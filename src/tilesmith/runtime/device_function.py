"""Kernels of devices as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import Kernel, LaunchCall
from tilesmith.ir.expr import Expr
from tilesmith.ir.target import Target

from .arguments import Arguments, KernelFunction, dimension
from .device import FAILURE_TYPE, Argument, OpenDevice, settle
from .devices import opened


class DeviceFunction(KernelFunction):
    """A kernel that runs on a device.  A call copies arrays to the device, and outputs back."""

    def __init__(
        self, kernel: Kernel, arguments: Arguments, target: Target, program: Any = None
    ) -> None:
        """Wrap a kernel.

        program: the loaded program; by default it is loaded at the first call.
        """
        super().__init__(kernel, arguments, target)
        assert kernel.parts is not None
        self._parts = kernel.parts
        self._given = program

    @property
    def _device(self) -> OpenDevice:
        return opened(self.target)

    @cached_property
    def _program(self) -> Any:
        return self._given or self._device.load([self._parts])

    def __call__(self, *args: Any) -> None:
        """Run on arrays (see `KernelFunction`).  Raises DeviceError if the device has not enough
        memory, or fails.
        """
        self.bind(*args)()

    def bind(self, *args: Any) -> Callable[[], None]:
        """A function that calls the kernel with these arguments (see `KernelFunction`).  All its
        calls use the same device memory.
        """
        arrays, values = self.arguments.checked(args)
        device = self._device
        own = {_place(a): device.empty(a.nbytes) for a in arrays}
        size = dimension(self.kernel.workspace_bytes_shared, values)
        failure = np.zeros((), FAILURE_TYPE)
        report = device.empty(failure.nbytes) if self.kernel.messages else None
        check = partial(settle, device, failure, report, self.kernel.symbol, self.kernel.messages)
        arguments: list[Argument] = [
            *((own[_place(arrays[i])], 0) for i in self.arguments.places),
            *(values[v] for v in self.arguments.scalars),
            (device.empty(size), 0) if size else None,
        ]
        launches = []
        for x in self._parts.launches:
            kernel, blocks = device.kernel(self._program, x.symbol), self._blocks(x, values)
            launches.append((x, device.prepared(kernel, blocks, x.threads, arguments, report)))

        def run() -> None:
            for a in arrays:  # outputs, too: a kernel may leave some elements unchanged
                device.write(own[_place(a)], a)
            if report is not None:
                failure[...] = 0
                device.write(report, failure)
            for launch, start in launches:
                start()
                if launch.stops and report is not None:
                    check()
            if report is not None:
                check()
            for a, written in zip(arrays, self.arguments.written, strict=True):
                if written:
                    device.read(a, own[_place(a)])

        return run

    def _blocks(self, launch: LaunchCall, values: Mapping[Expr, int]) -> list[int]:
        return [max(dimension(n, values), 0) for n in launch.blocks]

    @property
    def assembly(self) -> str:
        """The driver's compiled form of the program if it is text, else a note with its size."""
        return self._device.assembly(self._program)


def _place(array: np.ndarray) -> tuple[int, int]:
    """Address and bytes of an array's memory: equal for arguments that are the same array."""
    return array.ctypes.data, array.nbytes
