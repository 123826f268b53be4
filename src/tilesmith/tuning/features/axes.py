"""Extents of the axes of a stage, derived from the extents of its roots through splits and fusions,
and the positions of the roots while some loops run.
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
    """The positions of an index.

    width: number of positions from the first to the last, both included.
    distinct: number of different positions.
    """

    width: Number
    distinct: Number

    @property
    def is_still(self) -> bool:
        """Whether the index has one position only, for all values of the knobs."""
        return not any(isinstance(n, Expr) or n != 1 for n in self)


STILL = Span(1, 1)

ANYWHERE = 1 << 40
"""The width of an unknown span; the tensor's extent bounds it."""


def known_width(width: Number, n: Number) -> Number:
    """`width`, the width of a block of neighbours, if lowering can prove which rows of length `n`
    contain the block; else `ANYWHERE`.

    Lowering can prove it if a row is a whole number of blocks, or a block is a whole number of
    rows.
    """
    rest = sym.sub(n, sym.mul(sym.floor_div(n, width), width))
    over = sym.sub(width, sym.mul(sym.floor_div(width, n), n))
    return sym.where(sym.is_most(sym.mul(rest, over), 0), width, ANYWHERE)


def extents_of(stage: StageState, domain: Sequence[Number]) -> dict[str, Number]:
    """Extents of all axes, from the extents of the roots: `StageState.extents` on numbers."""
    extents = dict(zip(stage.roots, domain, strict=True))
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            extents[rel.fused] = sym.product(extents[p] for p in rel.parts)
        elif isinstance(rel, SkewRelation):
            extents[rel.skewed] = sym.add(extents[rel.parent], rel.most)
        elif rel.factor is not None:
            inner = extents[rel.inner] = sym.number(rel.factor)
            extents[rel.outer] = sym.ceil_div(extents[rel.parent], inner)
        else:
            outer = extents[rel.outer] = sym.number(rel.nparts or 1)
            extents[rel.inner] = sym.ceil_div(extents[rel.parent], outer)
    return extents


def trips_of(stage: StageState, extents: Mapping[str, Number]) -> dict[str, tuple[Number, Number]]:
    """(`trips`, `rest`) of each axis, defined as in `SymbolicLoop`."""
    trips: dict[str, tuple[Number, Number]] = {r: (extents[r], 0) for r in stage.roots}
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            trips[rel.fused] = sym.product(trips[p][0] for p in rel.parts), 0
            continue
        if isinstance(rel, SkewRelation):
            trips[rel.skewed] = extents[rel.skewed], 0
            continue
        whole = trips[rel.parent][0]
        outer, inner = extents[rel.outer], extents[rel.inner]
        if rel.tail == "roundup":
            trips[rel.outer], trips[rel.inner] = (outer, 0), (inner, 0)
        elif rel.factor is not None:
            trips[rel.outer], trips[rel.inner] = _quotient(whole, inner), (inner, 0)
        else:
            trips[rel.outer], trips[rel.inner] = (outer, 0), _quotient(whole, outer)
    return trips


def lanes_of(stage: StageState, extents: Mapping[str, Number]) -> dict[str, Number]:
    """The number of vector lanes of each axis that is the outer part of a vectorised split."""
    vectors = {a for a in stage.leaves if stage.kind(a) == "vectorized"}
    lanes: dict[str, Number] = {}
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRelation) and rel.inner in vectors:
            vectors.add(rel.parent)
            lanes[rel.outer] = extents[rel.inner]
    return lanes


def _quotient(whole: Number, part: Number) -> tuple[Number, Number]:
    """`whole / part`, and the fractional part of this quotient."""
    if isinstance(whole, int) and isinstance(part, int) and whole % part == 0:
        return whole // part, 0
    trips = sym.div(whole, part)
    return trips, sym.sub(trips, sym.floor_div(whole, part))


def spans_of(
    stage: StageState, extents: Mapping[str, Number], inside: set[str], region: bool = False
) -> dict[str, Span]:
    """Spans of all axes while the leaves `inside` run and all others are fixed.

    region: whether to give the upper bounds that lowering computes, instead of averages.
    """
    spans = {a: Span(extents[a], extents[a]) if a in inside else STILL for a in stage.leaves}
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRelation):
            width, count = spans[rel.fused]
            for part in reversed(rel.parts[1:]):
                n = extents[part]
                width = known_width(width, n) if region else width
                spans[part] = Span(sym.minimum(width, n), sym.minimum(count, n))
                width, count = sym.ceil_div(width, n), sym.ceil_div(count, n)
            spans[rel.parts[0]] = Span(sym.minimum(width, extents[rel.parts[0]]), count)
        elif isinstance(rel, SkewRelation):
            spans[rel.parent] = _skewed_span(spans[rel.skewed], spans[rel.by], rel, extents)
        else:
            outer, inner, whole = spans[rel.outer], spans[rel.inner], extents[rel.parent]
            if outer is STILL:
                spans[rel.parent] = inner
                continue
            width = sym.add(sym.mul(sym.sub(outer.width, 1), extents[rel.inner]), inner.width)
            count = sym.mul(outer.distinct, inner.distinct)
            spans[rel.parent] = Span(sym.minimum(width, whole), sym.minimum(count, whole))
    return spans


def _skewed_span(span: Span, by: Span, rel: SkewRelation, extents: Mapping[str, Number]) -> Span:
    """The span of the parent of a skewed axis."""
    more = 0 if by is STILL else rel.most
    whole = extents[rel.parent]
    return Span(
        sym.minimum(sym.add(span.width, more), whole),
        sym.minimum(sym.add(span.distinct, more), whole),
    )


def moved_of(stage: StageState, extents: Mapping[str, Number], axis: str) -> dict[str, Number]:
    """For each other axis, the distance that it moves in one step of the leaf `axis`."""
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
    """The fused axes whose position occurs in an index, possibly times a factor.  For each of these
    axes, the terms of the index that add up to its position, the innermost first.

    For example, `14 * row + column` is the position along the axis made by `fuse(row, column)`.

    roots: the axes of index variables.
    terms: coefficients of variables and of their quotients.
    """
    axes = {_axis(stage, extents, roots, a): a for a in terms}
    digits: dict[str, list[Expr]] = {}
    for rel in stage.relations:
        if isinstance(rel, FuseRelation):
            atoms = _in_place(rel, extents, axes, terms)
            if len(atoms) > 1:
                digits[rel.fused] = atoms
    return digits


def _in_place(
    rel: FuseRelation,
    extents: Mapping[str, Number],
    axes: Mapping[str | None, Expr],
    terms: Mapping[Expr, int],
) -> list[Expr]:
    """The terms of an index that belong to the parts of a fused axis.  Empty if a part has no term,
    or if the terms do not add up to a multiple of the position along the fused axis.
    """
    composed: list[Expr] = []
    place = 0
    for part in reversed(rel.parts):
        n, atom = extents[part], axes.get(part)
        if isinstance(n, int) and n == 1:
            continue
        if not isinstance(n, int) or atom is None or place not in (0, terms[atom]):
            return []
        place = terms[atom] * n
        composed.append(atom)
    return composed


def _axis(
    stage: StageState, extents: Mapping[str, Number], roots: Mapping[Expr, str], atom: Expr
) -> str | None:
    """The axis whose position is `atom`: a root, or the outer axis of a root's split."""
    if isinstance(atom, Var):
        return roots.get(atom)
    if isinstance(atom, Binary) and atom.op == "floordiv" and isinstance(atom.b, Const):
        for rel in stage.relations:
            if isinstance(rel, SplitRelation) and rel.parent == roots.get(atom.a):
                inner = extents[rel.inner]
                fits = not isinstance(inner, Expr) and inner == atom.b.value
                return rel.outer if fits else None
    return None
