"""The loop structure of a schedule, read from its stages without lowering.

A statement is a stage that has loops of its own.  Its path is the loops around it: first those of
the stages in which it is computed, then its own.  Let the loops of a path from number `p` on run
while the outer loops are fixed.  An index then varies over a *span*: `width` positions from the
first to the last, of which `distinct` occur.  Extents and spans are numbers or, where split factors
are knobs, expressions (`algebra`); the formulas are the same.

A stage inside another computes the elements that its readers need in one iteration, as in lowering.
A tile that exceeds its tensor needs as much memory as a whole tile.  But it takes only the time of
the part inside the tensor (`SymbolicLoop.trips`), since loops are peeled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.ir.affine import as_affine
from tilesmith.ir.expr import Binary, Expr, Load, Var, post_order
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import ForKind
from tilesmith.te.lower import inline
from tilesmith.te.relations import SplitRelation
from tilesmith.te.rewrite import loads
from tilesmith.te.state import At, StageState, State
from tilesmith.te.tensor import Reduce, Tensor

from . import algebra as sym
from .algebra import Number
from .axes import (
    ANYWHERE,
    STILL,
    Span,
    digits_of,
    extents_of,
    known_width,
    lanes_of,
    moved_of,
    spans_of,
    trips_of,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicLoop:
    """A loop of a statement's path.

    stage: the stage whose loop it is.
    axis: its axis.
    extent: iterations as scheduled.
    kind: kind of the loop.
    is_reduce: whether the axis is reduced.
    trips: number of iterations.  The last one counts with the fraction that is inside the tensor.
    rest: the fraction of the last iteration inside the tensor; 0 if all iterations are whole.
    lanes: elements per iteration of an axis along vectors; 0 for other axes.
    """

    stage: str
    axis: str
    extent: Number
    kind: ForKind
    is_reduce: bool
    trips: Number
    rest: Number
    lanes: Number


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicAccess:
    """Reads (or writes) with indices that differ only by constants.

    tensor: (stage, value number).
    bytes: bytes of an element.
    indices: indices of the first access.
    offsets: for each dimension, the constants by which the indices of the accesses differ.
    write: whether it is a write.
    in_registers: whether the value is in registers.
    """

    tensor: tuple[str, int]
    bytes: int
    indices: tuple[Expr, ...]
    offsets: tuple[tuple[int, ...], ...]
    write: bool
    in_registers: bool


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A stage with loops.

    stage: the stage.
    body: its expressions.
    path: all loops around it, outermost first.
    own: position in `path` of the first loop of the stage itself.
    accesses: its reads and writes.
    """

    stage: StageState
    body: tuple[Expr, ...]
    path: tuple[SymbolicLoop, ...]
    own: int
    accesses: tuple[SymbolicAccess, ...]

    @property
    def sources(self) -> tuple[Expr, ...]:
        """The expressions that are computed for each point."""
        first = self.body[0]
        return first.sources if isinstance(first, Reduce) else self.body

    @property
    def lane_bytes(self) -> int:
        """Bytes of the elements that vectors hold."""
        return max((s.dtype.bytes for s in self.sources), default=4)


class SymbolicNest:
    """The statements of a schedule's state, producers before consumers."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.bodies = inline(state)
        self._readers: dict[str, list[tuple[str, Load]]] = {}
        for name, body in self.bodies.items():
            for load in loads(_sources(body)):
                assert isinstance(load.buffer, Tensor)
                read = state.tensors[load.buffer][0]
                self._readers.setdefault(read, []).append((name, load))
        self._extents: dict[str, dict[str, Number]] = {}
        self._paths: dict[str, tuple[tuple[SymbolicLoop, ...], int]] = {}
        self._roots: dict[str, dict[Expr, str]] = {}
        self._spans: dict[tuple[str, int, bool], dict[str, Span]] = {}
        """Spans by stage, number of the first loop, and region.  They are the spans of all axes if
        the first loop belongs to the stage itself, else the spans of the roots.
        """
        self._indices: dict[tuple[str, Expr, int, bool], Span] = {}
        self._shapes: dict[tuple[str, int], tuple[tuple[LayoutDim, Number], ...]] = {}
        self._touched: dict[tuple[SymbolicAccess, int], list[Span]] = {}
        self.statements: dict[str, Statement] = {}
        for name in reversed(self.bodies):
            self._place(name)
        for name, body in self.bodies.items():
            path, own = self._paths[name]
            self.statements[name] = Statement(
                state.stages[name], body, path, own, tuple(self._accesses(name, body))
            )

    # --- loops

    def _place(self, name: str) -> None:
        stage = self.state.stages[name]
        axes = stage.root_axes
        self._roots[name] = {a.var: r for r, a in zip(stage.roots, axes, strict=True)}
        outside: tuple[SymbolicLoop, ...] = ()
        if isinstance(stage.attach, At):
            target = self.state.stages[stage.attach.stage]
            around, own = self._paths[target.name]
            outside = around[: own + target.leaves.index(stage.attach.axis) + 1]
        domain = [sym.number(a.extent) for a in axes]
        if outside:
            spatial = len(stage.op.shape)
            needed = [self.needed(name, d, len(outside)).width for d in range(spatial)]
            domain = [*needed, *domain[spatial:]]
        extents = self._extents[name] = extents_of(stage, domain)
        reduced = stage.reduce_names()
        trips, lanes = trips_of(stage, extents), lanes_of(stage, extents)
        loops = tuple(
            SymbolicLoop(
                name, a, extents[a], stage.kind(a), a in reduced, *trips[a], lanes.get(a, 0)
            )
            for a in stage.leaves
        )
        if any(isinstance(r, SplitRelation) and r.tail == "roundup" for r in stage.relations):
            outside = tuple(replace(loop, trips=loop.extent, rest=0) for loop in outside)
        self._paths[name] = ((*outside, *loops), len(outside))

    def extents(self, name: str) -> Mapping[str, Number]:
        """Extents of all axes of a stage, leaves or not."""
        return self._extents[name]

    # --- spans

    def needed(self, name: str, d: int, p: int) -> Span:
        """The span along dimension `d` of stage `name` that its readers touch while the loops of
        its path from number `p` on run.  The span has the bounds that lowering computes.
        """
        extent = sym.number(self.state.stages[name].op.shape[d])
        alike: dict[object, tuple[str, Expr, list[int]]] = {}
        for reader, load in self._readers.get(name, ()):
            terms, offset = as_affine(load.indices[d]) or ({load.indices[d]: 1}, 0)
            key = (reader, frozenset(terms.items()))
            alike.setdefault(key, (reader, load.indices[d], []))[2].append(offset)
        spans = [
            _all(self.index(r, e, p, True), sorted(set(places))) for r, e, places in alike.values()
        ]
        if not spans:
            return Span(extent, extent)
        return Span(
            sym.minimum(sym.largest((s.width for s in spans), 1), extent),
            sym.minimum(sym.largest((s.distinct for s in spans), 1), extent),
        )

    def roots(self, name: str, p: int, region: bool = False) -> dict[str, Span]:
        """The spans of a stage's axes while the loops of its path from number `p` on run.  Only the
        spans of the roots, if loop `p` belongs to a reader.

        region: whether to give the bounds that lowering computes.
        """
        key = (name, p, region)
        if key not in self._spans:
            stage = self.state.stages[name]
            path, own = self._paths[name]
            inside = {loop.axis for loop in path[max(p, own) :]}
            spans = spans_of(stage, self._extents[name], inside, region)
            if p < own:
                for d, root in enumerate(stage.roots[: len(stage.op.shape)]):
                    spans[root] = self.needed(name, d, p)
            self._spans[key] = spans if p >= own else {r: spans[r] for r in stage.roots}
        return self._spans[key]

    def index(self, name: str, e: Expr, p: int, region: bool = False) -> Span:
        """The span of an index in the body of stage `name`."""
        key = (name, e, p, region)
        if key not in self._indices:
            self._indices[key] = self._index(name, e, p, region)
        return self._indices[key]

    def _index(self, name: str, e: Expr, p: int, region: bool) -> Span:
        affine = as_affine(e)
        if affine is None:
            return self._unknown(name, e, p)
        last: Number = 0
        counts: list[Number] = []
        for s, coefficient in self._terms(name, affine[0], p, region):
            last = sym.add(last, sym.mul(sym.sub(s.width, 1), abs(coefficient)))
            counts.append(s.distinct)
        width = sym.add(last, 1)
        return Span(
            width, counts[0] if len(counts) == 1 else sym.minimum(sym.product(counts), width)
        )

    def _terms(
        self, name: str, terms: Mapping[Expr, int], p: int, region: bool
    ) -> list[tuple[Span, int]]:
        """Spans of the terms of an index, with coefficients.

        Terms that add up to the position along a fused axis become one term for this axis.  So 18
        iterations over rows of 14 touch 18 elements, not 28.
        """
        left = dict(terms)
        spans: list[tuple[Span, int]] = []
        if p >= self._paths[name][1] and len(terms) > 1:
            stage = self.state.stages[name]
            digits = digits_of(stage, self._extents[name], self._roots[name], terms)
            for fused, atoms in digits.items():
                spans.append((self.roots(name, p, region)[fused], left[atoms[0]]))
                left = {a: c for a, c in left.items() if a not in set(atoms)}
        return spans + [(self._atom(name, a, p, region), c) for a, c in left.items()]

    def _atom(self, name: str, atom: Expr, p: int, region: bool) -> Span:
        roots = self._roots[name]
        if isinstance(atom, Var):
            return self.roots(name, p, region)[roots[atom]] if atom in roots else STILL
        if isinstance(atom, Binary) and not self._moves(name, atom.b):
            by = sym.number(atom.b)
            a = self.index(name, atom.a, p, region)
            if atom.op in ("floordiv", "floormod"):
                width = known_width(a.width, by) if region else a.width
                width = sym.ceil_div(width, by) if atom.op == "floordiv" else sym.minimum(width, by)
                return Span(width, sym.minimum(a.distinct, width))
            if atom.op == "mul":
                return Span(sym.add(sym.mul(sym.sub(a.width, 1), by), 1), a.distinct)
            if atom.op in ("min", "max"):
                return a
        if isinstance(atom, Binary) and atom.op == "mul" and not self._moves(name, atom.a):
            return self._atom(name, Binary("mul", atom.b, atom.a), p, region)
        return self._unknown(name, atom, p)

    def _unknown(self, name: str, e: Expr, p: int) -> Span:
        """The span of an index that depends on data, or that the formulas don't cover."""
        spans = self.roots(name, p)
        own = self._roots[name]
        count = sym.product(
            spans[own[v]].distinct for v in dict.fromkeys(post_order(e)) if v in own
        )
        return Span(sym.where(sym.is_most(count, 1), 1, ANYWHERE), count)

    def _moves(self, name: str, e: Expr) -> bool:
        return any(v in self._roots[name] or isinstance(v, Load) for v in post_order(e))

    # Accesses

    def _accesses(self, name: str, body: tuple[Expr, ...]) -> list[SymbolicAccess]:
        grouped: dict[object, tuple[tuple[str, int], tuple[Expr, ...], list[tuple[int, ...]]]] = {}
        for load in loads(_sources(body)):
            assert isinstance(load.buffer, Tensor)
            terms, offset = [], []
            for i in load.indices:
                affine = as_affine(i) or ({i: 1}, 0)
                terms.append(frozenset(affine[0].items()))
                offset.append(affine[1])
            tensor = self.state.tensors[load.buffer]
            places = grouped.setdefault((tensor, *terms), (tensor, load.indices, []))[2]
            places.append(tuple(offset))
        reads = [
            self._access(tensor, indices, tuple(offsets), False)
            for tensor, indices, offsets in grouped.values()
        ]
        stage = self.state.stages[name]
        axes = tuple(a.var for a in stage.compute.axis)
        still = ((0,) * len(axes),)
        written = (self._access((name, v), axes, still, True) for v in range(len(stage.op.outputs)))
        return [*reads, *written]

    def _access(
        self,
        tensor: tuple[str, int],
        indices: tuple[Expr, ...],
        offsets: tuple[tuple[int, ...], ...],
        write: bool,
    ) -> SymbolicAccess:
        stage = self.state.stages[tensor[0]]
        size = stage.op.outputs[tensor[1]].dtype.bytes
        return SymbolicAccess(tensor, size, indices, offsets, write, stage.scope == "register")

    def shape(self, tensor: tuple[str, int]) -> tuple[Number, ...]:
        """Extents of the physical dimensions of a value: its whole extents, or the extents that one
        iteration of the loop around its computation needs.
        """
        return tuple(size for _, size in self._shape(tensor))

    def _shape(self, tensor: tuple[str, int]) -> tuple[tuple[LayoutDim, Number], ...]:
        """The physical dimensions and their extents."""
        if tensor not in self._shapes:
            dims = _layout(self.state.stages[tensor[0]]).dims
            self._shapes[tensor] = tuple(zip(dims, self._sizes(tensor, dims), strict=True))
        return self._shapes[tensor]

    def _sizes(self, tensor: tuple[str, int], dims: Sequence[LayoutDim]) -> tuple[Number, ...]:
        stage = self.state.stages[tensor[0]]
        whole = tuple(sym.number(n) for n in stage.op.shape)
        if isinstance(stage.attach, At) and not stage.is_output and tensor[0] in self._extents:
            extents = self._extents[tensor[0]]
            whole = tuple(extents[r] for r in stage.roots[: len(whole)])
        return tuple(
            sym.ceil_div(whole[d.axis], d.block) if d.part == "outer"
            else d.block if d.part == "inner"
            else d.span or sym.add(whole[d.axis], d.before + d.after)
            for d in dims
        )  # fmt: skip

    def touched(self, name: str, access: SymbolicAccess, p: int) -> list[Span]:
        """Spans of an access's physical dimensions while the loops from number `p` on run."""
        key = (access, p)
        if key not in self._touched:
            self._touched[key] = self._touch(name, access, p)
        return self._touched[key]

    def _touch(self, name: str, access: SymbolicAccess, p: int) -> list[Span]:
        logical: list[Span] = []
        for d, index in enumerate(access.indices):
            span = self.index(name, index, p)
            logical.append(_all(span, sorted({o[d] for o in access.offsets})))
        spans: list[Span] = []
        for d, size in self._shape(access.tensor):
            width, count = logical[d.axis]
            if d.part == "outer":
                width = sym.ceil_div(width, d.block)
            spans.append(
                Span(sym.minimum(width, size), sym.minimum(count, sym.minimum(width, size)))
            )
        return spans

    def steps(self, s: Statement, access: SymbolicAccess, axis: str) -> list[Number]:
        """For each physical dimension, the distance that one step of the stage's loop `axis` moves
        the access.
        """
        stage = s.stage
        moved = moved_of(stage, self._extents[stage.name], axis)
        roots = self._roots[stage.name]

        def step(e: Expr) -> Number:
            affine = as_affine(e)
            if affine is None:
                return 0
            return sym.total(sym.mul(atom(a), c) for a, c in affine[0].items())

        def atom(e: Expr) -> Number:
            if isinstance(e, Var):
                return moved.get(roots[e], 0) if e in roots else 0
            if isinstance(e, Binary) and not self._moves(stage.name, e.b):
                if e.op == "mul":
                    return sym.mul(step(e.a), sym.number(e.b))
                if e.op == "floordiv":
                    return sym.floor_div(step(e.a), sym.number(e.b))
                if e.op == "floormod":
                    return step(e.a)
            return sym.total(moved.get(roots[v], 0) for v in post_order(e) if v in roots)

        logical = [step(i) for i in access.indices]
        return [
            sym.floor_div(logical[d.axis], d.block) if d.part == "outer" else logical[d.axis]
            for d, _ in self._shape(access.tensor)
        ]


def _all(span: Span, places: Sequence[int]) -> Span:
    """The span that an index covers at several offsets, which are in ascending order."""
    width = sym.add(span.width, places[-1] - places[0])
    return Span(width, sym.minimum(sym.mul(span.distinct, len(places)), width))


def _sources(body: Sequence[Expr]) -> tuple[Expr, ...]:
    return body[0].sources if isinstance(body[0], Reduce) else tuple(body)


def _layout(stage: StageState) -> Layout:
    return stage.layout or Layout.row_major(len(stage.op.shape))
