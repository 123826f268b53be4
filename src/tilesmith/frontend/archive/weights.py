"""Weights in an archive: an entry for each storage, and JSON about the tensors in the storages."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tilesmith.frontend.archive.files import Archive
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.aten.tensors import element_type
from tilesmith.frontend.common.limits import checked_shape
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError, UnsupportedError

_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
    28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""PyTorch's element types by their numbers in the schema."""

_REPEATED = 1 << 24
"""Upper bound on the elements of a tensor that is larger than its storage (an expanded tensor)."""


def dtype_of(found: Json) -> DType:
    """The element type with a number of the schema.  Raises UnsupportedError."""
    number = found.integer()
    if number not in _TYPES:
        found.bad("the number of an element type")
    return element_type(_TYPES[number])


def weights_of(archive: Archive, model: str, names: Collection[str]) -> dict[str, np.ndarray]:
    """The weights `names` of a model, as arrays in the archive's memory."""
    tables = [
        (folder, archive.json(file)["config"])
        for folder, file in (
            ("data/weights", f"data/weights/{model}_weights_config.json"),
            ("data/constants", f"data/constants/{model}_constants_config.json"),
        )
        if file in archive
    ]
    places: dict[str, tuple[str, Json]] = {}
    for folder, table in tables:
        places |= {name: (folder, entry) for name, entry in table.items() if name in names}
    missing = sorted(set(names) - places.keys())
    if missing:
        archive.bad(f"it has no weights called {', '.join(missing)}")
    return {name: _tensor(archive, name, *place) for name, place in places.items()}


def _tensor(archive: Archive, name: str, folder: str, found: Json) -> np.ndarray:
    if found["use_pickle"].boolean():
        raise UnsupportedError(
            f"{archive.name}: the weight {name!r} is pickled, as tensors of a class of their own "
            "are; only plain tensors are read, since reading a pickle runs the code in it"
        )
    meta = found["tensor_meta"]
    dtype = dtype_of(meta["dtype"])
    shape = checked_shape((_number(d) for d in meta["sizes"].list()), f"weight {name!r}")
    strides = [_number(s) for s in meta["strides"].list()]
    offset = _number(meta["storage_offset"])
    if len(strides) != len(shape):
        meta.bad(f"{len(shape)} strides")
    file = f"{folder}/{found['path_name'].text()}"
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    stored = archive.bytes(file)
    count = stored.size // dtype.bytes
    last = offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
    if last >= count:
        raise ModelError(
            f"{found.place}: expected a tensor inside of its {count} elements of {dtype} in "
            f"{file!r}, found one that ends at element {last}"
        )
    elements = int(np.prod(shape, dtype=object))
    if elements > max(count, _REPEATED):
        raise ModelError(f"{found.place}: expected at most {count} elements, found {elements}")
    storage = stored[: count * dtype.bytes].view(dtype.numpy)
    steps = [s * dtype.bytes for s in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)


def _number(found: Json) -> int:
    form, value = found.one()
    if form != "as_int":
        found.bad("a number")
    return value.integer(0)
