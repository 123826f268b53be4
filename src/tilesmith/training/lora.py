"""Low-rank adapters: a weight W stays, and W + B A is used, of which A and B are trained.

Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models" (2021), with the factor 1.  A
has random numbers at first and B zeros, so that training begins with the model as it is.

Products and convolutions do not compute W + B A: a product x (W + B A) is x W + (x B) A.  Neither
B A nor its gradient, which are as large as W, is computed then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import Gemm, MatMul
from tilesmith.ops.shape import Reshape, Transpose
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
    made = replace(made, in_place=model.in_place, defaults=model.defaults)
    made = decompose_only(made, lambda op: isinstance(op, Gemm))
    factors = frozenset(v for name in ranks for v in adapters_of(name))
    rules = {MatMul: (partial(_multiply, factors),), Conv: (partial(_convolve, factors),)}
    return Rewriter(made, rules).run()


def _parts(factors: Collection[str], r: Rewriter, v: Value) -> tuple[Value, Value, Value] | None:
    """W, B and A, if a value is W + B A with an adapter's B and A.

    factors: the names of all adapters.
    """
    added = r.producer(v, Add)
    if added is None:
        return None
    weight, change = added.inputs
    shaped = r.producer(change, Reshape)
    product = r.producer(change if shaped is None else shaped.inputs[0], MatMul)
    if product is None or any(f.name not in factors for f in product.inputs):
        return None
    up, down = product.inputs
    return weight, up, down


def _multiply(factors: Collection[str], r: Rewriter, n: Node) -> Result:
    """x (W + B A) -> x W + (x B) A, and (W + B A) x -> W x + B (A x); for transposes alike."""
    assert isinstance(n.op, MatMul)
    for place in (0, 1):
        w, x = n.inputs[place], n.inputs[1 - place]
        flip = r.producer(w, Transpose)
        found = _parts(factors, r, w if flip is None else flip.inputs[0])
        if found is None or w.type.rank != 2:
            continue
        weight, up, down = found
        is_left = place == 0
        turned = (n.op.transpose_a if is_left else n.op.transpose_b) != (flip is not None)
        near, far = (down, up) if turned != is_left else (up, down)
        if is_left:
            op, last = replace(n.op, transpose_a=turned), MatMul(transpose_a=turned, to=n.op.to)
            return r.add(Add(), r.add(op, weight, x), r.add(last, far, r.add(op, near, x)))
        op, last = replace(n.op, transpose_b=turned), MatMul(transpose_b=turned, to=n.op.to)
        return r.add(Add(), r.add(op, x, weight), r.add(last, r.add(op, x, near), far))
    return None


def _convolve(factors: Collection[str], r: Rewriter, n: Node) -> Result:
    """A convolution with W + B A -> one with W, plus one of 1x1 with B after one with A."""
    assert isinstance(n.op, Conv)
    x, w = n.inputs
    found = _parts(factors, r, w)
    if found is None or n.op.groups != 1:
        return None
    weight, up, down = found
    few = r.add(n.op, x, r.add(Reshape((down.shape[0], *w.shape[1:])), down))
    ones = (1,) * (w.type.rank - 2)
    change = r.add(Conv(to=n.op.to), few, r.add(Reshape((*up.shape, *ones)), up))
    return r.add(Add(), r.add(n.op, x, weight), change)


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
