"""The loaded C runtime, and the functions with which Python accesses memory for it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilesmith.codegen import context
from tilesmith.support.errors import InternalError

try:
    from . import _native
except ImportError as e:
    raise InternalError(
        "the C runtime of tilesmith is not built: expected the extension tilesmith.runtime._native "
        f"({e}); install a wheel, or in a source tree run `pip install -e .`"
    ) from e

_NEWEST = "own_pool"
"""The function that was added last: an extension without it is older than this source."""
_abi = getattr(_native, "ABI", 0)  # 0 is an extension without a version number
if _abi != context.ABI or not hasattr(_native, _NEWEST):
    raise InternalError(
        "the C runtime of tilesmith is of another version: expected an extension with interface "
        f"{context.ABI}, built from this source, found an older one with interface {_abi}; "
        "reinstall the package, or run `python setup.py build_ext --inplace` in a source tree"
    )

ALIGNMENT = 64
"""Alignment of arenas, constants and workspaces, in bytes."""

Block = _native.Block
Function = _native.Function
Host = _native.Host
Runner = _native.Runner
Unchanged = _native.Unchanged
digest = _native.digest
page_bytes = _native.page_bytes
memory = _native.memory
set_cores = _native.set_cores
keep_arenas = _native.keep_arenas
accel_run = _native.accel_run
accel_clock = _native.accel_clock
own_pool = _native.own_pool


def set_provider(answers: Any) -> None:
    """Set the object that answers the execution provider's questions (see csrc/provider.c)."""
    _native.set_provider(answers)


def library_path() -> str:
    """The path of the extension, which is also a library for ONNX Runtime."""
    return str(_native.__file__)


def native_form(described: tuple[Any, ...] | None) -> Any:
    """The native form of a host function (see `host_functions.native`)."""
    return None if described is None else getattr(_native, described[0])(*described[1:])


_TYPES: dict[context.FieldType, Any] = {
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "ptr": ctypes.c_void_p,
}


class Context(ctypes.Structure):
    """`struct tilesmith_context`, for calling kernels from Python."""

    _fields_ = tuple(
        (f.name, _TYPES[f.type] if f.count == 1 else _TYPES[f.type] * f.count)
        for f in context.FIELDS
    )

    @staticmethod
    def of(threads: int, scratch: int, scratch_bytes: int) -> Context:
        """The context of kernels that run on the process's pool.

        scratch: address of the scratch memory.
        scratch_bytes: bytes of scratch memory for each thread.
        """
        return Context(
            abi=context.ABI,
            size=context.SIZE,
            threads=threads,
            scratch=scratch,
            scratch_bytes=scratch_bytes,
            parallel_for=_native.PARALLEL_FOR,
        )

    def failure(self, code: int) -> Failure:
        """The failure recorded by a run that returned `code`; it is cleared for the next run."""
        values = tuple(self.failure_values[: self.failure_count])
        reported = Failure(code, self.failure_call, self.failure_assertion, values)
        self.failure_code = 0
        return reported


class Failure(NamedTuple):
    """The failure of a run.

    `code`: a `Code`.  `call`: index of the kernel call.  `assertion`: index among the kernel's
    messages.  `values`: the integers that the assertion compared.
    """

    code: int
    call: int
    assertion: int
    values: tuple[int, ...]

    def text(self, messages: Sequence[str]) -> str:
        """Text of the failure for people; `messages`: the texts of the kernel's assertions."""
        from tilesmith.codegen.assertions import explained  # delayed: imports expressions

        if self.code == context.Code.ASSERTION:
            return explained(messages[self.assertion], self.values)
        if self.code == context.Code.MEMORY:
            needed, available = self.values
            return f"{needed} bytes of memory are needed, {available} were given"
        return f"the code expects another version of the native interface than {context.ABI}"


def aligned_bytes(size: int) -> np.ndarray:
    """An uninitialised byte array of `size` whose address is a multiple of `ALIGNMENT`."""
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def zeroed_bytes(size: int) -> np.ndarray:
    """Like `aligned_bytes`, but zeroed.  The system allocates a page when it is first written."""
    return _aligned(np.zeros(size + ALIGNMENT, np.uint8), size)


def _aligned(room: np.ndarray, size: int) -> np.ndarray:
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]


def round_up(size: int) -> int:
    """`size` rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
