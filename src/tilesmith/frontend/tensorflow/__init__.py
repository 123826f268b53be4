"""The frontend for TensorFlow's models: SavedModel folders, and frozen graphs (`.pb`).

The files are read without TensorFlow.  Operators that TFLite took over from TensorFlow have one
import function for both readers.
"""

from tilesmith.frontend.common.protobuf import BYTES, VARINT, wire_fields
from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.errors import ModelError

SAVED_MODEL = "saved_model.pb"
"""The file of a SavedModel that has its graphs."""


def recognises(source: Source) -> bool:
    """Whether a source is a SavedModel's folder or file, or a frozen graph."""
    if source.is_folder:
        assert source.folder is not None
        return (source.folder / SAVED_MODEL).is_file()
    if source.content is None:
        return False
    view = memoryview(source.content)
    try:
        return _is_saved_model(view) or _is_graph(view)
    except ModelError:
        return False


def _is_saved_model(view: memoryview) -> bool:
    """Whether a file has the form of a SavedModel: the version 1, then only graphs."""
    fields = list(wire_fields(view, 0, len(view)))
    if {(f.number, f.kind) for f in fields} != {(1, VARINT), (2, BYTES)}:
        return False
    version = next(f for f in fields if f.number == 1)
    graph = next(f for f in fields if f.number == 2)
    has_graph = any(f.number == 2 for f in wire_fields(view, graph.body, graph.end))
    return bytes(view[version.body : version.end]) == b"\x01" and has_graph


def _is_graph(view: memoryview) -> bool:
    """Whether a file begins with a node that has a name and an operator."""
    first = next(wire_fields(view, 0, len(view)), None)
    if first is None or (first.number, first.kind) != (1, BYTES):
        return False
    fields = {f.number: f for f in wire_fields(view, first.body, first.end)}
    if not {1, 2} <= fields.keys() <= set(range(1, 8)):
        return False
    name, operator = (bytes(view[fields[n].body : fields[n].end]) for n in (1, 2))
    return bool(name) and operator.decode(errors="replace").isidentifier()


TENSORFLOW = Frontend(
    "a TensorFlow SavedModel or frozen graph",
    ("a path to a TensorFlow model",),
    recognises,
    "tilesmith.frontend.tensorflow.operators",
)

__all__ = ["TENSORFLOW"]
