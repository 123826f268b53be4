"""The text of one C function under construction: its lines, names, helpers and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilesmith.ir.expr import BufferLike, Var
from tilesmith.ir.functions import INTRINSICS

from .prelude import VALUE_TYPES

MATH = {i.name: i.libm for i in INTRINSICS.values() if i.libm}
"""Intrinsics that are functions of `math.h`.  The functions on `float` have the suffix f."""

_RESERVED = frozenset((
    "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "false", "float", "for", "goto", "if", "inline", "int", "long", "main",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "true", "typedef", "union", "unsigned", "void", "volatile", "while",
    "context", "workspace", "fmod", "isnan", "isinf", "memcpy", "INFINITY", "NAN",
    *VALUE_TYPES.values(), *MATH.values(),
    *(f"{name}f" for name in (*MATH.values(), "fmod")),
))  # fmt: skip
"""Words that can't be the name of a variable."""


class Names:
    """A unique C identifier for each variable and buffer, derived from its label."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED, *reserved}
        self._names: dict[Var | BufferLike, str] = {}
        self._numbers: dict[str, int] = {}

    def __call__(self, item: Var | BufferLike) -> str:
        name = self._names.get(item)
        if name is None:
            name = self._names[item] = self.fresh(item.name)
        return name

    def renew(self, item: Var) -> None:
        """Give `item` another identifier from now on."""
        self._names[item] = self.fresh(item.name)

    def alias(self, item: Var | BufferLike, text: str) -> None:
        """Write `text` for every use of `item`; for example, an element of a named vector."""
        self._names[item] = text

    def fresh(self, label: str) -> str:
        """An identifier that is not in use yet."""
        label = re.sub(r"[^A-Za-z0-9_]", "_", label)
        if not re.match(r"[A-Za-z]", label) or label.startswith("ts_"):
            label = f"v_{label}"
        name = label
        while name in self._taken:
            number = self._numbers[label] = self._numbers.get(label, 0) + 1
            name = f"{label}_{number}"
        self._taken.add(name)
        return name


class Builder:
    """The lines of a function, appended to the current block.

    depth: indentation level of the block.
    helpers: names of the helper functions (see `prelude`) that the text calls.
    messages: texts of the failures that the function reports.
    called: declarations of the external code that the function calls, by symbol.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.depth = 1
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.messages: list[str] = []
        self.called: dict[str, str] = {}

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.depth + text)

    def constant(self, type_: str, stem: str, text: str) -> str:
        """Define a local constant with the value `text` and return its name."""
        name = self.names.fresh(stem)
        self.line(f"const {type_} {name} = {text};")
        return name

    def message(self, text: str) -> int:
        """The number of a message; a new message is added to the list."""
        if text not in self.messages:
            self.messages.append(text)
        return self.messages.index(text)
