"""The frontend for Keras files: the `.keras` archives of Keras 3 and the `.h5` of Keras 1 to 3.

The files are read without Keras and without TensorFlow, with the package `h5py` alone.  The reader
is imported when the first file is read, because it imports the import functions of all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.frontend.keras.archive import recognises

if TYPE_CHECKING:
    from tilesmith.frontend.common.inputs import Given
    from tilesmith.frontend.common.inspection import Inspection
    from tilesmith.graph.nodes import Graph


def load(source: Source, given: Given) -> Graph:
    """The graph of a Keras model (see `reader.load`)."""
    from . import reader

    return reader.load(source, given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and classes of a model's layers."""
    from . import reader

    return reader.nodes(source)


def inspect(source: Source) -> Inspection:
    """Facts about a Keras file (see `reader.inspect`)."""
    from . import reader

    return reader.inspect(source)


KERAS = Frontend(
    "a Keras file",
    ("a path to a Keras model", "its bytes"),
    recognises,
    load,
    nodes,
    inspect,
)

__all__ = ["KERAS"]
