"""Canonical text of expressions; `ir.parse` reads it back.

    (i * 16 + ii) // 4      A[i, j]      A[ramp(i, 1, 16), mask=m]      f64(x)      select(c, a, b)
    ramp(base, stride, 16)  broadcast(x, 16)  reduce_add(v, 1)          let(x, value, body)   exp(x)

- Literals: `5` is i64, `1.5` is f32, `true` is bool; others name their type: `5:i32`, `nan:f64`.
- `and`, `or`, `not` are the operations on bools; `&`, `|`, `~` are the same ones on integers.
- Casts are written as calls of the type's name.  A call names its type if it is not that of its
  first argument: `bitcast(x):i32`.
- In a long expression a repeated part is written once as `($1 := part)` and then as `$1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import expr as ir
from .dtypes import BY_NAME, DType, bool_, f32, i64
from .expr import Broadcast, BufferLike, Const, Expr, Var, post_order
from .intrinsics import INTRINSICS
from .loop_tables import LOOP_KINDS

NameOf = Callable[[Any], str]
"""Gives the printed name of a Var or buffer."""

INFIX: dict[str, tuple[str, int]] = {
    "or": ("|", 5), "xor": ("^", 6), "and": ("&", 7), "shl": ("<<", 8), "shr": (">>", 8),
    "add": ("+", 9), "sub": ("-", 9), "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10),
    "floormod": ("%", 10),
}  # fmt: skip
"""Symbol and precedence; all are left-associative.  `min`, `max`, `truncdiv`, `truncmod` are
written as calls.
"""
LOGICAL = {"or": ("or", 1), "and": ("and", 2)}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
PREFIX_CALLS = ("min", "max", "truncdiv", "truncmod")
_NOT, _COMPARE, _UNARY, _ATOM = 3, 4, 11, 12

TENSOR_PREFIX = "tensor_"
"""Before the name of a tensor intrinsic."""

RESERVED = frozenset((
    *BY_NAME, *INTRINSICS, *PREFIX_CALLS, "and", "or", "not", "true", "false", "nan", "inf", "mask",
    "select", "ramp", "broadcast", "let", "for", "in", "if", "else", "likely", "alloc",
    "assert", "async", "barrier", "eval", "prefetch", "return", "wait",
    "block", "pass", "def", "extent", "attr", "tensor", "wave_reduce",
    *(kind.word for kind in LOOP_KINDS.values()),
    *(f"reduce_{op}" for op in ("add", "mul", "min", "max", "and", "or")),
))  # fmt: skip
"""Words that can't be names in the text."""

_SHARE_ABOVE = 200  # nodes of the tree; shorter expressions are written out in full
_SHARE_LEAST = 8  # nodes of a part worth a name


class Names:
    """Gives each object a name of its own: its label made a word, with a number if the word is
    taken.
    """

    def __init__(self, taken: Iterable[str] = RESERVED) -> None:
        self._taken = set(taken)
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # keeps the ids in use

    def __call__(self, item: Var | BufferLike) -> str:
        found = self._names.get(id(item))
        if found is None:
            label = re.sub(r"[^A-Za-z0-9_.]", "_", item.name)
            label = label if re.match(r"[A-Za-z_]", label) else f"_{label}"
            found, n = label, 0
            while found in self._taken:
                n += 1
                found = f"{label}_{n}"
            self._taken.add(found)
            self._names[id(item)] = found
            self._kept.append(item)
        return found


def print_expr(e: Expr, name_of: NameOf | None = None) -> str:
    """The text of `e`; names come from `name_of`, by default each label made unique within `e`."""
    name_of = Names() if name_of is None else name_of
    shared = _shared_parts(e)
    numbers: dict[Expr, str] = {}
    out: list[str] = []
    stack: list[str | tuple[Expr, int]] = [(e, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, least = item
        if node in numbers:
            out.append(numbers[node])
            continue
        parts, precedence = _parts(node, name_of)
        if node in shared:
            numbers[node] = f"${len(numbers) + 1}"
            parts = [f"({numbers[node]} := ", *parts, ")"]
        elif precedence < least:
            parts = ["(", *parts, ")"]
        stack.extend(reversed(parts))
    return "".join(out)


def _shared_parts(root: Expr) -> set[Expr]:
    """The parts to be named: those that occur more than once, if the whole is long."""
    size: dict[Expr, int] = {}
    uses: dict[Expr, int] = {}
    for node in post_order(root):
        size[node] = 1 + sum(size[c] for c in node.children)
        for c in node.children:
            uses[c] = uses.get(c, 0) + 1
    if size[root] <= _SHARE_ABOVE:
        return set()
    return {n for n, count in uses.items() if count > 1 and size[n] >= _SHARE_LEAST}


Parts = list[
    Any
]  # strings, and pairs of a child with the least precedence that needs no parentheses


def _parts(e: Expr, name_of: NameOf) -> tuple[Parts, int]:
    printer = _PRINTERS.get(type(e))
    if printer is not None:
        return printer(e, name_of)
    # a kind of a higher level (te's reductions): readable, not parsed
    return _call(type(e).__name__.lower(), *e.children)


def _call(name: str, *args: Expr | str) -> tuple[Parts, int]:
    parts: Parts = [name, "("]
    for i, a in enumerate(args):
        if i:
            parts.append(", ")
        parts.append(a if isinstance(a, str) else (a, 0))
    return [*parts, ")"], _ATOM


def literal(e: Const) -> str:
    """The text of a literal: exact, with its type unless it is the default one."""
    value, dtype = e.value, e.type
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


def _print_const(e: Const, name_of: NameOf) -> tuple[Parts, int]:
    text = literal(e)
    return [text], _UNARY if text.startswith("-") else _ATOM


def _print_unary(e: ir.Unary, name_of: NameOf) -> tuple[Parts, int]:
    if e.op == "not" and e.dtype is bool_:
        return ["not ", (e.a, _COMPARE)], _NOT
    # an operand that is a literal is put in parentheses: -(5) is not the literal -5
    least = _ATOM + 1 if type(e.a) is Const else _ATOM
    return ["-" if e.op == "neg" else "~", (e.a, least)], _UNARY


def _print_binary(e: ir.Binary, name_of: NameOf) -> tuple[Parts, int]:
    if e.op in PREFIX_CALLS:
        return _call(e.op, e.a, e.b)
    symbol, level = LOGICAL[e.op] if e.dtype is bool_ and e.op in LOGICAL else INFIX[e.op]
    return [(e.a, level), f" {symbol} ", (e.b, level + 1)], level


def _print_compare(e: ir.Compare, name_of: NameOf) -> tuple[Parts, int]:
    return [(e.a, _COMPARE + 1), f" {COMPARISONS[e.op]} ", (e.b, _COMPARE + 1)], _COMPARE


def _print_load(e: ir.Load, name_of: NameOf) -> tuple[Parts, int]:
    return [name_of(e.buffer), *access(e.indices, e.mask)], _ATOM


def access(indices: tuple[Expr, ...], mask: Expr | None) -> Parts:
    """The bracketed part of a load or store."""
    parts: Parts = ["["]
    for i, index in enumerate(indices):
        if i:
            parts.append(", ")
        parts.append((index, 0))
    if mask is not None:
        parts += [", " if indices else "", "mask=", (mask, 0)]
    return [*parts, "]"]


def call_type(e_name: str, args: tuple[Expr, ...]) -> DType | None:
    """The type of a call that names none."""
    known = INTRINSICS.get(e_name)
    if known is not None and known.returns_bool:
        return bool_
    return args[0].dtype if args else None


def _print_call(e: ir.Call, name_of: NameOf) -> tuple[Parts, int]:
    parts, level = _call(e.name, *e.args)
    return parts if call_type(e.name, e.args) is e.type else [*parts, f":{e.type}"], level


_PRINTERS: dict[type, Callable[[Any, NameOf], tuple[Parts, int]]] = {
    Var: lambda e, name_of: ([name_of(e)], _ATOM),
    Const: _print_const,
    ir.Unary: _print_unary,
    ir.Binary: _print_binary,
    ir.Compare: _print_compare,
    ir.Select: lambda e, name_of: _call("select", e.cond, e.if_true, e.if_false),
    ir.Cast: lambda e, name_of: _call(e.type.name, e.a),
    ir.Load: _print_load,
    ir.Call: _print_call,
    ir.TensorCall: lambda e, name_of: _call(f"{TENSOR_PREFIX}{e.name}", *e.args),
    ir.Ramp: lambda e, name_of: _call("ramp", e.base, e.stride, str(e.size)),
    Broadcast: lambda e, name_of: _call("broadcast", e.value, str(e.size)),
    ir.Let: lambda e, name_of: _call("let", name_of(e.var), e.value, e.body),
    ir.VectorReduce: lambda e, name_of: _call(f"reduce_{e.op}", e.a, str(e.size)),
}
