"""Words and types of declared steps, for text and JSON."""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

from tilesmith.ir.grammar import tokens

from . import nodes
from .nodes import Node

BY_WORD: dict[str, type[Node]] = {
    tokens(kind.syntax)[0]: kind
    for kind in vars(nodes).values()
    if isinstance(kind, type) and issubclass(kind, Node) and hasattr(kind, "syntax")
    and kind.syntax[0] != "{"
}  # fmt: skip
"""The kinds of nodes that stand in lines of their own, by their first word."""

WORDS: dict[type[Node], str] = {kind: word for word, kind in BY_WORD.items()}


@cache
def hints_of(kind: type[Node]) -> dict[str, Any]:
    """The types of the fields of a kind of node."""
    return get_type_hints(kind)
