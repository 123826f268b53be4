"""The interface of an open device, independent of its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from tilesmith.codegen.context import BY_NAME, SIZE, VALUES
from tilesmith.codegen.kernel import DeviceKernel
from tilesmith.support.errors import ModelError

from .limits import Watch
from .native import Failure

FAILURE_TYPE = np.dtype(
    [("code", "i4"), ("call", "i4"), ("assertion", "i4"), ("count", "i4"), ("values", "i8", VALUES)]
)
"""The record of a kernel's first failure.  It consists of the last fields of the context
(`codegen.context`).
"""

assert FAILURE_TYPE.itemsize == SIZE - BY_NAME["failure_code"].offset

Argument: TypeAlias = "tuple[Any, int] | int | None"
"""An argument of a kernel: memory of the device and an offset in bytes, a number, or no memory."""


class OpenDevice(Protocol):
    """A device with a queue, in which commands run in order.

    Its methods raise DeviceError for errors that the driver reports.
    """

    def load(self, kernels: Iterable[DeviceKernel]) -> Any:
        """A program of kernels, ready to run.

        Raises InternalError if the driver refuses the generated text.
        """
        ...

    def kernel(self, program: Any, symbol: str) -> Any:
        """A kernel of a program."""
        ...

    def empty(self, size: int) -> Any:
        """Uninitialised memory of `size` bytes.  Raises DeviceError if there is too little
        memory.
        """
        ...

    def write(self, memory: Any, array: np.ndarray) -> None:
        """Copy an array to the device."""
        ...

    def read(self, array: np.ndarray, memory: Any) -> None:
        """Copy device memory into an array, after all earlier commands are done."""
        ...

    def copy(self, to: Any, end: int, source: Any, start: int, size: int) -> None:
        """Copy device memory: `size` bytes from byte `start` of `source` to byte `end` of `to`."""
        ...

    def prepared(
        self,
        kernel: Any,
        blocks: Sequence[int],
        threads: Sequence[int],
        args: Sequence[Argument],
        report: Any,
    ) -> Callable[[], None]:
        """A function that starts a kernel.  If the launch has no blocks, it does nothing.

        report: device memory for a record of `FAILURE_TYPE`.
        """
        ...

    def within(self, watch: Watch) -> Self:
        """The same device and queue, with waits that obey the time limit of `watch`."""
        ...

    def finish(self) -> None:
        """Wait until all commands are done."""
        ...

    def assembly(self, program: Any) -> str:
        """The driver's compiled form of a program if it is text, else a note with its size."""
        ...


def failure_of(noted: np.ndarray) -> Failure | None:
    """The failure that a thread recorded in an array of `FAILURE_TYPE`; None if there is none."""
    code, _, assertion, count, values = noted.tolist()
    return Failure(code, 0, assertion, tuple(values[:count])) if code else None


def settle(
    device: OpenDevice, noted: np.ndarray, report: Any, name: str, messages: Sequence[str]
) -> None:
    """Copy the device memory `report` to the array `noted`.  Raises ModelError if a thread has
    recorded a failure there.
    """
    device.read(noted, report)
    if (failure := failure_of(noted)) is not None:
        raise ModelError(f"{name}: {failure.text(messages)}")
