"""The frontend for Keras files: the `.keras` archives of Keras 3 and the `.h5` of Keras 1 to 3.

The files are read without Keras and without TensorFlow, with the package `h5py` alone.
"""

from __future__ import annotations

import io
import zipfile

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.foreign import is_zip

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
"""Files in a `.keras` archive."""


def recognises(source: Source) -> bool:
    """Whether a source is a Keras archive or an HDF5 file."""
    content = source.content
    if content is None:
        return False
    if is_hdf5(content):
        return True
    if not is_zip(content):
        return False
    try:
        return {CONFIG, WEIGHTS} <= set(opened(content).namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError):
        return False


def is_hdf5(content: bytes | memoryview) -> bool:
    """Whether a file begins with the signature of HDF5."""
    return bytes(content[:8]) == b"\x89HDF\r\n\x1a\n"


def opened(content: bytes | memoryview) -> zipfile.ZipFile:
    """A ZIP archive's members."""
    return zipfile.ZipFile(io.BytesIO(content))


KERAS = Frontend(
    "a Keras file",
    ("a path to a Keras model", "its bytes"),
    recognises,
    "tilesmith.frontend.keras.operators",
)

__all__ = ["KERAS"]
