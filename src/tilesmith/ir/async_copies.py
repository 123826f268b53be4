"""Instructions that copy from global to shared memory while the thread goes on.

One value declares a target's instructions.  Strategies read their sizes; only the writer of code
calls the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class AsyncCopies:
    """Asynchronous copies of a thread, in groups.  The first argument of each function is a
    `codegen.tensor_code.TensorCode`.

    sizes: bytes of a copy.  Both addresses are multiples of them.
    features: LLVM's names of the features that a target needs.
    copy: writes a copy.  Arguments: both pointers, the first one to shared memory; the size in
        bytes; and the number of these that are read, an i32: the others become zeros.  None: all
        are read.
    commit: ends the group of the copies since the last one.
    wait: waits for all but the latest groups, given the number of those.
    """

    sizes: tuple[int, ...]
    features: frozenset[str]
    copy: Callable[..., None]
    commit: Callable[..., None]
    wait: Callable[..., None]
