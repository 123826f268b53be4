"""Paddle's `.pdiparams` files: tensors one after the other, in the order of their sorted names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.paddle.schema import SCHEMA, dtype_named
from tilesmith.support.cursor import Cursor
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
    file = Cursor(content, f".pdiparams file: parameter {name!r}", position)
    version, levels = file.numbers("IQ", "a header")
    if version or levels > _MOST_LEVELS:
        file.bad("a tensor of version 0", f"version {version} with {levels} levels")
    for _ in range(levels):
        file.bytes(file.number("Q", "a level's size"), "a level")
    _, size = file.numbers("II", "a description's size")
    described = SCHEMA.decode(file.bytes(size, "a description"), "TensorDesc")
    dtype = dtype_named(described.data_type)
    shape = checked_shape(described.dims, f"parameter {name!r}")
    return file.array(dtype.numpy, shape, "elements"), file.at
