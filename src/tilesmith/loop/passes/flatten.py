"""Flatten buffers of any rank to rank 1, in row-major order.  Every access then has one index.

    A: f32[4, 8]                     A: f32[32]
    A[i, j] = B[j, i] + 1     ->     A[i * 8 + j] = B[j * 4 + i] + 1

Flat indices are simplified with the facts at their statement, so the parts of a fused loop's
variable (`p // 8`, `p % 8`) recombine.  A scalar (rank 0) becomes one element.
"""

from __future__ import annotations

from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Load, all_of, as_expr, const, post_order, rebuilt
from tilesmith.ir.simplify import EMPTY, simplify
from tilesmith.support.errors import InternalError

from ..facts import conjuncts, in_loop, inside, lasts
from ..nodes import Allocate, Buffer, For, Func, If, LetStmt, Stmt, Store
from ..visit import rebuild_through


def flatten(func: Func) -> Func:
    """`func` with buffers of rank 1 only; the same object if all buffers have rank 1 already."""
    flattener = _Flattener()
    params = tuple(flattener.flat(p) if isinstance(p, Buffer) else p for p in func.params)
    body = flattener.stmt(func.body, EMPTY)
    if body is func.body and all(a is b for a, b in zip(params, func.params, strict=True)):
        return func
    outputs = tuple(flattener.flat(b) for b in func.outputs)
    return Func(func.name, params, outputs, body, func.attrs)


def _size(buffer: Buffer) -> Expr | int:
    numbers, result = 1, None
    for extent in buffer.shape:
        if isinstance(extent, int):
            numbers *= extent
        else:
            result = extent if result is None else result * extent
    return numbers if result is None else simplify(result * const(numbers))


class _Flattener:
    def __init__(self) -> None:
        self._flat: dict[Buffer, Buffer] = {}
        self._done: dict[Expr, Expr] = {}
        """Expression -> the rewritten expression before simplification."""

    def flat(self, buffer: Buffer) -> Buffer:
        flat = self._flat.get(buffer)
        if flat is None:
            flat = buffer
            if len(buffer.shape) != 1:
                flat = Buffer(buffer.name, buffer.dtype, (_size(buffer),), buffer.scope)
            self._flat[buffer] = flat
        return flat

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr]:
        if len(indices) != len(buffer.shape):
            raise InternalError(
                f"flatten: {buffer.name} has rank {len(buffer.shape)}, "
                f"found an access with {len(indices)} indices"
            )
        flat: Expr | None = None
        stride: Expr = const(1)
        for i, extent in zip(reversed(indices), reversed(buffer.shape), strict=True):
            term = i if stride is const(1) else i * stride
            flat = term if flat is None else term + flat
            stride = simplify(stride * as_expr(extent, const(0)))
        return (const(0) if flat is None else flat,)

    def expr(self, root: Expr) -> Expr:
        done = self._done
        for node in post_order(root, done):
            if isinstance(node, Load) and len(node.indices) != 1:
                assert isinstance(node.buffer, Buffer)
                new = tuple(done[c] for c in node.children)
                n = len(node.indices)
                mask = new[n] if len(new) > n else None
                done[node] = Load(self.flat(node.buffer), self.index(node.buffer, new[:n]), mask)
            else:
                done[node] = rebuilt(node, done)
        return done[root]

    def simple(self, e: Expr, ctx: Context) -> Expr:
        new = self.expr(e)
        return e if new is e else simplify(new, ctx)

    def stmt(self, stmt: Stmt, ctx: Context) -> Stmt:
        inner = ctx
        if isinstance(stmt, Store):
            return self.store(stmt, ctx)
        if isinstance(stmt, For):
            inner = in_loop(ctx, stmt)
        elif isinstance(stmt, LetStmt):
            inner = inside(ctx, stmt)
        elif isinstance(stmt, If):
            return self.branch(stmt, ctx)
        return self.allocation(rebuild_through(
            stmt, lambda s: self.stmt(s, inner), lambda e: self.simple(e, ctx), self.allocation
        ))  # fmt: skip

    def allocation(self, stmt: Stmt) -> Stmt:
        """An allocation becomes one of the flat buffer; any other statement stays."""
        if not isinstance(stmt, Allocate):
            return stmt
        buffer = self.flat(stmt.buffer)
        return stmt if buffer is stmt.buffer else Allocate(buffer, stmt.body)

    def branch(self, stmt: If, ctx: Context) -> Stmt:
        cond = self.simple(stmt.cond, ctx)
        facts = [self.simple(c, ctx) for c in conjuncts(stmt.cond) if lasts(c, stmt.then)]
        then = self.stmt(stmt.then, ctx.assuming(all_of(*facts)))
        otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, ctx)
        if cond is stmt.cond and then is stmt.then and otherwise is stmt.otherwise:
            return stmt
        return If(cond, then, otherwise, stmt.likely)

    def store(self, stmt: Store, ctx: Context) -> Stmt:
        value = self.simple(stmt.value, ctx)
        mask = None if stmt.mask is None else self.simple(stmt.mask, ctx)
        if len(stmt.indices) == 1:
            indices = (self.simple(stmt.indices[0], ctx),)
            same = indices[0] is stmt.indices[0] and value is stmt.value and mask is stmt.mask
            return stmt if same else Store(stmt.buffer, indices, value, mask)
        flat = tuple(self.expr(i) for i in stmt.indices)
        index = simplify(self.index(stmt.buffer, flat)[0], ctx)
        return Store(self.flat(stmt.buffer), (index,), value, mask)
