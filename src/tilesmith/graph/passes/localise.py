"""Symbols of a kernel: each unknown extent of an operand is replaced by a symbol of the kernel.

A kernel needs to know which extents are equal, and how the extents of results depend on those of
operands.  It need not know how the program computes extents.  So layers of equal expected sizes
share a kernel, and index arithmetic stays small.

    (%x: f32[n,(h + 1) // 2]) -> f32[n,(h + 1) // 4]     with d0 = n, d1 = (h + 1) // 2:
    (%x: f32[d0,d1]) -> f32[d0,d1 // 2]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.graph.bind import Binding
from tilesmith.graph.builder import infer
from tilesmith.graph.nodes import Graph, Node
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.sizes import LARGEST, Sizes
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError


def localise(body: Graph) -> tuple[Graph, tuple[Dim, ...]]:
    """A fused body with new symbols, and the extents of the program that they replace.

    A body without symbols stays unchanged.  A body also stays unchanged if the types of its
    operands do not determine all other types.  Then the returned extents are the body's symbols.
    """
    if not body.symbols:
        return body, ()
    extents: dict[Expr, None] = {}
    for v in body.inputs:
        extents |= dict.fromkeys(d for d in v.shape if isinstance(d, Expr))
    own = own_symbols((*extents, *body.symbols))
    try:
        local = _Localised(own).graph(body)
    except ModelError:
        return body, body.symbols
    origin = {var: e for e, var in own.items()}
    return local, tuple(origin[v] for v in local.symbols)


def own_symbols(extents: Iterable[Expr]) -> dict[Expr, Var]:
    """Extent -> a new symbol for it."""
    return {e: Var(f"d{i}", i64, 1, _sizes(e)) for i, e in enumerate(dict.fromkeys(extents))}


def _sizes(extent: Expr) -> Sizes:
    """The range and expected size of an extent."""
    if isinstance(extent, Var) and extent.sizes is not None:
        return extent.sizes
    guess = min(max(expected(extent), 0), LARGEST)
    bounds = EMPTY.interval(extent)
    low = max(bounds.lo or 0, 0)
    high = LARGEST if bounds.hi is None else min(bounds.hi, LARGEST)
    return Sizes(min(low, guess), max(high, guess), guess)


class _Localised(Binding):
    """Replaces extents in operands and attributes; infers the types of results."""

    def __init__(self, own: dict[Expr, Var]) -> None:
        super().__init__(own)

    def node(self, node: Node) -> Node:
        op = self.op(node.op)
        inputs = tuple(map(self.value, node.inputs))
        types = infer(op, tuple(v.type for v in inputs))
        for v, type_ in zip(node.outputs, types, strict=True):
            self.new[v] = replace(v, type=type_)
        return Node(op, inputs, tuple(self.new[v] for v in node.outputs), node.loc)
