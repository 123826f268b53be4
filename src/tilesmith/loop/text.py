"""Canonical text of loop IR; `loop.parse` reads it back.

    def matmul(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64], n: i64) -> C:
        alloc T: f32[16] register
        for i in parallel(64):
            for j in vectorized(4, extent=n):
                if likely(j < n):
                    C[i, j] = A[i, j] + 1.0
                else:
                    pass
            tensor fma_8:
                for j in vectorized(8):
                    D[j] = D[j] + A[i, 0] * B[i, j]
            let x: i64 = i * 4
            let total: f32 = wave_reduce(add, T[0], 32)
            assert x < n, "too long"
            if x < 0:
                return 4
            eval prefetch(A[i, 0])
            async:
                S[i] = A[i, 0]
            wait 0
            barrier
            memcpy P[0], Q[n], 64
            while P[0] != 0:u8:
                locate M: u8[0] heap = T[0], 2
                let code: i32 = call other(M[8], 3), "its name"
                let there: bool = has T[0], 4
                point T[0], 2 to P[8]
            reinterpret X: i64[2] heap = P[8]

The name of an allocation, let or reinterpretation is valid until the end of its block.  If more
statements follow outside of its body, the declaring statement is in a `block:` of its own.  The
block of `tensor` is computed by one call of the named intrinsic.  A group of asynchronous copies is
`async`; `wait n` waits for all groups but the latest n.  `loop.nodes` defines the lines of each
statement (`syntax`).  This module defines blocks and the forms of fields.

A loop starts at 0 unless it is written with `(start, extent=n)`.  Serial loops are `range`;
`block_x` and `thread_x` bind a loop to `blockIdx.x` and `threadIdx.x`.  The outputs follow `->`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Expr, Var, const
from tilesmith.ir.grammar import Line, Role, fields_with, lines_of
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.text import NameOf, Names, print_expr, type_name

Stmt: TypeAlias = Any
Buffer: TypeAlias = Any
Func: TypeAlias = Any
"""A function of `loop.nodes`.  That module imports this one, so the printer uses only declared
fields.
"""

T = TypeVar("T")


def print_func(func: Func) -> str:
    """The text of a function.  Its names are made unique."""
    names = Names()
    params = ", ".join(_param(p, names) for p in func.params)
    outputs = ", ".join(names(b) for b in func.outputs)
    lines = [f"def {_word(func.name)}({params}) -> {outputs or 'pass'}:"]
    lines += [f"    attr {json.dumps(key)} = {json.dumps(value)}" for key, value in func.attrs]
    _block(func.body, 1, lines, names)
    return "\n".join(lines) + "\n"


def print_stmt(stmt: Stmt, name_of: NameOf | None = None) -> str:
    """The text of a statement, for messages and dumps."""
    lines: list[str] = []
    _block(stmt, 0, lines, name_of or Names())
    return "\n".join(lines)


def head(stmt: Stmt, name_of: NameOf | None = None) -> str:
    """The first line of a statement's text, without the statements inside it."""
    if _sequence(type(stmt)):
        first = next(iter(flattened(stmt)), None)
        return "pass" if first is None else head(first, name_of)
    return _line(stmt, lines_of(type(stmt))[0], name_of or Names())


def _word(name: str) -> str:
    return "".join(c if (c.isalnum() and c.isascii()) or c == "_" else "_" for c in name) or "_"


def buffer_type(b: Buffer, name_of: NameOf) -> str:
    """A buffer's type, such as `f32[16, n] heap`.  The scope of a parameter is left out."""
    dims = ", ".join(print_expr(d, name_of) if isinstance(d, Expr) else str(d) for d in b.shape)
    return f"{b.dtype}[{dims}]" + ("" if b.scope == "param" else f" {b.scope}")


def _param(p: Buffer | Var, name_of: NameOf) -> str:
    if isinstance(p, Var):
        return f"{name_of(p)}: {type_name(p.dtype, p.lanes)}"
    return f"{name_of(p)}: {buffer_type(p, name_of)}"


def _block(stmt: Stmt, depth: int, lines: list[str], name_of: NameOf) -> None:
    """Write the statements of a block.  A statement that names something gets a `block:` of its
    own, unless it is the last one.
    """
    margin = "    " * depth
    rest: Stmt | None = stmt
    while rest is not None:
        flat, rest = flattened(rest), None
        if not flat:
            lines.append(f"{margin}pass")
        for i, s in enumerate(flat):
            if not names_the_rest(s):
                _whole(s, depth, lines, name_of)
            elif i < len(flat) - 1:
                lines.append(f"{margin}block:")
                _block(s, depth + 1, lines, name_of)
            else:
                (line,) = lines_of(type(s))
                lines.append(margin + _line(s, line, name_of))
                rest = getattr(s, str(line.body))


def _whole(stmt: Stmt, depth: int, lines: list[str], name_of: NameOf) -> None:
    """Write a statement with indented bodies.  The line of a missing body is left out."""
    for line in lines_of(type(stmt)):
        body = getattr(stmt, line.body) if line.body else None
        if body is not None or not line.body:
            lines.append("    " * depth + _line(stmt, line, name_of))
        if body is not None:
            _block(body, depth + 1, lines, name_of)


def _line(stmt: Stmt, line: Line, name_of: NameOf) -> str:
    parts = [
        i if isinstance(i, str) else _FORMS[i.form](stmt, getattr(stmt, i.field), name_of)
        for i in line.items
    ]
    return "".join(parts)


def names_the_rest(stmt: Stmt) -> bool:
    """Whether a statement declares a name for the rest of its block."""
    return lines_of(type(stmt))[0].names_the_rest


def flattened(stmt: T) -> list[T]:
    """The statements of nested sequences in order."""
    inside = _sequence(type(stmt))
    return [t for s in getattr(stmt, inside) for t in flattened(s)] if inside else [stmt]


@cache
def _sequence(kind: type) -> str:
    """The field with the statements, if `kind` is a sequence; "" for other kinds."""
    return next((f.name for f in fields_with(kind, Role.BODY) if f.is_many), "")


def _access(stmt: Any, indices: tuple[Expr, ...], name_of: NameOf) -> str:
    inside = [print_expr(i, name_of) for i in indices]
    if stmt.mask is not None:
        inside.append(f"mask={print_expr(stmt.mask, name_of)}")
    return f"[{', '.join(inside)}]"


def _guard(stmt: Any, cond: Expr, name_of: NameOf) -> str:
    text = print_expr(cond, name_of)
    return f"likely({text})" if stmt.likely else text


def _first(stmt: Any, start: Expr, name_of: NameOf) -> str:
    return "" if start is const(0) else f"{print_expr(start, name_of)}, extent="


def _buffer(stmt: Any, b: Buffer, name_of: NameOf) -> str:
    return f"{name_of(b)}: {buffer_type(b, name_of)}{' param' if b.scope == 'param' else ''}"


def _loop_kind(stmt: Any, kind: str, name_of: NameOf) -> str:
    return LOOP_KINDS[kind].word if kind in LOOP_KINDS else kind


_FORMS: dict[str, Callable[[Stmt, Any, NameOf], str]] = {
    "expression": lambda s, e, name_of: print_expr(e, name_of),
    "var": lambda s, v, name_of: f"{name_of(v)}: {type_name(v.dtype, v.lanes)}",
    "counter": lambda s, v, name_of: name_of(v) + ("" if v.dtype is i64 else f": {v.dtype}"),
    "name": lambda s, b, name_of: name_of(b),
    "word": lambda s, word, name_of: word,
    "instruction": lambda s, word, name_of: word,
    "number": lambda s, number, name_of: str(number),
    "string": lambda s, text, name_of: json.dumps(text),
    "list": lambda s, items, name_of: ", ".join(print_expr(e, name_of) for e in items),
    "code": lambda s, e, name_of: str(e.value) if type(e) is Const else print_expr(e, name_of),
    "buffer": _buffer, "access": _access, "guard": _guard, "first": _first, "loop": _loop_kind,
}  # fmt: skip
"""Form of a field in the statement's syntax -> its writer.  `loop.parse` has the readers."""
