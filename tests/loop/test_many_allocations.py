"""Kernels of a thousand stages: a thousand allocations, each inside of the one before."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.ops.structure import stages
from tilesmith.support.options import Options

STAGES = 1000


def chain(count: int) -> tuple[te.Tensor, te.Tensor]:
    """Stages that each read the one before at another place, so that none is inlined."""
    x = result = te.placeholder((4,), "i32", "X")
    for n in range(count):
        result = te.compute((4,), lambda i, r=result, n=n: r[3 - i] + n % 3, f"s{n}")
    return x, result


@functools.cache
def kernel() -> Func:
    x, y = chain(STAGES)
    return te.lower(te.create_schedule(y), [x, y])


def is_right(func: Func) -> bool:
    x, y = np.arange(4, dtype=np.int32), np.full(4, -9, np.int32)
    interpret(func, [x, y])
    return y.tolist() == [n + sum(k % 3 for k in range(STAGES)) for n in range(4)]


def test_the_interpreter_runs_it() -> None:
    verify(kernel(), "nest")
    assert is_right(kernel())


def test_its_text_makes_the_same_kernel() -> None:
    again = parse_func(print_func(kernel()))
    assert structural_equal(again, kernel()) and is_right(again)


def test_loop_passes_keep_the_answer() -> None:
    session = driver.Session.of(Options(verify_each=True))
    assert is_right(driver.run_loop_passes(kernel(), session))


@pytest.mark.parametrize("target", ["native", "c"])
def test_code_is_written_for_it(target: str) -> None:
    session = driver.Session.of(Options(target=target))
    final = driver.lower_loops(kernel(), session)
    text = session.backend.emit(final, session.target).text
    assert text.count("\n") > STAGES


def test_machine_code_of_some_hundred_stages() -> None:
    x, y = chain(250)
    data, got = np.arange(4, dtype=np.int32), np.full(4, -9, np.int32)
    function = ts.build(te.create_schedule(y), [x, y], options=Options(opt_level=0))
    function(data, got)
    np.testing.assert_array_equal(got, data + sum(k % 3 for k in range(250)))


def test_stages_of_a_long_chain_are_found() -> None:
    _, y = chain(5000)
    assert len(stages((y,))) == 5000


def test_scratch_of_loops_by_hand() -> None:
    x = te.placeholder((4,), "f32", "X")

    def body(b, x, y):
        last = x
        for n in range(STAGES):
            memory = b.scratch(f"a{n}", "f32", (4,))
            memory[0] = last[0] + 1.0
            last = memory
        with b.loop(4, "i") as i:
            y[i] = x[i] + last[0]

    y = te.extern(4, [x], body, name="Y")
    func = te.lower(te.create_schedule(y), [x, y])
    for f in (func, parse_func(print_func(func))):
        data, got = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
        interpret(f, [data, got])
        np.testing.assert_array_equal(got, data + STAGES)
