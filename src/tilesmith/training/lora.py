"""Low-rank adapters: a weight W stays, and W + B A is used, of which A and B are trained.

Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models" (2021), with the factor 1.  A
has random numbers at first and B zeros, so that training begins with the model as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Graph
from tilesmith.ops.matmul import MatMul
from tilesmith.support.errors import UsageError

from .weights import chosen


def ranks_of(model: Graph, output: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """The rank for each weight that a pattern names; of several patterns, the first.

    Raises UsageError for a pattern without weights of two or more axes, and for a rank that is not
    from 1 to the smaller extent of a weight.
    """
    found: dict[str, int] = {}
    constants = {c.value.name: c.value for c in model.constants}
    for pattern, rank in wanted.items():
        names = [n for n in chosen(model, output, [pattern]) if constants[n].type.rank >= 2]
        if not names:
            raise UsageError(f"lora: {pattern!r}: expected weights with two or more axes")
        for name in names:
            rows, *columns = constants[name].type.static_shape
            most = min(rows, math.prod(columns))
            if not 1 <= rank <= most:
                raise UsageError(f"lora: {name!r}: expected a rank from 1 to {most}, found {rank}")
            found.setdefault(name, rank)
    return found


def adapters_of(name: str) -> tuple[str, str]:
    """The names of the factors A [rank, columns] and B [rows, rank] of a weight."""
    return f"{name}.lora_a", f"{name}.lora_b"


def with_adapters(model: Graph, ranks: Mapping[str, int]) -> Graph:
    """The model with W + B A in place of each weight W in `ranks`, for its rank.

    A weight [n, ...] counts as a matrix of n rows.  Elements of A are uniform in +-1 / sqrt(number
    of columns); the seed is the weight's number.
    """
    b = Builder(model.name)
    values = {v: b.input(v.name, v.type) for v in model.inputs}
    for c in model.constants:
        rank = ranks.get(c.value.name)
        if rank is None:
            continue
        rows, *rest = c.value.type.static_shape
        columns, dtype = math.prod(rest), c.value.dtype.numpy
        seed = [*ranks].index(c.value.name)
        first = np.random.default_rng(seed).uniform(-1, 1, (rank, columns)) / math.sqrt(columns)
        down, up = adapters_of(c.value.name)
        weight = b.lazy_constant(c.value.type, c.data, c.value.name)
        factors = (
            b.constant(np.zeros((rows, rank), dtype), up),
            b.constant(first.astype(dtype), down),
        )
        values[c.value] = weight + b.add(MatMul(), *factors).reshape(*c.value.shape)
    new = b.include(model, values)
    made = b.finish([new[v] for v in model.outputs], list(model.output_names))
    return replace(made, in_place=model.in_place, defaults=model.defaults)


def merged(
    model: Graph, ranks: Mapping[str, int], states: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The weights W + B A, by name.

    model: holds the weights W.
    states: hold A and B, by name.
    """
    found = {}
    for c in model.constants:
        if c.value.name in ranks:
            w = logical_array(c)
            down, up = (states[n] for n in adapters_of(c.value.name))
            found[c.value.name] = w + (up @ down).reshape(w.shape)
    return found
