"""The operator that makes numbers of a training step that are not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesmith.graph.evaluate import evaluate_op, logical_array
from tilesmith.graph.nodes import Graph, Node, Value


def first_fault(graph: Graph, inputs: Mapping[str, np.ndarray]) -> str:
    """The input that has a NaN, or the first operator whose results have one although its operands
    have none, or the first operator that makes an infinity, in words.  All are evaluated in NumPy.

    graph: its sizes are known.
    inputs: by name.
    """
    values: dict[Value, np.ndarray] = {v: np.asarray(inputs[v.name]) for v in graph.inputs}
    for v in graph.inputs:
        if _has(np.isnan, [values[v]]):
            return f"input {v.name!r} has a NaN"
    values |= {c.value: logical_array(c) for c in graph.constants}
    infinite = "in NumPy all numbers are finite"
    is_first = True
    for node in graph.nodes:
        operands = [values[v] for v in node.inputs]
        results = evaluate_op(node.op, *operands)
        values.update(zip(node.outputs, results, strict=True))
        if _has(np.isnan, results) and not _has(np.isnan, operands):
            return f"{_named(node)} makes the first NaN"
        if is_first and _has(np.isinf, results) and not _has(np.isinf, operands):
            infinite, is_first = f"{_named(node)} makes the first infinity", False
    return infinite


def _has(test: np.ufunc, arrays: Sequence[np.ndarray]) -> bool:
    return any(a.dtype.kind not in "biu" and test(a).any() for a in arrays)


def _named(node: Node) -> str:
    return f"{node.op.name} of node {node.loc!r}" if node.loc else node.op.name
