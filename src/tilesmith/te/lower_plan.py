"""Lowering, second pass: each stage's region, loops, guards and memory.

Stages are planned consumers first.  A stage at the root computes its whole domain.  An attached
stage computes the *region* that its readers read in one iteration of the loop where it is attached.
A region is the union, per dimension, of the bounds of the readers' indices over the loops inside.
Regions get constant extents where possible.  Then a region may exceed the domain, as in the last
tile.  So each element has a guard unless it is proved to be in the domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Load, Var, const, free_vars, substitute
from tilesmith.ir.loop_tables import LOOP_KINDS, ForKind
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import Dim, same_dim
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import ScheduleError

from .relations import Guard, SplitRelation, add, axis_values, dim, dim_expr
from .rewrite import loads
from .slopes import stays_false
from .state import StageState, State, unique, with_relation
from .tensor import Extern, Reduce, Tensor

_MOST_LANES = 64
"""Upper bound on the lanes of a vector: 64 elements of one byte."""


@dataclass(frozen=True, slots=True)
class StageLoop:
    """One loop of a nest.  A loop of one iteration is left out: its `value` is the constant 0.

    name: the axis.
    var: its variable.
    extent: number of iterations.
    kind: the kind of the loop.
    is_reduce: whether the axis is reduced.
    """

    name: str
    var: Var
    extent: Dim
    kind: ForKind
    is_reduce: bool

    @property
    def is_unit(self) -> bool:
        return isinstance(self.extent, int) and self.extent == 1

    @property
    def value(self) -> Expr:
        return const(0) if self.is_unit else self.var

    @property
    def last(self) -> Expr:
        """The loop variable's value in the last iteration."""
        return const(self.extent - 1) if isinstance(self.extent, int) else self.extent - 1


@dataclass(frozen=True, slots=True)
class Region:
    """The range of elements that a stage computes in one dimension.

    start: first element.
    extent: number of elements.
    first, end: elements before `first` and from `end` on are already computed.  None: there are no
        such elements.
    """

    start: Expr
    extent: Dim
    first: Expr | None = None
    end: Expr | None = None


NOT_AHEAD: Mapping[Var, int] = MappingProxyType({})
"""The `ahead` of a stage that does not run in negative iterations."""


@dataclass(frozen=True, slots=True)
class PlacedGuard:
    """A guard and its place.

    guard: the condition.
    depth: number of the loop just inside which the guard is placed (-1: around the whole nest).
    is_reduce: whether the guard concerns a reduction axis.  Then the initial value is stored even
        where the guard is false.
    is_inner: whether the guard is placed after the stages that are computed at that loop.
    is_fact: whether proofs may use the guard as a fact.  A guard that only saves work is no fact:
        the bounds of reads would depend on the guard, and would be harder to find.
    """

    guard: Guard
    depth: int
    is_reduce: bool
    """True for a guard of a reduction axis: the initial value is stored even where the guard is
    false.
    """
    is_inner: bool = False
    is_fact: bool = True


@dataclass(slots=True, eq=False)
class StagePlan:
    """One stage, ready to be written as loops.

    stage: the stage.
    body: the expressions of the stage.
    reads: the loads in `body`.
    regions: the region of the stage, one range per spatial axis.
    loops: the loops of the nest, outermost first.
    locals: the index relative to the start of the region, per spatial axis.
    points: the value of each axis variable, spatial and reduction.
    spans: the number of values of each axis variable.  It exceeds the region's extent if a tail is
        rounded up.
    rounded: axis variables along which a tile may exceed the domain without a guard.
    guards: the guards, with their places.
    outside: facts that hold around the nest.
    buffers: the memory of the stage's values.
    origin: logical index of the first element in the buffers.
    contexts: cached results of `context`.
    ahead: for each loop around the nest along which the stage or one of its readers slides
        (`lower_slide`), the number of negative iterations in which the stage runs.
    early: for each loop of the nest, the number of negative iterations in which stages inside it
        run.
    conditions: conditions under which the nest runs.
    folds: for each dimension, the modulus of the indices into the buffers; None: no modulus.
    storage: the ranges of elements in the buffers, if they differ from `regions`; else None.
    """

    stage: StageState
    body: tuple[Expr, ...]
    reads: list[Load]
    regions: tuple[Region, ...]
    loops: tuple[StageLoop, ...]
    locals: tuple[Expr, ...]
    """The index relative to the start of the region, per spatial axis."""
    points: dict[Expr, Expr]
    """The value of each axis variable, spatial and reduction."""
    spans: dict[Expr, Dim]
    """Number of values of each axis variable.  It exceeds the region's extent if a tail is rounded
    up.
    """
    rounded: frozenset[Expr]
    """Axis variables along which a tile may exceed the domain without a guard."""
    guards: tuple[PlacedGuard, ...]
    outside: Context
    """Facts that hold around the nest."""
    buffers: tuple[Buffer, ...] = ()
    origin: tuple[Expr, ...] = ()
    """Logical index of the first element in the buffers."""
    contexts: dict[int, Context] = field(default_factory=dict)
    ahead: Mapping[Var, int] = field(default_factory=lambda: NOT_AHEAD)
    early: dict[Var, int] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()
    folds: tuple[int | None, ...] = ()
    storage: tuple[Region, ...] | None = None

    def context(self, depth: int | None = None, ahead: Mapping[Var, int] = NOT_AHEAD) -> Context:
        """Facts that hold inside loop number `depth` and inside the guards around the stages
        attached there.  By default, facts that hold in the innermost loop, inside all guards.

        ahead: as in `StagePlan`, for an attached stage that also runs in negative iterations.
            Guards that are false in these iterations give no facts.
        """
        is_own = depth is None
        if depth is None:
            depth = len(self.loops) - 1
        if ahead and any(loop.var in ahead for loop in self.loops[: depth + 1]):
            facts = self.outside
            for number, loop in enumerate(self.loops[: depth + 1]):
                if not loop.is_unit:
                    facts = facts.with_var(loop.var, -ahead.get(loop.var, 0), loop.last)
                for g in self.guards:
                    if g.is_fact and g.depth == number and self.is_closing(g):
                        facts = facts.assuming(g.guard.cond)
            return facts
        facts = self.contexts.get(depth)
        if facts is None:
            if depth < 0:
                facts = self.outside
            else:
                facts = self.context(depth - 1)
                loop = self.loops[depth]
                if not loop.is_unit:
                    facts = facts.with_var(loop.var, 0, loop.last)
            for g in self.guards:
                if g.is_fact and g.depth == (depth - 1 if g.is_inner else depth):
                    facts = facts.assuming(g.guard.cond)
            self.contexts[depth] = facts
        if is_own:
            for g in self.guards:
                if g.is_fact and g.is_inner and g.depth == depth:
                    facts = facts.assuming(g.guard.cond)
        return facts

    def unguarded(self, depth: int) -> Context:
        """Facts that hold just inside loop number `depth`, before the guards placed there."""
        loop = self.loops[depth]
        outer = self.context(depth - 1)
        return outer if loop.is_unit else outer.with_var(loop.var, 0, loop.last)

    def positions(self, logical: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices, in the buffers that lowering allocates, of the element at `logical`."""
        if not self.origin:
            return logical
        indices = [
            i if start is const(0) else i - start
            for i, start in zip(logical, self.origin, strict=True)
        ]
        for n, factor in enumerate(self.folds):
            if factor is not None:
                indices[n] = indices[n] % factor
        return tuple(indices)

    def is_closing(self, g: PlacedGuard) -> bool:
        """Whether a guard stays false once it is false.  Then sliding stages may run inside it."""
        return stays_false(g.guard.cond, (x.var for x in self.loops if not x.is_unit))

    @property
    def first_reduce(self) -> int | None:
        """The number of the outermost reduction loop."""
        return next((n for n, loop in enumerate(self.loops) if loop.is_reduce), None)

    def depth(self, axis: str) -> int:
        return self.stage.leaves.index(axis)


def make_plan(
    stage: StageState, body: tuple[Expr, ...], regions: tuple[Region, ...], outside: Context
) -> StagePlan:
    """The loops and guards of `stage` when it computes `regions` (one per spatial axis)."""
    op = stage.compute
    n = len(op.axis)
    roots = (*(r.extent for r in regions), *(a.extent for a in op.reduce_axis))
    extents = _extents(stage, roots)
    if stage.is_adaptable:
        stage = _adapted(stage, extents)
        extents = _extents(stage, roots)
    reduced = stage.reduce_names()
    loops = tuple(
        StageLoop(a, Var(a), extents[a], stage.kind(a), a in reduced) for a in stage.leaves
    )
    for loop in loops:
        if LOOP_KINDS[loop.kind].is_expanded and not isinstance(loop.extent, int):
            raise ScheduleError(
                f"loop {loop.name} of {stage.name} is {loop.kind} but its extent {loop.extent} is "
                "not a constant; "
                "split it by a constant factor first"
            )
    derived = axis_values(stage.relations, extents, {loop.name: loop.value for loop in loops})
    inside = outside
    for loop in loops:
        if not loop.is_unit:
            inside = inside.with_var(loop.var, 0, loop.last)

    depths = {loop.var: number for number, loop in enumerate(loops)}
    guards: list[PlacedGuard] = []

    def place(guard: Guard, is_reduce: bool, is_fact: bool = True) -> None:
        cond = simplify(guard.cond, inside)
        if cond is not const(True) and all(cond is not g.guard.cond for g in guards):
            depth = max((depths[v] for v in free_vars(cond) if v in depths), default=-1)
            placed = PlacedGuard(Guard(cond, guard.tail), depth, is_reduce, is_fact=is_fact)
            guards.append(placed)

    for guard in derived.guards:
        place(guard, any(loops[depths[v]].is_reduce for v in free_vars(guard.cond) if v in depths))
    in_tiles = _axes_in_tiles(stage)
    at_first: dict[Expr, Expr] = {x.var: const(0) for x in loops if x.name in in_tiles}
    points: dict[Expr, Expr] = {}
    spans: dict[Expr, Dim] = {}
    wishes = _rounded_roots(stage)
    rounded: set[Expr] = set()
    for number, (root, axis) in enumerate(zip(stage.roots, stage.root_axes, strict=True)):
        local = derived.values[root]
        tail = derived.overhang.get(root)
        spans[axis.var] = extents[root]
        if number >= n:
            points[axis.var] = local
            if tail is not None:
                place(Guard(local < dim_expr(axis.extent), tail), is_reduce=True)
            continue
        region = regions[number]
        point = points[axis.var] = simplify(add(region.start, local), inside)
        if root in wishes:
            rounded.add(axis.var)
            if tail is not None:
                spans[axis.var] = _rounded_extent(stage, root, extents)
            if not (same_dim(region.extent, axis.extent) and region.start is const(0)):
                # A tile that begins past the end of the domain is not computed.
                begins = substitute(point, at_first)
                if not free_vars(begins).isdisjoint(depths):
                    place(Guard(begins < dim_expr(axis.extent), "guard"), False, is_fact=False)
        else:
            if tail is not None:
                place(Guard(local < dim_expr(region.extent), tail), is_reduce=False)
            if not (same_dim(region.extent, axis.extent) and region.start is const(0)):
                place(Guard(point < dim_expr(axis.extent), tail or "peel"), is_reduce=False)
        if region.start is not const(0):
            place(Guard(point >= 0, "peel"), is_reduce=False)
        if region.first is not None:
            place(Guard(point >= region.first, "peel"), is_reduce=False)
        if region.end is not None:
            place(Guard(point < region.end, "peel"), is_reduce=False)
    sources = body[0].sources if isinstance(body[0], Reduce) else body
    return StagePlan(
        stage,
        body,
        loads(sources),
        regions,
        loops,
        tuple(derived.values[r] for r in stage.roots[:n]),
        points,
        spans,
        frozenset(rounded),
        tuple(guards),
        outside,
    )


def _extents(stage: StageState, roots: tuple[Dim, ...]) -> dict[str, Dim]:
    """The simplified extents of all axes, given the extents `roots` of the root axes."""
    extents = stage.extents(roots).items()
    return {name: dim(simplify(e)) if isinstance(e, Expr) else e for name, e in extents}


def _adapted(stage: StageState, extents: dict[str, Dim]) -> StageState:
    """`stage` without vectorised or unrolled loops whose extents are not constants.

    A vectorised loop is split by its expected extent into whole vectors and a tail.  An unrolled
    loop becomes a plain loop.
    """
    for axis in stage.leaves:
        kind, extent = stage.kind(axis), extents[axis]
        if not LOOP_KINDS[kind].is_expanded or isinstance(extent, int):
            continue
        kinds = {a: k for a, k in stage.kinds.items() if a != axis}
        width = expected(extent)
        if kind == "vectorized" and 1 < width <= _MOST_LANES:
            taken = stage.axis_names()
            outer = unique(f"{axis}o", taken)
            inner = unique(f"{axis}i", taken | {outer})
            stage = with_relation(stage, SplitRelation(axis, outer, inner, width, None, "peel"))
            kinds[inner] = kind
        stage = replace(stage, kinds=kinds)
    return stage


def _rounded_roots(stage: StageState) -> set[str]:
    """The root axes whose loops result only from splits, all with the tail `roundup`."""
    origins = stage.origins()
    tails: dict[str, set[str]] = {}
    for rel in stage.relations:
        tail = rel.tail if isinstance(rel, SplitRelation) else "none"
        for root in origins[rel.made[0]]:
            tails.setdefault(root, set()).add(tail)
    return {root for root, kinds in tails.items() if kinds == {"roundup"}}


def _axes_in_tiles(stage: StageState) -> set[str]:
    """The axes inside the tiles of splits whose last tile is rounded up."""
    inside: set[str] = set()
    for rel in stage.relations:
        if isinstance(rel, SplitRelation) and rel.tail == "roundup":
            inside.add(rel.inner)
        if not inside.isdisjoint(rel.parents):
            inside.update(rel.made)
    return inside


def _rounded_extent(stage: StageState, root: str, extents: dict[str, Dim]) -> Dim:
    """Number of values of the axis `root` after rounding up."""
    parts = {root: extents[root]}
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRelation) and root in stage.origins()[rel.parent]:
            inner = extents[rel.inner]
            outer = parts.get(rel.outer, extents[rel.outer])
            parts[rel.parent] = dim(outer * inner)
    return parts[root]


def read_of(load: Load) -> Tensor:
    assert isinstance(load.buffer, Tensor)
    return load.buffer


def reads(state: State, plan: StagePlan, name: str) -> bool:
    """Whether the stage of `plan` reads stage `name`."""
    if isinstance(plan.stage.op, Extern):
        return any(source == name for source, _ in plan.stage.reads)
    return any(state.tensors[read_of(r)][0] == name for r in plan.reads)
