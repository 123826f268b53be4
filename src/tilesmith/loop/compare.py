"""Structural equality of expressions, statements and functions: equal except for the names of Vars
and buffers.

Free Vars and buffers must correspond one to one, with equal types, shapes and scopes.  Nested
`Seq`s equal a flat one.  A missing `else` equals an empty one.  A number as an extent equals the
literal of the same value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, Var, as_expr, same_labels
from tilesmith.ir.grammar import NodeField, Role, fields_of, fields_with, values_of

from . import nodes
from .nodes import Buffer, Func, Stmt
from .text import flattened, print_func, print_stmt

BODY, BINDER = Role.BODY, Role.BINDER


def structural_equal(a: Expr | Stmt | Func, b: Expr | Stmt | Func) -> bool:
    """True if `a` and `b` are equal except for names."""
    matching = _Matching()
    if isinstance(a, Expr) and isinstance(b, Expr):
        return matching.exprs(a, b)
    if isinstance(a, Stmt) and isinstance(b, Stmt):
        return matching.stmts(a, b)
    return isinstance(a, Func) and isinstance(b, Func) and matching.funcs(a, b)


def assert_structural_equal(a: Expr | Stmt | Func, b: Expr | Stmt | Func) -> None:
    """Raises AssertionError with both texts unless `structural_equal(a, b)`.  For tests."""
    if not structural_equal(a, b):
        raise AssertionError(f"not the same structure:\n{_text(a)}\n--- and ---\n{_text(b)}")


def _text(x: Expr | Stmt | Func) -> str:
    return (
        str(x) if isinstance(x, Expr) else print_func(x) if isinstance(x, Func) else print_stmt(x)
    )


class _Matching:
    """A one-to-one correspondence of Vars and buffers, extended during the comparison."""

    def __init__(self) -> None:
        self.there: dict[object, object] = {}
        self.back: dict[object, object] = {}
        self.equal: set[tuple[Expr, Expr]] = set()  # equal under the current bindings

    def pair(self, a: object, b: object) -> bool:
        """True if `a` and `b` are partners.  If neither has a partner yet, they become partners."""
        if a not in self.there and b not in self.back:
            self.there[a], self.back[b] = b, a
            return True
        return self.there.get(a) is b and self.back.get(b) is a

    @contextmanager
    def bound(self, a: object, b: object) -> Iterator[None]:
        """Make `a` and `b` partners inside the `with` block, in place of partners that they have
        outside.
        """
        there, back, equal = self.there, self.back, self.equal
        self.there, self.back, self.equal = {**there, a: b}, {**back, b: a}, set()
        yield
        # Free names that get partners inside the block keep these partners after the block.
        for x, y in self.there.items():
            if x is not a and x not in there and y not in back:
                there[x], back[y] = y, x
        self.there, self.back, self.equal = there, back, equal

    def exprs(self, a: Expr, b: Expr) -> bool:
        stack = [(a, b)]
        while stack:
            x, y = stack.pop()
            if (x, y) in self.equal:
                continue
            if type(x) is not type(y) or x.dtype is not y.dtype or x.lanes != y.lanes:
                return False
            if not self.heads(x, y):
                return False
            if x.binders:
                if not self.scopes(x, y):
                    return False
                continue
            self.equal.add((x, y))
            first, second = x.children, y.children
            if len(first) != len(second):
                return False
            stack.extend(zip(first, second))
        return True

    def heads(self, x: Expr, y: Expr) -> bool:
        """Whether the fields of two nodes correspond, apart from children and declared
        variables.
        """
        if isinstance(x, Var):
            return self.pair(x, y)
        if not x.children and not x.references:
            return x is y  # nodes are interned
        many = (f.name for f in fields_of(type(x)) if f.is_many)
        return (
            same_labels(x, y)
            and all(self.buffers(getattr(x, r), getattr(y, r)) for r in x.references)
            and all(len(getattr(x, m)) == len(getattr(y, m)) for m in many)
        )

    def scopes(self, x: Expr, y: Expr) -> bool:
        """Whether two nodes that declare variables correspond.  Fields in which the variables are
        visible are compared last.
        """
        if not all(self.fields(f, x, y) for f in fields_with(type(x), Role.OPERAND)):
            return False
        with ExitStack() as names:
            for name in x.binders:
                a, b = getattr(x, name), getattr(y, name)
                if not _same_type(a, b):
                    return False
                names.enter_context(self.bound(a, b))
            inner = fields_with(type(x), BODY)
            return self.all_exprs(values_of(x, inner), values_of(y, inner))

    def buffers(self, a: ir.BufferLike, b: ir.BufferLike) -> bool:
        known = a in self.there
        if not self.pair(a, b):
            return False
        if known:
            return True
        scopes = getattr(a, "scope", None) == getattr(b, "scope", None)
        return (
            scopes and a.dtype is b.dtype and len(a.shape) == len(b.shape)
            and all(self.exprs(as_expr(x), as_expr(y)) for x, y in zip(a.shape, b.shape))
        )  # fmt: skip

    def all_exprs(self, a: tuple[Expr | None, ...], b: tuple[Expr | None, ...]) -> bool:
        return len(a) == len(b) and all(
            x is y if x is None or y is None else self.exprs(x, y) for x, y in zip(a, b)
        )

    def stmts(self, a: Stmt, b: Stmt) -> bool:
        # One stack holds the contexts of all nested allocations, of which there may be many.
        with ExitStack() as names:
            while True:
                first, second = flattened(a), flattened(b)
                if len(first) != len(second):
                    return False
                x, y = (first[-1], second[-1]) if first else (None, None)
                is_open = isinstance(x, nodes.Allocate) and isinstance(y, nodes.Allocate)
                parts = zip(first[:-1], second[:-1]) if is_open else zip(first, second)
                if not all(self.single(p, q) for p, q in parts):
                    return False
                if not (isinstance(x, nodes.Allocate) and isinstance(y, nodes.Allocate)):
                    return True
                if not self.buffer_types(x.buffer, y.buffer):
                    return False
                names.enter_context(self.bound(x.buffer, y.buffer))
                a, b = x.body, y.body

    def single(self, a: Stmt, b: Stmt) -> bool:
        if type(a) is not type(b):
            return False
        fields = fields_of(type(a))
        declared = [(getattr(a, f.name), getattr(b, f.name)) for f in fields if f.role is BINDER]
        if not all(self.same_types(x, y) for x, y in declared):
            return False
        inner = [f for f in fields if f.role is BODY]
        if not all(self.fields(f, a, b) for f in fields if f.role not in (BINDER, BODY)):
            return False
        with ExitStack() as names:
            for x, y in declared:
                names.enter_context(self.bound(x, y))
            return all(self.fields(f, a, b) for f in inner)

    def fields(self, f: NodeField, a: Stmt | Expr, b: Stmt | Expr) -> bool:
        """Whether the values of a field correspond."""
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.role is Role.REFERENCE:
            return self.buffers(x, y)
        if f.role is Role.LABEL:
            return x == y
        if f.role is BODY:
            return self.stmts(x or nodes.Seq(()), y or nodes.Seq(()))
        return self.all_exprs(x, y) if f.is_many else self.all_exprs((x,), (y,))

    def same_types(self, a: Var | Buffer, b: Var | Buffer) -> bool:
        if isinstance(a, Var) or isinstance(b, Var):
            return isinstance(a, Var) and isinstance(b, Var) and _same_type(a, b)
        return self.buffer_types(a, b)

    def buffer_types(self, a: Buffer, b: Buffer) -> bool:
        return (
            a.scope == b.scope and a.dtype is b.dtype and len(a.shape) == len(b.shape)
            and all(self.exprs(as_expr(x), as_expr(y)) for x, y in zip(a.shape, b.shape))
        )  # fmt: skip

    def funcs(self, a: Func, b: Func) -> bool:
        """Whether two functions correspond.  Their parameters correspond by position; their names
        must be equal, since the linker uses them.
        """
        if a.name != b.name or a.attrs != b.attrs or len(a.params) != len(b.params):
            return False
        scalars = [(x, y) for x, y in zip(a.params, b.params) if isinstance(x, Var)]
        for x, y in scalars:
            if not isinstance(y, Var) or not _same_type(x, y) or not self.pair(x, y):
                return False
        for x, y in zip(a.params, b.params):
            if isinstance(x, Buffer) and not (isinstance(y, Buffer) and self.buffers(x, y)):
                return False
        outputs = len(a.outputs) == len(b.outputs) and all(map(self.buffers, a.outputs, b.outputs))
        return outputs and self.stmts(a.body, b.body)


def _same_type(a: Var, b: Var) -> bool:
    return a.dtype is b.dtype and a.lanes == b.lanes
