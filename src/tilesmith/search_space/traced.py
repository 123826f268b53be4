"""Numbers that remember their origin and the questions about them.

A schedule function tests the numbers of its knobs: `if columns % width`, `min(height, rows)`.  With
traced numbers it takes the same branches as with plain ones, and each condition of a branch is
recorded as a question: an expression of the knobs.  Numbers computed from the knobs without a
branch (split factors, extents) are expressions too.  Candidates with the same answers to all
questions make the same schedule, except that these expressions have other values.

A number may be used where it can't be traced: as a dictionary key, in text, in floats, as an index.
Then the values of its knobs are recorded as questions, and from there on these knobs are plain
ints.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilesmith.ir.expr import Const, Expr, Var, binary, const, free_vars
from tilesmith.ir.expr import compare as comparison

Note = Callable[[Expr, int], object]


class Asked:
    """The questions of one run about the numbers of its knobs.  `note` receives each question with
    its answer.
    """

    def __init__(self, note: Note) -> None:
        self.is_over = False
        """True when tracing has ended.  From then on traced numbers behave like plain ones."""
        self._note = note
        self._values: dict[Var, int] = {}
        self._fixed: set[Var] = set()

    def number(self, v: Var, value: int) -> int:
        """A knob's number `value`, traced as the variable `v`."""
        self._values[v] = value
        return Traced(value, v, self)  # type: ignore[return-value]  # as an int to all who ask

    def compare(self, op: str, a: Expr, b: Expr, answer: bool) -> None:
        question = comparison(op, a, b)
        if not isinstance(question, Const) and a is not b:
            self._note(question, answer)

    def fix(self, e: Expr) -> None:
        """Record that the run depends on the values of the knobs in `e`."""
        asked = free_vars(e)
        for v in self._values:
            if v in asked and v not in self._fixed:
                self._fixed.add(v)
                self._note(v, self._values[v])

    def is_open(self, e: Expr) -> bool:
        """Whether a variable in `e` has not been fixed yet."""
        return not self.is_over and any(v not in self._fixed for v in free_vars(e))


def _operation(op: str, *, swap: bool = False) -> Callable[[Traced, Any], Any]:
    """A method for `a op b`; `swap`: for `b op a`."""
    return lambda self, other: self._with(other, op, swap)


class Traced:
    """An integer with the expression that computes it from the knobs.

    `isinstance` takes it for an int.  Functions written in C do not: they convert it by
    `__index__`.
    """

    __slots__ = ("_asked", "_value", "expr")

    def __init__(self, value: int, e: Expr, asked: Asked) -> None:
        self._value, self.expr, self._asked = value, e, asked

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return int

    @property
    def plain(self) -> int:
        """The plain number.  Records that the run depends on the values of the number's knobs."""
        if self.is_open:
            self._asked.fix(self.expr)
        return self._value

    @property
    def is_open(self) -> bool:
        return self._asked.is_open(self.expr)

    def _with(self, other: Any, op: str, swap: bool = False) -> Any:
        plain = _PLAIN[op]
        if not _is_integer(other):
            return plain(other, self.plain) if swap else plain(self.plain, other)
        value = plain(_value(other), self._value) if swap else plain(self._value, _value(other))
        if not self.is_open and not (type(other) is Traced and other.is_open):
            return value
        a, b = _expression(self), _expression(other)
        return Traced(value, binary(op, *((b, a) if swap else (a, b))), self._asked)

    def _compare(self, other: Any, op: str, swap: bool = False, negate: bool = False) -> bool:
        plain = _PLAIN[op]
        if not _is_integer(other):
            answer = plain(other, self.plain) if swap else plain(self.plain, other)
            return answer != negate
        answer = plain(_value(other), self._value) if swap else plain(self._value, _value(other))
        if self.is_open or (type(other) is Traced and other.is_open):
            a, b = _expression(self), _expression(other)
            self._asked.compare(op, *((b, a) if swap else (a, b)), answer)
        return answer != negate

    __add__, __radd__ = _operation("add"), _operation("add", swap=True)
    __sub__, __rsub__ = _operation("sub"), _operation("sub", swap=True)
    __mul__, __rmul__ = _operation("mul"), _operation("mul", swap=True)
    __floordiv__, __rfloordiv__ = _operation("floordiv"), _operation("floordiv", swap=True)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if _is_integer(other) else self.plain % other

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self if _is_integer(other) else other % self.plain

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> bool:
        return self._compare(other, "eq")

    def __ne__(self, other: object) -> bool:
        return self._compare(other, "eq", negate=True)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "lt")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "lt", negate=True)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "lt", swap=True)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "lt", swap=True, negate=True)

    def __hash__(self) -> int:
        return hash(self.plain)

    def __index__(self) -> int:
        return self.plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __format__(self, spec: str) -> str:
        return format(self.plain, spec)


def _through(name: str) -> Callable[..., Any]:
    """A method of ints that is not traced."""
    return lambda self, *others: getattr(operator, name)(self.plain, *others)


def _reflected(name: str) -> Callable[..., Any]:
    return lambda self, other: getattr(operator, name)(other, self.plain)


for _name in ("truediv", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    _short = _name.strip("_")
    setattr(Traced, f"__{_short}__", _through(_name))
    setattr(Traced, f"__r{_short}__", _reflected(_name))

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "eq": operator.eq, "lt": operator.lt,
}  # fmt: skip


def expression(n: Any) -> Any:
    """The expression of a traced number; any other value unchanged."""
    return n.expr if type(n) is Traced else n


def _is_integer(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool)


def _value(n: Any) -> int:
    return n._value if type(n) is Traced else n


def _expression(n: Any) -> Expr:
    return n.expr if type(n) is Traced else const(n)
