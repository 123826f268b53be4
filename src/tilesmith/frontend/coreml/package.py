"""Files of Core ML: a model in one `.mlmodel` file, or a `.mlpackage` folder with a manifest, the
model and a file of weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.external import ExternalFile, ExternalFiles
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.coreml import MANIFEST
from tilesmith.frontend.coreml.schema import schema
from tilesmith.ir.dtypes import BY_NAME, DType
from tilesmith.support.errors import ModelError, UnsupportedError
from tilesmith.support.mapped import map_model

_MODEL_PATH = "@model_path/"
"""The prefix of names of weight files.  It stands for the folder of the model."""

_RECORD = np.dtype(
    [("sentinel", "<u4"), ("type", "<u4"), ("size", "<u8"), ("offset", "<u8"), ("padding", "<u8")]
)
"""The used part of the 64 bytes that describe an array in a weight file.  The rest is reserved."""

_SENTINEL = 0xDEADBEEF


@dataclass(frozen=True)
class Package:
    """A model and its weight files.

    model: the root message.
    files: opens weight files beneath the model's folder.
    """

    model: Message
    files: ExternalFiles

    def blob(self, name: str, offset: int) -> Blob:
        """The array whose record is at `offset` of the weight file `name`."""
        what = f"the array at byte {offset} of {name!r}"
        file = self.files.open(name.removeprefix(_MODEL_PATH), what)
        if offset < 0 or offset + 64 > file.size:
            raise ModelError(f"{what}: expected a record of 64 bytes, found {file.size} bytes")
        record = np.frombuffer(file.read(offset, _RECORD.itemsize), _RECORD)[0]
        start, size = int(record["offset"]), int(record["size"])
        if record["sentinel"] != _SENTINEL or start + size > file.size:
            raise ModelError(
                f"{what}: expected a record and its data inside {file.size} bytes, found bytes "
                f"{start} to {start + size}"
            )
        return Blob(file, start, size)


@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of an array in a weight file.

    start: position of the first byte in the file.
    size: number of bytes.
    """

    file: ExternalFile
    start: int
    size: int

    def read(self) -> np.ndarray:
        return self.file.read(self.start, self.size)


@dataclass(frozen=True)
class Stored:
    """The bytes of an array, its element type and its shape.

    source: the bytes, or where they are.
    name: the element type's name in the format.
    shape: its extents.
    """

    source: Blob | np.ndarray
    name: str
    shape: tuple[int, ...]

    @cached_property
    def dtype(self) -> DType:
        """The element type of `read`'s result.  Raises UnsupportedError if there is none."""
        if self.name not in _DTYPES:
            raise UnsupportedError(f"an array of element type {self.name.lower()}")
        return BY_NAME[_DTYPES[self.name][0]]

    def check(self) -> None:
        """Raises ModelError unless the number of bytes fits the shape."""
        count = int(np.prod(self.shape, dtype=object))
        wanted, size = -(-count * _DTYPES[self.name][1] // 8), self.source.size
        if size != wanted:
            raise ModelError(
                f"expected {wanted} bytes for {self.name.lower()}{list(self.shape)}, found {size}"
            )

    def read(self) -> np.ndarray:
        """The array.  Numbers of fewer than 8 bits are packed in the file, the lowest bit first."""
        data = self.source if isinstance(self.source, np.ndarray) else self.source.read()
        bits, dtype = _DTYPES[self.name][1], self.dtype.numpy
        if bits >= 8:
            return data.view(dtype).reshape(self.shape)
        count = int(np.prod(self.shape, dtype=np.int64))
        single = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
        numbers = np.packbits(single, axis=1, bitorder="little").reshape(self.shape)
        if self.name == "INT4":
            return (((numbers ^ 8).astype(np.int8)) - 8).astype(dtype)
        return numbers.astype(dtype)


_DTYPES = {
    "BOOL": ("bool", 8),
    "FLOAT16": ("f16", 16),
    "FLOAT32": ("f32", 32),
    "FLOAT64": ("f64", 64),
    "BFLOAT16": ("bf16", 16),
    **{f"INT{b}": (f"i{b}", b) for b in (8, 16, 32, 64)},
    **{f"UINT{b}": (f"u{b}", b) for b in (8, 16, 32, 64)},
    **{f"UINT{b}": ("u8", b) for b in (1, 2, 3, 6)},
    "INT4": ("int4", 4),
    "UINT4": ("uint4", 4),
    "FLOAT8E4M3FN": ("f8e4m3fn", 8),
    "FLOAT8E5M2": ("f8e5m2", 8),
}
"""For each element type of the format: the element type of arrays, and the bits in the file."""


def named_dtype(name: str) -> DType:
    """The element type with this name in the format, such as FLOAT16."""
    return Stored(np.zeros(0, np.uint8), name, ()).dtype


@contextmanager
def errors_of(source: Source) -> Iterator[None]:
    """A context in which errors name the source.  A needed message that is left out raises
    ModelError.
    """
    with errors_name(source.name):
        try:
            yield
        except AttributeError as e:
            if e.obj is not None:
                raise
            raise ModelError(f"damaged file: expected a message with {e.name!r}, found none") from e


def read(source: Source) -> Package:
    """The model of a source.  Raises ModelError for a damaged package."""
    content, folder, home = source.content, source.folder, source.home
    if content is None:
        assert folder is not None
        path = _root(folder)
        source.opened.add(str(path.relative_to(folder.resolve())))
        content, folder, home = map_model(path, "a Core ML model"), path.parent, None
    model = schema().decode(content, "Model")
    return Package(model, ExternalFiles(folder, source.opened, home))


def _root(folder: Path) -> Path:
    """The path of a package's model, which its manifest names."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        entry = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
        path = (folder / "Data" / entry).resolve()
    except (OSError, ValueError, LookupError, TypeError) as e:
        raise ModelError(
            f"{MANIFEST}: expected the root model's path, found none ({type(e).__name__}: {e})"
        ) from None
    if folder.resolve() not in path.parents:
        raise ModelError(f"{MANIFEST}: expected a path inside the package, found {entry!r}")
    return path
