"""Conversion of the main program to and from JSON values, by the declared fields of its nodes.

A node becomes a JSON object of its fields.  Fields with their default value are left out.  The key
`step` contains the first word of a step's text.  An argument becomes its text (`program.operands`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from tilesmith.ir.dtypes import DType, by_name
from tilesmith.support.errors import ParseError

from .nodes import BY_WORD, WORDS, Arg, Node, Step, hints_of
from .operands import parse_operand, print_operand

N = TypeVar("N", bound=Node)
_Reader = Callable[[Any], Any]


def to_json(value: Any) -> Any:
    """A node, or the value of a field, as JSON values."""
    if isinstance(value, Arg):
        return print_operand(value)
    if isinstance(value, tuple):
        return [to_json(v) for v in value]
    if isinstance(value, DType):
        return value.name
    if not isinstance(value, Node):
        return value
    kind = type(value)
    values: dict[str, Any] = {"step": WORDS[kind]} if isinstance(value, Step) else {}
    for name, default in _defaults(kind):
        inside = getattr(value, name)
        if default is MISSING or inside != default:
            values[name] = to_json(inside)
    return values


@cache
def _defaults(kind: type[Node]) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.default) for f in fields(kind))


def from_json(kind: type[N], value: Any) -> N:
    """The node that `to_json` wrote.  Raises ParseError for other JSON values."""
    return _reader(kind)(value)


def _reader(hint: Any) -> _Reader:
    """The function that reads JSON values of a type."""
    if hint is Step:
        return _step
    return _reader_of(hint)


@cache
def _reader_of(hint: Any) -> _Reader:
    if get_origin(hint) is tuple:
        return _reader_of_tuple(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return _reader_of_either({*get_args(hint)})
    if issubclass(hint, Node):
        return _reader_of_node(hint)
    return _LEAVES[hint]


def _reader_of_tuple(of: tuple[Any, ...]) -> _Reader:
    if len(of) == 2 and of[1] is Ellipsis:
        one = _reader(of[0])
        return lambda value: tuple([one(v) for v in _list(value)])
    each = [_reader(item) for item in of]

    def read(value: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(each):
            raise ParseError(f"expected {len(each)} values, found {len(value)}")
        return tuple([one(v) for one, v in zip(each, value)])

    return read


def _reader_of_either(kinds: set[Any]) -> _Reader:
    """A reader for a union of numbers, texts and None, which are told apart by their JSON types."""
    worded = next((_LEAVES[k] for k in (Arg, str) if k in kinds), _number)

    def read(value: Any) -> Any:
        if value is None and NoneType in kinds:
            return None
        return (worded if isinstance(value, str) else _number)(value)

    return read


def _reader_of_node(kind: type[Node]) -> _Reader:
    hints = hints_of(kind)
    readers = [(name, default, _reader(hints[name])) for name, default in _defaults(kind)]
    known = {name for name, _ in _defaults(kind)} | ({"step"} if issubclass(kind, Step) else set())

    def read(value: Any) -> Node:
        if not isinstance(value, dict):
            raise ParseError(f"expected the fields of a {kind.__name__}, found {value!r}")
        if not known.issuperset(value):
            other = sorted(value.keys() - known)
            raise ParseError(f"a {kind.__name__} has no {', '.join(map(repr, other))}")
        values: list[Any] = []
        for name, default, one in readers:
            inside = value.get(name, MISSING)
            if inside is MISSING and default is MISSING:
                raise ParseError(f"a {kind.__name__} needs {name!r}")
            values.append(default if inside is MISSING else one(inside))
        return kind(*values)

    return read


def _step(value: Any) -> Step:
    word: Any = value.get("step") if isinstance(value, dict) else None
    kind = BY_WORD.get(word) if isinstance(word, str) else None
    if kind is None or not issubclass(kind, Step):
        raise ParseError(f"expected a step, found {value!r}")
    return _reader_of(kind)(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ParseError(f"expected a list, found {value!r}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ParseError(f"expected a number, found {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ParseError(f"expected text, found {type(value).__name__}")
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ParseError(f"expected true or false, found {value!r}")
    return value


def _dtype(value: Any) -> DType:
    dtype = by_name(_text(value))
    if dtype is None:
        raise ParseError(f"{value!r} is no element type")
    return dtype


_LEAVES: dict[Any, _Reader] = {
    int: _number,
    str: _text,
    bool: _truth,
    DType: _dtype,
    Arg: lambda value: parse_operand(_text(value)),
}
