"""New weights for a compiled model: `.safetensors` and GGUF files, and mappings of arrays."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from tilesmith.ir import dtypes
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import DAMAGED, ModelError, UsageError
from tilesmith.support.folders import writing, written
from tilesmith.support.mapped import map_model

from .arrays import to_numpy
from .gguf import MAGIC, read_gguf
from .program import Program

Weights: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a `.safetensors` or GGUF file, or NumPy arrays or torch tensors by name."""


class Recipe(Protocol):
    """A recipe that makes an executable's programs again with other weights (`driver.recipe`)."""

    def renewed(
        self,
        weights: Mapping[str, np.ndarray],
        programs: Sequence[tuple[Mapping[str, int], Program]],
    ) -> list[Program] | None: ...


_HEADER_LIMIT = 100 << 20
"""Upper bound on the bytes of a header, as in the format's definition."""

_TYPES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "F16": dtypes.f16, "BF16": dtypes.bf16, "F32": dtypes.f32,
    "F64": dtypes.f64, "F8_E4M3": dtypes.f8e4m3fn, "F8_E5M2": dtypes.f8e5m2,
    **{f"I{b}": dtypes.BY_NAME[f"i{b}"] for b in (8, 16, 32, 64)},
    **{f"U{b}": dtypes.BY_NAME[f"u{b}"] for b in (8, 16, 32, 64)},
}  # fmt: skip
"""Element types by their names in the format."""


def arrays_of(weights: Weights) -> dict[str, np.ndarray]:
    """Weights by name.  If possible, they are views of the caller's memory or of the mapped file.

    Raises ModelError for a file that can't be read, and for a value that is not an array.
    """
    if isinstance(weights, (str, os.PathLike)):
        return _file_arrays(Path(weights))
    return {name: to_numpy(value, f"weight {name!r}") for name, value in weights.items()}


def renewed(
    recipe: Recipe | None, weights: Weights, programs: Sequence[tuple[Mapping[str, int], Program]]
) -> list[Program]:
    """Programs with new weights that replace `programs`; none if `programs` already have these
    weights.

    recipe: the recipe of `programs`; None if it is not known.

    Raises UsageError without a recipe, and the errors of `arrays_of` and `Recipe.renewed`.
    """
    if recipe is None:
        raise UsageError(
            "an executable from a file has no model to fold new weights into; compile the model "
            "again"
        )
    return recipe.renewed(arrays_of(weights), programs) or []


def _file_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors` or GGUF file; elements quantised in blocks become f32."""
    content = map_model(path, "a .safetensors or GGUF file")
    if bytes(content[: len(MAGIC)]) != MAGIC:
        return read_safetensors(path)
    try:
        return {name: tensor.read() for name, tensor in read_gguf(content).tensors.items()}
    except ModelError as e:
        raise type(e)(f"{path}: {e}") from None


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors` file, in the mapped file.

    The format (https://github.com/huggingface/safetensors): 8 bytes of the header's size, the
    header in JSON, and the arrays in row-major order.

    Raises ModelError if the file can't be read or is damaged.
    """
    content = map_model(path, "a .safetensors file")
    size = int.from_bytes(content[:8], "little")
    if not 2 <= size <= min(_HEADER_LIMIT, len(content) - 8):
        raise ModelError(
            f"{path}: expected a .safetensors file, found one whose header has {size} of "
            f"{len(content)} bytes"
        )
    try:
        header = json.loads(bytes(content[8 : 8 + size]))
        tensors = {k: _tensor(v, content[8 + size :]) for k, v in header.items() if k != _ABOUT}
    except DAMAGED as e:
        reason = " ".join(f"{type(e).__name__}: {e}".split())
        raise ModelError(f"{path}: not a sound .safetensors file: {reason}") from None
    return tensors


_ABOUT = "__metadata__"
"""The entry of the header that does not describe an array."""


def _tensor(entry: dict[str, Any], data: memoryview) -> np.ndarray:
    dtype, shape = _TYPES[entry["dtype"]], entry["shape"]
    begin, end = entry["data_offsets"]
    if any(type(n) is not int or n < 0 for n in (*shape, begin, end)):
        raise ValueError(f"{entry} has something else than numbers of 0 or more")
    if end > len(data) or end - begin != math.prod(shape) * dtype.bytes:
        raise ValueError(f"{entry} does not fit {len(data)} bytes of arrays")
    stored = np.frombuffer(data[begin:end], np.uint8)
    return stored.view(dtype.numpy).reshape(shape)


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a `.safetensors` file; it appears whole or not at all.

    Raises UsageError if it can't be written.
    """
    text = safetensors_header(arrays)
    with writing(path), written(path) as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for a in arrays.values():
            f.write(np.ascontiguousarray(a).tobytes())


def safetensors_header(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The header of a `.safetensors` file: the types, shapes and places of arrays in JSON."""
    names = {d.numpy: name for name, d in _TYPES.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, a in arrays.items():
        begin, end = end, end + a.nbytes
        header[name] = {
            "dtype": names[a.dtype], "shape": a.shape, "data_offsets": (begin, end),
        }  # fmt: skip
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 8)  # the padding aligns the arrays
