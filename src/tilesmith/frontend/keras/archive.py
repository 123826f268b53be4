"""Keras' files: the `.keras` archives of Keras 3 and the HDF5 files of Keras 1 to 3.

The files are data.  No code in them is run, and no link out of a file is followed.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.source import Source
from tilesmith.frontend.keras import CONFIG, WEIGHTS, is_hdf5, opened
from tilesmith.frontend.keras.weights import (
    Grouped,
    Listed,
    Weights,
    check_tree,
    names_of,
    read_all,
)
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.rehearsal import survives

_METADATA = "metadata.json"
_TEXT_BYTES, _WEIGHT_BYTES, _RATIO = 1 << 26, 1 << 36, 1100
"""Upper bounds: bytes of a text, bytes of the weights, and bytes that a compressed byte gives."""


@dataclass(frozen=True)
class Stored:
    """A file's content.

    config: the serialised model.
    weights: the weights of its layers.
    format: the format's name.
    version: the version of Keras that wrote the file; empty if it is not stated.
    metadata: further entries.
    """

    config: dict[str, Any]
    weights: Weights
    format: str
    version: str
    metadata: dict[str, Any]

    @property
    def major(self) -> int:
        """The major version of Keras; 2 if it is not stated."""
        first = self.version.split(".")[0]
        return int(first) if first.isdigit() else 2


def read(source: Source) -> Stored:
    """The content of a file.  Raises ModelError if it is damaged, UsageError without `h5py`."""
    assert source.content is not None
    content = source.content
    try:
        return _legacy(content) if is_hdf5(content) else _archive(content)
    except (ModelError, UsageError):
        raise
    except (zipfile.BadZipFile, ArithmeticError, EOFError, LookupError, MemoryError) as e:
        raise _damaged(e) from e
    except (NotImplementedError, OSError, RuntimeError, TypeError, ValueError) as e:
        raise _damaged(e) from e


@contextmanager
def damage_named() -> Iterator[None]:
    """A context in which errors of the HDF5 library become ModelError."""
    try:
        yield
    except RecursionError:
        raise
    except (OSError, RuntimeError) as e:
        raise _damaged(e) from e


def _damaged(error: Exception) -> ModelError:
    return ModelError(f"expected a Keras file, found a damaged one ({error}): save it again")


def _archive(content: Any) -> Stored:
    archive = opened(content)
    metadata = _json(_member(archive, _METADATA, _TEXT_BYTES), _METADATA)
    config = _json(_member(archive, CONFIG, _TEXT_BYTES), CONFIG)
    file = _hdf5(_member(archive, WEIGHTS, _WEIGHT_BYTES))
    weights = Grouped(file, "", names_of(file))
    version = str(metadata.pop("keras_version", ""))
    return Stored(config, weights, "Keras archive", version, metadata)


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    if name not in archive.namelist():
        raise ModelError(f"expected {name} in the archive, found {archive.namelist()[:8]}")
    info = archive.getinfo(name)
    if info.file_size > min(most, _RATIO * (info.compress_size + 1)):
        raise ModelError(f"{name}: {info.file_size} bytes in the archive, more than are allowed")
    with archive.open(info) as file:
        data = file.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise ModelError(f"{name}: expected {info.file_size} bytes, found {len(data)}")
    return data


def _json(text: bytes | str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ModelError(f"{what}: expected JSON, found a damaged text ({e})") from None
    if not isinstance(value, dict):
        raise ModelError(f"{what}: expected a JSON object, found {type(value).__name__}")
    return value


def _hdf5(content: bytes) -> Any:
    try:
        import h5py
    except ImportError:
        raise UsageError(
            "Keras files need the package h5py: pip install 'tilesmith[keras]'"
        ) from None

    def opened() -> Any:
        file = h5py.File(h5py.h5f.open_file_image(content))
        check_tree(file, len(content))
        return file

    if not survives(lambda: read_all(opened())):  # damaged files crash HDF5
        raise ModelError("expected a Keras file, found one on which the HDF5 library crashes")
    return opened()


def _legacy(content: Any) -> Stored:
    file = _hdf5(bytes(content))
    if "model_config" not in file.attrs:
        raise ModelError(
            "expected the attribute 'model_config', found an HDF5 file without a model: save the "
            "whole model instead of its weights"
        )
    group = file.get("model_weights")
    if group is None:
        raise ModelError("expected the group 'model_weights', found none: save the whole model")
    text, version = file.attrs["model_config"], file.attrs.get("keras_version", "1")
    version = version.decode() if isinstance(version, bytes) else str(version)
    listed = Listed(group, None)
    return Stored(_json(text, "model_config"), listed, "Keras HDF5", version, {})
