"""Simplify a kernel: every expression under the facts that hold at its place, and its statements.

The facts come from enclosing loops (the range of each variable), the conditions of enclosing `If`s
and the values of lets.  The pass also

- removes statements without effect: branches never taken, loops that never run, empty sequences;
- substitutes the variable of a loop that runs once;
- narrows a loop whose whole body is guarded by a bound on its variable, and removes the guard.

Loops over the blocks of a launch and the threads of a block keep their extents, which are the sizes
of the launch.
"""

from __future__ import annotations

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import Affine, affine_form, combined, from_affine, scaled
from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import (
    Expr,
    Var,
    all_of,
    const,
    free_vars,
    maximum,
    minimum,
    substitute,
    symbols,
)
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.rules.lanes import is_value
from tilesmith.ir.simplify import EMPTY, simplify

from .. import nodes
from ..facts import conjuncts, in_branch, in_loop, lasts
from ..nodes import Func, Stmt
from ..visit import left_through, own_exprs, rebuild, walk

Env = dict[Expr, Expr]
"""Removed variable -> its replacement."""


def simplify_func(func: Func) -> Func:
    """`func` simplified; the same object if there is nothing to do."""
    body = simplify_stmt(func.body)
    body = nodes.Seq(()) if body is None else body
    return func if _is_empty(body) and _is_empty(func.body) else func.with_body(body)


def simplify_stmt(stmt: Stmt, ctx: Context = EMPTY, env: Env | None = None) -> Stmt | None:
    """`stmt` simplified under the facts `ctx`, with the replacements `env`; None if nothing is
    left.
    """
    return _RULES.get(type(stmt), _other)(stmt, ctx, env or {})


def _is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, nodes.Seq) and not stmt.stmts


def _simple(e: Expr, ctx: Context, env: Env) -> Expr:
    return simplify(substitute(e, env) if env else e, ctx)


def _for(stmt: nodes.For, ctx: Context, env: Env) -> Stmt | None:
    start, extent = _simple(stmt.start, ctx, env), _simple(stmt.extent, ctx, env)
    if ctx.interval(extent).hi is not None and ctx.interval(extent).hi <= 0:  # type: ignore[operator]
        return None
    is_bound = bool(LOOP_KINDS[stmt.kind].level)
    if extent is const(1) and not is_bound:
        return simplify_stmt(stmt.body, ctx, {**env, stmt.var: start})
    loop = nodes.For(stmt.var, start, extent, stmt.kind, stmt.body)
    body = simplify_stmt(stmt.body, in_loop(ctx, loop), env)
    if body is None:
        return None
    narrowed = None if is_bound else _narrowed(stmt, start, extent, body, ctx)
    if narrowed is not None:
        return simplify_stmt(narrowed, ctx)
    if start is stmt.start and extent is stmt.extent and body is stmt.body:
        return stmt
    return nodes.For(stmt.var, start, extent, stmt.kind, body)


def _narrowed(
    stmt: nodes.For, start: Expr, extent: Expr, body: Stmt, ctx: Context
) -> nodes.For | None:
    """The loop restricted to iterations in which the guard around its whole body can be true; None
    if this is impossible or does not pay.

    for i in range(0, 16):            for i in range(0, min(16, n - j * 16)):
        if j * 16 + i < n: S    ->        S
    """
    if not isinstance(body, nodes.If) or body.otherwise is not None:
        return None
    low, high = start, start + extent  # `high` is exclusive
    kept: list[Expr] = []
    for cond in conjuncts(body.cond):
        bound = bound_on(cond, stmt.var)
        if bound is None or not lasts(cond, body.then):
            kept.append(cond)
            continue
        is_upper, end = bound
        if is_upper:
            high = minimum(high, end)
        else:
            low = maximum(low, end)
    low = simplify(low, ctx)
    count = simplify(high - low, ctx)
    if len(kept) == len(conjuncts(body.cond)):
        return None
    if not isinstance(count, ir.Const):
        if LOOP_KINDS[stmt.kind].is_expanded:
            return None
        count = simplify(maximum(count, 0), ctx)
    elif stmt.kind == "vectorized" and (
        not _is_good_width(int(count.value)) or _touches_registers(body)
    ):
        # A full vector with a constant mask is faster than an unusual number of lanes.  Accesses of
        # two widths would keep a register buffer out of registers.
        return None
    inner = nodes.If(all_of(*kept), body.then, None, body.likely) if kept else body.then
    return nodes.For(stmt.var, low, count, stmt.kind, inner)


def _is_good_width(lanes: int) -> bool:
    return lanes <= 1 or lanes & (lanes - 1) == 0 or lanes % 16 == 0


def _touches_registers(stmt: Stmt) -> bool:
    for s in walk(stmt):
        if isinstance(s, nodes.Store) and s.buffer.scope == "register":
            return True
        for e in own_exprs(s):
            if any(getattr(b, "scope", "") == "register" for b in symbols(e)):
                return True
    return False


def guard_form(cond: Expr) -> Affine | None:
    """The affine form d such that `cond` is equivalent to d >= 0; None if there is none."""
    negated = isinstance(cond, ir.Unary) and cond.op == "not"
    compare = cond.a if isinstance(cond, ir.Unary) and negated else cond
    if not isinstance(compare, ir.Compare) or compare.op not in ("lt", "le"):
        return None
    if compare.a.dtype is not i64 or compare.lanes != 1:
        return None
    d = combined(affine_form(compare.b), affine_form(compare.a), -1)
    if compare.op == "lt":
        d = combined(d, ({}, -1))
    return scaled(combined(d, ({}, 1)), -1) if negated else d


def bound_on(cond: Expr, var: Var) -> tuple[bool, Expr] | None:
    """The bound on `var` in `cond`: (True, e) for `var < e`, (False, e) for `var >= e`, where e
    does not mention `var`.
    """
    form = guard_form(cond)
    if form is None:
        return None
    terms, k = dict(form[0]), form[1]
    coefficient = terms.pop(var, 0)
    if not coefficient or any(var in free_vars(atom) for atom in terms):
        return None
    if coefficient > 0:  # c v + rest >= 0  <=>  v >= ceil(-rest / c) = -(rest // c)
        rest = from_affine(terms, k)
        return False, -(rest // const(coefficient)) if coefficient > 1 else -rest
    rest = from_affine(terms, k)  # v <= rest // -c
    return True, (rest // const(-coefficient) if coefficient < -1 else rest) + const(1)


def _if(stmt: nodes.If, ctx: Context, env: Env) -> Stmt | None:
    cond = _simple(stmt.cond, ctx, env)
    if is_value(cond, True):
        return simplify_stmt(stmt.then, ctx, env)
    if is_value(cond, False):
        return None if stmt.otherwise is None else simplify_stmt(stmt.otherwise, ctx, env)
    scalar = cond.lanes == 1
    then = simplify_stmt(stmt.then, in_branch(ctx, cond, stmt.then) if scalar else ctx, env)
    otherwise = None
    if stmt.otherwise is not None:
        failed = ir.Unary("not", cond)
        inner = in_branch(ctx, failed, stmt.otherwise) if scalar else ctx
        otherwise = simplify_stmt(stmt.otherwise, inner, env)
    if then is None and otherwise is None:
        return None
    if then is None:
        assert otherwise is not None
        return nodes.If(simplify(ir.Unary("not", cond), ctx), otherwise, None, stmt.likely)
    if (
        otherwise is None
        and isinstance(then, nodes.If)
        and then.otherwise is None
        and then.likely == stmt.likely
    ):
        return nodes.If(ir.Binary("and", cond, then.cond), then.then, None, stmt.likely)
    if cond is stmt.cond and then is stmt.then and otherwise is stmt.otherwise:
        return stmt
    return nodes.If(cond, then, otherwise, stmt.likely)


def _store(stmt: nodes.Store, ctx: Context, env: Env) -> Stmt | None:
    indices = tuple(_simple(i, ctx, env) for i in stmt.indices)
    value = _simple(stmt.value, ctx, env)
    mask = None if stmt.mask is None else _simple(stmt.mask, ctx, env)
    if mask is not None and is_value(mask, False):
        return None
    if mask is not None and is_value(mask, True):
        mask = None
    if (
        value is stmt.value
        and mask is stmt.mask
        and all(a is b for a, b in zip(indices, stmt.indices, strict=True))
    ):
        return stmt
    return nodes.Store(stmt.buffer, indices, value, mask)


def _let(stmt: nodes.LetStmt, ctx: Context, env: Env) -> Stmt | None:
    value = _simple(stmt.value, ctx, env)
    if isinstance(value, (ir.Const, Var)):
        return simplify_stmt(stmt.body, ctx, {**env, stmt.var: value})
    inner = ctx
    if value.dtype is i64 and value.lanes == 1:
        inner = ctx.with_interval(stmt.var, ctx.interval(value))
    body = simplify_stmt(stmt.body, inner, env)
    if body is None:
        return None
    return (
        stmt if value is stmt.value and body is stmt.body else nodes.LetStmt(stmt.var, value, body)
    )


def _block(stmt: nodes.Seq | nodes.Allocate, ctx: Context, env: Env) -> Stmt | None:
    """Simplify nested sequences and allocations, however deep."""

    def is_passed(s: Stmt) -> bool:
        return not (isinstance(s, nodes.Allocate) and _names_gone(s, env))

    if isinstance(stmt, nodes.Allocate) and not is_passed(stmt):
        return _allocate_under_lets(stmt, ctx, env)
    return left_through(stmt, lambda s: simplify_stmt(s, ctx, env), is_passed)


def _names_gone(stmt: nodes.Allocate, env: Env) -> bool:
    """Whether the extents of the allocated buffer mention a removed variable."""
    dims = stmt.buffer.shape
    return bool(env) and any(isinstance(d, Expr) and substitute(d, env) is not d for d in dims)


def _tensorize(stmt: nodes.Tensorize, ctx: Context, env: Env) -> Stmt | None:
    body = simplify_stmt(stmt.body, ctx, env)
    if body is None:
        return None
    return stmt if body is stmt.body else nodes.Tensorize(stmt.intrinsic, body)


def _allocate_under_lets(stmt: nodes.Allocate, ctx: Context, env: Env) -> Stmt | None:
    """Rewrite an allocation whose extents mention removed variables.  Lets around the allocation
    bind these variables.
    """
    used: set[Var] = set()
    for extent in stmt.buffer.shape:
        if isinstance(extent, Expr):
            used |= free_vars(extent)
    kept = {v: e for v, e in env.items() if isinstance(v, Var) and v in used}
    for var, value in kept.items():
        ctx = ctx.with_var(var, value, value) if var.dtype is i64 else ctx
    rest = {v: e for v, e in env.items() if v not in kept}
    body = simplify_stmt(stmt.body, ctx, rest)
    if body is None:
        return None
    result: Stmt = nodes.Allocate(stmt.buffer, body)
    for var, value in kept.items():
        result = nodes.LetStmt(var, value, result)
    return result


def _assert(stmt: nodes.Assert, ctx: Context, env: Env) -> Stmt | None:
    cond = _simple(stmt.cond, ctx, env)
    if is_value(cond, True):
        return None
    return stmt if cond is stmt.cond else nodes.Assert(cond, stmt.message)


def _other(stmt: Stmt, ctx: Context, env: Env) -> Stmt:
    """A statement of any other kind.  It is kept even if nothing is left inside it."""
    return rebuild(
        stmt,
        lambda s: simplify_stmt(s, ctx, env) or nodes.Seq(()),
        lambda e: _simple(e, ctx, env),
    )


_RULES = {
    nodes.For: _for, nodes.If: _if, nodes.Store: _store, nodes.LetStmt: _let, nodes.Seq: _block,
    nodes.Allocate: _block, nodes.Tensorize: _tensorize, nodes.Assert: _assert,
}  # fmt: skip
