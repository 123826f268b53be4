"""How time divides among threads: trip counts of loops of known content, and of real schedules."""

from __future__ import annotations

import pytest

from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import target
from tilesmith.loop.parse import parse_func
from tilesmith.perf.kernel_work import work_of
from tilesmith.perf.machine import nominal
from tilesmith.perf.scaling import busiest_share, division, scaling
from tilesmith.perf.work import Work

V3 = target("x86-64-v3")
MACHINE = nominal(V3)


def loops(parallel: int, serial: int) -> Work:
    """As much work in each iteration of both loops."""
    text = f"""def f(x: f32[8], y: f32[{(parallel + serial) * 8}]) -> y:
    for i in parallel({parallel}):
        y[ramp(i * 8, 1, 8)] = exp(x[ramp(0, 1, 8)] * broadcast(f32(i), 8))
    for j in range({serial}):
        y[ramp(j * 8 + {parallel * 8}, 1, 8)] = exp(x[ramp(0, 1, 8)] * broadcast(f32(j), 8))
"""
    return work_of(expand_math(parse_func(text), V3), V3)


@pytest.mark.parametrize(("extent", "threads", "share"),
                         [(16, 4, 1 / 4), (17, 4, 5 / 17), (3, 4, 1 / 3), (1, 4, 1.0)])  # fmt: skip
def test_the_busiest_thread_takes_whole_iterations(extent, threads, share):
    assert busiest_share(extent, threads) == pytest.approx(share)


def test_serial_code_and_imbalance_are_told_apart():
    d = division(loops(90, 10), V3, MACHINE, 4)
    assert d.serial == pytest.approx(0.1, abs=0.03) and d.forks == 1
    assert d.imbalance == pytest.approx(0.9 * (23 / 90 - 1 / 4), abs=0.01)
    assert d.busiest == pytest.approx(0.1 + 0.9 * 23 / 90, abs=0.03)
    alone = division(loops(90, 10), V3, MACHINE, 1)
    assert alone.busiest == pytest.approx(1) and alone.imbalance == pytest.approx(0, abs=1e-9)


def test_a_program_takes_what_its_kernels_take():
    even, odd = (division(loops(n, 1), V3, MACHINE, 2) for n in (1000, 3))
    s = scaling([(even, 3.0), (odd, 1.0)], 2, fork_join=0.25)
    assert s.one == 4 and s.seconds == pytest.approx(3 * even.busiest + odd.busiest + 0.5)
    assert s.efficiency == pytest.approx(2 / s.seconds)
    assert scaling([], 2, 0.0).efficiency == 1
