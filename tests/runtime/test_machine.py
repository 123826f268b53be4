"""Measuring the machine: the numbers make sense."""

from __future__ import annotations

import pytest

from tilesmith.codegen.targets import host
from tilesmith.perf.machine import Machine, Rates
from tilesmith.runtime import machine as module


@pytest.fixture(scope="module")
def measured() -> Machine:
    return module.measure(host(), 1, rounds=2).machine


def test_rates_are_in_the_order_of_the_levels(measured):
    r = measured.at(1)
    assert 0 < r.dram < r.l1_load and 0 < r.l3 < r.l1_load * 1.5
    assert r.flops > 1e9 and r.fork_join == 0


def test_what_other_load_took_is_still_the_machines():
    one = Rates(1, *map(float, range(10, 100, 10)), fork_join=0.0)
    found = {"flops": 12.0, "l1_load": 39.0, "l3": 61.0, "dram": 5.0}
    assert module.raised(found, one, 2) == {
        "flops": 18.0,
        "l1_load": 39.0,
        "l3": 61.0,
        "dram": 80.0,
    }
