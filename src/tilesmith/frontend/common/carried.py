"""Shapes of carried values while a loop is imported: extents that change become symbols.

First, the body is imported for the shapes before the loop.  Extents that differ in the body's
results become symbols of the body.  The body is imported again until no other extent differs.

    acc: f32[1, 4]         one iteration makes f32[2, 4] of it
    acc: f32[n, 4]         the next makes f32[n + 1, 4], so only n changes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tilesmith.graph.control import Loop, grown
from tilesmith.graph.measure import stages_of
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir import extents
from tilesmith.ir.expr import Var
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim, expected, symbol, symbols_of
from tilesmith.ir.types import Dim, TensorType, same_dim

Place: TypeAlias = "tuple[int, int]"
"""The number of a carried value, and one of its axes."""

_USUAL = 128
"""Lower bound on the expected size of an extent that changes.  Kernels are fast for this size."""


class CarriedShapes:
    """The types of carried values inside a loop and after it.

    Extents share a symbol if they are equal before the loop and after an iteration.  They get
    separate symbols if another import of the body shows that they differ.
    """

    def __init__(self, name: str, state: Sequence[Value]) -> None:
        self._name = name
        self._state = state
        self._first: dict[Place, Dim] = {
            (k, axis): d
            for k, v in enumerate(state)
            for axis, d in enumerate(v.shape)
            if not v.dtype.is_host
        }
        self._symbol: dict[Place, Var] = {}
        self._next: dict[Var, Dim] = {}

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The body's symbols."""
        return tuple(dict.fromkeys(self._symbol.values()))

    @property
    def change(self) -> bool:
        """Whether any extent changes."""
        return bool(self._symbol)

    @property
    def types(self) -> list[TensorType]:
        """The types of the carried values inside the body."""
        return [self._type(k, self._symbol) for k in range(len(self._state))]

    def _type(self, k: int, dims: dict[Place, Var] | dict[Place, Dim]) -> TensorType:
        value = self._state[k]
        shape = tuple(dims.get((k, axis), d) for axis, d in enumerate(value.shape))
        return TensorType(value.dtype, shape)

    def fit(self, results: Sequence[Value]) -> bool:
        """Whether an iteration keeps element types and ranks, and keeps host types unchanged."""
        return len(results) == len(self._state) and all(
            a.dtype is b.dtype and a.type.rank == b.type.rank for a, b in zip(results, self._state)
        )

    def settle(self, results: Sequence[Value]) -> bool:
        """Whether results of an iteration have the types of its inputs.  If not, `types` become
        more general.
        """
        following = {p: results[p[0]].shape[p[1]] for p in self._first}
        groups: dict[tuple[Var | None, Dim, Dim], list[Place]] = {}
        for place, first in self._first.items():
            known = self._symbol.get(place)
            if known is not None or not same_dim(first, following[place]):
                groups.setdefault((known, first, following[place]), []).append(place)
        extents_known = {known for known, *_ in groups if known is not None}
        is_settled = len(extents_known) == len(groups)
        self._next = {}
        for (known, first, after), places in groups.items():
            new = known
            if known not in extents_known or known is None or not _stays(known, after):
                is_settled = is_settled and known not in extents_known
                new = self._new(first, known is not None and not _stays(known, after))
            extents_known.discard(known)
            assert new is not None
            self._next[new] = after
            self._symbol |= dict.fromkeys(places, new)
        return is_settled

    def _new(self, first: Dim, falls: bool) -> Var:
        low = 0 if falls else max(extents.values_of(first).lo or 0, 0)
        usual = min(max(expected(first), _USUAL), LARGEST)
        return symbol(f"{self._name}.{len(self._symbol)}", low, LARGEST, usual)

    def hidden(self, body: Graph) -> set[Var]:
        """The symbols to which nothing after the loop can refer."""
        return {*self.symbols, *(s for stage in stages_of(body) for s in stage.symbols)}

    def completed(self, op: Loop) -> Loop | None:
        """The operator with the symbols and types of its results.  None if the shape of a collected
        result changes between iterations.
        """
        collected = op.body.outputs[op.conditional + op.carried :]
        if not self.hidden(op.body).isdisjoint(symbols_of(d for v in collected for d in v.shape)):
            return None
        first = {s: self._first[p] for p, s in self._symbol.items()}
        behind: dict[Var, Dim] = {}
        if not op.conditional:
            for s, after in self._next.items():
                if (last := grown(first[s], s, after, op.steps)) is not None:
                    behind[s] = last
        is_counted = bool(collected) and (op.conditional or op.steps is None)
        if not self.change and not is_counted:
            return op
        unknown = [s for s in self.symbols if s not in behind]
        inside = (*behind, *unknown)
        bounds = [_bound(first[s], s, self._next[s], op.steps) for s in unknown]
        for s in unknown:
            assert s.sizes is not None
            behind[s] = symbol(s.name, s.sizes.low, LARGEST, s.sizes.expected)
        symbols = [v for s in unknown if isinstance(v := behind[s], Var)]
        rows = op.steps
        if is_counted:
            most = LARGEST if op.steps is None else op.steps
            rows = symbol(f"{self._name}.ran", 0, LARGEST)
            symbols.append(rows)
            bounds.append(most)
        dims = {p: behind[s] for p, s in self._symbol.items()}
        types = [self._type(k, dims) for k in range(len(self._state))]
        for v in collected:
            assert rows is not None
            types.append(TensorType(v.dtype, (rows, *v.shape)))
        return replace(
            op, results=tuple(types), symbols=tuple(symbols), bounds=tuple(bounds), inside=inside
        )


def _stays(symbol: Var, after: Dim) -> bool:
    """Whether an extent never falls below the lower bound of its symbol."""
    assert symbol.sizes is not None
    if symbol.sizes.low == 0:
        return True
    least = extents.values_of(extents.difference(after, symbol)).lo
    return least is not None and least >= 0


def _bound(first: Dim, current: Var, after: Dim, steps: Dim | None) -> Dim:
    """The upper bound of an extent in a loop of at most `steps` iterations."""
    added = extents.difference(after, current)
    if isinstance(added, int) and added <= 0:
        return first
    last = grown(first, current, after, steps)
    if last is None:
        return LARGEST
    return min(last, LARGEST) if isinstance(last, int) else as_dim(last)
