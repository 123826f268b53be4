"""Scheduled expressions written in C give the reference's results, as scalars and with vectors: one
translation unit each.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from common.c_library import CLibrary
from tilesmith import driver, te
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import ScheduleError

from .families import FAMILIES
from .random_schedule import random_steps

SEEDS = range(6)
CASES = [(name, seed) for name in FAMILIES for seed in SEEDS]


def _scheduled(name: str, seed: int, session: driver.Session) -> Func:
    """A family under the first random schedule from `seed` on that lowering takes."""
    for attempt in range(100):
        family, rng = FAMILIES[name](), random.Random(f"{name} {seed} {attempt}")
        s = te.create_schedule(family.ops)
        random_steps(s, lambda options, rng=rng: rng.choice(list(options)), rng.randint(1, 14))
        try:
            func = te.lower(s, [*family.inputs, *family.outputs])
        except ScheduleError:
            continue
        return driver.lower_loops(func, session)
    raise AssertionError(f"no schedule of {name} can be lowered")


@pytest.fixture(scope="module", params=["c", "vectors"])
def library(request: pytest.FixtureRequest) -> CLibrary:
    session = driver.Session.of(None, target="c")
    session = replace(session, target=replace(session.target, backend=request.param))
    functions = {f"{name}_{seed}": _scheduled(name, seed, session) for name, seed in CASES}
    return CLibrary(functions, request.param == "vectors")


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_random_schedule_in_c(name: str, seed: int, library: CLibrary) -> None:
    family = FAMILIES[name]()
    data = family.data(seed=1)
    found = [np.zeros(t.shape, t.dtype.numpy) for t in family.outputs]
    library.call(f"{name}_{seed}", [*data, *found])
    for got, wanted in zip(found, family.reference(*data), strict=True):
        if family.exact:
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
