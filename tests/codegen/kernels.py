"""Building small kernels by hand and running them natively."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence

import numpy as np

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import covers, host, target
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import (
    Expr,
    Load,
    Ramp,
    Var,
    const,
)  # fmt: skip
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, Store
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction

TARGETS = [
    name for name in ("native", "x86-64-v3", "x86-64-v2", "x86-64") if covers(host(), target(name))
]


def native(func: Func, target_name: str = "native", threads: int = 2) -> NativeFunction:
    t = target(target_name)
    kernel = emit(func, t)
    return NativeFunction(kernel, compile_object(kernel.text, t), Arguments(func), t, threads)


def run(
    func: Func, arrays: Sequence[np.ndarray], target_name: str = "native", threads: int = 2
) -> None:
    native(func, target_name, threads)(*arrays)


def serial(var: Var, extent: Expr | int, body: Stmt, start: int = 0) -> For:
    return For(
        var, const(start), const(extent) if isinstance(extent, int) else extent, "serial", body
    )


def lanes_at(base: Expr | int, lanes: int, stride: int = 1) -> Expr:
    """Index of `lanes` elements from `base`; a scalar for one lane."""
    start = const(base) if isinstance(base, int) else base
    return start if lanes == 1 else Ramp(start, const(stride), lanes)


def elementwise(
    f: Callable[..., Expr],
    inputs: Sequence[np.ndarray],
    result: DType,
    target_name: str,
    lanes: int,
) -> np.ndarray:
    """`f` applied natively to arrays of one length, `lanes` elements at a time."""
    n = len(inputs[0])
    assert n % lanes == 0
    buffers = [Buffer(f"x{i}", _dtype(a), (n,)) for i, a in enumerate(inputs)]
    y = Buffer("y", result, (n,))
    i = Var("i")
    at = lanes_at(i * lanes, lanes)
    body = Store(y, (at,), f(*(Load(b, (at,)) for b in buffers)))
    out = np.empty(n, result.numpy)
    run(
        Func("elementwise", (*buffers, y), (y,), serial(i, n // lanes, body)),
        [*inputs, out],
        target_name,
    )
    return out


def _dtype(a: np.ndarray) -> DType:
    from tilesmith.ir.dtypes import dtype

    return dtype(a.dtype)


def against_a_wall(array: np.ndarray) -> np.ndarray:
    """A copy of `array` whose last byte is followed by memory that must not be touched."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    block = mmap.mmap(-1, size + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(block, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy
