"""Extents of the axes of a stage, derived from the extents of its roots through splits and fusions;
and the positions of the roots while loops over some axes run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.te.relations import FuseRelation, SkewRelation, SplitRelation
from tilesmith.te.state import StageState

from . import algebra as sym
from .algebra import Number


class Span(NamedTuple):
    """Positions of an index.

    width: from the first to the last.
    distinct: number of different ones.
    """

    width: Number
    distinct: Number

    @property
    def is_still(self) -> bool:
        """True for one position, whatever the knobs say."""
        return not any(isinstance(n, Expr) or n != 1 for n in self)


STILL = Span(1, 1)

ANYWHERE = 1 << 40
"""The width of an unknown span; the tensor bounds it."""


def known_width(width: Number, n: Number) -> Number:
    """The width of a block of neighbours, if lowering can tell which rows of `n` it is in; else
    anywhere.

    It can where rows are whole blocks, or blocks whole rows.
    """
    rest = sym.sub(n, sym.mul(sym.floor_div(n, width), width))
    over = sym.sub(width, sym.mul(sym.floor_div(width, n), n))
    return sym.where(sym.is_most(sym.mul(rest, over), 0), width, ANYWHERE)


def extents_of(stage: StageState, domain: Sequence[Number]) -> dict[str, Number]:
    """Extents of all axes, given those of the roots: `StageState.extents` on numbers."""
    found = dict(zip(stage.roots, domain, strict=True))
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            found[rel.fused] = sym.product(found[p] for p in rel.parts)
        elif isinstance(rel, SkewRelation):
            found[rel.skewed] = sym.add(found[rel.parent], rel.most)
        elif rel.factor is not None:
            inner = found[rel.inner] = sym.number(rel.factor)
            found[rel.outer] = sym.ceil_div(found[rel.parent], inner)
        else:
            outer = found[rel.outer] = sym.number(rel.nparts or 1)
            found[rel.inner] = sym.ceil_div(found[rel.parent], outer)
    return found


def trips_of(stage: StageState, extents: Mapping[str, Number]) -> dict[str, tuple[Number, Number]]:
    """`Loop.trips` and `Loop.rest` of all axes."""
    found: dict[str, tuple[Number, Number]] = {r: (extents[r], 0) for r in stage.roots}
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            found[rel.fused] = sym.product(found[p][0] for p in rel.parts), 0
            continue
        if isinstance(rel, SkewRelation):
            found[rel.skewed] = extents[rel.skewed], 0
            continue
        whole = found[rel.parent][0]
        outer, inner = extents[rel.outer], extents[rel.inner]
        if rel.tail == "roundup":
            found[rel.outer], found[rel.inner] = (outer, 0), (inner, 0)
        elif rel.factor is not None:
            found[rel.outer], found[rel.inner] = _quotient(whole, inner), (inner, 0)
        else:
            found[rel.outer], found[rel.inner] = (outer, 0), _quotient(whole, outer)
    return found


def lanes_of(stage: StageState, extents: Mapping[str, Number]) -> dict[str, Number]:
    """`Loop.lanes` of axes that have any."""
    vectors = {a for a in stage.leaves if stage.kind(a) == "vectorized"}
    found: dict[str, Number] = {}
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRelation) and rel.inner in vectors:
            vectors.add(rel.parent)
            found[rel.outer] = extents[rel.inner]
    return found


def _quotient(whole: Number, part: Number) -> tuple[Number, Number]:
    """`whole / part`, and what it has beyond an integer."""
    if isinstance(whole, int) and isinstance(part, int) and whole % part == 0:
        return whole // part, 0
    trips = sym.div(whole, part)
    return trips, sym.sub(trips, sym.floor_div(whole, part))


def spans_of(
    stage: StageState, extents: Mapping[str, Number], inside: set[str], region: bool = False
) -> dict[str, Span]:
    """Spans of all axes while the leaves `inside` run and the others stand still.

    region: as lowering bounds them, not their average.
    """
    found = {a: Span(extents[a], extents[a]) if a in inside else STILL for a in stage.leaves}
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRelation):
            width, count = found[rel.fused]
            for part in reversed(rel.parts[1:]):
                n = extents[part]
                width = known_width(width, n) if region else width
                found[part] = Span(sym.minimum(width, n), sym.minimum(count, n))
                width, count = sym.ceil_div(width, n), sym.ceil_div(count, n)
            found[rel.parts[0]] = Span(sym.minimum(width, extents[rel.parts[0]]), count)
        elif isinstance(rel, SkewRelation):
            found[rel.parent] = _skewed_span(found[rel.skewed], found[rel.by], rel, extents)
        else:
            outer, inner, whole = found[rel.outer], found[rel.inner], extents[rel.parent]
            if outer is STILL:
                found[rel.parent] = inner
                continue
            width = sym.add(sym.mul(sym.sub(outer.width, 1), extents[rel.inner]), inner.width)
            count = sym.mul(outer.distinct, inner.distinct)
            found[rel.parent] = Span(sym.minimum(width, whole), sym.minimum(count, whole))
    return found


def _skewed_span(span: Span, by: Span, rel: SkewRelation, extents: Mapping[str, Number]) -> Span:
    """The span of the parent of a skewed axis."""
    more = 0 if by is STILL else rel.most
    whole = extents[rel.parent]
    return Span(
        sym.minimum(sym.add(span.width, more), whole),
        sym.minimum(sym.add(span.distinct, more), whole),
    )


def moved_of(stage: StageState, extents: Mapping[str, Number], axis: str) -> dict[str, Number]:
    """How far one step of a leaf moves each other axis."""
    moved: dict[str, Number] = {axis: 1}
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRelation):
            if rel.fused in moved:
                moved[rel.parts[-1]] = moved[rel.fused]
        elif isinstance(rel, SkewRelation):
            if rel.skewed in moved:
                moved[rel.parent] = moved[rel.skewed]
        elif rel.outer in moved or rel.inner in moved:
            outer = sym.mul(moved.get(rel.outer, 0), extents[rel.inner])
            moved[rel.parent] = sym.add(outer, moved.get(rel.inner, 0))
    return moved


def digits_of(
    stage: StageState,
    extents: Mapping[str, Number],
    roots: Mapping[Expr, str],
    terms: Mapping[Expr, int],
) -> dict[str, list[Expr]]:
    """Fused axes of which an index has a multiple, with the terms that compose it, the last part's
    first.

    For example, `14 * row + column` is the number of the axis made by `fuse(row, column)`.

    roots: the axes of index variables.
    terms: coefficients of variables and of their quotients.
    """
    axes = {_axis(stage, extents, roots, a): a for a in terms}
    found: dict[str, list[Expr]] = {}
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            atoms = _in_place(rel, extents, axes, terms)
            if len(atoms) > 1:
                found[rel.fused] = atoms
    return found


def _in_place(
    rel: FuseRelation,
    extents: Mapping[str, Number],
    axes: Mapping[str | None, Expr],
    terms: Mapping[Expr, int],
) -> list[Expr]:
    """The terms of all parts; none if one is missing or has another coefficient."""
    found: list[Expr] = []
    place = 0
    for part in reversed(rel.parts):
        n, atom = extents[part], axes.get(part)
        if isinstance(n, int) and n == 1:
            continue
        if not isinstance(n, int) or atom is None or place not in (0, terms[atom]):
            return []
        place = terms[atom] * n
        found.append(atom)
    return found


def _axis(
    stage: StageState, extents: Mapping[str, Number], roots: Mapping[Expr, str], atom: Expr
) -> str | None:
    """The axis whose number an atom is: a root, or the outer one of its split."""
    if isinstance(atom, Var):
        return roots.get(atom)
    if isinstance(atom, Binary) and atom.op == "floordiv" and isinstance(atom.b, Const):
        for rel in stage.relations:
            if isinstance(rel, SplitRelation) and rel.parent == roots.get(atom.a):
                inner = extents[rel.inner]
                fits = not isinstance(inner, Expr) and inner == atom.b.value
                return rel.outer if fits else None
    return None
