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
