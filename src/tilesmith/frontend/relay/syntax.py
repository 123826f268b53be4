"""The syntax of Relay, as its parser leaves it.

A block of bindings is one object, whether they were written with `let` (A-normal form) or as
numbered nodes of a graph, so that long programs aren't deep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's type.  An open dimension is a text: its name, or "" for `?`."""

    dims: tuple[int | str, ...]
    dtype: DType


Type: TypeAlias = "Tensor | tuple[Type, ...] | None"
"""A type.  None stands for types that nothing needs: functions, and types that are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A local variable, without its `%`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A function of the module, without its `@`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator, such as nn.conv2d."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; `name` is its place in the section of constants, empty for a number."""

    array: np.ndarray
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """A tuple."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """An element of a tuple."""

    of: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator or a function; `line` is that of the callee."""

    callee: Expr
    arguments: tuple[Expr, ...]
    attributes: Mapping[str, Any]
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function: its parameters, each with a type, and its body."""

    parameters: tuple[tuple[str, Type], ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`if (condition) { then } else { otherwise }` in a line."""

    condition: Expr
    then: Expr
    otherwise: Expr
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A match.  A pattern is a name, "_" for anything, or a tuple of patterns."""

    of: Expr
    clauses: tuple[tuple[Pattern, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Bindings in order, and the result."""

    bindings: tuple[tuple[str, Expr], ...]
    result: Expr


Pattern: TypeAlias = "str | tuple[Pattern, ...]"
Expr: TypeAlias = (
    "Name | Global | Operator | Literal | Tuple | Item | Call | Function | Branch | Match | Block"
)


@dataclass(frozen=True, slots=True)
class Module:
    """A program.

    functions: by name; `main` is the program.
    format: the format and its version, for people.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    format: str = ""
