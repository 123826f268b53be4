"""Reductions inside an expression, `hl.sum` and its relatives: a Func with an update for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.ir.expr import const
from tilesmith.support.errors import ExpressionError

from .definitions import coordinates_in
from .domains import RDom, domain_of
from .element_types import Type
from .expressions import Expr, Var, as_expr, max, min, of_type, select, value_of
from .func import Func
from .rfactor import neutral


def _given(args: Sequence[Any], name: str) -> tuple[Expr, str]:
    """The reduced expression and a label.  Raises ExpressionError without an RDom."""
    label = next((a for a in args if isinstance(a, str)), name)
    values = [as_expr(a) for a in args if not isinstance(a, (str, RDom))]
    if len(values) != 1 or domain_of([values[0].ir]) is None:
        raise ExpressionError(f"hl.{name}: expected one expression that uses an RDom")
    return values[0], label


def _reduction(op: str, name: str) -> Callable[..., Expr]:
    def reduce(*args: Any) -> Expr:
        e, label = _given(args, name)
        value = Expr(value_of(e))
        axes = tuple(Var(v.name) for v in coordinates_in([value.ir]))
        made = Func(label)
        made[axes] = Expr(neutral(op, value.dtype))
        old = as_expr(made[axes])
        made[axes] = {"add": old + value, "mul": old * value,
                      "min": min(old, value), "max": max(old, value)}[op]  # fmt: skip
        return as_expr(made[axes])

    reduce.__name__ = name
    reduce.__doc__ = f"The {name} of an expression over the RDom that it uses."
    return reduce


sum, product = _reduction("add", "sum"), _reduction("mul", "product")
minimum, maximum = _reduction("min", "minimum"), _reduction("max", "maximum")


def _first_best(name: str) -> Callable[..., tuple[Expr, ...]]:
    def best(*args: Any) -> tuple[Expr, ...]:
        e, label = _given(args, name)
        value = Expr(value_of(e))
        domain = domain_of([value.ir])
        assert domain is not None
        places = [Expr(v, is_coordinate=True) for v in domain.axes]
        axes = tuple(Var(v.name) for v in coordinates_in([value.ir]))
        made = Func(label)
        kind = Type(value.dtype)
        worst = kind.max() if name == "argmin" else kind.min()
        made[axes] = (*(Expr(const(0, "i32")) for _ in places), Expr(worst))
        old = made[axes]
        better = value < old[len(places)] if name == "argmin" else value > old[len(places)]
        news = [*(of_type(p, old[0].dtype) for p in places), value]
        made[axes] = tuple(select(better, new, o) for new, o in zip(news, old, strict=True))
        return tuple(made[axes])

    best.__name__ = name
    best.__doc__ = f"The coordinates and the value of the {name} over an RDom: the first one."
    return best


argmin, argmax = _first_best("argmin"), _first_best("argmax")
