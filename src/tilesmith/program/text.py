"""Canonical text of the main program; `program.parse` reads it back.

    main("x": f32["n", 8]) -> ("y": f32["n", 8]) arena_bytes=640 size_values=6:
        call relu(input0, arena+64, %0) workspace=arena+%4 label="relu1"
        copy arena+64 -> output0, %5
        if arena+512:
            grow slot2 to 64
        else:
            repeat 10 number=arena+576:
                slice pointer0 = input0 by 32
                carry pointer1 = arena then pointer2 end=output0 bytes=32 target=pointer2
                call step(pointer0, pointer1, pointer2)

The attribute `syntax` of each class in `program.nodes` defines the lines of its text;
`program.operands` explains arguments.  In `syntax`, `{field}` stands for the field's value, printed
by its type: a number, a text in quotes, an argument, a node, or several of these, separated by
commas, in brackets if nested.  `{field:word}` is a text without quotes.  `{field:slot}`,
`{field:pointer}` and `{field:output}` are this word and a number.  `{field=}` is printed as `
field=value`, a bool as ` field`, and the default as nothing.  Declarations that the first line does
not mention are at the beginning of the body.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

from tilesmith.ir.grammar import Line, NodeField, Role, Slot, fields_with, lines_of

from .nodes import Arg, Node
from .operands import print_operand

NUMBERED = ("slot", "pointer", "output")
"""Forms of fields that are printed as this word and a number."""


def print_program(main: Node) -> str:
    """The text of a main program."""
    return "\n".join(_lines(main, "")) + "\n"


def head(node: Node) -> str:
    """The first line of a node's text."""
    return _line(node, lines_of(type(node))[0])


def _lines(node: Node, margin: str) -> Iterator[str]:
    for i, line in enumerate(lines_of(type(node))):
        inside = getattr(node, line.body) if line.body else ()
        if i and not inside:
            continue
        yield margin + _line(node, line)
        if line.body:
            declared = () if i else declarations_of(type(node))
            block = [*(d for f in declared for d in getattr(node, f.name)), *inside]
            for step in block:
                yield from _lines(step, f"{margin}    ")
            if not block:
                yield f"{margin}    pass"


def _line(node: Node, line: Line) -> str:
    return "".join(i if isinstance(i, str) else _item(node, i) for i in line.items)


def _item(node: Node, slot: Slot) -> str:
    name, is_keyed, form = form_of(slot)
    value = getattr(node, name)
    if not is_keyed:
        return _text(value, form)
    if value is None or value is False or value == default_of(type(node), name):
        return ""
    if value is True:
        return f" {name}"
    text = _text(value, form)
    return f" {name}=[{text}]" if isinstance(value, tuple) else f" {name}={text}"


def _text(value: Any, form: str) -> str:
    if form in NUMBERED:
        return f"{form}{value}"
    if isinstance(value, tuple):
        return ", ".join(
            f"[{_text(v, form)}]" if isinstance(v, tuple) else _text(v, form) for v in value
        )
    if isinstance(value, Arg):
        return print_operand(value)
    if isinstance(value, Node):
        return head(value)
    return json.dumps(value) if isinstance(value, str) and form != "word" else str(value)


@cache
def form_of(slot: Slot) -> tuple[str, bool, str]:
    """For a `{...}` in a syntax: the field, whether its name is printed, and its value's form."""
    text = slot.field if slot.form == "expression" else f"{slot.field}:{slot.form}"
    name, _, form = text.removesuffix("=").partition(":")
    return name, text.endswith("="), form


@cache
def declarations_of(kind: type[Node]) -> tuple[NodeField, ...]:
    """The fields of a class of nodes whose declarations are printed on separate lines."""
    lines = lines_of(kind)
    said = {form_of(i)[0] for line in lines for i in line.items if isinstance(i, Slot)}
    declared = fields_with(kind, Role.BINDER) if lines[0].is_block else ()
    return tuple(f for f in declared if f.name not in said)


@cache
def default_of(kind: type[Node], name: str) -> Any:
    """The default of a field; `dataclasses.MISSING` if it has none."""
    (default,) = (f.default for f in fields(kind) if f.name == name)
    return default
