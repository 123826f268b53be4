"""`rfactor`: a reduction becomes partial results, and a reduction of these."""

from __future__ import annotations

from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr as Value
from tilesmith.ir.expr import Load, const, same, substitute
from tilesmith.support.errors import ScheduleError
from tilesmith.te.tensor import BY_OPERATION

from .domains import Domain, RVar
from .expressions import Expr, Var
from .schedules import name_of, reordered


def combination(definition: Any, sources: Any) -> list[tuple[str, Value]] | None:
    """The operation and the operand of an update that combines each value with its old one, as in
    `f[args] = f[args] + operand`; None for other updates.
    """
    found = []
    for source, value in zip(sources, definition.values, strict=True):
        if not isinstance(value, ir.Binary):
            return None
        op = "add" if value.op == "sub" else value.op
        pairs = [(value.a, value.b)] if value.op == "sub" else [
            (value.a, value.b), (value.b, value.a)]  # fmt: skip
        operand = next((b for a, b in pairs if _is_self(a, definition, source)), None)
        if op not in BY_OPERATION or operand is None or _reads(operand, sources):
            return None
        found.append((op, -operand if value.op == "sub" else operand))
    return found


def _is_self(e: Value, definition: Any, source: Any) -> bool:
    return (
        isinstance(e, Load)
        and e.buffer is source
        and same(e.indices, [ir.cast(a, i64) for a in definition.args])
    )


def _reads(e: Value, sources: Any) -> bool:
    return any(isinstance(n, Load) and n.buffer in sources for n in ir.post_order(e))


def neutral(op: str, dtype: Any) -> ir.Const:
    """The value that `op` leaves unchanged."""
    (value,) = BY_OPERATION[op].identity((dtype,))
    assert isinstance(value, ir.Const)
    return value


def factored(func: Any, number: int, pairs: list[tuple[Any, Any]], partial: Any) -> None:
    """Define `partial` as the partial results of update `number` of `func`, one for each value of
    the first variables of `pairs`, under the names of the second ones.  Replace the update.

    Raises ScheduleError for an update that does not combine values by a sum, product, minimum or
    maximum.
    """
    definition = func.definitions[number + 1]
    combined = combination(definition, func.sources)
    if combined is None or definition.domain is None:
        raise ScheduleError(
            f"{func.name()}.update({number}).rfactor: expected an update that adds, multiplies or "
            "takes the minimum or maximum over an RDom; for another combination write the partial "
            "results as a Func"
        )
    axes, values, where = _loops(definition)
    kept = {name_of(r): u for r, u in pairs}
    missing = [name for name in kept if name not in axes]
    if missing:
        raise ScheduleError(
            f"{func.name()}.update({number}).rfactor: expected loops of the RDom "
            f"({', '.join(axes)}), found {missing[0]}"
        )
    outer = {name: RVar(name) for name in kept}
    inner = {name: RVar(name) for name in axes if name not in kept}
    ranges = {name: axes[name][1] for name in axes}
    domains = [
        Domain({made[n].ir: ranges[n] for n in made})  # type: ignore[misc]  # an RVar's is a Var
        for made in (inner, outer)
    ]
    to: dict[Value, Value] = {}
    for name, (var, (low, _)) in axes.items():
        to[var] = Var(kept[name].name()).ir + low if name in kept else inner[name].ir
    whole = {old: substitute(e, to) for old, e in values.items()}
    domains[0].where = [substitute(substitute(c, values), to) for c in where]

    def inside(e: Value) -> Value:
        return substitute(e, whole)

    lead = [Var(u.name()) for u in kept.values()]
    names = func.args()
    starts = [ir.const(neutral(op, s.dtype).value, s.dtype) for (op, _), s in
              zip(combined, func.sources, strict=True)]  # fmt: skip
    partial[(*names, *lead)] = tuple(map(Expr, starts))
    places = (*(Expr(inside(a), True) for a in definition.args), *lead)
    olds = list(partial[places])
    partial[places] = tuple(
        Expr(ir.binary(op, old.ir, inside(e))) for old, (op, e) in zip(olds, combined, strict=True)
    )
    rows = [outer[n] - Expr(axes[n][1][0], True) for n in kept]
    parts = list(partial[(*names, *rows)])
    func.definitions[number + 1] = type(definition)(
        func.definitions[0].args,
        tuple(
            ir.binary(op, Load(s, func.definitions[0].args), part.ir)
            for (op, _), s, part in zip(combined, func.sources, parts, strict=True)
        ),
        domains[1],
    )


def _loops(definition: Any) -> tuple[dict[str, Any], dict[Value, Value], list[Value]]:
    """The loops of the domain of an update after its splits and fusions: by name, the variable with
    its range; the variables of the domain as expressions of those; and its conditions.
    """
    domain = definition.domain
    axes = {v.name: (v, ends) for v, ends in domain.axes.items()}
    values: dict[Value, Value] = {v: v for v in domain.axes}
    where = list(domain.where)

    def replace(name: str, value: Value) -> None:
        old, _ = axes.pop(name)
        for v in values:
            values[v] = substitute(values[v], {old: value})
        where[:] = [substitute(c, {old: value}) for c in where]

    for step in definition.steps.steps:
        if any(name not in axes for name in step.needs) or step.kind not in (
            "split",
            "fuse",
            "reorder",
        ):
            raise ScheduleError(
                f"rfactor: expected no steps before but on the loops of its RDom alone, found "
                f"{step.kind} of {', '.join(step.needs)}; take this step afterwards"
            )
        if step.kind == "split":
            low, size = axes[step.needs[0]][1]
            outer, inner = (ir.Var(name, i64) for name in step.makes)
            factor = const(step.factor)
            point = outer * factor + inner
            divides = isinstance(size, ir.Const) and size.value % step.factor == 0
            replace(step.needs[0], (point if divides else ir.minimum(point, size - 1)) + low)
            axes[inner.name] = inner, (const(0), factor)
            axes[outer.name] = outer, (const(0), (size + (factor - 1)) // factor)
            if not divides:
                where.append(point < size)
        elif step.kind == "reorder":
            axes = {n: axes[n] for n in reordered(list(axes), step.needs)}
        else:
            (inner_low, inner_size), (outer_low, outer_size) = (axes[n][1] for n in step.needs)
            fused = ir.Var(step.makes[0], i64)
            replace(step.needs[0], fused % inner_size + inner_low)
            replace(step.needs[1], fused // inner_size + outer_low)
            axes[fused.name] = fused, (const(0), inner_size * outer_size)
    return axes, values, where
