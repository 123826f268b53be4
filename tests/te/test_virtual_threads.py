"""Loops of virtual threads."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.loop.parse import parse_func
from tilesmith.support.errors import ScheduleError


def test_each_virtual_thread_has_memory_of_its_own():
    x = te.placeholder((16,), "f32", "x")
    y = te.compute((16,), lambda i: x[i] * 2.0, "y")
    z = te.compute((16,), lambda i: y[i] + 1.0, "z")
    s = te.create_schedule(z)
    thread, _ = s[z].split("i", nparts=2)
    s[z].bind(thread, "vthread")
    s[y].compute_at(s[z], thread)
    func = te.lower(s, [x, z])
    assert "for io in vthread(2):\n        alloc y: f32[8] stack" in str(func)
    assert str(parse_func(str(func))) == str(func)
    given, found = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    ts.build(s, [x, z])(given, found)
    np.testing.assert_array_equal(found, given * 2 + 1)


def test_a_reduction_is_not_divided_among_virtual_threads():
    x, k = te.placeholder((4, 8), "f32", "x"), te.reduce_axis(8, "k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), "y")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="use rfactor"):
        s[y].bind("k", "vthread")
