"""Facts about a TensorFlow model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tilesmith.frontend.common.inspection import Function, Inspection
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tensorflow.importer import CONTROL, IDLE
from tilesmith.frontend.tensorflow.model import Function as Nodes
from tilesmith.frontend.tensorflow.model import Model, read
from tilesmith.frontend.tensorflow.reader import inputs, results
from tilesmith.frontend.tensorflow.registry import OPERATORS
from tilesmith.frontend.tensorflow.restoring import reached
from tilesmith.frontend.tensorflow.schema import dtype_of
from tilesmith.frontend.tensorflow.tensors import OPEN, dims_of


def inspect(source: Source) -> Inspection:
    """Facts about a TensorFlow model.  Raises ModelError if it is damaged."""
    model = read(source)
    main = model.signature(None)
    outputs = [r.node for r in results(model, None).values()]
    operators = _operators(model, model.graph, outputs, set())
    unsupported = {o for o in operators if OPERATORS.find("", o) is None} - {*CONTROL, *IDLE}
    stated = _function(model, main.name) if main is not None else _placeholders(model)
    kind = "TensorFlow SavedModel" if model.signatures else "TensorFlow GraphDef"
    return Inspection(
        kind,
        f"TensorFlow {model.version}" if model.version else "",
        stated["inputs"],
        stated["outputs"],
        operators,
        frozenset(unsupported),
        model.bundle.size if model.bundle is not None else _constant_bytes(model),
        {f"signature {name}": _shown(_function(model, name)) for name in model.signatures},
    )


def signatures(source: Source) -> dict[str, Function]:
    """The signatures of a SavedModel.  Raises ModelError if it is damaged."""
    model = read(source)
    return {name: _function(model, name) for name in model.signatures}


def _function(model: Model, name: str) -> Function:
    s = model.signatures[name]
    return {
        "inputs": {n: _type(info.dtype, info.tensor_shape) for n, (_, info) in s.inputs.items()},
        "outputs": {n: _type(info.dtype, info.tensor_shape) for n, (_, info) in s.outputs.items()},
    }


def _placeholders(model: Model) -> Function:
    nodes = model.graph.nodes
    placed: dict[str, str] = {}
    for name in inputs(model, None):
        attributes = nodes[name].attributes
        shape = attributes["shape"].shape if "shape" in attributes else None
        placed[name] = _type(attributes["dtype"].type, shape)
    return {
        "inputs": placed,
        "outputs": {name: nodes[r.node].op for name, r in results(model, None).items()},
    }


def _shown(function: Function) -> str:
    return " -> ".join(", ".join(map(": ".join, named.items())) for named in function.values())


def _type(number: int, shape: Message | None) -> str:
    """A declared type as text."""
    dtype, dims = dtype_of(number), dims_of(shape)
    name = str(dtype) if dtype is not None else f"type {number}"
    if dims is None:
        return f"{name} of unknown rank"
    return f"{name}[{','.join('?' if d == OPEN else str(d) for d in dims)}]"


def _operators(
    model: Model, function: Nodes, outputs: Iterable[str], seen: set[str]
) -> Counter[str]:
    """The number of nodes with each operator, in functions that are called too."""
    counts: Counter[str] = Counter()
    for node in reached(function, outputs):
        counts[node.op] += 1
        for name, _ in node.called:
            if name not in seen:
                seen.add(name)
                inner = model.function(name)
                ends = [*(r.node for r in inner.results), *inner.effects]
                counts += _operators(model, inner, ends, seen)
    return counts


def _constant_bytes(model: Model) -> int:
    """The size of the constants of a frozen graph."""
    stored = [n.attributes.get("value") for n in model.graph.nodes.values() if n.op == "Const"]
    tensors = (v.tensor for v in stored if v is not None)
    return sum(len(t.tensor_content) for t in tensors if t is not None)
