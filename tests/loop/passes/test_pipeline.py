"""Each pass keeps the meaning of a kernel: interpreted before and after, always verified."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import ORDERS, PROGRAMS, arguments, conv, matmul, run, softmax

from tilesmith.ir.expr import Load, Ramp, Select, const, post_order
from tilesmith.loop.nodes import For, Func, If, Store
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vectorize import vectorize
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import exprs, walk


def final(func: Func) -> Func:
    for p in ORDERS["vectorize first"]:
        func = p(func)
    return func


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_pass_keeps_the_answers(name: str, order: str) -> None:
    func = PROGRAMS[name]()
    verify(func, "nest")
    args = arguments(func)
    want = run(func, args)
    for p in ORDERS[order]:
        before, func = func, p(func)
        stage = "nest" if any(len(b.shape) != 1 for b in func.buffers) else "flat"
        verify(func, stage, after=p.__name__)
        got = run(func, args)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(
                a, b, rtol=1e-5, atol=1e-6, err_msg=f"{p.__name__}\n{before}"
            )
    verify(func, "final")


@pytest.mark.parametrize("p", [simplify_func, flatten, peel, hoist], ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_find_nothing_to_do_the_second_time(name: str, p) -> None:
    func = flatten(simplify_func(PROGRAMS[name]()))
    once = p(func)
    if p is not peel:  # what one call leaves guarded, the budget of a second might split
        again = p(once)
        assert again is once, "changed again"
    vectors = vectorize(unroll(once))
    same = unroll(vectors) is vectors and vectorize(vectors) is vectors
    assert same, "changed again"


def conditions(func: Func) -> list[object]:
    found: list[object] = [s for s in walk(func.body) if isinstance(s, If)]
    found += [s for s in walk(func.body) if isinstance(s, Store) and s.mask is not None]
    for e in exprs(func.body):
        found += [
            n for n in post_order(e) if isinstance(n, Select) or (isinstance(n, Load) and n.mask)
        ]
    return found


def test_an_even_matmul_has_constant_registers_and_unit_strides() -> None:
    func = final(matmul(28, 64, 16, 14, 32))
    assert not conditions(func)
    for store in (s for s in walk(func.body) if isinstance(s, Store)):
        index = store.indices[0]
        assert isinstance(index, Ramp) and index.stride is const(1)
        if store.buffer.scope == "register":
            assert index.base is const(index.base.value)  # type: ignore[attr-defined]
    for e in exprs(func.body):
        for n in post_order(e):
            if isinstance(n, Load) and n.lanes > 1:
                assert isinstance(n.indices[0], Ramp) and n.indices[0].stride is const(1)


def test_the_main_part_of_a_matmul_with_tails_has_no_guard() -> None:
    func = final(matmul(30, 70, 16, 4, 32))
    parallel = func.body
    assert isinstance(parallel, For) and isinstance(parallel.body, If)
    main = parallel.body.then
    first = next(s for s in walk(main) if isinstance(s, For))
    assert first.extent is const(2)
    assert not conditions(Func("main", func.params, func.outputs, first))


def test_padding_costs_no_guard_anywhere_in_a_convolution() -> None:
    func = final(conv(14, 8, 32, tw=14, tc=32))
    inner = [s for s in walk(func.body) if isinstance(s, For) and not any(
        isinstance(t, For) for t in walk(s.body)
    )]  # fmt: skip
    assert inner
    for s in inner:
        assert not conditions(Func("inner", func.params, func.outputs, s))


def test_the_tail_of_a_softmax_is_apart_from_its_main_loop() -> None:
    func = final(softmax(4, 100, 16))
    loops = [s for s in walk(func.body) if isinstance(s, For) and s.kind == "serial"]
    assert [s.extent for s in loops] == [const(6)] * 3
    assert not any(conditions(Func("main", func.params, func.outputs, s)) for s in loops)
