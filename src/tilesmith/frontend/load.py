"""`load`, the entry point of all frontends, which makes a Graph from a source model of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tilesmith.graph.nodes import Constant, Graph
from tilesmith.ir.sizes import ExpectedSizes, Ranges
from tilesmith.ops.rules import UnequalDims
from tilesmith.support.errors import ModelError, UsageError

from .archive import ARCHIVE
from .caffe import CAFFE
from .common.errors import errors_name
from .common.inputs import Given, Shapes, Values
from .common.inspection import Function, Inspection
from .common.source import Frontend, Source
from .common.symbols import Narrowing, Symbols
from .common.weights import NewWeights
from .coreml import COREML
from .darknet import DARKNET
from .gguf import GGUF
from .keras import KERAS
from .mxnet import MXNET
from .ncnn import NCNN
from .onnx import ONNX
from .openvino import OPENVINO
from .paddle import PADDLE
from .relay import RELAY
from .stablehlo import STABLEHLO
from .tengine import TENGINE
from .tensorflow import TENSORFLOW
from .tflite import TFLITE
from .torch import TORCH

FRONTENDS: tuple[Frontend, ...] = (
    TORCH,
    KERAS,
    ARCHIVE,
    RELAY,
    STABLEHLO,
    GGUF,
    MXNET,
    PADDLE,
    TFLITE,
    TENSORFLOW,
    CAFFE,
    COREML,
    DARKNET,
    NCNN,
    TENGINE,
    OPENVINO,
    ONNX,
)
"""The frontends, in the order in which they may accept a source.  ONNX is last: its files have no
signature, so it takes every file that no other frontend recognises.
"""


def load(
    model: Any,
    shapes: Shapes | None = None,
    values: Values | None = None,
    opened: set[str] | None = None,
    dynamic: Ranges | None = None,
    expected: ExpectedSizes | None = None,
    fallback: bool = False,
    in_place: Iterable[str] = (),
    weights: Mapping[str, np.ndarray] | None = None,
    optional: Iterable[str] = (),
    narrowed: list[Narrowing] | None = None,
    signature: str | None = None,
    for_training: bool = False,
    without_dropout: bool = False,
) -> Graph:
    """The graph of a source model.  A `Graph` is returned unchanged.

    shapes: the shapes of inputs whose dimensions the model leaves open, by input name
        (`{"x": (1, 3, 224, 224)}`) or by the name of a dimension (`{"batch": 1}`).  Other open
        dimensions are symbols of the graph.
    values: inputs that become constants instead of inputs of the graph (for models whose shapes
        depend on an input's value).
    opened: collects the names of files to which the model refers.
    dynamic: the smallest and largest size of open dimensions, or only the largest, by the
        dimension's name (`{"batch": (1, 64)}`) or by input and axis (`{"x": {0: (1, 64)}}`);
        1 to 2^31 - 1 for others.
    expected: the sizes for which the program is made fast, by the same names.
    fallback: whether nodes that can't be native code become calls of the host.
    in_place: outputs that live in the memory of an input.  The frontend may assume that they have
        the input's shape; the caller checks this.

    weights: new contents of weights, by name.
    optional: initialisers of an ONNX model that become inputs of the graph, the last ones, with
        their contents as the default.
    narrowed: collects the dimensions that nodes restrict.
    signature: the function to import, if the model has several (default: the main function).
    for_training: whether the graph will be trained: nothing is computed from weights, and random
        numbers are drawn by nodes.
    without_dropout: whether dropout of an ONNX model keeps all elements, also in training mode.

    Raises UsageError for a source that is not a model or lacks the signature; ModelError when the
    model is damaged or inconsistent; OpenShapesError when it needs `shapes`; UnsupportedError,
    which lists every node that cannot be imported; its subclass ValuesNeededError when `values`
    would help.
    """
    new = NewWeights(weights or {})
    named = tuple(dict.fromkeys(optional))
    if isinstance(model, Graph):
        _check_signature(signature, {})
        _check_optional(named, "a Graph")
        return _with_weights(model, new)
    symbols = Symbols(dynamic, expected)
    frontend, source = recognised(model, opened)
    if frontend is not ONNX:
        _check_optional(named, frontend.kinds[0])
    if signature is not None:
        _check_signature(signature, frontend.reader.signatures(source))
    said = Given(
        shapes or {},
        values or {},
        symbols,
        fallback,
        frozenset(in_place),
        new,
        named,
        signature,
        for_training,
        without_dropout,
    )
    graph = _load(frontend, source, said)
    new.check()
    if narrowed is not None:
        narrowed += symbols.narrowed
    return graph


def _check_optional(names: Sequence[str], found: str) -> None:
    """Raises UsageError if `names` has initialisers, for a model that has none."""
    if names:
        raise UsageError(
            f"optional={list(names)} names initialisers of an ONNX model, found {found}: make what "
            "is to be given at run time an input of the model"
        )


def _check_signature(name: str | None, among: Mapping[str, Function]) -> None:
    if name is not None and name not in among:
        names = ", ".join(map(repr, among)) or "none: the model has a single function"
        raise UsageError(f"signature: expected one of {names}, found {name!r}")


def facts(model: Any, signature: str | None = None) -> dict[str, Any]:
    """JSON facts about a source model, for its program.  "signatures" has the functions of the
    model by name.  "described" has descriptions of the compiled function's inputs and outputs.

    Raises the same error as `load` for a source that is not a model.
    """
    if isinstance(model, Graph):
        return {}
    frontend, source = recognised(model)
    with errors_name(source.name):
        described = frontend.reader.described(source, signature)
        return {
            "signatures": frontend.reader.signatures(source),
            "described": {name: asdict(d) for name, d in described.items()},
        }


def _with_weights(graph: Graph, new: NewWeights) -> Graph:
    if not new.arrays:
        return graph
    constants = [
        Constant(c.value, new.data(c.value.name, c.value.type, c.data)) for c in graph.constants
    ]
    new.check()
    return replace(graph, constants=tuple(constants))


def source_nodes(model: Any) -> list[tuple[str, str]]:
    """The names and operators of a source model's nodes, in its order.  Empty for models without
    such a list, such as a `Graph`.  Raises the same error as `load` for a source that is not a
    model.
    """
    if isinstance(model, Graph):
        return []
    frontend, source = recognised(model)
    return frontend.reader.nodes(source)


def inspect(model: Any) -> Inspection:
    """Facts about a source model's file.

    Raises UsageError for a source that is not a file or the bytes of one, ModelError when it is
    damaged.
    """
    frontend, source = recognised(model)
    if frontend.reader.inspect is None:
        raise UsageError(f"expected a model's file, found {frontend.kinds[0]}")
    with errors_name(source.name):
        return frontend.reader.inspect(source)


def recognised(model: Any, opened: set[str] | None = None) -> tuple[Frontend, Source]:
    """The frontend that reads a source model, and the opened source.

    Raises UsageError for a source that no frontend reads, ModelError for a path that cannot be
    read.
    """
    files = " or ".join(f.file for f in reversed(FRONTENDS) if f.file)
    source = Source.of(model, files, opened)
    for frontend in FRONTENDS:
        if frontend.recognises(source):
            return frontend, source
    if source.is_folder:
        raise ModelError(f"expected {files} at {source.name!r}, found a folder")
    kinds = ", ".join(kind for f in reversed(FRONTENDS) for kind in f.kinds)
    raise UsageError(f"expected {kinds} or a Graph, got {type(model).__name__}")


def _load(frontend: Frontend, source: Source, given: Given) -> Graph:
    """Import the model.  If it requires two extents to be equal, make them equal and repeat."""
    while True:
        try:
            graph = frontend.reader.load(source, given)
        except UnequalDims as e:
            with errors_name(source.name):
                given.symbols.restrict(e)
            continue
        if "" in graph.output_names:
            with errors_name(source.name):
                raise ModelError("expected a name for each output, found an empty one")
        return graph
