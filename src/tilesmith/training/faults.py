"""The operator that makes numbers of a training step that are not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Node


def first_fault(graph: Graph, inputs: Mapping[str, np.ndarray]) -> str:
    """The input that has a NaN, or the first operator whose results have one although its operands
    have none, or the first operator that makes an infinity, in words.  All are evaluated in NumPy.

    inputs: by name; others than those of the graph may be among them.
    """
    given = {v.name: inputs[v.name] for v in graph.inputs}
    for name, array in given.items():
        if _has(np.isnan, [array]):
            return f"input {name!r} has a NaN"
    found: dict[np.ufunc, str] = {}

    def seen(node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        for test, what in ((np.isnan, "NaN"), (np.isinf, "infinity")):
            if test not in found and _has(test, results) and not _has(test, operands):
                found[test] = f"{named_node(node)} makes the first {what}"

    evaluate(graph, given, seen)
    return found.get(np.isnan) or found.get(np.isinf) or "in NumPy all numbers are finite"


def named_node(node: Node) -> str:
    """A node in words: its operator, and its name in the source model if it has one."""
    return f"{node.op.name} of node {node.loc!r}" if node.loc else node.op.name


def _has(test: np.ufunc, arrays: Sequence[np.ndarray]) -> bool:
    return any(a.dtype.kind not in "biu" and test(a).any() for a in arrays)
