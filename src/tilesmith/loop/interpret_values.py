"""The operations of the interpreter on values, exactly as `ir.expr` defines them.

A scalar integer is a Python int within its type's range, a bool is a Python (or NumPy) bool, a
float is a NumPy scalar of its type.  A vector is a NumPy array of the type, one element per lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.fold import INTEGER, float_max, float_min
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.storage import convert_array, truncated
from tilesmith.support.errors import InternalError, ModelError


def wrap(dtype: DType) -> Callable[[int], int]:
    """A function that wraps an integer to `dtype`, in two's complement."""
    mask = (1 << dtype.bits) - 1
    if dtype.kind == "uint":
        return lambda v: v & mask
    half = 1 << (dtype.bits - 1)
    return lambda v: ((v + half) & mask) - half


def integer_op(op: str, dtype: DType) -> Callable[[int, int], int]:
    """A scalar integer operation.  Undefined cases, such as a division by 0, give 0."""
    compute, wrapped, bits = INTEGER[op], wrap(dtype), dtype.bits

    def apply(a: int, b: int) -> int:
        if op in ("shl", "shr") and not 0 <= b < bits:
            return -1 if op == "shr" and a < 0 else 0
        value = compute(a, b)
        return 0 if value is None else wrapped(value)

    return apply


def float_floormod(a: Any, b: Any) -> Any:
    """The remainder of a flooring division.  It is the remainder of a truncating division, plus `b`
    if that remainder is not 0 and has another sign than `b`.
    """
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _vector_min(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a != a) | (a <= b), a, b)


def _vector_max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a != a) | (a >= b), a, b)


def _vector_floor(remainder: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "iu":
            return np.mod(a, b) if remainder else np.floor_divide(a, b)
        return float_floormod(a, b) if remainder else np.floor(a / b)

    return apply


def _vector_trunc(remainder: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind not in "iu":
            return np.fmod(a, b) if remainder else np.trunc(a / b).astype(a.dtype)
        rest = np.fmod(a, b)
        return (
            rest
            if remainder
            else np.where(b == 0, 0, (a - rest) // np.where(b == 0, 1, b)).astype(a.dtype)
        )

    return apply


def _vector_shift(f: Callable[..., Any]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        inside = (b >= 0) & (b < a.dtype.itemsize * 8)
        beyond = np.where(a < 0, -1, 0) if f is np.right_shift else 0
        return np.where(inside, f(a, np.where(inside, b, 0)), beyond).astype(a.dtype)

    return apply


VECTOR: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": _vector_floor(False), "floormod": _vector_floor(True),
    "truncdiv": _vector_trunc(False), "truncmod": _vector_trunc(True),
    "min": _vector_min, "max": _vector_max,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": _vector_shift(np.left_shift), "shr": _vector_shift(np.right_shift),
}  # fmt: skip

FLOAT: dict[str, Callable[..., Any]] = {
    "floordiv": lambda a, b: type(a)(np.floor(a / b)),
    "floormod": lambda a, b: type(a)(float_floormod(a, b)),
    "truncdiv": lambda a, b: type(a)(np.trunc(a / b)),
    "truncmod": lambda a, b: type(a)(np.fmod(a, b)),
    "min": float_min, "max": float_max,
}  # fmt: skip

REDUCE: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def scalar(value: Any, dtype: DType) -> Any:
    """A NumPy scalar or 0-d array, converted to a scalar of the interpreter."""
    if dtype.is_float:
        return dtype.numpy.type(value)
    return bool(value) if dtype.is_bool else int(value)


@lru_cache(maxsize=256)
def cast(source: DType, to: DType) -> Callable[[Any], Any]:
    """A function that converts scalars from `source` to `to`."""
    if to.is_bool:
        return lambda v: bool(v != 0)
    if to.is_storage or source.is_storage:
        return lambda v: scalar(convert_array(np.asarray(v, source.numpy), to), to)
    if to.is_float:
        kind = to.numpy.type
        if source.is_int and source.bits > 32:
            big = source.numpy

            def from_long(v: int) -> Any:
                # Beyond 2**53 a conversion through a Python float would round twice.
                return (
                    kind(v) if -(1 << 53) < v < 1 << 53 else np.asarray(v, big).astype(to.numpy)[()]
                )

            return from_long
        return kind
    wrapped = wrap(to)
    if source.is_float:
        return lambda v: int(truncated(np.asarray(v, source.numpy), to))
    return lambda v: wrapped(int(v))


def vector_cast(source: DType, to: DType) -> Callable[[np.ndarray], np.ndarray]:
    """A function that converts vectors from `source` to `to`."""
    if to.is_storage or source.is_storage or (source.is_float and to.is_int):
        return lambda v: convert_array(v, to)
    if to.is_bool:
        return lambda v: v != 0
    return lambda v: v.astype(to.numpy)


def intrinsic(name: str, source: DType, to: DType, lanes: int) -> Callable[..., Any]:
    """The function of a `Call`, on scalars or vectors."""
    if name == "bitcast":

        def bitcast(v: Any) -> Any:
            bits = np.asarray(v, source.numpy).reshape(-1).view(to.numpy)
            return bits if lanes > 1 else scalar(bits[0], to)

        return bitcast
    if name not in INTRINSICS:
        raise InternalError(f"'{name}' is not a function that the interpreter knows")
    evaluate = INTRINSICS[name].evaluate
    kind = source.numpy
    if lanes > 1:
        return lambda *v: np.asarray(evaluate(*v)).astype(to.numpy)
    return lambda *v: scalar(evaluate(*(kind.type(x) for x in v)), to)


def ramp(base: int, stride: int, size: int, dtype: DType) -> np.ndarray:
    """`base, base + stride, ...`, wrapped to `dtype`."""
    steps = np.arange(size, dtype=np.int64).astype(dtype.numpy)
    return np.asarray(base, dtype.numpy) + steps * np.asarray(stride, dtype.numpy)


def reduce(op: str, a: np.ndarray, size: int, dtype: DType) -> Any:
    """Combine each group of adjacent lanes to one value."""
    result = REDUCE[op].reduce(a.reshape(size, -1), axis=1, dtype=dtype.numpy)
    return result if size > 1 else scalar(result[0], dtype)


def _flat(
    indices: tuple[Any, ...], shape: tuple[int, ...], active: Any, lanes: int, access: str
) -> np.ndarray:
    """Row-major position of each lane's element; 0 for an inactive lane."""
    total = np.zeros(lanes, np.int64)
    for i, n in zip(indices, shape):
        index = np.broadcast_to(np.asarray(i, np.int64), (lanes,))
        bad = ((index < 0) | (index >= n)) & active
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            outside(access, (int(index[first]),), shape, f" in lane {first}")
        total = total * n + index
    return np.where(active, total, 0)


def vector_load(
    data: np.ndarray,
    indices: tuple[Any, ...],
    shape: tuple[int, ...],
    mask: Any,
    lanes: int,
    access: str,
) -> np.ndarray:
    """Load the lanes whose mask is true.  The other lanes are 0."""
    active = np.ones(lanes, np.bool_) if mask is None else np.asarray(mask, np.bool_)
    where = _flat(indices, shape, active, lanes, access)
    if not data.size:
        return np.zeros(lanes, data.dtype)
    lanes_read = np.zeros(lanes, data.dtype)
    lanes_read[active] = data[where[active]]
    return lanes_read


def vector_store(
    data: np.ndarray, indices: tuple[Any, ...], shape: tuple[int, ...], value: Any, mask: Any,
    lanes: int, access: str,
) -> None:  # fmt: skip
    """Store the lanes whose mask is true.  If two lanes have one position, the later lane wins."""
    active = np.ones(lanes, np.bool_) if mask is None else np.asarray(mask, np.bool_)
    where = _flat(indices, shape, active, lanes, access)
    for lane in np.flatnonzero(active):
        data[where[lane]] = value[lane]


def allocate(dtype: DType, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Memory filled with a pattern that reveals uninitialised use: NaN, or bytes 0xa5 for
    integers.
    """
    size = 1
    for n in shape:
        if n < 0:
            raise InternalError(f"allocation of '{name}' has a negative extent in {list(shape)}")
        size *= n
    if dtype.is_float:
        return np.full(size, np.nan, dtype.numpy)
    return (
        np.frombuffer(b"\xa5" * (size * dtype.bytes), np.uint8)
        .view(np.uint8 if dtype.is_bool else dtype.numpy)
        .astype(dtype.numpy)
    )


def outside(
    access: str, indices: tuple[int, ...], shape: tuple[int, ...], lane: str = ""
) -> NoReturn:
    """Raise the error for an access outside its buffer."""
    where = ", ".join(map(str, indices))
    raise InternalError(
        f"access outside the buffer: {access} with index {where}{lane}, the shape is {list(shape)}"
    )


def from_place(data: np.ndarray, index: int, size: int) -> np.ndarray:
    """The elements of `data` from `index` on; none if `index` is `size`, the end of `data`."""
    if not 0 <= index <= size:
        outside("a place", (index,), (size,), "")
    return data[index:]


def reinterpreted(data: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """A view of the memory of `data` as elements of another type, from its beginning."""
    count = math.prod(shape)
    if count * dtype.bytes > data.nbytes:
        outside("bytes", (count * dtype.bytes,), (data.nbytes,), "")
    return data[: count * dtype.bytes].view(dtype.numpy)


def copy_bytes(to: np.ndarray, source: np.ndarray, count: int) -> None:
    """Copy bytes.  Source and destination do not overlap, or are the same."""
    if count > min(to.size, source.size):
        outside("copied bytes", (count,), (min(to.size, source.size),), "")
    to[:count] = source[:count]


class Returned(Exception):
    """Raised by a `Return` statement, with its code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = int(code)


def failed(message: str) -> NoReturn:
    """Raise the error for a false `Assert`."""
    raise ModelError(message)
