"""TVM's arrays: NumPy's, with the methods that scripts call."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype

from .runtime import Device, cpu, cuda, device, gpu

__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty", "gpu"]


class NDArray(np.ndarray):
    """An array of the host."""

    @property
    def device(self) -> Any:  # NumPy's own is the text "cpu"
        """The CPU: all arrays are in the host's memory."""
        return cpu()

    ctx = device

    def numpy(self) -> np.ndarray:
        """A copy as a plain array of NumPy."""
        return np.array(self, copy=True, subok=False)

    asnumpy = numpy

    def copyfrom(self, source_array: Any) -> NDArray:
        self[...] = np.asarray(source_array).reshape(self.shape)
        return self

    def copyto(self, target: Any) -> NDArray:
        """Copy to the array `target`, or to a new array if `target` is a device."""
        return array(self) if isinstance(target, Device) else target.copyfrom(self)


def array(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """A copy of `arr` in row-major order."""
    return np.array(arr, order="C", copy=True).view(NDArray)


def empty(
    shape: Any,
    dtype: str | DType = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """An array whose elements are not set."""
    return np.empty(shape, to_dtype(dtype).numpy).view(NDArray)
