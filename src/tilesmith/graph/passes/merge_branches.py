"""A sum of convolutions of the same input becomes one convolution with the sum of their weights.

Networks that were trained with parallel branches are often exported with them (Ding et al.,
"RepVGG: Making VGG-style ConvNets Great Again", 2021; Vasu et al., "MobileOne: An Improved One
millisecond Mobile Backbone", 2023):

    conv(x, w) + conv(x, v)  ->  conv(x, w + v)

A smaller kernel is padded to the size of the larger one such that it reads the same elements of x.
Weights are added in f64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import permutations

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add


def merge_branches(graph: Graph) -> Graph:
    """`graph` with sums of convolutions merged; the same object if there are none.

    Weights must be constants, and the terms must have no other readers.
    """
    parts = {v for n in graph.nodes if isinstance(n.op, Add) for v in n.outputs
             if _is_part(graph, v)}  # fmt: skip
    return Rewriter(graph, {Add: (partial(_sum, parts),)}).run()


def _is_part(graph: Graph, v: Value) -> bool:
    """Whether the sum `v` is only a term of another sum, so that the other sum includes its
    terms.
    """
    readers = graph.consumers.get(v, ())
    if len(readers) != 1 or readers[0].inputs.count(v) != 1 or v in graph.outputs:
        return False
    return isinstance(readers[0].op, Add) and readers[0].outputs[0].type == v.type


def _sum(parts: Collection[Value], r: Rewriter, n: Node) -> Result:
    if n.outputs[0] in parts:
        return None
    terms = _terms(r, n)
    branches = [t for t in terms if _is_branch(r, t, n.outputs[0])]
    is_merged = False
    while (pair := _first_merged(r, branches)) is not None:
        is_merged = True
        branches, terms = (
            [pair[0], *(v for v in values if v not in pair[1:])] for values in (branches, terms)
        )
    if not is_merged:
        return None
    total, *rest = terms
    for term in rest:
        total = r.add(Add(), total, term)
    return total


def _first_merged(r: Rewriter, branches: list[Value]) -> tuple[Value, Value, Value] | None:
    """A convolution that replaces two of the branches, and these two branches.  None if no two
    branches can be merged.
    """
    for a, b in permutations(branches, 2):
        merged = _merged(r, a, b)
        if merged is not None:
            return merged, a, b
    return None


def _terms(r: Rewriter, n: Node) -> list[Value]:
    """The terms of a tree of additions.

    Constants are terms: the first convolution takes them as its bias.  Values whose shape differs
    from the sum's are terms, too.
    """
    terms, left = list[Value](), [*reversed(n.inputs)]
    while left:
        v = left.pop()
        inner = r.producer(v, Add) if r.is_single_use(v) else None
        if inner is not None and v.type == n.outputs[0].type:
            left += reversed(inner.inputs)
        else:
            terms.append(v)
    return terms


def _is_branch(r: Rewriter, v: Value, total: Value) -> bool:
    conv = r.producer(v, Conv)
    if conv is None or not r.is_single_use(v) or v.type != total.type or not v.dtype.is_float:
        return False
    return r.is_constant(conv.inputs[1])


def _merged(r: Rewriter, a: Value, b: Value) -> Value | None:
    """One convolution that computes the sum of `a` and `b`, if the kernel of `b` fits into the
    kernel of `a`; else None.
    """
    large, small = r.producer(a, Conv), r.producer(b, Conv)
    assert large is not None and isinstance(large.op, Conv)
    assert small is not None and isinstance(small.op, Conv)
    if large.inputs[0] is not small.inputs[0]:
        return None
    w, v = (r.array(n.inputs[1]) for n in (large, small))
    if w is None or v is None:
        return None
    if large.op.groups != small.op.groups:
        return None
    outer, inner = large.op.window(w.shape[2:]), small.op.window(v.shape[2:])
    if (outer.strides, outer.dilations) != (inner.strides, inner.dilations):
        return None
    place = [slice(None), slice(None)]
    begins = (win.static_pads(n.op.name)[0] for win, n in ((outer, large), (inner, small)))
    for k, d, size, first, other in zip(
        v.shape[2:], outer.dilations, w.shape[2:], *begins, strict=True
    ):
        first_tap, rest = divmod(first - other, d)
        if rest or first_tap < 0 or first_tap + k > size:
            return None
        place.append(slice(first_tap, first_tap + k))
    total = w.astype(np.float64)
    total[tuple(place)] += v
    with np.errstate(over="ignore"):
        weights = total.astype(w.dtype)
    if not np.isfinite(weights.astype(np.float64)).all():
        return None
    return r.add(large.op, large.inputs[0], r.constant(weights, large.inputs[1].name))
