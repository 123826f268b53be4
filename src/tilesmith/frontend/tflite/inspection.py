"""Facts about a TFLite file."""

from __future__ import annotations

from collections import Counter

from tilesmith.frontend.common.inspection import Function, Inspection
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tflite.metadata import ENTRY, Metadata
from tilesmith.frontend.tflite.model import OPEN, Model, Signature, Tensor, read
from tilesmith.frontend.tflite.reader import chosen_signature
from tilesmith.frontend.tflite.registry import import_function
from tilesmith.support.described import Described

_VERSION = "min_runtime_version"
"""The entry of metadata that is text: the oldest runtime that can run the model."""


def inspect(source: Source) -> Inspection:
    """Facts about a TFLite file.  Raises ModelError if it is damaged."""
    model = read(source)
    signature = chosen_signature(model)
    main = _function(model, signature)
    operators: Counter[str] = Counter()
    unsupported: set[str] = set()
    for graph in model.subgraphs:
        for o in graph.operators:
            operators[o.name] += 1
            tensors = [graph.tensors[i] for i in (*o.inputs, *o.outputs) if i >= 0]
            if import_function(o, any(t.is_quantized for t in tensors)) is None:
                unsupported.add(o.name)
    return Inspection(
        f"TFLite, schema version {model.root.version}",
        model.root.description or "",
        main["inputs"],
        main["outputs"],
        operators,
        frozenset(unsupported),
        sum(_stored_bytes(model, t) for g in model.subgraphs for t in g.tensors),
        _metadata(model),
        Metadata(model).described(signature),
    )


def signatures(source: Source) -> dict[str, Function]:
    """The signatures of a TFLite model.  Raises ModelError if it is damaged."""
    model = read(source)
    return {s.name: _function(model, s) for s in model.signatures}


def described(source: Source, name: str | None) -> dict[str, Described]:
    """Descriptions of inputs and outputs of a signature, by their names.  Raises
    ModelError for damaged metadata.
    """
    model = read(source)
    return Metadata(model).described(chosen_signature(model, name))


def _function(model: Model, signature: Signature) -> Function:
    tensors = model.subgraph(signature.subgraph).tensors
    return {
        "inputs": {name: _type(tensors[t]) for name, t in signature.inputs.items()},
        "outputs": {name: _type(tensors[t]) for name, t in signature.outputs.items()},
    }


def _stored_bytes(model: Model, tensor: Tensor) -> int:
    stored = model.buffer(tensor.buffer) if tensor.buffer else None
    return 0 if stored is None else len(stored)


def _metadata(model: Model) -> dict[str, object]:
    """The file's signatures and metadata: entries that are text, and the sizes of other entries."""
    entries: dict[str, object] = {}
    for s in model.signatures:
        pairs = [", ".join(map(": ".join, named.items())) for named in _function(model, s).values()]
        entries[f"signature {s.name}"] = " -> ".join(pairs)
    entries |= Metadata(model).about
    for name, content in model.metadata.items():
        if name == ENTRY:
            continue
        is_text = name == _VERSION
        text = content.decode(errors="replace").rstrip("\0")
        entries[name] = text if is_text else f"{len(content)} bytes"
    return entries


def _type(tensor: Tensor) -> str:
    """A declared type as text, with the scale and zero point of quantised numbers."""
    name = tensor.type_name.lower()
    if tensor.dims is None:
        return f"{name} of unknown rank"
    text = f"{name}[{','.join('?' if d == OPEN else str(d) for d in tensor.dims)}]"
    q = tensor.quantization
    if q is None or not q.is_single:
        return text
    return f"{text}, scale {q.scale:g}, zero point {q.zero_point}"
