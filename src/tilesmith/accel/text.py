"""Reads the text of programs (`Program.text`, `str` of an instruction).

Each line is a micro-operation, `uop dst=1 src=2 wgt=3`, or an instruction, `load inp columns=4
push_next`: its name, then fields in any order.  A field of an enumeration is written as its value,
a flag that is set as its name, a number as `field=number`.  A field that isn't there has its
default value.  `#` begins a comment.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from tilesmith.support.errors import ParseError

from .instructions import INSTRUCTIONS, Instruction, MicroOp
from .program import Program

_KINDS = {kind.name: kind for kind in INSTRUCTIONS}
T = TypeVar("T", bound=Instruction | MicroOp)


def parse(text: str) -> Program:
    """The program that a text says.  Its micro-operations come first.

    Raises ParseError with the line.
    """
    micro_ops: list[MicroOp] = []
    instructions: list[Instruction] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *rest = words
        if name == "uop":
            if instructions:
                raise ParseError(f"line {number}: micro-operations come before instructions")
            micro_ops.append(_read(MicroOp, rest, number))
        elif name in _KINDS:
            instructions.append(_read(_KINDS[name], rest, number))
        else:
            known = ", ".join(("uop", *_KINDS))
            raise ParseError(f"line {number}: expected one of {known}, found '{name}'")
    return Program(tuple(instructions), tuple(micro_ops))


def _read(kind: type[T], words: list[str], line: int) -> T:
    defaults: dict[str, Any] = {f.name: f.default for f in fields(kind)}
    members = {
        member.value: (name, member)
        for name, default in defaults.items()
        if isinstance(default, Enum)
        for member in type(default)
    }
    values: dict[str, Any] = {}
    for word in words:
        name, equals, number = word.partition("=")
        value: Any = True
        if not equals and word in members:
            name, value = members[word]
        elif equals and type(defaults.get(name)) is int:
            value = _integer(number, line)
        elif equals or defaults.get(name) is not False:
            raise ParseError(f"line {line}: '{word}' is no field of this instruction")
        if name in values:
            raise ParseError(f"line {line}: {name} is written twice")
        values[name] = value
    return kind(**values)


def _integer(text: str, line: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise ParseError(f"line {line}: expected an integer, found '{text}'")
    return int(text)
