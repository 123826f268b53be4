"""Attention in chunks of keys, whose results are combined: an online softmax.

    p = exp(logits - max(logits)) / sum(exp(logits - max(logits)))
    y = p * v

    for each chunk c of keys:
        m[c], l[c] = max(logits[c]), sum(exp(logits[c] - m[c]))
        o[c] = exp(logits[c] - m[c]) * v[c]
    m, l, o = the triples (m[c], l[c], o[c]), combined
    y = o / l

Two triples are combined after both are scaled to the larger maximum.  So one loop over chunks
computes the whole attention, and only the logits of a chunk exist at a time (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).

In a chunk that is masked out entirely the maximum is minus infinity.  The lowest finite number is
subtracted then, so that the exponentials are 0 and not NaN.  A row that is masked out entirely has
the sum 0 in the end.  The result then equals the model's: a plain softmax divides 0 by 0, a masked
softmax 0 by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.expr import (
    Binary,
    Call,
    Expr,
    Load,
    Select,
    Var,
    const,
    free_vars,
    maximum,
    select,
    substitute,
    vars_of,
)  # fmt: skip
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.access import expand
from tilesmith.strategy.attention import Attention
from tilesmith.strategy.group import Group
from tilesmith.te import tensor as te
from tilesmith.te.intrinsics import exp
from tilesmith.te.reducers import comm_reducer
from tilesmith.te.rewrite import loads, map_loads
from tilesmith.te.tensor import MAX, SUM, Compute, Reduce, Reducer, Tensor

from .attention import KEYS, SIDES, Stages, attention_stages, fastest

COMBINING = 16
"""Time to combine a chunk with the previous ones; the unit is the time for one key."""
ELEMENTS = (f32, f64)
"""Types in which sums of exponentials don't overflow before they are divided."""


@dataclass(frozen=True, slots=True, eq=False)
class _Softmax:
    """An attention whose rows are a softmax.  Its expressions are over the axes of `scores`; the
    last of these counts keys.

    scores: the first product.
    keys: the factor of `scores` that depends on keys.
    logit: the logit computed from a score.
    most, total: the reductions of rows.
    value: the factor of a softmax weight in the second product; it depends on the key and `column`.
    column: the last axis of the result.
    sum: variable in `scaled` for the sum of exponentials times values.
    scaled: an element of the result, as a function of `most`, `total` and `sum`.
    """

    scores: Compute
    keys: Load
    logit: Expr
    most: Compute
    total: Compute
    value: Expr
    column: te.IterVar
    sum: Var
    scaled: Expr


def streamed_group(group: Group, target: Target) -> Group | None:
    """`group` with its attention in chunks of keys.  None if the group has no attention, if whole
    rows are as fast, or if a chunk exceeds the device's limits for a block.
    """
    stages = attention_stages(group, target)
    if stages is None or stages.running is not None:
        return None
    length = _chunk(stages, target)
    softmax = None if length is None else _softmax(stages.core)
    if length is None or softmax is None:
        return None
    return group.with_tensor(stages.core.values.outputs[0], _Chunks(softmax, length).result())


def _chunk(stages: Stages, target: Target) -> int | None:
    """The number of keys per chunk that has the lowest cost; None if whole rows cost no more."""
    keys = stages.keys

    def cost(length: int) -> float:
        way = fastest(stages, target, length)
        if way is None:
            return inf
        combining = COMBINING if length < keys else 0
        return way.cost * -(-keys // length) * (length + combining)

    least = KEYS * max(x for _, x in SIDES)
    best = min((keys, *range(least, keys, least)), key=cost)
    return best if best < keys else None


def _softmax(a: Attention) -> _Softmax | None:
    """The expressions of an attention; None if its rows are not a softmax."""
    scores, logits, values = a.scores, a.logits, a.values
    element = logits.outputs[0].dtype
    if len(a.rows) != 2 or not same_shape(values.shape[:-1], scores.shape[:-1]):
        return None
    if values.outputs[0].dtype is not element or element not in ELEMENTS:
        return None
    most, total = a.rows
    rows, (*_, row, key) = scores.axis[:-1], (a.var for a in scores.axis)

    def terms(op: Compute, reducer: Reducer, keep: tuple[Compute, ...]) -> Expr | None:
        """The terms of a reduction over keys."""
        (body,) = expand(op, keep)
        if not isinstance(body, Reduce) or body.reducer is not reducer:
            return None
        return _renamed(body.sources[0], (*op.axis[: len(rows)], *op.reduce_axis), scores.axis)

    highest = terms(most, MAX, (logits,))
    weight = terms(total, SUM, (logits, most))
    product = terms(values, SUM, (logits, most, total))
    if highest is None or not _is_element(highest, logits, scores.axis):
        return None
    shifted = weight.args[0] if isinstance(weight, Call) and weight.name == "exp" else None
    if weight is None or not isinstance(shifted, Binary) or shifted.op != "sub":
        return None
    subtracted = shifted.b
    if isinstance(subtracted, Binary) and subtracted is _finite(subtracted.a):
        subtracted = subtracted.a
    if shifted.a is not highest or not _is_element(subtracted, most, rows):
        return None
    logit: Expr = scores.outputs[0][tuple(a.var for a in scores.axis)]
    if logits is not scores:
        logit = _renamed(expand(logits, (scores,))[0], logits.axis, scores.axis)
    by_keys = [x for x in product_of_loads(scores) or () if key in vars_of(x.indices)]
    if len(by_keys) != 1 or not isinstance(product, Binary) or product.op != "mul":
        return None
    if not all(_is_element(x, scores, scores.axis) for x in _reads(logit, scores)):
        return None
    own = Var("sum", element)
    for weights, value in ((product.a, product.b), (product.b, product.a)):
        scaled = _scaled(weights, weight, own, key)
        if scaled is None or row in free_vars(value) or _reads(value, scores, logits, most, total):
            continue
        of_rows = _reads(scaled, most, total)
        if all(_is_element(x, most, rows) or _is_element(x, total, rows) for x in of_rows):
            column = values.axis[-1]
            return _Softmax(scores, by_keys[0], logit, most, total, value, column, own, scaled)
    return None


def _renamed(e: Expr, axes: Sequence[te.IterVar], others: Sequence[te.IterVar]) -> Expr:
    """`e` with `axes` replaced by `others`."""
    return substitute(e, {a.var: b.var for a, b in zip(axes, others, strict=True)})


def _reads(e: Expr, *ops: Compute) -> list[Load]:
    """The loads in `e` from results of `ops`."""
    results = {t for op in ops for t in op.outputs}
    return [x for x in loads((e,)) if x.buffer in results]


def _is_element(e: Expr, op: Compute, axes: Sequence[te.IterVar]) -> bool:
    """Whether `e` is the element of `op` at the given axes, and at index 0 along all others."""
    if not isinstance(e, Load) or e.buffer is not op.outputs[0]:
        return False
    own_indices, rest = e.indices[: len(axes)], e.indices[len(axes) :]
    zero = const(0)
    own = zip(own_indices, axes, strict=True)
    return all(i is a.var or (same_dim(a.extent, 1) and i is zero) for i, a in own) and all(
        i is zero for i in rest
    )


def _scaled(e: Expr, weight: Expr, own: Var, key: Var) -> Expr | None:
    """`e` with `own` instead of `weight`, if `e` is the product of `weight` and factors that are
    the same for all keys; else None.  The sum of `e` over keys is then the sum of weights times
    these factors.
    """
    if e is weight:
        return own
    if isinstance(e, Select) and key not in free_vars(e.cond):
        parts = [
            x if x is const(0, x.dtype) else _scaled(x, weight, own, key)
            for x in (e.if_true, e.if_false)
        ]
        known = [x for x in parts if x is not None]
        return e.with_children((e.cond, *known)) if len(known) == len(parts) else None
    if not isinstance(e, Binary) or e.op not in ("mul", "div"):
        return None
    a = _scaled(e.a, weight, own, key)
    if a is not None and key not in free_vars(e.b):
        return e.with_children((a, e.b))
    b = _scaled(e.b, weight, own, key) if e.op == "mul" else None
    return e.with_children((e.a, b)) if b is not None and key not in free_vars(e.a) else None


class _Chunks:
    """The stages of an attention in chunks of `length` keys."""

    def __init__(self, softmax: _Softmax, length: int) -> None:
        self.softmax, self.length = softmax, length
        *self.heads, self.row, self.key = softmax.scores.axis
        self.keys = expected(self.key.extent)
        self.chunks = -(-self.keys // length)

    def result(self) -> Tensor:
        """The sums of values, weighted by a softmax, for each row and column."""
        f, length = self.softmax, self.length
        (depth,) = f.scores.reduce_axis
        element = f.sum.dtype
        keys = self._operand("keys", f.keys, depth)
        values = self._operand("values", f.value, f.column)
        rows, heads = (self.row.name, self.row.extent), [(a.name, a.extent) for a in self.heads]
        chunks, inside = ("chunk", self.chunks), (self.key.name, length)

        def score(*at: Expr) -> Expr:
            *h, c, _, n = at
            d = te.reduce_axis(depth.extent, depth.name)
            read = keys(*h, c, n, d.var)
            (source,) = f.scores.body[0].children
            (term,) = map_loads((source,), lambda x: read if x is f.keys else x)
            return te.sum(self._at(term, at, {depth.var: d.var}), axis=d)

        scores = self._stage("scores", (*heads, chunks, rows, inside), score)

        def logit(*at: Expr) -> Expr:
            (value,) = map_loads(
                (f.logit,), lambda x: scores[at] if x.buffer is f.scores.outputs[0] else x
            )
            return self._known(at[-3], at[-1], self._at(value, at, {}), element.min)

        logits = scores
        if f.logit is not f.scores.outputs[0][self._vars()] or self._has_tail:
            logits = self._stage("logits", (*heads, chunks, rows, inside), logit)

        def highest(*at: Expr) -> Expr:
            n = te.reduce_axis(length, self.key.name)
            return te.max(logits[(*at, n.var)], axis=n)

        most = self._stage("most", (*heads, chunks, rows), highest)

        def weight(*at: Expr) -> Expr:
            return exp(logits[at] - _finite(most[at[:-1]]))

        def whole(*at: Expr) -> Expr:
            n = te.reduce_axis(length, self.key.name)
            return te.sum(weight(*at, n.var), axis=n)

        total = self._stage("total", (*heads, chunks, rows), whole)
        weights = self._stage("weights", (*heads, chunks, rows, inside), weight)
        columns = f.column.name, f.column.extent

        def part(*at: Expr) -> Expr:
            *h, c, m, column = at
            n = te.reduce_axis(length, self.key.name)
            return te.sum(weights[(*h, c, m, n.var)] * values(*h, c, n.var, column), axis=n)

        parts = self._stage("parts", (*heads, chunks, rows, columns), part)

        def combined(*at: Expr) -> Expr | tuple[Expr, ...]:
            *h, m, column = at
            c = te.reduce_axis(self.chunks, "chunk")
            row = (*h, c.var, m)
            return _combined((most[row], total[row], parts[(*row, column)]), axis=c)

        running = self._stage("running", (*heads, rows, columns), combined)

        def element_of(*at: Expr) -> Expr:
            own: dict[object, Expr] = {}
            for op, of_all in ((f.most, running[0]), (f.total, running[1])):
                own[op.outputs[0]] = of_all[at]
            (value,) = map_loads((f.scaled,), lambda x: own.get(x.buffer, x))
            value = substitute(value, {f.sum: running[2][at]})
            return substitute(value, dict(zip(self._vars()[:-1], at, strict=False)))

        return self._stage("attention", (*heads, rows, columns), element_of)

    @property
    def _has_tail(self) -> bool:
        return self.keys % self.length != 0

    def _vars(self) -> tuple[Var, ...]:
        return tuple(a.var for a in self.softmax.scores.axis)

    def _at(self, e: Expr, at: Sequence[Expr], others: Mapping[Expr, Expr]) -> Expr:
        """`e` at an index of the new stages: heads, chunk, row and key of the chunk.

        others: the indices along other axes.
        """
        *h, c, m, n = at
        places = (*h, m, c * self.length + n)
        return substitute(e, {**dict(zip(self._vars(), places, strict=True)), **others})

    def _known(self, c: Expr, n: Expr, value: Expr, other: float) -> Expr:
        """`value` for key `n` of chunk `c`; `other` after the last key."""
        if not self._has_tail:
            return value
        return select(c * self.length + n < self.keys, value, const(other, value.dtype))

    def _stage(
        self,
        name: str,
        axes: Sequence[tuple[str, Dim]],
        body: Callable[..., Expr | tuple[Expr, ...]],
    ) -> Any:
        return te.compute([n for _, n in axes], body, name, [name for name, _ in axes])

    def _operand(self, name: str, e: Expr, axis: te.IterVar) -> Callable[..., Load]:
        """Keys or values of a chunk, in the memory order of their axes: `axis` and keys.  They are
        indexed by heads, a chunk, a key, and an index along `axis`.
        """
        heads = [(a.name, a.extent) for a in self.heads]
        ends = [(self.key.name, self.length), (axis.name, axis.extent)]

        def element(*at: Expr) -> Expr:
            *h, c, n, x = at
            value = self._at(e, (*h, c, self.row.var, n), {axis.var: x})
            return self._known(c, n, value, 0)

        def turned(*at: Expr) -> Expr:
            return element(*at[:-2], at[-1], at[-2])

        made = self._stage(name, [*heads, ("chunk", self.chunks), *ends], element)
        own = made.op.axis[-2].var
        if not any(own in free_vars(x.indices[-1]) for x in loads(expand(made.op))):
            return lambda *at: made[at]
        last = self._stage(name, [*heads, ("chunk", self.chunks), *reversed(ends)], turned)
        return lambda *at: last[(*at[:-2], at[-1], at[-2])]


def _finite(most: Expr) -> Expr:
    """The finite number that is subtracted from logits whose maximum is `most`."""
    return maximum(most, const(-most.dtype.largest, most.dtype))


def _combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Combine (maximum, sum of exponentials, sum of exponentials times values) of two key sets."""
    most = maximum(a[0], b[0])
    x, y = (exp(n[0] - _finite(most)) for n in (a, b))
    return most, *(p * x + q * y for p, q in zip(a[1:], b[1:], strict=True))


_combined = comm_reducer(_combine, lambda *types: (types[0].min, 0, 0), "online_softmax")
