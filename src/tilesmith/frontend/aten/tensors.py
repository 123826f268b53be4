"""Conversion of PyTorch's tensors and element types to ours.  Arrays are accepted, too."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from tilesmith.ir import dtypes
from tilesmith.ir.dtypes import DType
from tilesmith.runtime.arrays import to_numpy
from tilesmith.support.errors import UnsupportedError

_TYPES: dict[str, DType] = {
    "bool": dtypes.bool_,
    **{f"int{b}": dtypes.BY_NAME[f"i{b}"] for b in (8, 16, 32, 64)},
    **{f"uint{b}": dtypes.BY_NAME[f"u{b}"] for b in (8, 16, 32, 64)},
    **{f"float{b}": dtypes.BY_NAME[f"f{b}"] for b in (16, 32, 64)},
    "bfloat16": dtypes.bf16,
    "float8_e4m3fn": dtypes.f8e4m3fn,
    "float8_e4m3fnuz": dtypes.f8e4m3fnuz,
    "float8_e5m2": dtypes.f8e5m2,
    "float8_e5m2fnuz": dtypes.f8e5m2fnuz,
    "float8_e8m0fnu": dtypes.f8e8m0,
}
"""Element types by PyTorch's names."""


def element_type(dtype: Any) -> DType:
    """Our element type for a PyTorch type, its name, or an array's type.  Raises
    UnsupportedError.
    """
    if isinstance(dtype, np.dtype):
        return dtypes.dtype(dtype)
    name = str(dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise UnsupportedError(f"element type {name} is not supported")
    return _TYPES[name]


def torch_name(dtype: DType) -> str:
    """The name of the `torch.dtype` of an element type.  Raises UnsupportedError."""
    for name, known in _TYPES.items():
        if known is dtype:
            return name
    raise UnsupportedError(f"PyTorch has no element type {dtype}")


def contents(tensor: Any, what: str) -> np.ndarray:
    """The contents of a tensor or an array, in its own memory where that is in row-major order.

    what: the tensor's name in messages.
    """
    if not isinstance(tensor, np.ndarray) and str(tensor.layout) != "torch.strided":
        raise UnsupportedError(f"{what} has the layout {tensor.layout}; expected a dense tensor")
    return np.ascontiguousarray(to_numpy(tensor, what)).reshape(tuple(tensor.shape))


def memory_of(tensor: Any) -> Hashable:
    """A key that is equal for tensors that share all elements in memory, such as tied weights."""
    if not isinstance(tensor, np.ndarray) and str(tensor.layout) != "torch.strided":
        return id(tensor)  # a tensor without memory, which `contents` refuses
    if isinstance(tensor, np.ndarray):
        return (tensor.ctypes.data, tensor.dtype, tensor.shape, tensor.strides)
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
