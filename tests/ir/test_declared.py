"""What follows from the declared fields of expressions: children, rebuilding, identity, symbols and
comparison.
"""

from __future__ import annotations

import pytest

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, i32, i64
from tilesmith.ir.expr import Expr, Var, const, declared
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Reference, Role, fields_of
from tilesmith.ir.parse import parse_expr
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import ParseError

i, j, x, y = Var("i"), Var("j"), Var("x", f32), Var("y", f32)
table = Buffer("table", f32, (8, 8))
flag = i < j


@declared.node
class Window(Expr):
    """Every kind of field: a sum over `name` of what it reads."""

    label: Label[str]
    first: Operand[Expr]
    rest: Operand[tuple[Expr, ...]]
    name: Binder[Var]
    mask: Operand[Expr | None]
    source: Reference[Buffer]
    inner: Body[Expr]
    lanes_of: Label[int] = 1

    def _infer(self) -> tuple[DType, int]:
        return self.inner.dtype, self.lanes_of


def window(rest: tuple[Expr, ...] = (), mask: Expr | None = None, name: Var = i) -> Window:
    return Window("w", x, rest, name, mask, table, ir.Load(table, (name, j)))


NODES: list[tuple[Expr, tuple[Expr, ...]]] = [
    (x, ()),
    (const(3), ()),
    (ir.Unary("neg", x), (x,)),
    (ir.Binary("add", x, y), (x, y)),
    (ir.Compare("lt", x, y), (x, y)),
    (ir.Select(flag, x, y), (flag, x, y)),
    (ir.Cast(x, i32), (x,)),
    (ir.Load(table, (i, j)), (i, j)),
    (ir.Load(table, (i, j), flag), (i, j, flag)),
    (ir.Load(table, (), flag), (flag,)),
    (ir.Call("fma", (x, y, x), f32), (x, y, x)),
    (ir.TensorCall("any", (x, y), f32, 4), (x, y)),
    (ir.Ramp(i, j, 4), (i, j)),
    (ir.Broadcast(x, 4), (x,)),
    (ir.Let(x, y, x + 1.0), (y, x + 1.0)),
    (ir.VectorReduce("add", ir.Broadcast(x, 4), 2), (ir.Broadcast(x, 4),)),
    (window(), (x, ir.Load(table, (i, j)))),
    (window((i, j)), (x, i, j, ir.Load(table, (i, j)))),
    (window((i,), flag), (x, i, flag, ir.Load(table, (i, j)))),
]


def test_each_kind_is_here():
    kinds = {k for k in vars(ir).values() if isinstance(k, type) and issubclass(k, Expr)}
    assert kinds - {Expr} <= {type(e) for e, _ in NODES}


@pytest.mark.parametrize("e, children", NODES, ids=lambda n: type(n).__name__)
def test_children_and_rebuilding(e: Expr, children: tuple[Expr, ...]):
    assert ir.same(e.children, children)
    assert isinstance(e.children, tuple)
    assert e.with_children(e.children) is e, "nodes are interned by their fields"
    others = tuple(Var(f"v{n}", c.dtype, c.lanes) for n, c in enumerate(children))
    new = e.with_children(others)
    assert ir.same(new.children, others) and type(new) is type(e)
    for f in fields_of(type(e)):
        if f.role not in (Role.OPERAND, Role.BODY):
            assert getattr(new, f.name) is getattr(e, f.name)


def test_a_default_is_the_value_that_it_stands_for():
    v = ir.Broadcast(x, 4)
    assert ir.VectorReduce("add", v) is ir.VectorReduce("add", v, 1)
    assert ir.Load(table, (i, j)) is ir.Load(table, (i, j), mask=None)
    assert window() is Window("w", x, (), i, None, table, ir.Load(table, (i, j)), lanes_of=1)
    twin = Buffer("table", f32, (8, 8))
    assert ir.Load(table, (i, j)) is not ir.Load(twin, (i, j))


def test_symbols_inside_of_a_binder():
    assert ir.symbols(window((), flag)) == {x, i, j, table}, "the mask is outside"
    assert ir.symbols(window()) == {x, j, table}
    assert ir.symbols(ir.Let(x, x, x)) == {x}, "the value is outside, even if it is the body"


def test_comparison_ignores_names_and_sees_every_field():
    k, v = Var("k"), Var("v", f32)
    other = Buffer("other", f32, (8, 8))
    again = Window("w", v, (), k, None, other, ir.Load(other, (k, j)))
    assert structural_equal(window(), again)
    assert not structural_equal(window(), window((i,)))
    assert not structural_equal(window(), window((), flag))
    renamed = Window("other", x, (), i, None, table, ir.Load(table, (i, j)))
    assert not structural_equal(window(), renamed), "a label is no name"
    unbound = Window("w", v, (), k, None, other, ir.Load(other, (i, j)))
    assert not structural_equal(window(), unbound)
    assert not structural_equal(ir.Cast(x, i64), ir.Cast(x, i32))
    reduced = ir.VectorReduce("add", ir.Broadcast(x, 4))
    assert not structural_equal(reduced, ir.VectorReduce("max", ir.Broadcast(x, 4)))


def test_a_kind_without_a_text_is_readable():
    assert str(window((i,), flag)) == "window(x, i, i < j)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select(i < j, i)", "line 1, column 16: expected ','"),
        ("broadcast(i, 0)", "line 1, column 14: expected a number of lanes from 1"),
        ("ramp(i, 1.0, 4)", "a base and a stride of one type, got i64 and f32"),
        ("reduce_add(broadcast(i, 4), 3)", "a number of lanes that divides 4, got 3"),
        ("select(i, i, i)", "select needs a bool condition"),
        ("min(i, 1.0)", "two operands of one type"),
        ("tensor_nothing(i)", "no tensor intrinsic is called 'nothing'"),
        ("f()", "a call without arguments needs a type"),
        ("let(k, i, k) + k", "the name of a variable that is in scope, found 'k'"),
    ],
)
def test_bad_text(text: str, message: str):
    with pytest.raises(ParseError, match=message):
        parse_expr(text, {"i": i, "j": j})
