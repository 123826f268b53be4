"""Loop nests written by hand with the builder."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import te
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import cast, const
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.compare import assert_structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import LetStmt
from tilesmith.loop.parse import parse_func
from tilesmith.loop.verify import verify
from tilesmith.support.errors import ExpressionError


def test_every_form() -> None:
    b = LoopBuilder("forms")
    x, places = b.input("x", TensorType(f32, (4, 6))), b.input("places", TensorType(i64, (6,)))
    y = b.output("y", TensorType(f32, (4, 6)))
    with b.independent(4) as i:
        total = b.variable("total", const(0.0))
        row = b.scratch("row", f32, (6,), "stack")
        with b.loop(3, "j", start=2) as j:
            at = b.let("at", places[j])
            b.check(ir.all_of(at >= 0, at < 6), "a place is outside")
            with b.when(x[i, at] > 0):
                total.value = total.value + x[i, at]
            with b.otherwise():
                row[at] = 1
        y[i, 0] = total.value
    with b.independent_nest((4, 5)) as (i, j):
        y[i, j + 1] = cast(j, f32)
    func = b.finish()
    verify(func, "nest")
    expected = parse_func("""\
def forms(x: f32[4, 6], places: i64[6], y: f32[4, 6]) -> y:
    for i in parallel(4):
        alloc total: f32[1] register
        total[0] = 0.0
        alloc row: f32[6] stack
        for j in range(2, extent=3):
            let at: i64 = places[j]
            assert at >= 0 and at < 6, "a place is outside"
            if x[i, at] > 0.0:
                total[0] = total[0] + x[i, at]
            else:
                row[at] = 1.0
        y[i, 0] = total[0]
    for i0 in parallel(4):
        for i1 in parallel(5):
            y[i0, i1 + 1] = f32(i1)
""")
    assert_structural_equal(func, expected)


def test_example_of_the_documentation() -> None:
    b = LoopBuilder("running_sum")
    x, y = b.input("x", TensorType(f32, (2, 5))), b.output("y", TensorType(f32, (2, 5)))
    with b.independent(2) as i:
        total = b.variable("total", const(0.0))
        with b.loop(5) as j:
            total.value = total.value + x[i, j]
            y[i, j] = total.value
    data = np.arange(10, dtype=np.float32).reshape(2, 5)
    result = np.zeros_like(data)
    interpret(b.finish(), [data, result])
    np.testing.assert_array_equal(result, np.cumsum(data, 1))


def test_otherwise_needs_a_condition() -> None:
    b = LoopBuilder("bad")
    y = b.output("y", TensorType(f32, (1,)))
    y[0] = 0.0
    with pytest.raises(ExpressionError, match="expected a `when` right before"), b.otherwise():
        pass


def test_blocks_are_closed_before_the_end() -> None:
    b = LoopBuilder("bad")
    with pytest.raises(ExpressionError, match="inside a block that is still open"), b.loop(4):
        b.finish()


def test_an_axis_of_te_stands_for_its_variable() -> None:
    b = LoopBuilder("axes")
    k = te.reduce_axis(4, "k")
    assert b.let("known", k).dtype is i64
    with b.when(k):
        b.check(k, "never")
    assert isinstance(b.finish().body, LetStmt)
