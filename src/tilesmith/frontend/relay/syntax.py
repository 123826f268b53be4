"""The syntax of Relay, as its parser leaves it.

Bindings become one object, a `Block`, whether they were written with `let` (A-normal form) or as
numbered nodes of a graph.  So the tree of a long program isn't deep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's type.

    dims: the extents; for an open extent its name, or "" for `?`.
    dtype: element type.
    """

    dims: tuple[int | str, ...]
    dtype: DType


Type: TypeAlias = "Tensor | tuple[Type, ...] | None"
"""A type.  None stands for a function's type, and for a type that is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A local variable.

    name: its name without `%`.
    """

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A function of the module.

    name: its name without `@`.
    """

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator.

    name: its name, such as nn.conv2d.
    """

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant.

    array: its contents.
    name: its name in messages, and for new weights; empty for a number in the text.
    """

    array: np.ndarray
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """A tuple.

    items: its elements.
    """

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """An element of a tuple.

    of: the tuple.
    index: number of the element.
    """

    of: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator or a function.

    callee: what is called.
    arguments: its arguments.
    attributes: the operator's attributes.
    line: line of the text.
    """

    callee: Expr
    arguments: tuple[Expr, ...]
    attributes: Mapping[str, Any]
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function.

    parameters: names and types.
    body: the result.
    """

    parameters: tuple[tuple[str, Type], ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`if (condition) { then } else { otherwise }`.

    condition: one bool.
    then, otherwise: the results.
    line: line of the text.
    """

    condition: Expr
    then: Expr
    otherwise: Expr
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A match.

    of: what is matched.
    clauses: patterns, each with a result.  A pattern is a name, "_" for anything, or a tuple of
        patterns.
    """

    of: Expr
    clauses: tuple[tuple[Pattern, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Bindings and a result.

    bindings: names and their meanings, in order.
    result: the meaning of the block.
    """

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
