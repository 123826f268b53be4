"""The roles of a node's fields, declared once with the node.

The annotation of a field is its role.  Walking, rebuilding, comparing and binding follow from the
roles, and text from `syntax`, so that a new kind of node is one class:

    class Wait(Stmt):
        syntax = "wait {pending:number}"
        pending: Label[int]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import get_annotations
from operator import is_
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from tilesmith.support.errors import InternalError

T = TypeVar("T")


class Role(Enum):
    """The meaning of a field for its node."""

    OPERAND = "an expression that the node evaluates"
    BODY = "statements inside the node"
    BINDER = "a variable or a buffer that the node declares for its bodies"
    RESULT = "a value or a symbol that the node defines for the nodes behind it"
    REFERENCE = "a buffer or a value that is declared elsewhere"
    LABEL = "plain data"


Operand = Annotated[T, Role.OPERAND]
Body = Annotated[T, Role.BODY]
Binder = Annotated[T, Role.BINDER]
Result = Annotated[T, Role.RESULT]
Reference = Annotated[T, Role.REFERENCE]
Label = Annotated[T, Role.LABEL]


@dataclass(frozen=True, slots=True)
class NodeField:
    """A declared field of a kind of node.

    name: its name.
    role: its role.
    is_many: whether it is a tuple.
    is_optional: whether it may be None.
    """

    name: str
    role: Role
    is_many: bool
    is_optional: bool


@cache
def fields_of(kind: type) -> tuple[NodeField, ...]:
    """The fields of a kind of node, in order.  Raises InternalError for a field without a role."""
    types = {f.name: f.type for f in fields(kind)}
    inherited = {
        f.name: f for base in kind.__bases__ if is_dataclass(base) for f in fields_of(base)
    }
    own = {k: types[k] for k in get_annotations(kind) if k in types}
    scope = vars(sys.modules[kind.__module__])
    hints = get_type_hints(type("", (), {"__annotations__": own}), scope, include_extras=True)
    return tuple(
        _field(kind, name, hints[name]) if name in own else inherited[name] for name in types
    )


def _field(kind: type, name: str, hint: Any) -> NodeField:
    roles = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Role)]
    if len(roles) != 1:
        raise InternalError(f"{kind.__name__}.{name} has no role; annotate it, as Operand[Expr]")
    plain = get_args(hint)[0]
    return NodeField(name, roles[0], get_origin(plain) is tuple, NoneType in get_args(plain))


def fields_with(kind: type, role: Role) -> tuple[NodeField, ...]:
    """The fields of a kind of node that have a role."""
    return tuple(f for f in fields_of(kind) if f.role is role)


def values_of(node: object, fields: Iterable[NodeField]) -> tuple[Any, ...]:
    """The values of some fields of a node: items of tuples one by one, without None."""
    values: list[Any] = []
    for f in fields:
        value = getattr(node, f.name)
        if f.is_many:
            values += value
        elif value is not None:
            values.append(value)
    return tuple(values)


def reader(fields: Sequence[NodeField]) -> Callable[[Any], tuple[Any, ...]]:
    """The function from a node to `values_of` these fields.  Its source is as short as code written
    by hand, because it runs for every node of every pass.
    """
    return function_of(f"lambda node: {_tuple([*fields])}")


def function_of(source: str, **names: Any) -> Callable[..., Any]:
    """The function that `source` defines.  The only text in `source` from outside of the package
    are names of fields.
    """
    return eval(source, names)


def _tuple(fields: list[NodeField]) -> str:
    """Source of the tuple of a node's values, in the order of the fields."""
    for n, f in reversed(list(enumerate(fields))):
        if f.is_optional:
            without = _tuple(fields[:n] + fields[n + 1 :])
            there = NodeField(f.name, f.role, is_many=False, is_optional=False)
            whole = _tuple([*fields[:n], there, *fields[n + 1 :]])
            return f"{without} if node.{f.name} is None else {whole}"
    if len(fields) == 1 and fields[0].is_many:
        return f"node.{fields[0].name}"
    parts = "".join(f"{'*' * f.is_many}node.{f.name}, " for f in fields)
    return f"({parts})"


def items_in(value: object) -> Iterator[Any]:
    """The items of nested tuples one by one; a value that is not a tuple is its only item."""
    if isinstance(value, tuple):
        for item in value:
            yield from items_in(item)
    else:
        yield value


def mapped(value: Any, rule: Callable[[Any], Any]) -> Any:
    """A value with `rule` applied to each of its items (see `items_in`); the same object if no item
    changes.
    """
    if not isinstance(value, tuple):
        return rule(value)
    new = tuple([mapped(item, rule) for item in value])
    return value if all(map(is_, new, value)) else new


@dataclass(frozen=True, slots=True)
class Slot:
    """A field in a line of text: `{field:form}`; the form determines how the value is written.

    A slot without a field, `{:form}`, stands for the whole node.
    """

    field: str
    form: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a node's text, with the statements below it.

    items: literal text and slots, in order.
    body: the field with those statements; None if there are none.
    is_block: whether these statements are indented; otherwise they are the rest of the block.
    """

    items: tuple[str | Slot, ...]
    body: str | None
    is_block: bool

    @property
    def names_the_rest(self) -> bool:
        """Whether variables that the line declares are in scope for the rest of its block."""
        return self.body is not None and not self.is_block

    @property
    def literals(self) -> tuple[str, ...]:
        """The literal text before the first slot, in tokens."""
        first = self.items[0] if self.items else ""
        return tuple(tokens(first)) if isinstance(first, str) else ()


@cache
def lines_of(kind: type) -> tuple[Line, ...]:
    """The lines of a kind of node, from its `syntax`.  A line is `text {field:form} text`.
    If the next line is `{field}` and nothing else, this field is the body below the line.
    """
    bodies = {f.name for f in fields_with(kind, Role.BODY)}
    lines: list[Line] = []
    for text in kind.syntax.split("\n"):  # type: ignore[attr-defined]  # nodes with text have one
        m = re.fullmatch(r"\{(\w+)\}", text)
        if m and m[1] in bodies:
            items = lines[-1].items
            lines[-1] = Line(items, m[1], str(items[-1]).endswith(":"))
        else:
            lines.append(Line(items_of(text), None, False))
    return tuple(lines)


_syntaxes: dict[str, None] = {}


def register(syntax: str) -> None:
    """Records the text of a kind of node, so that names avoid its words (`ir.text.reserved`)."""
    _syntaxes[syntax] = None


def registered() -> tuple[str, ...]:
    """The texts of the kinds of nodes that are declared so far."""
    return tuple(_syntaxes)


@cache
def items_of(text: str) -> tuple[str | Slot, ...]:
    """The literal text and the slots of a line."""
    return tuple(_item(p) for p in re.split(r"(\{[^}]+\})", text) if p)


def _item(part: str) -> str | Slot:
    if not part.startswith("{"):
        return part
    name, _, form = part[1:-1].partition(":")
    return Slot(name, form or "expression")


def tokens(text: str) -> list[str]:
    """The words and symbols of literal text."""
    return re.findall(r"\w+|->|[^\w\s]", text)
