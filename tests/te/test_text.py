"""A schedule's text is Python that makes the same schedule."""

from __future__ import annotations

from common.blocks_of_threads import blocked_schedule
from tilesmith import te
from tilesmith.ir.dtypes import f32, f64, i32, i64
from tilesmith.ir.expr import Call, Load, Unary, cast, const, select
from tilesmith.loop.text import print_func
from tilesmith.te.steps import PRIMITIVES
from tilesmith.te.text import canonical

from .examples import EXAMPLES
from .random_schedule import pasted


def _every_kind_of_argument() -> tuple[te.Schedule, list[te.Tensor]]:
    """Results other than the first, axes of other stages, and what no golden example has."""
    x = te.placeholder((32, 64), name="X")
    low, high = te.compute((32, 64), lambda i, j: (x[i, j], x[i, j] * 2.0), name="it's")
    top = te.compute((32, 64), lambda i, j: high[i, j] + 1.0, name="T")
    y = te.compute((32, 64), lambda i, j: low[i, j] + top[i, j], name="Y")
    z = te.compute((30, 64), lambda i, j: y[i, j] + y[i + 1, j] + y[i + 2, j], name="Z")
    s = te.create_schedule(z)
    copy = s.cache_read(high, "heap", [top])
    io, ii = s[z].split(s[z].axis[0], 2)
    jo, _ = s[z].split(s[z].axis[1], nparts=4, tail="guard")
    s[z].serial(ii)
    s[z].unroll(ii)
    s[z].pragma(jo, "note", 'a "quoted" note')
    s[y].compute_at(s[z], io)
    s[y].store_root()
    s[y].fold_storage(s[y].axis[0], 8)
    s[y].prefetch(low, s[y].axis[1], 4)
    s[top].compute_inline()
    s[top].compute_root()
    s[copy].compute_at(s[top], s[top].axis[0])
    a = te.placeholder((64,), name="a")
    more = te.compute((64,), lambda i: a[i] + 1.0, name="c")
    plus = te.decl_tensor_intrin("plus_one", more, lambda code, a: a)
    s[top].tensorize(s[top].axis[1], plus)
    return s, [x, z]


def _with_prefetch_of_another_stage() -> tuple[te.Schedule, list[te.Tensor]]:
    (example,) = (e for e in EXAMPLES if e.__name__ == "prefetch_piece")
    return example()


def test_arguments_of_every_kind() -> None:
    for s, args in (_every_kind_of_argument(), _with_prefetch_of_another_stage()):
        made = pasted(s)
        assert made.steps == s.steps
        assert print_func(te.lower(made, args)) == print_func(te.lower(s, args))


def test_every_primitive_is_pasted() -> None:
    """The examples have every primitive, so that none escapes the tests of the text."""
    made = *(e() for e in EXAMPLES), _every_kind_of_argument(), blocked_schedule()
    schedules = [s for s, _ in made]
    assert {step.primitive for s in schedules for step in s.steps} == set(PRIMITIVES)


def test_a_split_by_a_symbol_is_pasted_with_the_symbol() -> None:
    n = te.var("n")
    x = te.placeholder((n * 4,), name="X")
    y = te.compute((n * 4,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(y)
    s[y].split(s[y].axis[0], nparts=n)
    assert s.text() == "s['Y'].split('i', nparts=n)"
    made = te.create_schedule(y)
    exec(s.text(), {"s": made, "n": n})
    assert made.steps == s.steps


def test_the_key_tells_expressions_apart() -> None:
    """Expressions that differ in an operation, a literal, a type or a mask have other keys."""
    i = te.placeholder((8,), i32, "I")
    x = te.placeholder((8,), f32, "X")
    bodies = [
        lambda n: -i[n],
        lambda n: ~i[n],
        lambda n: Unary("neg", const(5, i32)),
        lambda n: const(-5, i32),
        lambda n: Unary("neg", const(-5, i32)),
        lambda n: const(-5, i64),
        lambda n: x[n] + 0.0,
        lambda n: x[n] - 0.0,
        lambda n: x[n] + -0.0,
        lambda n: Load(x, (n,)),
        lambda n: Load(x, (n,), n < 3),
        lambda n: cast(x[n], f64),
        lambda n: Call("exp", (x[n],), f32),
        lambda n: Call("exp", (x[n],), f64),
        lambda n: select(n < 3, x[n], 0.0),
        lambda n: select(n <= 3, x[n], 0.0),
    ]
    keys = [canonical([te.compute((8,), body).op]) for body in bodies]
    assert len(set(keys)) == len(keys)
    again = [canonical([te.compute((8,), body, "other").op]) for body in bodies]
    assert again == keys
