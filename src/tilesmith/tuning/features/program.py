"""Expressions of knobs as one NumPy function of a matrix: all features of all candidates at once.

An `ArrayProgram` is a straight line of NumPy calls over blocks of candidates.  Each distinct
sub-expression is computed once (expressions are interned).  A register is reused as soon as its
value is dead, so that a block stays in the cache.  All numbers are float64, which represents
integers up to 2**53 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Select, Var
from tilesmith.support.errors import InternalError

from .algebra import Number

BLOCK = 4096
"""Candidates computed at a time."""

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum, "le": np.less_equal, "lt": np.less,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


class ArrayProgram:
    """Computes `outputs` for each row of values of `variables`."""

    def __init__(self, outputs: Sequence[Number], variables: Sequence[Var]) -> None:
        self.width = len(variables)
        self.constant = np.array([0 if isinstance(o, Expr) else o for o in outputs], np.float32)
        self._outputs: dict[Expr, list[int]] = {}
        for n, o in enumerate(outputs):
            if isinstance(o, Expr):
                self._outputs.setdefault(_plain(o), []).append(n)
        order = _ordered(self._outputs)
        places: dict[Expr, int] = {v: n for n, v in enumerate(variables)}
        self._literals: list[float] = []
        for e in order:
            if isinstance(e, Const):
                places[e] = self.width + len(self._literals)
                self._literals.append(float(e.value))
        unknown = [e for e in order if isinstance(e, Var) and e not in places]
        if unknown:
            raise InternalError(f"features depend on {unknown[0]}, which is no knob")
        self._registers = self._assign(order, places)
        """Registers of floats and of truth values, after the variables and literals."""

    def _assign(self, order: list[Expr], places: dict[Expr, int]) -> tuple[int, int]:
        last: dict[Expr, int] = {}
        for n, e in enumerate(order):
            for c in _operands(e)[1]:
                last[c] = n
        free: tuple[list[int], list[int]] = ([], [])
        used = [0, 0]
        names: dict[Expr, tuple[int, int]] = {}
        steps: list[tuple[Callable[..., Any], Expr, tuple[Expr, ...], list[Expr]]] = []
        for n, e in enumerate(order):
            if e in places:
                continue
            f, children = _operands(e)
            kind = int(e.dtype.is_bool)
            if not free[kind]:
                free[kind].append(used[kind])
                used[kind] += 1
            names[e] = (kind, free[kind].pop())
            steps.append((f, e, children, []))
            for c in dict.fromkeys((*children, e)):
                if c in names and last.get(c, -1) <= n:
                    k, slot = names[c]
                    free[k].append(slot)
        first = self.width + len(self._literals)
        for e, (kind, slot) in names.items():
            places[e] = first + kind * used[0] + slot
        self._steps = [
            (f, tuple(places[c] for c in children), places[e], self._outputs.get(e, ()))
            for f, e, children, _ in steps
        ]
        self._copies = [(places[v], o) for v, o in self._outputs.items() if isinstance(v, Var)]
        return used[0], used[1]

    def __call__(self, knobs: np.ndarray, room: int = 0) -> np.ndarray:
        """Values [n, outputs + room] in float32, column by column in memory, for `knobs` [n,
        variables] of any number type.

        The last `room` columns are for the caller to fill.
        """
        n, count = len(knobs), len(self.constant)
        result = np.empty((count + room, n), np.float32)
        result[:count] = self.constant[:, None]
        if self._outputs:
            columns = np.ascontiguousarray(knobs.T, np.float64)
            size = min(n, BLOCK)
            floats, truths = self._registers
            registers = [*np.empty((floats, size)), *np.empty((truths, size), bool)]
            for start in range(0, n, BLOCK):
                end = min(start + BLOCK, n)
                if end - start < size:
                    registers = [r[: end - start] for r in registers]
                block = [*columns[:, start:end], *self._literals, *registers]
                self._run(block, result[:, start:end])
        return result.T

    def _run(self, values: list[Any], result: np.ndarray) -> None:
        for f, operands, place, outputs in self._steps:
            out = values[place]
            f(*[values[p] for p in operands], out=out)
            for o in outputs:
                result[o] = out
        for place, outputs in self._copies:
            for o in outputs:
                result[o] = values[place]


def _plain(e: Expr) -> Expr:
    """`e` without conversions: all numbers are floats here."""
    while isinstance(e, Cast):
        e = e.a
    return e


def _operands(e: Expr) -> tuple[Callable[..., Any], tuple[Expr, ...]]:
    """The NumPy call for a node, and its operands."""
    f: Callable[..., Any]
    if isinstance(e, (Var, Const)):
        return _nothing, ()
    if isinstance(e, Binary) and e.op == "floordiv":
        dividend = _rounded_up(e)
        f, children = (
            (_ceil_divide, (dividend, e.b)) if dividend is not None else (_floor_divide, (e.a, e.b))
        )
    elif isinstance(e, (Binary, Compare)) and e.op in _BINARY:
        f, children = _BINARY[e.op], (e.a, e.b)
    elif isinstance(e, Select):
        f, children = _select, (e.cond, e.if_true, e.if_false)
    elif isinstance(e, Call) and e.name == "log":
        f, children = np.log, e.args
    else:
        raise InternalError(f"features have no NumPy function for {e}")
    return f, tuple(map(_plain, children))


def _rounded_up(e: Binary) -> Expr | None:
    """The `n` of an expression `(n + (d - 1)) // d`; None for other expressions."""
    a, d = e.a, e.b
    if isinstance(a, Binary) and a.op == "add":
        more = a.b
        if isinstance(d, Const):
            if isinstance(more, Const) and more.value == d.value - 1:
                return a.a
        else:
            for n, more in ((a.a, a.b), (a.b, a.a)):
                if _is_one_less(more, d):
                    return n
    return None


def _is_one_less(e: Expr, d: Expr) -> bool:
    """Whether `e` is `d - 1`, as `algebra` writes it."""
    if not isinstance(e, Binary) or e.op != "add" or e.a is not d:
        return False
    return isinstance(e.b, Const) and e.b.value == -1


def _ordered(roots: Sequence[Expr] | dict[Expr, Any]) -> list[Expr]:
    """All nodes that are computed, operands first."""
    done: dict[Expr, None] = {}
    for root in roots:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in done:
                stack.pop()
                continue
            below = [c for c in _operands(e)[1] if c not in done]
            if below:
                stack += reversed(below)
            else:
                done[e] = None
                stack.pop()
    return list(done)


def _nothing(*_: Any) -> None:
    raise InternalError("a variable is not computed")


def _ceil_divide(a: Any, b: Any, out: np.ndarray) -> None:
    np.divide(a, b, out)
    np.ceil(out, out)


def _floor_divide(a: Any, b: Any, out: np.ndarray) -> None:
    np.divide(a, b, out)
    np.floor(out, out)


def _select(condition: Any, a: Any, b: Any, out: np.ndarray) -> None:
    np.copyto(out, np.where(condition, a, b))
