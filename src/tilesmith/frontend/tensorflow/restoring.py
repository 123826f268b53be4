"""The stored tensor that each variable gets, and the variables that a run changes.

A SavedModel has nodes that restore its variables.  RestoreV2 names stored tensors, and an
assignment puts each of its results into a variable.  In TensorFlow 2 these nodes are in a function
whose arguments are the variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tilesmith.frontend.tensorflow.model import Function, Model, Node, Ref
from tilesmith.frontend.tensorflow.tensors import contents

_ASSIGNMENTS = ("Assign", "AssignVariableOp")
_CHANGES = (
    *_ASSIGNMENTS, "AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp",
    "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterNdUpdate",
    "ResourceStridedSliceAssign",
)  # fmt: skip
_PASSING = ("Identity", "Cast", "ReadVariableOp")
"""Operators between a stored tensor and the variable that gets it."""

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def origin(function: Function, ref: Ref) -> Ref:
    """The output or argument that `ref` comes from, before nodes that only pass a value on."""
    seen: set[str] = set()
    while ref.node in function.nodes and ref.node not in seen:
        seen.add(ref.node)
        node = function.nodes[ref.node]
        if node.op not in _PASSING or not node.inputs:
            return ref
        ref = node.inputs[0]
    return ref


def stored_keys(model: Model) -> dict[str, str]:
    """The key of each variable's tensor in the bundle, by the variable's node in the main graph."""
    keys = _restored(model.graph)
    call = model.graph.nodes.get(model.restore.partition(":")[0])
    for name, _ in call.called if call is not None else ():
        function = model.function(name)
        assert call is not None
        operands = dict(zip(function.arguments, call.inputs, strict=False))
        for argument, key in _restored(function).items():
            if argument in operands:
                keys[origin(model.graph, operands[argument]).node] = key
    for node in model.graph.nodes.values():
        if node.op in ("VarHandleOp", "VariableV2") and model.bundle is not None:
            names = (node.text("shared_name"), node.name)
            candidates = [n + end for n in names for end in ("", _SUFFIX) if n]
            key = next((c for c in candidates if c in model.bundle), None)
            if key is not None:
                keys.setdefault(node.name, key)
    return keys


def _restored(function: Function) -> dict[str, str]:
    """The keys of the tensors that a function restores, by the node or argument that gets each."""
    keys: dict[str, str] = {}
    names: dict[str, np.ndarray] = {}
    for node in function.nodes.values():
        if node.op not in _ASSIGNMENTS or len(node.inputs) < 2:
            continue
        variable, value = (origin(function, i) for i in node.inputs[:2])
        source = function.nodes.get(value.node)
        if source is None or source.op != "RestoreV2" or len(source.inputs) < 2:
            continue
        if source.name not in names:
            names[source.name] = _constant(function, source.inputs[1])
        if value.index < len(names[source.name]):
            keys[variable.node] = str(names[source.name][value.index])
    return keys


def _constant(function: Function, ref: Ref) -> np.ndarray:
    node = function.nodes.get(ref.node)
    stated = node.attributes.get("value") if node is not None and node.op == "Const" else None
    if stated is None or stated.tensor is None:
        return np.zeros(0, object)
    return contents(stated.tensor, f"node {ref.node!r}").reshape(-1)


def changed(model: Model, outputs: Iterable[str]) -> set[str]:
    """The variables that the computation of `outputs` changes, as nodes of the main graph."""
    return _changed(model, model.graph, reached(model.graph, outputs), {})


def _changed(
    model: Model, function: Function, nodes: Iterable[Node], known: dict[str, set[str]]
) -> set[str]:
    """The variables that `nodes` of a function change, as arguments or nodes of the function."""
    names: set[str] = set()
    for node in nodes:
        if node.op in _CHANGES and node.inputs:
            names.add(origin(function, node.inputs[0]).node)
        for name, skipped in node.called:
            if name not in known:
                known[name] = set()  # a function that calls itself changes nothing more
                inner = model.function(name)
                known[name] = _changed(model, inner, inner.nodes.values(), known)
            operands: Mapping[str, Ref] = dict(
                zip(model.function(name).arguments, node.inputs[skipped:], strict=False)
            )
            names |= {origin(function, operands[a]).node for a in known[name] if a in operands}
    return names


def reached(function: Function, outputs: Iterable[str]) -> list[Node]:
    """The nodes `outputs` and all nodes on which they depend, in the order of the file."""
    todo, seen = list(outputs), set[str]()
    while todo:
        name = todo.pop()
        node = function.nodes.get(name)
        if name not in seen and node is not None:
            seen.add(name)
            todo += [*(i.node for i in node.inputs), *node.controls]
    return [node for name, node in function.nodes.items() if name in seen]
