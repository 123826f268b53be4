"""Detection of callers' arrays that share memory with an array that is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import is_torch

_WORK = 10_000
"""Upper bound on the steps of the search for a common byte.  If it is exceeded, the arrays count as
overlapping.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The memory layout of an array.

    address: address of the first element.
    shape: extents.
    strides: strides in bytes.
    itemsize: bytes of an element.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The address of the first byte, and the address after the last byte."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        before = sum(s for s in steps if s < 0)
        return self.address + before, self.address + sum(steps) - before + self.itemsize

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The layout in NumPy's array interface; no memory is read."""
        return {
            "version": 3,
            "data": (self.address, True),
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"|V{self.itemsize}",
        }

    def meets(self, other: Place) -> bool:
        """Whether the two arrays have a byte in common."""
        try:
            return np.shares_memory(
                np.asarray(self),
                np.asarray(other),
                max_work=_WORK,  # type: ignore[arg-type]  # any number of 1 or more
            )
        except np.exceptions.TooHardError:
            return True


def _never(first: int, second: int) -> bool:
    del first, second
    return False


def shared(
    arrays: Sequence[Any],
    written: Collection[int],
    allowed: Callable[[int, int], bool] = _never,
) -> tuple[int, int] | None:
    """The indices of a written array and of another array that overlaps it; None if no arrays
    overlap.  Only NumPy arrays and torch tensors, on any device, are checked.

    written: indices of the written arrays.
    allowed: whether two arrays, given by index, may share memory.
    """
    bounds = sorted(_bounds(arrays, written))
    end_of_any = end_of_written = 0
    for start, end, is_written in bounds:
        if start < (end_of_any if is_written else end_of_written):
            return _pair(arrays, written, allowed)
        end_of_any = max(end_of_any, end)
        if is_written:
            end_of_written = max(end_of_written, end)
    return None


def _bounds(arrays: Sequence[Any], written: Collection[int]) -> list[tuple[int, int, bool]]:
    """For each array that is not empty, the bounds of its memory and whether it is written."""
    torch, bounds = sys.modules.get("torch"), []
    tensor, strided = ((), None) if torch is None else (torch.Tensor, torch.strided)
    for i, x in enumerate(arrays):
        # Most tensors are contiguous, which is quick to test.
        if isinstance(x, tensor) and x.layout is strided and x.is_contiguous():
            start, size = x.data_ptr(), x.nbytes
            if size:
                bounds.append((start, start + size, i in written))
        elif (place := _place(x)) is not None:
            bounds.append((*place.bounds, i in written))
    return bounds


def _place(x: Any) -> Place | None:
    if is_torch(x):
        if x.layout is not sys.modules["torch"].strided or not x.numel():
            return None
        size = x.element_size()
        return Place(x.data_ptr(), tuple(x.shape), tuple(s * size for s in x.stride()), size)
    if not isinstance(x, np.ndarray) or not x.size:
        return None
    return Place(x.ctypes.data, x.shape, x.strides, x.itemsize)


def _pair(
    arrays: Sequence[Any], written: Collection[int], allowed: Callable[[int, int], bool]
) -> tuple[int, int] | None:
    """The result of `shared` if the bounds of some arrays overlap."""
    places = {i: p for i, a in enumerate(arrays) if (p := _place(a)) is not None}
    for i in sorted(set(written) & set(places)):
        for j, place in places.items():
            if i != j and not allowed(i, j) and places[i].meets(place):
                return i, j
    return None
