"""The known behaviour of a schedule function, as a tree of the questions that it asks.

A node of the tree is a knob that the function declares, or a question about the numbers of knobs
(see `traced`).  A run of the function answers the questions one by one, and so follows a path from
the root.  Two candidates on one path make the same schedule with different numbers.  For a
candidate on a known path, its knobs are known without a run, and so is whether it is impossible.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.ir.expr import Binary, Compare, Const, Expr, Var
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config, Decisions, Knob, Options, V, Value

from .traced import Asked

Key = tuple[str, int | None]
"""(knob, None) for a knob with one number; (knob, i) for number i of a knob whose value is a tuple.
"""


@dataclass(slots=True, eq=False)
class Path:
    """The end of a path.

    columns: the variables of all numeric knobs on the path.
    made: the schedule function's result, with traced numbers in it.
    error: why candidates on the path are impossible; None if they are possible.
    """

    columns: dict[Key, Var]
    made: object = None
    error: str | None = None


@dataclass(slots=True, eq=False)
class _Ask:
    """A declared knob.  `columns` has the variables of its numbers; empty if it has no numbers."""

    knob: Knob
    columns: dict[Key, Var]
    next: dict[Value, Node] = field(default_factory=dict, repr=False)

    def is_same(self, other: object) -> bool:
        return isinstance(other, _Ask) and self.knob == other.knob


@dataclass(slots=True, eq=False)
class _Question:
    """A question about numbers: whether a condition is true, or the value of a number."""

    text: Expr
    next: dict[Value, Node] = field(default_factory=dict, repr=False)

    def is_same(self, other: object) -> bool:
        return isinstance(other, _Question) and self.text is other.text


Node: TypeAlias = "_Ask | _Question | Path"


@dataclass(frozen=True, slots=True)
class _Tracer(Config):
    """A config that gives out traced numbers and records the path."""

    asked: Asked = field(default_factory=lambda: Asked(lambda *_: None))
    taken: list[tuple[_Ask | _Question, Value]] = field(default_factory=list)
    variables: dict[Key, Var] = field(default_factory=dict)

    def choice(self, name: str, options: Options[V], default: V) -> V:
        full = self.prefix + name
        plain = _plain(default)
        values = tuple(_plain(v) for v in (options() if callable(options) else options))
        knob = Knob(full, values if plain in values else (plain, *values), plain)
        if self.seen is not None:
            self.seen[full] = knob
        value = self.chosen.get(full, plain)
        columns = {k: self.variables.setdefault(k, Var(full)) for k in _keys(full, plain)}
        self.taken.append((_Ask(knob, columns), () if columns else value))
        check(knob, value)
        if not columns:
            return value  # type: ignore[return-value]  # one of the options
        parts = zip(columns.values(), _numbers(value), strict=True)
        numbers = tuple(self.asked.number(v, n) for v, n in parts)
        return numbers if isinstance(value, tuple) else numbers[0]  # type: ignore[return-value]


class Paths:
    """The paths of `schedule`, a function of a config."""

    def __init__(self, schedule: Callable[[Config], Any]) -> None:
        self.schedule = schedule
        self._root: dict[Value, Node] = {}
        self._variables: dict[Key, Var] = {}

    def follow(self, chosen: Decisions, seen: dict[str, Knob]) -> Path:
        """The path of a candidate.

        seen: an empty dict, which receives the candidate's knobs in order of declaration.

        Raises ScheduleError if the candidate is impossible; the last knob in `seen` is then the
        last one declared.
        """
        values: dict[Var, int] = {}
        node = self._root.get(())
        while isinstance(node, (_Ask, _Question)):
            if isinstance(node, _Ask):
                seen[node.knob.name] = node.knob
                value = chosen.get(node.knob.name, node.knob.default)
                check(node.knob, value)
                values.update(zip(node.columns.values(), _numbers(value), strict=False))
                node = node.next.get(() if node.columns else value)
            else:
                node = node.next.get(_evaluated(node.text, values))
        if node is None:
            seen.clear()
            node = self._run(chosen, seen)
        if node.error is not None:
            raise ScheduleError(node.error)
        return node

    def _run(self, chosen: Decisions, seen: dict[str, Knob]) -> Path:
        taken: list[tuple[_Ask | _Question, Value]] = []
        asked = Asked(lambda question, answer: taken.append((_Question(question), answer)))
        tracer = _Tracer(chosen, seen, asked=asked, taken=taken, variables=self._variables)
        path = Path({})
        try:
            path.made = self.schedule(tracer)
        except ScheduleError as e:
            path.error = str(e)
        finally:
            asked.is_over = True
        children: dict[Value, Node] = self._root
        answer: Value = ()
        for step, value in taken:
            child = children.setdefault(answer, step)
            if isinstance(child, Path) or not child.is_same(step):
                raise UnsteadyError
            if isinstance(child, _Ask):
                path.columns |= child.columns
            children, answer = child.next, value
        last = next(reversed(seen.values()), None)
        if last is None or not is_wrong(last, chosen.get(last.name, last.default)):
            children[answer] = path
        return path


class UnsteadyError(Exception):
    """A schedule function asked different questions in two runs with the same answers."""


def check(knob: Knob, value: Value) -> None:
    """Raises ScheduleError if `value` is not an option of the knob."""
    if is_wrong(knob, value):
        options = ", ".join(map(repr, knob.options))
        raise ScheduleError(f"knob {knob.name}: {value!r} is none of {options}")


def is_wrong(knob: Knob, value: Value) -> bool:
    return value not in knob.options or type(value) is not type(knob.default)


def _keys(name: str, value: Value) -> list[Key]:
    if isinstance(value, tuple):
        return [(name, n) for n in range(len(_numbers(value)))]
    return [(name, None)] if _numbers(value) else []


def _numbers(value: Value) -> tuple[int, ...]:
    """The numbers in a value; empty for values of another kind."""
    parts: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    return parts if all(isinstance(p, int) and not isinstance(p, bool) for p in parts) else ()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _evaluated(e: Expr, values: Mapping[Var, int]) -> Any:
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, Const):
        return e.value
    assert isinstance(e, (Binary, Compare))
    a, b = _evaluated(e.a, values), _evaluated(e.b, values)
    return _OPS[e.op](a, b)


_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "eq": operator.eq, "lt": operator.lt,
}  # fmt: skip
