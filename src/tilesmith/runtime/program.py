"""A compiled model as data: the calls, their memory, and the code.

Everything here can be written to a file or sent to another machine.  `runtime.executable` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.codegen.entry import ENTRY, Arg, KernelCall
from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target
from tilesmith.perf.info import KernelInfo

from .native import ALIGNMENT, round_up, zeroed_bytes

__all__ = ["ENTRY", "Arg", "Contents", "KernelCall", "Program", "TensorSpec", "pack_constants"]

Blob: TypeAlias = np.ndarray
"""A one-dimensional array of bytes whose address is a multiple of 64."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a program.

    name: for users.
    dtype: element type.
    shape: extents.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        n = self.dtype.bytes
        for d in self.shape:
            n *= d
        return n

    @property
    def type(self) -> str:
        """As text: `f32[1,3,224,224]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled model.

    inputs, outputs: in order.
    calls: the kernels, in order.
    arena_bytes: intermediate values and the kernels' shared workspaces.
    scratch_bytes: scratch memory of each thread (the largest `workspace_bytes_per_thread`).
    constants: bytes, at a 64-byte boundary.
    objects: by symbol, the object code that defines it; `ENTRY` is the main function.
    target: the machine.
    metadata: JSON values for people.
    kernels: by symbol, descriptions of kernels, where known.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calls: tuple[KernelCall, ...]
    arena_bytes: int
    scratch_bytes: int
    constants: Blob
    objects: Mapping[str, bytes]
    target: Target
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, KernelInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The future contents of a constant.

    bytes: size.
    write: writes them to zeroed memory of that size.
    """

    bytes: int
    write: Callable[[Blob], None]

    @staticmethod
    def of(array: np.ndarray) -> Contents:
        def write(out: Blob) -> None:
            out[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

        return Contents(array.nbytes, write)


def pack_constants(
    constants: Sequence[Contents], jobs: int = 1, allocate: Callable[[int], Blob] = zeroed_bytes
) -> tuple[Blob, list[int]]:
    """One blob with all `constants` at 64-byte offsets, and the offsets.

    `jobs` of them are written at the same time.  The same object is stored once.
    allocate: gives so many zeroed bytes at a 64-byte boundary.
    """
    places: dict[Contents, int] = {}
    end = 0
    for c in constants:
        if c not in places:
            places[c] = end
            end += round_up(max(c.bytes, 1))
    blob = allocate(round_up(end) or ALIGNMENT)
    with ThreadPoolExecutor(jobs) as pool:  # copying arrays, NumPy holds no lock
        written = [pool.submit(c.write, blob[at : at + c.bytes]) for c, at in places.items()]
        for w in written:
            w.result()
    return blob, [places[c] for c in constants]
