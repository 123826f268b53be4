"""The frontend for Keras files: the `.keras` archives of Keras 3 and the `.h5` of Keras 1 to 3.

The files are read without Keras and without TensorFlow, with the package `h5py` alone.
"""

from __future__ import annotations

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.keras.archive import recognises

KERAS = Frontend(
    "a Keras file",
    ("a path to a Keras model", "its bytes"),
    recognises,
    "tilesmith.frontend.keras.operators",
)

__all__ = ["KERAS"]
