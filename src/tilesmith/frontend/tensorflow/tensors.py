"""The contents of tensors that a file of TensorFlow stores in attributes of nodes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.tensorflow.schema import dtype_of
from tilesmith.ir.dtypes import DType, string
from tilesmith.support.errors import ModelError, UnsupportedError

OPEN = -1
"""The stated extent of a dimension whose size is known only at run time."""

_LISTS: dict[str, str] = {
    "f32": "float_val", "f64": "double_val", "i64": "int64_val", "bool": "bool_val",
    "f16": "half_val", "bf16": "half_val", "u32": "uint32_val", "u64": "uint64_val",
}  # fmt: skip
"""The field with the elements of a type.  Elements of other types are in `int_val`."""


def element_type(number: int, what: str) -> DType:
    """The element type with this number.  Raises UnsupportedError, which names `what`."""
    dtype = dtype_of(number)
    if dtype is None:
        raise UnsupportedError(f"{what}: element type number {number} is not supported")
    return dtype


def dims_of(shape: Message | None) -> tuple[int, ...] | None:
    """The stated extents, with `OPEN` for open dimensions; None for an unknown rank."""
    if shape is None or shape.unknown_rank:
        return None
    return tuple(d.size for d in shape.dim)


def known_shape(shape: Message | None, what: str) -> tuple[int, ...]:
    """The stated extents of a stored tensor.  Without a stated shape it is a scalar."""
    return checked_shape(dims_of(shape) or (), what) if shape is not None else ()


def contents(tensor: Message, what: str) -> np.ndarray:
    """The contents of a TensorProto.  If its list is too short, the last element is repeated."""
    dtype = element_type(tensor.dtype, what)
    shape = known_shape(tensor.tensor_shape, what)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype is string:
        texts = [bytes(s).decode(errors="replace") for s in tensor.string_val]
        return _continued(np.array(texts, object), count, what).reshape(shape)
    if len(tensor.tensor_content):
        return numbers(tensor.tensor_content, dtype, shape, what)
    listed = getattr(tensor, _LISTS.get(dtype.name, "int_val"))
    if dtype.name in ("f16", "bf16"):
        elements = listed.astype(np.uint16).view(dtype.numpy)
    else:
        elements = listed.astype(dtype.numpy)
    return _continued(elements, count, what).reshape(shape)


def numbers(stored: memoryview, dtype: DType, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The tensor in the bytes `stored`, as a view of them except for bools."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
    if len(stored) != size:
        raise ModelError(
            f"{what} of type {dtype} {list(shape)}: expected {size} bytes, found {len(stored)}"
        )
    if dtype.is_bool:
        return (np.frombuffer(stored, np.uint8) != 0).reshape(shape)
    return np.frombuffer(stored, dtype.numpy).reshape(shape)


def _continued(elements: np.ndarray, count: int, what: str) -> np.ndarray:
    if len(elements) > count:
        raise ModelError(f"{what}: expected {count} elements, found {len(elements)}")
    if not len(elements):
        return np.zeros(count, elements.dtype) if elements.dtype != object else np.full(count, "")
    if len(elements) == count:
        return elements
    if len(elements) == 1:
        return np.broadcast_to(elements, (count,))
    return np.concatenate([elements, np.broadcast_to(elements[-1:], (count - len(elements),))])
