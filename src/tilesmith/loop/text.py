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
            eval prefetch(A[i, 0])
            async:
                S[i] = A[i, 0]
            wait 0
            barrier

An allocation or let holds until the end of its block.  If more statements follow outside it, it
stands in a `block:` of its own.  One call of the intrinsic that `tensor` names computes its block.
`async` is a group of asynchronous copies, and `wait n` waits for all but the latest n groups.
A loop starts at 0 unless it says `(start, extent=n)`.  Serial loops are `range`; `block_x` and
`thread_x` bind a loop to `blockIdx.x` and `threadIdx.x`.  The outputs follow `->`.
"""

from __future__ import annotations

import json

from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var, const
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.text import NameOf, Names, print_expr, type_name

from . import nodes
from .nodes import Buffer, Func, Stmt


def print_func(func: Func) -> str:
    """The text of a function; names are made unique."""
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
    lines: list[str] = []
    _STATEMENTS[type(stmt)](stmt, 0, lines, name_of or Names(), False)
    return lines[0] if lines else "pass"


def _word(name: str) -> str:
    return "".join(c if (c.isalnum() and c.isascii()) or c == "_" else "_" for c in name) or "_"


def buffer_type(b: Buffer, name_of: NameOf) -> str:
    """`f32[16, n] heap`; the scope of a parameter is left out."""
    dims = ", ".join(print_expr(d, name_of) if isinstance(d, Expr) else str(d) for d in b.shape)
    return f"{b.dtype}[{dims}]" + ("" if b.scope == "param" else f" {b.scope}")


def _param(p: Buffer | Var, name_of: NameOf) -> str:
    if isinstance(p, Var):
        return f"{name_of(p)}: {type_name(p.dtype, p.lanes)}"
    return f"{name_of(p)}: {buffer_type(p, name_of)}"


def _block(stmt: Stmt, depth: int, lines: list[str], name_of: NameOf, deep: bool = True) -> None:
    """The statements of a block, the last one in tail position."""
    rest: Stmt | None = stmt
    while rest is not None:
        flat, rest = list(_flattened(rest)), None
        if not flat:
            lines.append("    " * depth + "pass")
        for i, s in enumerate(flat):
            if not isinstance(s, nodes.NAMING):
                _STATEMENTS[type(s)](s, depth, lines, name_of, deep)
            elif i < len(flat) - 1:
                lines.append("    " * depth + "block:")
                _block(s, depth + 1, lines, name_of)
            else:
                _STATEMENTS[type(s)](s, depth, lines, name_of, deep)
                rest = s.body if deep else None


def _flattened(stmt: Stmt) -> list[Stmt]:
    if not isinstance(stmt, nodes.Seq):
        return [stmt]
    return [t for s in stmt.stmts for t in _flattened(s)]


def _for(s: nodes.For, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    start = "" if s.start is const(0) else f"{print_expr(s.start, name_of)}, extent="
    kind = "" if s.var.dtype is i64 else f": {s.var.dtype}"
    extent = print_expr(s.extent, name_of)
    word = LOOP_KINDS[s.kind].word if s.kind in LOOP_KINDS else s.kind
    lines.append(f"{'    ' * depth}for {name_of(s.var)}{kind} in {word}({start}{extent}):")
    if deep:
        _block(s.body, depth + 1, lines, name_of)


def _if(s: nodes.If, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    cond = print_expr(s.cond, name_of)
    lines.append(f"{'    ' * depth}if {f'likely({cond})' if s.likely else cond}:")
    if deep:
        _block(s.then, depth + 1, lines, name_of)
        if s.otherwise is not None:
            lines.append("    " * depth + "else:")
            _block(s.otherwise, depth + 1, lines, name_of)


def _store(s: nodes.Store, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    inside = [print_expr(i, name_of) for i in s.indices]
    if s.mask is not None:
        inside.append(f"mask={print_expr(s.mask, name_of)}")
    value = print_expr(s.value, name_of)
    lines.append(f"{'    ' * depth}{name_of(s.buffer)}[{', '.join(inside)}] = {value}")


def _allocate(s: nodes.Allocate, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    scope = " param" if s.buffer.scope == "param" else ""
    lines.append(
        f"{'    ' * depth}alloc {name_of(s.buffer)}: {buffer_type(s.buffer, name_of)}{scope}"
    )


def _let(s: nodes.LetStmt, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    kind = type_name(s.var.dtype, s.var.lanes)
    lines.append(f"{'    ' * depth}let {name_of(s.var)}: {kind} = {print_expr(s.value, name_of)}")


def _wave_reduce(
    s: nodes.WaveReduce, depth: int, lines: list[str], name_of: NameOf, deep: bool
) -> None:
    name, kind = name_of(s.var), type_name(s.var.dtype, s.var.lanes)
    value = f"wave_reduce({s.op}, {print_expr(s.value, name_of)}, {s.lanes})"
    lines.append(f"{'    ' * depth}let {name}: {kind} = {value}")


def _evaluate(s: nodes.Evaluate, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    lines.append(f"{'    ' * depth}eval {print_expr(s.value, name_of)}")


def _assert(s: nodes.Assert, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    lines.append(f"{'    ' * depth}assert {print_expr(s.cond, name_of)}, {json.dumps(s.message)}")


def _barrier(s: nodes.Barrier, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    lines.append("    " * depth + "barrier")


def _async_group(
    s: nodes.AsyncGroup, depth: int, lines: list[str], name_of: NameOf, deep: bool
) -> None:
    lines.append("    " * depth + "async:")
    if deep:
        _block(s.body, depth + 1, lines, name_of)


def _wait(s: nodes.Wait, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    lines.append(f"{'    ' * depth}wait {s.pending}")


def _tensorize(
    s: nodes.Tensorize, depth: int, lines: list[str], name_of: NameOf, deep: bool
) -> None:
    lines.append(f"{'    ' * depth}tensor {s.intrinsic}:")
    if deep:
        _block(s.body, depth + 1, lines, name_of)


def _seq(s: nodes.Seq, depth: int, lines: list[str], name_of: NameOf, deep: bool) -> None:
    _block(s, depth, lines, name_of, deep)


_STATEMENTS = {
    nodes.For: _for, nodes.If: _if, nodes.Store: _store, nodes.Allocate: _allocate,
    nodes.LetStmt: _let, nodes.Evaluate: _evaluate, nodes.Assert: _assert, nodes.Seq: _seq,
    nodes.Tensorize: _tensorize, nodes.Barrier: _barrier, nodes.WaveReduce: _wave_reduce,
    nodes.AsyncGroup: _async_group, nodes.Wait: _wait,
}  # fmt: skip
