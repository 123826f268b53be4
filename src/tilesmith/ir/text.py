"""Canonical text of expressions; `ir.parse` reads it back.

    (i * 16 + ii) // 4      A[i, j]      A[ramp(i, 1, 16), mask=m]      f64(x)      select(c, a, b)
    ramp(base, stride, 16)  broadcast(x, 16)  reduce_add(v, 1)          let(x, value, body)   exp(x)

- Literals: `5` is i64, `1.5` is f32, `true` is bool; others name their type: `5:i32`, `nan:f64`.
- `and`, `or`, `not` are the operations on bools; `&`, `|`, `~` are the same operations on integers.
- Casts are written as calls of the type's name.  A call names its type if it differs from the type
  of its first argument: `bitcast(x):i32`.
- In a long expression a repeated part is written once as `($1 := part)` and then as `$1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, ClassVar, Protocol

import numpy as np

from .dtypes import BY_NAME, DType, bool_, f32, i64
from .functions import INTRINSICS, result_type
from .grammar import Slot, items_of, registered
from .loop_tables import LOOP_KINDS
from .operations import (
    ATOM,
    COMPARE,
    COMPARISONS,
    INFIX,
    LOGICAL,
    NOT,
    PREFIX_CALLS,
    REDUCTIONS,
    UNARY,
)
from .order import Parent, post_order

NameOf = Callable[[Any], str]
"""Gives the printed name of a Var or buffer."""

VOCABULARY: dict[str, Collection[str]] = {
    "access": ("mask",),
    "first": ("extent",),
    "function": (*INTRINSICS, "prefetch"),
    "guard": ("likely",),
    "literal": ("true", "false", "nan", "inf"),
    "loop": tuple(kind.word for kind in LOOP_KINDS.values()),
    "prefix": ("not",),
    "infix": (*(word for word, _ in LOGICAL.values()), *PREFIX_CALLS),
    "reduction": REDUCTIONS,
    "type": BY_NAME,
}
"""The words with which each form writes a field."""

_BLOCKS = ("attr", "block", "def", "pass")
"""The words of functions and blocks."""

_SHARE_ABOVE = 200  # nodes of the tree; shorter expressions are written out in full
_SHARE_LEAST = 8  # nodes of the smallest part that gets a name


def reserved() -> frozenset[str]:
    """Words that can't be names in the text: the words of all kinds of nodes declared so far.  The
    words of statements are among them as soon as `loop.nodes` is imported.
    """
    return _words(registered())


@cache
def _words(syntaxes: tuple[str, ...]) -> frozenset[str]:
    words = {*_BLOCKS}
    for syntax in syntaxes:
        prefix = ""
        for item in items_of(syntax):
            if isinstance(item, Slot):
                words.update(f"{prefix}{word}" for word in VOCABULARY.get(item.form, ()))
            else:
                *whole, prefix = re.split(r"\W+", item)
                words.update(whole)
        words.add(prefix)
    return frozenset(words - {""})


class Node(Parent, Protocol):
    """A declared expression (`ir.expr.declared`)."""

    items: ClassVar[tuple[str | Slot, ...]]


class Names:
    """Gives each object a unique name: its label as a word, with a number if taken."""

    def __init__(self, taken: Iterable[str] | None = None) -> None:
        self._taken = set(reserved() if taken is None else taken)
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # the objects whose ids are in use

    def __call__(self, item: Any) -> str:
        name = self._names.get(id(item))
        if name is None:
            label = re.sub(r"[^A-Za-z0-9_.]", "_", item.name)
            label = label if re.match(r"[A-Za-z_]", label) else f"_{label}"
            name, n = label, 0
            while name in self._taken:
                n += 1
                name = f"{label}_{n}"
            self._taken.add(name)
            self._names[id(item)] = name
            self._kept.append(item)
        return name


def print_expr(e: Node, name_of: NameOf | None = None) -> str:
    """The text of `e`; names come from `name_of`, by default each label made unique within `e`."""
    name_of = Names() if name_of is None else name_of
    shared = _shared_parts(e)
    numbers: dict[Node, str] = {}
    out: list[str] = []
    stack: list[str | tuple[Node, int]] = [(e, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, least = item
        if node in numbers:
            out.append(numbers[node])
            continue
        parts, precedence = parts_of(node, name_of)
        if node in shared:
            numbers[node] = f"${len(numbers) + 1}"
            parts = [f"({numbers[node]} := ", *parts, ")"]
        elif precedence < least:
            parts = ["(", *parts, ")"]
        stack.extend(reversed(parts))
    return "".join(out)


def parts_of(node: Node, name_of: NameOf) -> tuple[Parts, int]:
    """The text of one node as its syntax writes it, and the precedence of the whole."""
    parts: Parts = []
    precedence = ATOM
    for piece in node.items:
        if isinstance(piece, str):
            parts.append(piece)
        else:
            precedence = _FORMS[piece.form](node, piece.field, name_of, parts) or precedence
    return parts, precedence


def _shared_parts(root: Node) -> set[Node]:
    """The parts that get a name: repeated parts of a long expression."""
    size: dict[Node, int] = {}
    uses: dict[Node, int] = {}
    for node in post_order(root):
        size[node] = 1 + sum(size[c] for c in node.children)
        for c in node.children:
            uses[c] = uses.get(c, 0) + 1
    if size[root] <= _SHARE_ABOVE:
        return set()
    return {n for n, count in uses.items() if count > 1 and size[n] >= _SHARE_LEAST}


Parts = list[Any]
"""A text in parts.  A part is a string, or a pair: a child, and the least precedence at which the
child needs no parentheses there.
"""


def literal(value: float, dtype: DType) -> str:
    """The text of a literal: exact, with its type unless it is the default one."""
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.is_float:
        if math.isnan(value) or math.isinf(value):
            body = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        else:
            # the shortest text that reads back as the same number of this type
            body = repr(float(value)) if dtype.bits == 64 else _shortest(float(value), dtype)
        return body if dtype is f32 else f"{body}:{dtype}"
    return str(value) if dtype is i64 else f"{value}:{dtype}"


def _shortest(value: float, dtype: DType) -> str:
    if dtype is not f32:
        return repr(value)
    return repr(float(np.format_float_scientific(np.float32(value))))


def type_name(dtype: DType, lanes: int) -> str:
    """`f32` or `f32x16`."""
    return dtype.name if lanes == 1 else f"{dtype}x{lanes}"


# --- the forms of fields ---
# Each writer appends to `parts` and returns the precedence of the text, or None for an atom.


def _literal(e: Any, _: str, name_of: NameOf, parts: Parts) -> int:
    text = literal(e.value, e.type)
    parts.append(text)
    return UNARY if text.startswith("-") else ATOM


def _prefix(e: Any, _: str, name_of: NameOf, parts: Parts) -> int:
    if e.op == "not" and e.dtype is bool_:
        parts += ("not ", (e.a, COMPARE))
        return NOT
    # an operand that is a literal is put in parentheses: -(5) is not the literal -5
    is_literal = e.a.items == _LITERAL
    parts += ("-" if e.op == "neg" else "~", (e.a, ATOM + is_literal))
    return UNARY


_LITERAL = items_of("{:literal}")


def _infix(e: Any, _: str, name_of: NameOf, parts: Parts) -> int:
    op = e.op
    if op in COMPARISONS:
        parts += ((e.a, COMPARE + 1), f" {COMPARISONS[op]} ", (e.b, COMPARE + 1))
        return COMPARE
    if op not in INFIX:
        parts += (f"{op}(", (e.a, 0), ", ", (e.b, 0), ")")
        return ATOM
    symbol, level = LOGICAL[op] if e.dtype is bool_ and op in LOGICAL else INFIX[op]
    parts += ((e.a, level), f" {symbol} ", (e.b, level + 1))
    return level


def _expression(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    value = getattr(e, field)
    if not isinstance(value, tuple):
        parts.append((value, 0))
        return
    for n, one in enumerate(value):
        if n:
            parts.append(", ")
        parts.append((one, 0))


def _access(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    """The indices and the mask in brackets."""
    parts.append("[")
    _expression(e, field, name_of, parts)
    if e.mask is not None:
        parts += (", mask=" if e.indices else "mask=", (e.mask, 0))
    parts.append("]")


def _bound(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    """A variable and its value."""
    parts += (name_of(getattr(e, field)), ", ", (e.value, 0))


def _name(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    parts.append(name_of(getattr(e, field) if field else e))


def _word(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    parts.append(str(getattr(e, field)))


def _suffix(e: Any, field: str, name_of: NameOf, parts: Parts) -> None:
    """The type of a value as text, unless the name and the arguments determine it."""
    dtype = getattr(e, field)
    if result_type(e.name, e.args[0].dtype if e.args else None) is not dtype:
        parts.append(f":{dtype}")


_FORMS: dict[str, Callable[[Any, str, NameOf, Parts], int | None]] = {
    "access": _access, "bound": _bound, "expression": _expression, "function": _word,
    "infix": _infix, "intrinsic": _word, "lanes": _word, "literal": _literal, "name": _name,
    "prefix": _prefix, "reduction": _word, "suffix": _suffix, "type": _word,
}  # fmt: skip
"""Writers of fields, by the form in the syntax of the node; `ir.parse` has the readers."""
