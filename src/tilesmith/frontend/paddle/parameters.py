"""Paddle's `.pdiparams` files: tensors one after the other, in the order of their sorted names."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.paddle.schema import SCHEMA, dtype_named
from tilesmith.support.errors import ModelError

_MOST_LEVELS = 64


def read_parameters(content: memoryview | None, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The tensors of a file by name, as views of the file.

    Raises ModelError for a damaged file, and if there is no file but `names` is not empty.
    """
    arrays: dict[str, np.ndarray] = {}
    position = 0
    for name in sorted(set(names)):
        if content is None:
            raise ModelError(
                "expected a file .pdiparams beside the model, or as the second of a pair of "
                f"paths; found none, but the model has the parameter {name!r}"
            )
        arrays[name], position = _tensor(content, position, name)
    if content is not None and position != len(content):
        raise ModelError(
            f".pdiparams file: expected {position} bytes for {len(arrays)} parameters, found "
            f"{len(content)}"
        )
    return arrays


def _tensor(content: memoryview, position: int, name: str) -> tuple[np.ndarray, int]:
    """The tensor at an offset, and the offset of its end."""
    start = position

    def take(size: int) -> memoryview:
        nonlocal position
        if size < 0 or size > len(content) - position:
            raise ModelError(
                f".pdiparams file: parameter {name!r} at offset {start}: expected {size} bytes at "
                f"offset {position}, found {len(content) - position}"
            )
        position += size
        return content[position - size : position]

    version, levels = struct.unpack("<IQ", take(12))
    if version or levels > _MOST_LEVELS:
        raise ModelError(
            f".pdiparams file: parameter {name!r} at offset {start}: expected a tensor of version "
            f"0, found version {version} with {levels} levels"
        )
    for _ in range(levels):
        take(struct.unpack("<Q", take(8))[0])
    (_, size) = struct.unpack("<II", take(8))
    described = SCHEMA.decode(take(size), "TensorDesc")
    dtype = dtype_named(described.data_type)
    shape = checked_shape(described.dims, f"parameter {name!r}")
    stored = np.frombuffer(take(dtype.bytes * math.prod(shape)), np.uint8)
    return stored.view(dtype.numpy).reshape(shape), position
