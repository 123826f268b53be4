"""Tensors stored in models: from a `TensorProto` to typed, checked contents.

Element type, dimensions, number of elements and number of bytes are compared before anything is
allocated.  Small fields are decoded at once, external data when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.external import ExternalFiles
from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.onnx.proto import text
from tilesmith.graph.nodes import Data
from tilesmith.ir import dtypes as dt
from tilesmith.ir.dtypes import DType
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError, UnsupportedError

ELEMENT_TYPES: dict[int, DType] = {
    1: dt.f32,
    2: dt.u8,
    3: dt.i8,
    4: dt.u16,
    5: dt.i16,
    6: dt.i32,
    7: dt.i64,
    9: dt.bool_,
    10: dt.f16,
    11: dt.f64,
    12: dt.u32,
    13: dt.u64,
    16: dt.bf16,
    17: dt.f8e4m3fn,
    18: dt.f8e4m3fnuz,
    19: dt.f8e5m2,
    20: dt.f8e5m2fnuz,
    21: dt.uint4,
    22: dt.int4,
    23: dt.f4e2m1,
    24: dt.f8e8m0,
    25: dt.uint2,
    26: dt.int2,
    27: dt.f6e2m3,
    28: dt.f6e3m2,
}
"""TensorProto.DataType -> element type."""

_STRING = 8
_OTHER_TYPES = {0: "undefined", _STRING: "string", 14: "complex64", 15: "complex128"}

_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL

_TYPED_FIELDS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)


def _field_of(d: DType) -> str:
    """The repeated field that contains values of an element type if they are not in `raw_data`."""
    if d is dt.f32:
        return "float_data"
    if d is dt.f64:
        return "double_data"
    if d is dt.i64:
        return "int64_data"
    return "uint64_data" if d in (dt.u32, dt.u64) else "int32_data"


@dataclass(frozen=True, slots=True)
class Contents:
    """A stored tensor: its type, and its data, read when first needed."""

    type: TensorType
    data: Data


def element_type(code: int, what: str, strings: bool = False) -> DType:
    """The element type for an ONNX type code; `what` names its owner in messages.

    strings: whether it may be `string`.

    Raises UnsupportedError for an element type that Tilesmith lacks, ModelError for an unknown
    code.
    """
    dtype = ELEMENT_TYPES.get(code)
    if dtype is not None:
        return dtype
    if strings and code == _STRING:
        return dt.string
    if code in _OTHER_TYPES and code != 0:
        known = ", ".join(str(d) for d in ELEMENT_TYPES.values())
        raise UnsupportedError(
            f"{what} has element type {_OTHER_TYPES[code]}; supported are {known}"
        )
    raise ModelError(
        f"{what}: expected an ONNX element type (1 to {max(ELEMENT_TYPES)}), found {code}"
    )


def decode(
    tensor: Any, files: ExternalFiles, what: str, weights: np.ndarray | None = None
) -> Contents:
    """The contents of a TensorProto; `weights`: the tensor's raw bytes if the message lacks them.

    Raises ModelError when type, shape and data do not fit one another.
    """
    d = element_type(tensor.data_type, what)
    if len(tensor.dims) > 64:
        raise ModelError(f"{what}: expected at most 64 dimensions, found {len(tensor.dims)}")
    type = TensorType(d, checked_shape(tensor.dims, what))
    if tensor.HasField("segment"):
        raise UnsupportedError(f"{what} is stored in segments, which no known exporter writes")
    raw = weights
    if raw is None and tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8)
    if tensor.data_location == _EXTERNAL:
        if raw is not None or any(len(getattr(tensor, f)) for f in _TYPED_FIELDS):
            raise ModelError(f"{what}: expected external data or data in the model, found both")
        return Contents(type, Data(_external(tensor, type, files, what)))
    if raw is not None:
        size = _stored_bytes(type)
        if len(raw) != size:
            raise ModelError(f"{what}: expected {size} bytes for {type}, found {len(raw)}")
        return Contents(type, Data.of(_from_bytes(raw, type)))
    return Contents(type, Data.of(_from_field(tensor, type, what)))


def _stored_bytes(type: TensorType) -> int:
    """Bytes of `raw_data`, where elements of fewer than 8 bits are packed."""
    return -(-type.size * type.dtype.bits // 8) if type.dtype.is_storage else type.bytes


def _unpacked(raw: np.ndarray, type: TensorType) -> np.ndarray:
    """The elements of a stream of bits, lowest bits first."""
    bits, word = type.dtype.bits, raw
    if bits == 6:  # four elements in three bytes
        words = np.zeros((-(-len(raw) // 3), 4), np.uint8)
        words[:, :3] = np.pad(raw, (0, -len(raw) % 3)).reshape(-1, 3)
        word = words.view("<u4")[:, 0]
    shifts = range(0, 24 if bits == 6 else 8, bits)
    codes = np.stack([(word >> s & ((1 << bits) - 1)).astype(np.uint8) for s in shifts], axis=-1)
    return codes.reshape(-1)[: type.size].view(type.dtype.numpy).reshape(type.static_shape)


def _from_bytes(raw: np.ndarray, type: TensorType) -> np.ndarray:
    if type.dtype.is_storage:
        return _unpacked(raw, type)
    if type.dtype.is_bool:
        # A byte other than 0 and 1 would be an invalid bool.
        return (raw != 0).reshape(type.static_shape)
    little = type.dtype.numpy.newbyteorder("<") if type.dtype is not dt.bf16 else type.dtype.numpy
    return raw.view(little).astype(type.dtype.numpy, copy=False).reshape(type.static_shape)


def _from_field(tensor: Any, type: TensorType, what: str) -> np.ndarray:
    d = type.dtype
    name = _field_of(d)
    wrong = [f for f in _TYPED_FIELDS if f != name and len(getattr(tensor, f))]
    if wrong:
        raise ModelError(
            f"{what}: expected the values of {type} in {name}, found {', '.join(wrong)}"
        )
    field = getattr(tensor, name)
    packed = d.bits in (2, 4)  # each value of the field holds several elements of 2 or 4 bits
    expected = _stored_bytes(type) if packed else type.size
    if len(field) != expected:
        raise ModelError(f"{what}: expected {expected} values for {type}, found {len(field)}")
    if name != "int32_data" and d is not dt.u32:
        return np.array(field, dtype=d.numpy).reshape(type.static_shape)
    wide = np.array(field, dtype=np.uint64 if d is dt.u32 else np.int64)
    if d.is_storage:
        _check_range(wide, 0, 0xFF if packed else (1 << d.bits) - 1, type, what)
        codes = wide.astype(np.uint8)
        return _unpacked(codes, type) if packed else codes.view(d.numpy).reshape(type.static_shape)
    if d.is_float:  # f16 and bf16 are stored as their bits
        _check_range(wide, 0, 0xFFFF, type, what)
        return wide.astype(np.uint16).view(d.numpy).reshape(type.static_shape)
    if d.is_bool:
        return (wide != 0).reshape(type.static_shape)
    _check_range(wide, int(d.min), int(d.max), type, what)
    return wide.astype(d.numpy).reshape(type.static_shape)


def _check_range(values: np.ndarray, low: int, high: int, type: TensorType, what: str) -> None:
    if values.size and (int(values.min()) < low or int(values.max()) > high):
        worst = int(values.min()) if int(values.min()) < low else int(values.max())
        raise ModelError(f"{what}: expected values of {type.dtype} in {low}..{high}, found {worst}")


def _external(
    tensor: Any, type: TensorType, files: ExternalFiles, what: str
) -> Callable[[], np.ndarray]:
    entries: dict[str, str] = {}
    for e in tensor.external_data:
        key = text(e.key, f"a key of the external data of {what}")
        if key in entries:
            raise ModelError(f"{what}: external data gives {key!r} twice")
        entries[key] = text(e.value, f"external data of {what}")
    if "location" not in entries:
        raise ModelError(f"{what}: expected a location of its external data, found none")
    offset = _number(entries.get("offset", "0"), "offset", what)
    file = files.open(entries["location"], what)
    size = _stored_bytes(type)
    length = _number(entries["length"], "length", what) if "length" in entries else size
    if length != size:
        raise ModelError(
            f"{what}: expected {size} bytes of external data for {type}, found length {length}"
        )
    if offset + length > file.size:
        raise ModelError(
            f"{what}: expected {length} bytes at offset {offset} of external data "
            f"{file.location!r}, "
            f"which has {file.size} bytes"
        )
    return lambda: _from_bytes(file.read(offset, length), type)


def _number(value: str, name: str, what: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise ModelError(
            f"{what}: expected a number >= 0 as external data's {name}, found {value!r}"
        )
    return int(value)


def decode_sparse(sparse: Any, files: ExternalFiles, what: str) -> Contents:
    """A SparseTensorProto as a dense tensor."""
    values = decode(sparse.values, files, f"the values of {what}")
    indices = decode(sparse.indices, files, f"the indices of {what}")
    type = TensorType(values.type.dtype, checked_shape(sparse.dims, what))
    n = values.type.size
    if (
        values.type.rank != 1
        or indices.type.dtype is not dt.i64
        or indices.type.static_shape not in ((n,), (n, type.rank))
    ):
        raise ModelError(
            f"{what}: expected {n} values and indices i64[{n}] or i64[{n},{type.rank}], "
            f"found {values.type} and {indices.type}"
        )
    where = indices.data.array
    if where.ndim == 2:
        limits = np.array(type.static_shape, np.int64)
        if n and ((where < 0) | (where >= limits)).any():
            raise ModelError(f"{what}: sparse indices lie outside of shape {list(type.shape)}")
        where = np.ravel_multi_index(tuple(where.T), type.static_shape) if n else where.reshape(-1)
    if n and (where.min() < 0 or where.max() >= type.size):
        raise ModelError(f"{what}: sparse indices lie outside of shape {list(type.shape)}")

    def dense() -> np.ndarray:
        result = np.zeros(type.size, type.dtype.numpy)
        result[where] = values.data.array
        return result.reshape(type.static_shape)

    return Contents(type, Data(dense))
