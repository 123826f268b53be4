"""The arrays of MXNet's `.params` files: a list of NDArrays and their names, in every version."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.ir import dtypes
from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import ModelError

LIST = 0x112
"""The first number of a list of arrays."""

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MOST_AXES = 32
_TYPES = (
    *(dtypes.f32, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.i32, dtypes.i8, dtypes.i64),
    *(dtypes.bool_, dtypes.i16, dtypes.u16, dtypes.u32, dtypes.u64, dtypes.bf16),
)
"""Element types, indexed by MXNet's numbers of types."""


def read_arrays(content: bytes | memoryview) -> dict[str, np.ndarray]:
    """The arrays of a `.params` file by name.  Dense arrays are views of the file; sparse arrays
    are made dense.  Raises ModelError for a damaged file.
    """
    reader = Cursor(content, ".params file")
    if reader.number("Q", "the list's signature") != LIST:
        reader.bad(f"a list of arrays with the signature {LIST:#x}", "another signature")
    reader.number("Q", "a reserved number")
    count = reader.number("Q", "the number of arrays")
    if count > len(content):
        reader.bad("no more arrays than bytes", count)
    arrays = [_array(reader) for _ in range(count)]
    names = reader.number("Q", "the number of names")
    if names != count:
        reader.bad(f"names of {count} arrays", names)
    texts = [bytes(reader.bytes(reader.number("Q", "a name's length"), "a name")) for _ in arrays]
    return {t.decode(errors="replace"): a for t, a in zip(texts, arrays, strict=True)}


def _array(reader: Cursor) -> np.ndarray:
    magic = reader.number("I", "an array's signature")
    sparse: tuple[int, ...] | None = None
    indices = 0
    if magic in (_V2, _V3):
        indices = reader.number("i", "the kind of an array")
        if not 0 <= indices <= 2:
            reader.bad("a dense, row-sparse or csr array (0 to 2)", indices)
        sparse = _shape(reader) if indices else None
        axes = reader.number("i", "the number of axes")
        if axes < (magic == _V2):  # an array without contents
            return np.zeros(0, np.float32)
        dims = _extents(reader, "q", axes)
    else:  # the first version has no signature; its first number is the number of axes
        code = "q" if magic == _V1 else "I"
        axes = reader.number("I", "the number of axes") if magic == _V1 else magic
        if not axes:
            return np.zeros(0, np.float32)
        dims = _extents(reader, code, axes)
    reader.numbers("2i", "the device")
    dtype = _dtype(reader)
    forms = [(_dtype(reader), _shape(reader)) for _ in range(indices)]
    shape = checked_shape(dims, ".params file: an array")
    stored = _elements(reader, dtype, shape if sparse is None else sparse)
    places = [_elements(reader, *form) for form in forms]
    if sparse is None:
        return stored
    try:
        return (_from_rows, _from_csr)[indices - 1](shape, stored, *places)
    except (IndexError, ValueError) as e:
        raise ModelError(f".params file: a sparse array of shape {list(shape)}: {e}") from None


def _shape(reader: Cursor) -> tuple[int, ...]:
    return _extents(reader, "q", reader.number("i", "the number of axes"))


def _extents(reader: Cursor, code: str, axes: int) -> tuple[int, ...]:
    if not 0 <= axes <= _MOST_AXES:
        reader.bad(f"a shape of at most {_MOST_AXES} numbers", axes)
    return reader.numbers(f"{axes}{code}", "a shape")


def _dtype(reader: Cursor) -> dtypes.DType:
    return dtype_numbered(reader.number("i", "an element type"))


def dtype_numbered(number: int) -> dtypes.DType:
    """The element type with this number in MXNet."""
    if not 0 <= number < len(_TYPES):
        raise ModelError(f"an element type: expected 0 to {len(_TYPES) - 1}, found {number}")
    return _TYPES[number]


def _elements(reader: Cursor, dtype: dtypes.DType, dims: tuple[int, ...]) -> np.ndarray:
    shape = checked_shape(dims, ".params file: an array")
    return reader.array(dtype.numpy, shape, "an array")


def _from_rows(shape: tuple[int, ...], rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    dense = np.zeros(shape, rows.dtype)
    dense[places] = rows
    return dense


def _from_csr(
    shape: tuple[int, ...], stored: np.ndarray, ends: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    dense = np.zeros(shape, stored.dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(ends)), columns] = stored
    return dense
