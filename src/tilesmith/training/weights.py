"""The weights of a model that may be trained."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Constant, Data, Graph, Value
from tilesmith.ops.norm import BatchNorm
from tilesmith.support.errors import UsageError

EVERYTHING = "*"
"""The pattern of all weights."""


def chosen(
    model: Graph, output: int, patterns: Sequence[str], among: Collection[str] | None = None
) -> list[str]:
    """The names of the weights that match one of `patterns`, in the order of the model's constants.

    Weights are named constants of floats from which output number `output` is computed, without the
    statistics of batch normalisations.  Constants of rank 0 are weights only for a pattern that is
    their name, because sources write other numbers as such constants, too.

    among: names that are allowed; None: all.

    Raises UsageError for a pattern that matches no weight.
    """
    known = [v for v in _weights(model, output) if among is None or v.name in among]
    names = [v.name for v in known]
    found: dict[str, None] = {}
    for pattern in patterns:
        matched = [
            v.name for v in known if v.name == pattern or (v.shape and fnmatchcase(v.name, pattern))
        ]
        if not matched:
            near = difflib.get_close_matches(pattern, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise UsageError(
                f"trainable: expected a name or a pattern of weights, found {pattern!r}; the "
                f"weights are {listed or 'none'}{hint}"
            )
        found.update(dict.fromkeys(matched))
    return [n for n in names if n in found]


def _weights(model: Graph, output: int) -> list[Value]:
    needed = {model.outputs[output]}
    statistics: set[Value] = set()
    for node in reversed(model.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.inputs)
        if isinstance(node.op, BatchNorm):
            statistics.update(node.inputs[3:])
    every = [c.value.name for c in model.constants]
    return [
        c.value
        for c in model.constants
        if c.value in needed - statistics
        and c.value.name
        and c.value.dtype.is_float
        and every.count(c.value.name) == 1
    ]


def contents(model: Graph, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Copies of the contents of constants, by name."""
    wanted = {*names}
    own = {c.value.name: c for c in model.constants if c.value.name in wanted}
    return {n: np.array(logical_array(own[n])) for n in names}


def with_contents(model: Graph, arrays: dict[str, np.ndarray]) -> Graph:
    """The model with new contents of the constants named in `arrays`, which are copied."""
    new = tuple(
        Constant(c.value, Data.of(arrays[c.value.name].copy())) if c.value.name in arrays else c
        for c in model.constants
    )
    return replace(model, constants=new)
