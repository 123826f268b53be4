"""Expressions are interned: one node per value, whoever makes it, as long as it is used."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref

from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Binary, Expr, Var, const, post_order, reached, substitute

X, Y = Var("x", i64), Var("y", i64)


def test_equal_nodes_are_one_node() -> None:
    assert X + 1 is X + 1
    assert X + 1 is Binary("add", X, b=const(1))
    assert const(0.0, f32) is not const(-0.0, f32)
    assert const(True) is not const(1)


def test_nodes_go_when_nobody_uses_them() -> None:
    kept = X * 1234567
    made = [Y * (987654 + i) for i in range(100)]
    watched = [weakref.ref(e) for e in made]
    del made
    gc.collect()
    assert all(w() is None for w in watched)
    assert X * 1234567 is kept


def test_threads_get_the_same_nodes() -> None:
    """Losing a race must not make a second node: rules compare by identity."""
    found: list[list[Expr]] = []
    together = threading.Barrier(4)

    def make() -> None:
        together.wait()
        found.append([X * (5_000_000 + i) + Y for i in range(3000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(a is b for nodes in found[1:] for a, b in zip(found[0], nodes, strict=True))


def test_children_come_first_and_once() -> None:
    e = (X + Y) * (X + Y) - X
    assert list(post_order(e)) == [X, Y, X + Y, (X + Y) * (X + Y), e]


def test_what_is_done_is_left_out() -> None:
    e = (X + Y) * (X + 1)
    assert list(post_order(e, {X + Y})) == [X, const(1), X + 1, e]
    assert list(post_order(e, {e})) == []
    assert substitute(e, {X + Y: Y}) is Y * (X + 1)


def test_deep_expressions_need_no_recursion() -> None:
    e: Expr = X
    for i in range(20_000):
        e = e + i
    assert sum(1 for _ in post_order(e)) == 40_001


def test_no_interrupt_is_lost_when_nodes_go() -> None:
    """Python drops an exception that a signal raises in a function called as an object dies."""
    node = X + 424243
    ref = next(r for r in weakref.getweakrefs(node) if r.__callback__ is not None)
    assert not inspect.isfunction(ref.__callback__)


def test_nodes_are_reached_once() -> None:
    e = (X + Y) * (X + Y) - X
    assert list(reached([e])) == [e, X, (X + Y) * (X + Y), X + Y, Y]
    assert list(reached([e], lambda n: () if n is (X + Y) * (X + Y) else n.children))[-1] is e.a
    seen = {X + Y}
    assert X + Y not in set(reached([e], seen=seen)) and {e, X} < seen
