"""Instructions that copy from global to shared memory while the thread that asks for it goes on.

A target's instructions are declared as one value.  Strategies read which sizes there are; the
functions are for the writer of code alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class AsyncCopies:
    """Asynchronous copies of a thread, in groups.  The first argument of each function is a
    `codegen.tensor_code.TensorCode`.

    sizes: bytes that a copy may have.  Both addresses are multiples of them.
    features: LLVM's names of what a target must have.
    copy: writes a copy, given both pointers, the first one to shared memory, its size in bytes, and
        how many of these are read, an i32; the others become zeros.  None: all are.
    commit: makes a group of the copies since the last one.
    wait: waits for all groups but the latest, given their number.
    """

    sizes: tuple[int, ...]
    features: frozenset[str]
    copy: Callable[..., None]
    commit: Callable[..., None]
    wait: Callable[..., None]
