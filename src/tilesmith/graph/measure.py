"""Data-dependent extents: a node that binds elements of a tensor to symbols.

    graph main<n 1..64~8, m 0..64~16>(%x: f32[n], %k: i64[1]) {
      measure(%k) {symbols=(`m`,), bounds=(`n`,)}
      %y: f32[m] = slice(%x) {starts=(0,), ends=(`m`,)}
      return %y as "y"
    }

A symbol of a program is defined by the shapes of its inputs, or by one node before all its uses: a
`Measure`, or an `If` or `Loop` whose result shapes depend on the run.  A node that defines symbols
is a barrier: passes move no node across it.  A symbol defined in a body of control flow is visible
only in this body.  `dce` removes a `Measure` whose symbols are unused, unless each symbol has only
one possible value: such a `Measure` is an assertion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.graph.control import Control, Loop
from tilesmith.graph.nodes import Graph, Node, Structure, Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var
from tilesmith.ir.grammar import Label, Operand, Result, Role
from tilesmith.ir.symbols import symbols_of, value_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.support.errors import ModelError


@dataclass(frozen=True)
class Measure(Control):
    """Binds each element of an i64 tensor to a symbol.  A step of the main function, without
    results.

    A run is refused if an element is outside its symbol's range or exceeds its bound.  With bounds,
    memory can be planned before the run begins.

    symbols: a symbol with `sizes` for each element, in row-major order.
    bounds: the upper bound of each element: a number, or a formula over symbols defined before.
        If no better bound is known, it is the upper end of the symbol's `sizes`.
    of: the formula of the element, for messages, if the node is an assertion about one element;
        else "".
    """

    symbols: Result[tuple[Var, ...]]
    bounds: Operand[tuple[Dim, ...]]
    of: Label[str] = ""

    @property
    def asserts(self) -> bool:
        """Whether the node is an assertion: each symbol has only one possible value."""
        return all(s.sizes is not None and s.sizes.low == s.sizes.high for s in self.symbols)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        count = len(self.symbols)
        if len(types) != 1 or types[0].dtype is not i64 or not types[0].is_static:
            raise ModelError(f"expected one i64 tensor of known shape, found {types}")
        if types[0].size != count or len(self.bounds) != count:
            raise ModelError(
                f"expected {count} elements and bounds, one for each symbol, found {types[0]} and "
                f"{len(self.bounds)} bounds"
            )
        for s in self.symbols:
            if not isinstance(s, Var) or s.sizes is None:
                raise ModelError(f"expected symbols with sizes, found {s}")
        return ()

    def measured(self, elements: np.ndarray, known: Mapping[Var, int]) -> dict[Var, int]:
        """The values of `symbols` for these `elements`; the values of earlier symbols are `known`.

        Raises ModelError for an element out of its range.
        """
        return check_extents(self.symbols, self.bounds, elements.reshape(-1).tolist(), known)


@dataclass(frozen=True, slots=True)
class Stage:
    """A point of a program at which extents become known.

    node: a `Measure`, or control flow that defines symbols.
    is_inside: True for the beginning of each iteration of a loop; False for the point after the
        node.
    """

    node: Node
    is_inside: bool = False

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The extents that are known from this point on."""
        return symbols_inside(self.node) if self.is_inside else symbols_defined(self.node)

    @property
    def bounds(self) -> tuple[Dim, ...]:
        """The upper bound of each of `symbols`."""
        op = self.node.op
        if not self.is_inside or not isinstance(op, Loop):
            return bounds_of(self.node)
        last = op.last_extents()
        return (*(last[s] for s in op.inside[: op.known]), *op.bounds[: len(op.inside) - op.known])


def symbols_defined(node: Node) -> tuple[Var, ...]:
    """The symbols that a node defines for the nodes after it."""
    return node.op.with_role(Role.RESULT) if isinstance(node.op, Structure) else ()


def allocates(node: Node, result: Value) -> bool:
    """Whether a node allocates the memory of a result while it runs, since only the node itself
    knows the size.  Such a result can't lie inside of a value that a later node computes.
    """
    if isinstance(node.op, Control):
        return not result.type.is_static
    return not {*symbols_defined(node)}.isdisjoint(symbols_of(result.shape))


def symbols_inside(node: Node) -> tuple[Var, ...]:
    """The symbols that a node declares for its bodies."""
    return node.op.with_role(Role.BINDER) if isinstance(node.op, Structure) else ()


def bounds_of(node: Node) -> tuple[Dim, ...]:
    """The upper bound of each of `symbols_defined`."""
    return node.op.with_role(Role.OPERAND) if isinstance(node.op, Structure) else ()


def stages_of(graph: Graph) -> list[Stage]:
    """The stages after the nodes of a graph, in order."""
    return [Stage(n) for n in graph.nodes if symbols_defined(n)]


def stages_in(graph: Graph) -> Iterator[Stage]:
    """The stages of a graph and of the bodies of its control flow, in the order of a run."""
    for n in graph.nodes:
        if symbols_inside(n):
            yield Stage(n, is_inside=True)
        if isinstance(n.op, Control):
            for body in n.op.bodies:
                yield from stages_in(body)
        if symbols_defined(n):
            yield Stage(n)


def entry_symbols(graph: Graph) -> tuple[Var, ...]:
    """The symbols that no node of a program defines: the shapes of the program's inputs define
    them.
    """
    inside = {s for stage in stages_in(graph) for s in stage.symbols}
    return tuple(s for s in graph.symbols if s not in inside)


def check_extents(
    symbols: Sequence[Var], bounds: Sequence[Dim], found: Sequence[int], known: Mapping[Var, int]
) -> dict[Var, int]:
    """Symbol -> its value in `found`.

    known: the values of earlier symbols, for the formulas in `bounds`.

    Raises ModelError for a value out of the symbol's range or above its bound.
    """
    extents: dict[Var, int] = {}
    for symbol, limit, n in zip(symbols, bounds, found, strict=True):
        assert symbol.sizes is not None
        low, high = symbol.sizes.low, symbol.sizes.high
        if all(s in known for s in symbols_of((limit,))):
            high = min(high, value_of(limit, known))
        if not low <= n <= high:
            raise ModelError(f"extent {symbol.name!r}: expected {low} to {high}, found {n}")
        extents[symbol] = n
    return extents
