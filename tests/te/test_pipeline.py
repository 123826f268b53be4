"""Random schedules through the loop passes: every stage verifies and computes the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilesmith import te
from tilesmith.loop.interpret import interpret
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vectorize import vectorize
from tilesmith.loop.verify import Stage, verify
from tilesmith.support.errors import ScheduleError

from .families import FAMILIES
from .random_schedule import random_steps

PASSES: list[tuple[object, Stage]] = [
    (simplify_func, "nest"),
    (flatten, "flat"),
    (peel, "flat"),
    (unroll, "flat"),
    (vectorize, "final"),
    (simplify_func, "final"),
    (hoist, "final"),
]


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
    for run, stage in PASSES:
        func = run(func)  # type: ignore[operator]
        verify(func, stage, after=run.__name__)  # type: ignore[attr-defined]
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
