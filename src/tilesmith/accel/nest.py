"""Loop nests around one step of an instruction, as addresses of tiles that are affine in loops.

`Nest.of` reads a statement: serial loops, perhaps a condition, and a store of a tensor intrinsic or
of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Expr, Var, const
from tilesmith.ir.loop_tables import LOOP_KINDS, LoopKind
from tilesmith.loop.facts import conjuncts
from tilesmith.loop.nodes import Buffer, For, If, Stmt, Store
from tilesmith.support.errors import ScheduleError

from .intrinsics import STEPS, Step

ALL_PADDING = "padding: a copy needs at least one tile of DRAM"


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a tile, in tiles from the beginning of a buffer.

    buffer: the buffer.
    terms: for each variable, what one more of it adds.
    first: the address where all variables are 0.
    """

    buffer: Buffer
    terms: Mapping[Var, int]
    first: int

    def at(self, values: Mapping[Var, int]) -> int:
        """The address where the variables have `values`; those of inner loops are 0."""
        return self.first + sum(c * values.get(v, 0) for v, c in self.terms.items())


@dataclass(frozen=True, slots=True)
class Range:
    """The condition `0 <= first + sum of coefficients times variables`.

    terms: the coefficient of each variable.
    first: the constant.
    """

    terms: Mapping[Var, int]
    first: int


@dataclass(frozen=True, slots=True)
class Nest:
    """A nest.

    loops: variables with their numbers of iterations, outermost first; all begin at 0.
    step: what is done; None where zeros are stored.
    result: the tile that is written.
    operands: the tiles that are read, besides an old result to which is added.
    ranges: the conditions under which the step is done; elsewhere zeros are stored.
    """

    loops: tuple[tuple[Var, int], ...]
    step: Step | None
    result: Place
    operands: tuple[Place, ...] = ()
    ranges: tuple[Range, ...] = ()

    @staticmethod
    def of(stmt: Stmt, tile_elements: Mapping[str, int]) -> Nest | None:
        """The nest that a statement is; None for other statements.

        tile_elements: for each scope of an on-chip buffer, the elements of its tiles.

        Raises ScheduleError where addresses aren't affine, or not those of whole tiles.
        """
        loops: list[tuple[Var, int]] = []
        while isinstance(stmt, For) and not _is_split(LOOP_KINDS[stmt.kind]):
            loops.append((stmt.var, extent_of(stmt)))
            stmt = stmt.body
        cond: Expr = const(True)
        if isinstance(stmt, If) and isinstance(stmt.otherwise, Store):
            cond, stmt = stmt.cond, stmt.then
        if not isinstance(stmt, Store):
            return None
        value = stmt.value
        size = tile_elements.get(stmt.buffer.scope, 0)
        if isinstance(value, ir.TensorCall) and value.name in STEPS:
            step = STEPS[value.name]
            args = [a for a in value.args if isinstance(a, ir.Load)]
            reads = [_place(a.buffer, a.indices[0], _lanes(a)) for a in args]  # type: ignore[arg-type]  # buffers
            result = _place(stmt.buffer, stmt.indices[0], value.size)
            if step.op is None and not step.is_copy:
                reads = reads[1:]
            return Nest(tuple(loops), step, result, tuple(reads), _ranges(cond))
        if isinstance(value, ir.Const) and value.value == 0 and size:
            return _zeros(loops, stmt, size)
        raise ScheduleError(
            f"the accelerator has no instruction for `{stmt.buffer.name} = {value}`: tensorize "
            "the loops of a tile, and let tiles divide the extents"
        )


def _is_split(kind: LoopKind) -> bool:
    """Whether the iterations of a loop belong to different threads."""
    return kind.is_threaded or kind.is_virtual


def extent_of(loop: For) -> int:
    """The number of iterations of a loop that begins at 0.

    Raises ScheduleError for other loops.
    """
    if not isinstance(loop.extent, ir.Const) or loop.start is not const(0, loop.start.dtype):
        raise ScheduleError(f"loop {loop.var.name}: expected a constant extent and start 0")
    return int(loop.extent.value)


def _lanes(load: ir.Load) -> int:
    return load.indices[0].lanes


def _affine(e: Expr, what: str) -> tuple[dict[Var, int], int]:
    terms, first = affine_form(e)
    if not all(isinstance(v, Var) for v in terms):
        raise ScheduleError(f"{what}: expected a sum of multiples of loop variables, found {e}")
    return {v: c for v, c in terms.items() if isinstance(v, Var)}, first


def _place(buffer: Buffer, index: Expr, size: int) -> Place:
    """The place of a tile of `size` elements."""
    first = index.base if isinstance(index, ir.Ramp) else index
    terms, rest = _affine(first, f"an index of {buffer.name}")
    if any(c % size for c in (*terms.values(), rest)):
        raise ScheduleError(
            f"tiles of {buffer.name} must begin at multiples of {size} elements, found {first}"
        )
    return Place(buffer, {v: c // size for v, c in terms.items()}, rest // size)


def _zeros(loops: Sequence[tuple[Var, int]], stmt: Store, size: int) -> Nest:
    """The nest that stores zeros element by element; its loops in tiles are left out."""
    terms, first = _affine(stmt.indices[0], f"an index of {stmt.buffer.name}")
    inside = {v: n for v, n in loops if 0 < abs(terms.get(v, 0)) < size}
    if math.prod(inside.values()) != size:
        raise ScheduleError(f"zeros in {stmt.buffer.name} must fill whole tiles of {size} elements")
    outside = {v: c for v, c in terms.items() if v not in inside}
    if any(c % size for c in (*outside.values(), first)):
        raise ScheduleError(f"zeros in {stmt.buffer.name} must fill whole tiles")
    place = Place(stmt.buffer, {v: c // size for v, c in outside.items()}, first // size)
    return Nest(tuple((v, n) for v, n in loops if v not in inside), None, place)


def _ranges(cond: Expr) -> tuple[Range, ...]:
    ranges: list[Range] = []
    for part in conjuncts(cond):
        if part is const(True):
            continue
        if not isinstance(part, ir.Compare) or part.op not in ("lt", "le"):
            raise ScheduleError(f"padding: expected an inequality of loop variables, found {part}")
        terms, first = _affine(part.b - part.a, "padding")
        ranges.append(Range(terms, first - (part.op == "lt")))
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a nest whose outer variables have values.

    extent: number of iterations.
    steps: what an iteration adds to each address.
    first, end: the iterations in which the condition holds.
    """

    extent: int
    steps: tuple[int, ...]
    first: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether the condition holds in all iterations."""
        return (self.first, self.end) == (0, self.extent)


def loops_of(nest: Nest, values: Mapping[Var, int], most: int) -> list[Loop]:
    """The loops of a nest, outermost first, with addresses of the result and then the operands.
    Loops of one iteration are left out, and loops that run through equally spaced tiles are one.

    most: upper bound on the iterations of loops that become one.

    Raises ScheduleError for a condition on two loops at once, and for one that never holds.
    """
    places = (nest.result, *nest.operands)
    own = dict(nest.loops)
    bounds: dict[Var, tuple[int, int]] = {v: (0, n) for v, n in nest.loops}
    for r in nest.ranges:
        inner = [(v, c) for v, c in r.terms.items() if v in own]
        rest = r.first + sum(c * values[v] for v, c in r.terms.items() if v not in own)
        if len(inner) > 1:
            raise ScheduleError("padding: expected a condition on one loop, found one on several")
        if not inner:
            if rest < 0:
                raise ScheduleError(ALL_PADDING)
            continue
        ((v, c),) = inner
        low, high = bounds[v]
        if c > 0:
            low = max(low, -(rest // c))
        else:
            high = min(high, rest // -c + 1)
        bounds[v] = min(low, own[v]), max(high, 0)
    found = [
        Loop(n, tuple(p.terms.get(v, 0) for p in places), *bounds[v])
        for v, n in nest.loops
        if n > 1 or bounds[v] != (0, n)
    ]
    return _merged(found, most)


def _merged(loops: list[Loop], most: int) -> list[Loop]:
    for outer in loops:
        for inner in loops:
            extent = outer.extent * inner.extent
            if (
                outer is not inner
                and extent <= most
                and outer.is_whole
                and inner.is_whole
                and outer.steps == tuple(inner.extent * s for s in inner.steps)
            ):
                one = replace(inner, extent=extent, end=extent)
                return _merged([one if x is inner else x for x in loops if x is not outer], most)
    return loops
