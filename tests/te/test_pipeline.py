"""Random schedules through the loop passes: every stage verifies and computes the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilesmith import driver, te
from tilesmith.loop.interpret import interpret
from tilesmith.support.errors import ScheduleError
from tilesmith.support.options import Options

from .families import FAMILIES
from .random_schedule import random_steps

SESSION = driver.Session.of(Options(verify_each=True))


def check_passes(name: str, seed: int) -> None:
    rnd = random.Random(seed)
    family = FAMILIES[name]()
    s = te.create_schedule(family.ops)
    random_steps(s, lambda options: rnd.choice(list(options)), rnd.randint(1, 20))
    try:
        func = te.lower(s, [*family.inputs, *family.outputs])
    except ScheduleError:
        return
    data = family.data(seed)
    want = family.reference(*data)
    func = driver.run_loop_passes(func, SESSION)
    flat = [d.reshape(-1).copy() for d in data]
    outputs = [
        np.full(t.shape, np.nan if t.dtype.is_float else -9, t.dtype.numpy) for t in family.outputs
    ]
    from_flat = [o.reshape(-1) for o in outputs]
    interpret(func, [*flat, *from_flat])
    for got, w in zip(outputs, want, strict=True):
        message = f"{name}, seed {seed}\n{s.text()}"
        np.testing.assert_allclose(got, w, rtol=1e-5 if not family.exact else 0, err_msg=message)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_passes_keep_the_answer(name: str, seed: int) -> None:
    check_passes(name, seed)


@pytest.mark.parametrize("extent", [0, 1, 5])
@pytest.mark.parametrize("depth", [2, 3])
def test_what_is_computed_ahead_of_a_loop_without_iterations_is_not_read(
    extent: int, depth: int
) -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((n,), lambda i: y[i] * 2.0, name="Z")
    s = te.create_schedule(z.op)
    s["Y"].compute_at(s["Z"], "i")
    s["Y"].pipeline(depth=depth)
    data, found = np.arange(extent, dtype=np.float32), np.zeros(extent, np.float32)
    func = te.lower(s, [x, z])
    interpret(func, [data, found, extent])  # it refuses accesses outside of a buffer
    np.testing.assert_array_equal(found, (data + 1) * 2)
    interpret(driver.run_loop_passes(func, SESSION), [data, found, extent])
