"""Extents that only data say: a node that makes elements of a tensor symbols.

    graph main<n 1..64~8, m 0..64~16>(%x: f32[n], %k: i64[1]) {
      measure(%k) {symbols=(`m`,), bounds=(`n`,)}
      %y: f32[m] = slice(%x) {starts=(0,), ends=(`m`,)}
      return %y as "y"
    }

A symbol of a program is defined by the shapes of its inputs, or by one `Measure` in front of all
its uses.  What a body of control flow measures is seen only there.  A `Measure` is a barrier:
passes move no node across it.  One whose symbols nothing uses goes away (`dce`), unless all of them
have one possible value: that is an assertion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilesmith.graph.control import Control, graphs_in
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import symbols_of, value_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.support.errors import ModelError


@dataclass(frozen=True)
class Measure(Control):
    """Makes the elements of a tensor of i64 symbols; a step of the main function, without results.

    A run in which an element is not in its symbol's range, or exceeds its bound, is refused.  Known
    bounds let memory be planned before the run begins.

    symbols: one for each element, in row-major order, with `sizes`.
    bounds: for each element, a number that it never exceeds, or a formula over symbols defined
        before.  Where none is known, the largest of the symbol's `sizes`.
    """

    symbols: tuple[Var, ...]
    bounds: tuple[Dim, ...]

    @property
    def asserts(self) -> bool:
        """Whether it only checks that a run fits the program: each number may have one value."""
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
        """What the symbols are where the tensor holds `elements` and other symbols are `known`.

        Raises ModelError for an element out of its range.
        """
        found: dict[Var, int] = {}
        for symbol, limit, n in zip(self.symbols, self.bounds, elements.reshape(-1).tolist()):
            assert symbol.sizes is not None
            low, high = symbol.sizes.low, symbol.sizes.high
            if all(s in known for s in symbols_of((limit,))):
                high = min(high, value_of(limit, known))
            if not low <= n <= high:
                raise ModelError(f"extent {symbol.name!r}: expected {low} to {high}, found {n}")
            found[symbol] = n
        return found


def measures_in(graph: Graph) -> Iterator[Measure]:
    """The measures of the graph and of the bodies of its control flow, in order."""
    return (n.op for g in graphs_in(graph) for n in g.nodes if isinstance(n.op, Measure))


def entry_symbols(graph: Graph) -> tuple[Var, ...]:
    """The symbols that a program knows from its inputs: those that nothing in it measures."""
    inside = {s for m in measures_in(graph) for s in m.symbols}
    return tuple(s for s in graph.symbols if s not in inside)
