"""Types of tensors and elements of constants as StableHLO writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.ir import dtypes
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError, UnsupportedError

from .syntax import OPEN, Tensor

ELEMENTS: dict[str, DType] = {
    "i1": dtypes.bool_,
    "f8E4M3FN": dtypes.f8e4m3fn,
    "f8E4M3FNUZ": dtypes.f8e4m3fnuz,
    "f8E5M2": dtypes.f8e5m2,
    "f8E5M2FNUZ": dtypes.f8e5m2fnuz,
    "f8E8M0FNU": dtypes.f8e8m0,
    "f6E2M3FN": dtypes.f6e2m3,
    "f6E3M2FN": dtypes.f6e3m2,
    "f4E2M1FN": dtypes.f4e2m1,
    **{name: getattr(dtypes, name) for name in ("f16", "bf16", "f32", "f64")},
    **{f"{sign}i{bits}": getattr(dtypes, f"{'u' if sign == 'u' else 'i'}{bits}")
       for sign in ("", "s", "u") for bits in (8, 16, 32, 64)},
    **{f"{sign}i{bits}": getattr(dtypes, f"{'u' if sign == 'u' else ''}int{bits}")
       for sign in ("", "s", "u") for bits in (2, 4)},
}  # fmt: skip
"""The element types that we have."""


def tensor_type(text: str, line: int) -> Tensor:
    """The type `tensor<2x?xf32>`."""
    inner = text.removeprefix("tensor<")[:-1].partition(",")[0].strip()
    *dims, element = inner.split("x") if not inner.startswith("*") else (inner[2:],)
    if "<" in inner:
        element = inner[-40:]
    if inner.startswith("*") or element not in ELEMENTS:
        return tensor(element, None, f"line {line}")
    if not all(d == "?" or (d.isdecimal() and len(d) < 20) for d in dims):
        raise ModelError(f"line {line}: expected a tensor's type, found {text[:60]!r}")
    return tensor(element, tuple(OPEN if d == "?" else int(d) for d in dims), f"line {line}")


def tensor(element: str, extents: tuple[int, ...] | None, place: str) -> Tensor:
    """The type of a tensor, None for an open rank.

    Raises UnsupportedError for elements that we do not have, ModelError for too many.
    """
    if element not in ELEMENTS:
        raise UnsupportedError(f"{place}: elements of type {element!r}")
    if extents is not None:
        checked_shape((d for d in extents if d != OPEN), f"{place}: a tensor")
    return Tensor(ELEMENTS[element], extents)


def elements(held: Any, type_: Tensor, line: int) -> np.ndarray:
    """The contents of a constant; of rank 0 if all its elements are equal."""
    dims, dtype = type_.dims or (), type_.dtype
    if isinstance(held, bytes):
        try:
            return of_bytes(bytes.fromhex(held.decode()[2:]), type_)
        except ValueError as e:
            raise ModelError(f"line {line}: {e}") from None
    flat, shape = [held], []
    while flat and isinstance(flat[0], list):
        lengths = {len(f) if isinstance(f, list) else -1 for f in flat}
        if len(lengths) != 1:
            raise ModelError(f"line {line}: expected lists of equal length")
        shape.append(lengths.pop())
        flat = [item for f in flat for item in f]
    if shape and tuple(shape) != dims and (flat or 0 not in dims):
        raise ModelError(f"line {line}: expected elements of shape {list(dims)}, found {shape}")
    try:
        array = np.array([_number(f, dtype) for f in flat], dtype.numpy)
    except (OverflowError, ValueError) as e:
        raise ModelError(f"line {line}: {e}") from None
    return array.reshape(dims if isinstance(held, list) else ())


def _number(text: Any, dtype: DType) -> Any:
    if isinstance(text, (bool, list)) or not isinstance(text, str):
        return text
    if dtype.is_float and text.startswith("0x"):
        bits = int(text, 16).to_bytes(dtype.numpy.itemsize, "little")
        return np.frombuffer(bits, dtype.numpy)[0]
    return float(text) if dtype.is_float else int(text, 0)


def of_bytes(content: bytes | memoryview, type_: Tensor) -> np.ndarray:
    """The elements that bytes hold; of rank 0 if they hold only one for all.

    Raises ValueError if they don't fit the type.
    """
    dims, dtype = type_.dims or (), type_.dtype
    count = int(np.prod(dims, dtype=object))
    size = dtype.numpy.itemsize
    if dtype.is_bool and len(content) == (count + 7) // 8 and count > 1 and len(content) > 1:
        bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        return bits[:count].astype(np.bool_).reshape(dims)
    if len(content) not in (size, count * size):
        raise ValueError(f"expected {count * size} bytes of {type_}, found {len(content)}")
    array = np.frombuffer(content, np.uint8 if dtype.is_bool else dtype.numpy)
    array = array.astype(np.bool_) if dtype.is_bool else array
    return array.reshape(dims if len(content) == count * size else ())
