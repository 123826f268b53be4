"""The common part of all schedule steps: their text, their JSON, and reading JSON back.

A step is plain data that names stages and axes by their unique names.  It holds the arguments of
the call and nothing derived.  Its text is the Python call that makes the step, on a schedule named
`s`.  A primitive is one class: its fields, their `Form` (how they look in text and in JSON), and
`apply`, which defines its meaning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints

from tilesmith.ir.expr import Expr
from tilesmith.support.arguments import check_fields, checked, shown
from tilesmith.support.errors import ScheduleError

from ..relations import Tail
from ..state import State


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a field's values in text and in JSON.

    expected: a description of valid values, for messages.
    accepts: whether a value read from JSON is valid.
    show: a value as Python text.
    by_name: whether a value is printed as `field=value`, and left out if it is the default.
    """

    expected: str
    accepts: Callable[[Any], bool]
    show: Callable[[Any], str] = repr
    by_name: bool = False


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _is_size(value: object) -> bool:
    return value is None or type(value) is int


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, str) for v in value)


def _arguments(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


Name = Annotated[str, Form("a name", _is_name)]
"""The name of a stage or an axis."""
Names = Annotated[tuple[str, ...], Form("a list of names", _are_names, _arguments)]
"""A list of names, the last field of a step.  In text each name is an argument."""
OptionalName = Annotated[str, Form("a name", _is_name, by_name=True)]
Quoted = Annotated[str, Form("a text", _is_name)]
Number = Annotated[int, Form("an integer", lambda v: type(v) is int, by_name=True)]
Size = Annotated[int | Expr | None, Form("an integer or null", _is_size, str, by_name=True)]
TailField = Annotated[
    Tail, Form(" or ".join(get_args(Tail)), lambda v: v in get_args(Tail), by_name=True)
]


def value_text(stage: str, value: int) -> str:
    """A value of a stage as Python text: the stage's name for value 0, else one of its outputs."""
    return f"s[{stage!r}].op.outputs[{value}]" if value else repr(stage)


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """A step of a schedule: one call of a primitive.

    stage: the stage on which it is called.
    """

    stage: Name
    primitive: ClassVar[str]
    of_schedule: ClassVar[bool] = False
    """Whether the primitive is a method of the schedule, not of the stage."""

    def __post_init__(self) -> None:
        check_fields(self, ScheduleError)

    @abstractmethod
    def apply(self, state: State) -> State:
        """The state after this step.  Raises ScheduleError if the step is illegal."""

    def __str__(self) -> str:
        """The call that makes the step: `s['C'].split('i', factor=6)`."""
        plain: list[str] = []
        named: list[str] = []
        for f, form in _forms(type(self)):
            value = getattr(self, f.name)
            if not form.by_name:
                plain.append(form.show(value))
            elif isinstance(value, Expr) or value != f.default:
                named.append(f"{f.name}={form.show(value)}")
        if self.of_schedule:
            return f"s.{self.primitive}({', '.join((repr(self.stage), *plain, *named))})"
        return f"s[{self.stage!r}].{self.primitive}({', '.join((*plain, *named))})"

    def to_json(self) -> dict[str, Any]:
        """JSON values: {"step": primitive, field: value, ...}.  Raises ScheduleError for
        expressions.
        """
        record: dict[str, Any] = {"step": self.primitive}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Expr):
                raise ScheduleError(
                    f"{self} has an expression for {f.name}; only steps with numbers can be "
                    "written as JSON: make the schedule with a value for each knob"
                )
            record[f.name] = list(value) if isinstance(value, tuple) else value
        return record


S = TypeVar("S", bound=type[Step])

PRIMITIVES: dict[str, type[Step]] = {}
"""The step class of each primitive; `primitive` fills it."""


@dataclass_transform(frozen_default=True)
def primitive(name: str, of_schedule: bool = False) -> Callable[[S], S]:
    """A decorator that makes a class the step class of primitive `name`, a frozen dataclass."""

    def declare(cls: S) -> S:
        made = dataclass(frozen=True, slots=True)(cls)
        made.apply = checked(ScheduleError)(made.apply)  # type: ignore[method-assign]
        made.primitive, made.of_schedule = name, of_schedule
        PRIMITIVES[name] = made
        return made

    return declare


@cache
def _forms(cls: type[Step]) -> tuple[tuple[Any, Form], ...]:
    """The fields after `stage`, with their forms."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple((f, hints[f.name].__metadata__[0]) for f in fields(cls)[1:])


def _made(name: str, values: Mapping[str, Any]) -> Step:
    """The step of primitive `name` with these fields, checked."""
    cls = PRIMITIVES[name]
    for f, form in _forms(cls):
        if f.name in values and not form.accepts(values[f.name]):
            raise ScheduleError(
                f"{name}: field {f.name} needs {form.expected}, found {values[f.name]!r}"
            )
    if not _is_name(values["stage"]):
        raise ScheduleError(f"{name}: field stage needs a name, found {values['stage']!r}")
    return cls(**values)


def from_json(record: Any) -> Step:
    """The step that has the JSON form `record`.  Raises ScheduleError if there is none."""
    name = record.get("step") if isinstance(record, Mapping) else None
    if not isinstance(name, str) or name not in PRIMITIVES:
        raise ScheduleError(
            f"expected a step with one of the names {', '.join(PRIMITIVES)}; found {shown(record)}"
        )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k != "step"}
    known = [f.name for f in fields(PRIMITIVES[name])]
    if set(values) != set(known):
        raise ScheduleError(
            f"a {name} step has fields {', '.join(known)}; found {', '.join(values)}"
        )
    return _made(name, values)
