"""Reductions that users define, and the recognition of known reductions by their expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, as_expr, const
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .laws import Laws, laws_found
from .tensor import KNOWN, IterVar, Reduce, Reducer, recognised, reduced_axes
from .written import check_reducer


@checked(ExpressionError)
def comm_reducer(
    combine: Callable[..., Any],
    identity: Callable[..., Any],
    name: str = "reduce",
    *,
    commutative: bool | None = None,
    associative: bool | None = None,
) -> Callable[..., tuple[Expr, ...] | Expr]:
    """A user-defined reduction.

    combine: maps two values to one value; for a reduction of n values, two n-tuples to one n-tuple.
    identity: maps the element types to the start value, which is the neutral element.
    commutative, associative: whether a change of the order of two values, or of the grouping of
        three, keeps the result.  None: a trial with small numbers decides.

    Steps that need a law, such as `rfactor`, are refused for a reducer that does not obey it.  The
    use of the result raises ExpressionError if a law is claimed that whole numbers from 1
    contradict.

    A sum, product, minimum or maximum is recognised under any name, and is as fast as `te.sum`.

    The result is used like `te.sum`: `argmax((index, value), axis=k)` returns one expression per
    value.
    """

    def combined(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        r = combine(*((x[0] if len(x) == 1 else x) for x in (a, b)))
        return tuple(as_expr(x) for x in (r if isinstance(r, (tuple, list)) else (r,)))

    def start(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        r = identity(*dtypes)
        values = r if isinstance(r, (tuple, list)) else (r,)
        typed = zip_longest(values, dtypes)  # `check_reducer` reports a wrong number of values
        return tuple(v if isinstance(v, Expr) else const(v, d) for v, d in typed if v is not None)

    claimed = {"commutative": commutative, "associative": associative}
    by_types: dict[tuple[DType, ...], Reducer] = {}

    def reducer_of(dtypes: tuple[DType, ...]) -> Reducer:
        if dtypes not in by_types:
            check_reducer(name, combined, start, dtypes)
            known = recognised(Reducer(name, combined, start), dtypes)
            by_types[dtypes] = known if known in KNOWN else _with_laws(known, dtypes, claimed)
        return by_types[dtypes]

    def reduce(values: Any, axis: IterVar | Sequence[IterVar]) -> Any:
        several = isinstance(values, (tuple, list))
        sources = tuple(as_expr(v) for v in (values if several else (values,)))
        axes = reduced_axes(axis)
        dtypes = tuple(s.dtype for s in sources)
        known = reducer_of(dtypes)
        results = tuple(Reduce(known, sources, axes, i) for i in range(len(sources)))
        return results if several else results[0]

    return reduce


def _with_laws(
    reducer: Reducer, dtypes: tuple[DType, ...], claimed: dict[str, bool | None]
) -> Reducer:
    """`reducer` with its laws: the claimed ones, and the results of the trial for laws without a
    claim.

    A claim may hold only for the values that occur, for example counts, which are never negative.
    So a claim is tried only on whole numbers from 1 on.
    """
    start = reducer.identity(dtypes)
    laws = laws_found(reducer.combine, start, dtypes)
    usual = laws_found(reducer.combine, start, dtypes, counts=True)
    if laws is None or usual is None:
        laws = usual = Laws(False, False, neutral=bool(claimed["associative"]))
    else:
        _check_claims(reducer, dtypes, claimed, usual)
    claims = {law: claim for law, claim in claimed.items() if claim is not None}
    neutral = (usual if claimed["associative"] else laws).neutral
    return replace(reducer, laws=replace(laws, neutral=neutral, **claims))


def _check_claims(
    reducer: Reducer, dtypes: tuple[DType, ...], claimed: dict[str, bool | None], usual: Laws
) -> None:
    for law, claim in claimed.items():
        if claim and not getattr(usual, law):
            raise ExpressionError(
                f"reducer {reducer.name!r} is declared {law} and is not for values of type "
                f"{', '.join(d.name for d in dtypes)}{usual.why_not(law)}; leave {law} out, or "
                "combine the values so that it holds"
            )
