"""The configuration of a model: its layers and their calls, as Keras 1, 2 and 3 write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.keras.older import ARGUMENTS, modern, operation_of
from tilesmith.frontend.keras.registry import LAYERS
from tilesmith.support.errors import ModelError, UnsupportedError

_CONSTANT = "_CONSTANT_VALUE"
"""In files of Keras 2, the mark of a number that stands instead of a tensor."""

MODELS = ("Functional", "Model", "Sequential")


@dataclass(frozen=True)
class Reference:
    """A reference to a tensor: result number `index` of call number `call` of a layer."""

    layer: str
    call: int
    index: int


@dataclass(frozen=True)
class Layer:
    """A layer of a model.

    kind: its class.
    name: its name.
    config: its configuration.
    calls: the positional and the named arguments of each call of the layer.
    first: the number by which references name its first call: 1 for models in files of Keras 1
        and 2, otherwise 0.
    group: the name of its group of weights.
    is_operation: whether it is an operation on tensors.
    """

    kind: str
    name: str
    config: Any
    calls: tuple[tuple[Any, dict[str, Any]], ...]
    first: int
    group: str
    is_operation: bool


def expect(value: Any, kind: type, what: str) -> Any:
    """`value`, a part of a configuration.  Raises ModelError if its type is not `kind`."""
    if not isinstance(value, kind):
        raise ModelError(f"{what}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def layers_of(kind: str, config: Any) -> list[Layer]:
    """The layers of a model in order.  In a Sequential model, each layer reads the one before."""
    stored = config.get("layers") if isinstance(config, dict) else config
    used: Counter[str] = Counter()
    made: list[Layer] = []
    before = ""
    for item in expect(stored, list, "the layers of a model"):
        class_, own = str(expect(item, dict, "a layer").get("class_name")), item.get("config", {})
        name = item.get("name") or (own.get("name") if isinstance(own, dict) else None)
        name = str(name or f"{class_.lower()}_{len(made)}")
        if class_ == "Merge" and kind == "Sequential":
            raise UnsupportedError("Merge at the start of a Sequential model of Keras 1")
        is_operation = class_ in ("TFOpLambda", "SlicingOpLambda")
        group = _snake("GroupedQueryAttention" if class_ == "GroupQueryAttention" else class_)
        is_layer = _is_layer(item)
        used[group] += is_layer
        group += f"_{used[group] - 1}" if used[group] > 1 else ""
        if kind != "Sequential":
            calls = tuple(map(_call, expect(item.get("inbound_nodes", []), list, "the calls")))
        else:
            calls = (([Reference(before, 0, 0)], {}),)
        if is_operation:
            class_, own = operation_of(class_, own)
            calls = tuple((a, {ARGUMENTS.get(k, k): v for k, v in o.items()}) for a, o in calls)
        else:
            class_, own = modern(class_, own)
        nodes = item.get("inbound_nodes")
        is_old = isinstance(nodes, list) and bool(nodes) and isinstance(nodes[0], list)
        first = int(class_ in MODELS and is_old)
        made.append(Layer(class_, name, own, calls, first, group, is_operation or not is_layer))
        before = name
    return made


def _is_layer(item: dict[str, Any]) -> bool:
    """Whether an item of a model is a layer, and not an operation of Keras 3.

    HDF5 files of Keras 3 don't state the module of a class.  There, an item with an entry
    `trainable` is a layer, and so is one with a `dtype` whose class is a known layer.
    """
    if "module" in item:
        return ".ops" not in str(item["module"])
    config, calls = item.get("config"), item.get("inbound_nodes")
    is_new = isinstance(calls, list) and bool(calls) and isinstance(calls[0], dict)
    if not is_new or not isinstance(config, dict) or "trainable" in config:
        return True
    return "dtype" in config and LAYERS.find("", str(item.get("class_name"))) is not None


def _snake(name: str) -> str:
    """A class's name in lower case, with underscores between words."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def inputs_of(kind: str, config: Any, layers: list[Layer]) -> list[str]:
    """The names of the layers that stand for a model's inputs.

    For the input of a Sequential model without an input layer, the name is empty.
    """
    if kind != "Sequential":
        return [r.layer for r in references(config.get("input_layers", []))]
    if not layers:
        raise ModelError("expected layers in a Sequential model, found none")
    return [layers[0].name if layers[0].kind == "InputLayer" else ""]


def outputs_of(kind: str, config: Any, layers: list[Layer]) -> list[Reference]:
    """The outputs of a model."""
    if kind == "Sequential":
        return [Reference(layers[-1].name, 0, 0)]
    of = {layer.name: layer for layer in layers}
    outputs = list(references(config.get("output_layers", [])))
    # In `output_layers`, Keras 3 counts calls of functional models from 1; elsewhere from 0.
    shifted = {k for k, v in of.items() if v.kind in MODELS[:2] and not v.first}
    return [Reference(o.layer, max(o.call - (o.layer in shifted), 0), o.index) for o in outputs]


def _call(stored: Any) -> tuple[Any, dict[str, Any]]:
    """The positional and named arguments of a serialised call.

    Keras 3 stores a dictionary, older versions store a list of references.
    """
    if isinstance(stored, dict):
        kwargs = expect(stored.get("kwargs", {}), dict, "the named arguments")
        return argument(stored.get("args", [])), argument(kwargs)
    is_one = is_reference(stored) or (isinstance(stored, list) and stored[:1] == [_CONSTANT])
    stored = [stored] if is_one else expect(stored, list, "a call")
    args: list[Any] = []
    named: dict[str, Any] = {}
    for r in stored:
        if isinstance(r, list) and len(r) > 2 and r[0] == _CONSTANT:
            args.append(r[2])
        elif is_reference(r):
            args.append(Reference(*r[:3]))
        else:
            raise ModelError(f"expected a tensor of a layer, found {r!r:.80}")
        named |= r[3] if len(r) > 3 and isinstance(r[3], dict) else {}
    return args if len(args) == 1 else [args], {k: argument(v, True) for k, v in named.items()}


def argument(tree: Any, is_old: bool = False) -> Any:
    """An argument of a call, in which references, slices and arrays are deserialised.

    is_old: whether lists such as ["dense", 0, 0] are references, as in Keras 2.
    """
    if isinstance(tree, list):
        return (
            Reference(*tree[:3])
            if is_old and is_reference(tree)
            else [argument(t, is_old) for t in tree]
        )
    if not isinstance(tree, dict):
        return tree
    kind, config = tree.get("class_name"), tree.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or not is_reference(history):
            raise ModelError(f"expected a tensor of a layer, found {history!r:.80}")
        return Reference(*history[:3])
    if kind == "__slice__" and isinstance(config, dict):
        return slice(*(argument(config.get(k)) for k in ("start", "stop", "step")))
    if kind == "__tuple__":
        return argument(expect(tree.get("items"), list, "a tuple"), is_old)
    if tree.keys() == {"start", "stop", "step"}:
        return slice(tree["start"], tree["stop"], tree["step"])
    if kind == "__ellipsis__":
        return ...
    if kind in ("__numpy__", "__tensor__") and isinstance(config, dict):
        try:
            return np.array(config.get("value"), str(config.get("dtype")))
        except (TypeError, ValueError) as e:
            raise ModelError(f"expected numbers of a known type, found others ({e})") from None
    return {str(k): argument(v, is_old) for k, v in tree.items()}


def is_reference(item: Any) -> bool:
    """Whether `item` is a serialised reference: a list of a layer's name and two numbers."""
    is_long = isinstance(item, list) and len(item) in (3, 4) and isinstance(item[0], str)
    return is_long and all(type(i) is int for i in item[1:3])


def in_order(tree: Any) -> list[Any]:
    """The items of a list, or of a dictionary sorted by key, as Keras flattens structures."""
    return [tree[k] for k in sorted(tree, key=str)] if isinstance(tree, dict) else list(tree)


def references(tree: Any) -> Iterator[Reference]:
    """The tensors that `input_layers` and `output_layers` name, in order."""
    if is_reference(tree):
        yield Reference(*tree[:3])
    elif isinstance(tree, (list, dict)):
        for item in in_order(tree):
            yield from references(item)
