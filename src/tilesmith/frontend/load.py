"""From a source model of any kind to a Graph: `load` is the frontends' one entry."""

from __future__ import annotations

from typing import Any

from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import UsageError

from .common.inputs import Shapes, Values
from .common.source import Frontend, Source
from .onnx import ONNX

FRONTENDS: tuple[Frontend, ...] = (ONNX,)
"""In the order in which they are asked.  ONNX is last: its files have no signature, so it takes
every file that no other recognises.
"""


def load(
    model: Any,
    shapes: Shapes | None = None,
    values: Values | None = None,
    opened: set[str] | None = None,
) -> Graph:
    """The graph of a source model; a `Graph` is one already.

    `shapes` gives the shapes of inputs whose dimensions the model leaves open, by input name
    (`{"x": (1, 3, 224, 224)}`) or by the name of a dimension (`{"batch": 1}`). `values` fixes
    inputs to constants: they are no inputs of the graph any more (for models whose shapes depend
    on an input's value).  `opened` takes in the names of files that the model refers to.

    Raises UsageError for what is no model; ModelError when the model is damaged, inconsistent or
    needs `shapes`; UnsupportedError, which lists every node that cannot be imported; its subclass
    ValuesNeededError when `values` would help.
    """
    if isinstance(model, Graph):
        return model
    source = Source.of(model, " or ".join(f.file for f in FRONTENDS), opened)
    for frontend in FRONTENDS:
        if frontend.recognises(source):
            return frontend.load(source, shapes or {}, values or {})
    kinds = ", ".join(kind for f in FRONTENDS for kind in f.kinds)
    raise UsageError(f"expected {kinds} or a Graph, got {type(model).__name__}")
