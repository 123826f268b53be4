"""Operators that only move elements, for tensors of strings, in NumPy.

A call of the reference evaluator takes ten times as long as moving a few elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .native import WithNative
from .table import Function

Attributes = dict[str, Any]


def movement(
    operator: str, domain: str, attributes: Attributes, places: Sequence[int]
) -> Function | None:
    """The function for an operator that moves data.  None for other operators, and if an input is
    missing.

    places: for each input of the operator, its index among the function's inputs.
    """
    domain = "" if domain == "ai.onnx" else domain
    make = None if -1 in places else _MOVES.get((domain, operator))
    if make is None:
        return None
    move = make(attributes)
    if list(places) == list(range(len(places))):
        return move
    return lambda *inputs: move(*(inputs[p] for p in places))


def _gather(attributes: Attributes) -> Function:
    axis = attributes.get("axis", 0)
    return WithNative(lambda x, indices: x.take(indices, axis), ("Take", axis))


def _concat(attributes: Attributes) -> Function:
    axis = attributes["axis"]
    return WithNative(lambda *parts: np.concatenate(parts, axis), ("Concat", axis))


def _transpose(attributes: Attributes) -> Function:
    perm = attributes.get("perm")
    return lambda x: np.ascontiguousarray(x.transpose(perm))


def _identity(attributes: Attributes) -> Function:
    return WithNative(lambda x: x, ("Reshape",))


def _features(attributes: Attributes) -> Function:
    def run(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return (x if x.ndim > 1 else x.reshape(1, -1)).take(indices.reshape(-1), -1)

    return WithNative(run, ("Take", -1))


RESHAPES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
"""Operators of the default domain that only change the shape, which is known from the graph."""
_MOVES: dict[tuple[str, str], Callable[[Attributes], Function]] = {
    ("", "Concat"): _concat,
    ("", "Gather"): _gather,
    ("", "Identity"): _identity,
    ("", "Transpose"): _transpose,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _features,
}
