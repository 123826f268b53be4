"""Expressions and schedules whose extents are symbols: one kernel is right for all sizes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.loop.interpret import interpret
from tilesmith.loop.verify import verify
from tilesmith.support.errors import ScheduleError
from tilesmith.support.options import Options

from .random_schedule import random_steps
from .symbolic import Pipeline, random_pipeline

SESSION = driver.Session.of(Options(verify_each=True))


def scheduled(pipeline: Pipeline, rnd: random.Random) -> te.Schedule:
    """A random schedule that can be lowered."""
    args = [pipeline.input, pipeline.output]
    for steps in (rnd.randint(2, 14), rnd.randint(1, 4), 0):
        s = te.create_schedule(pipeline.output)
        random_steps(s, rnd.choice, steps)
        try:
            te.lower(s, args)
        except ScheduleError:
            continue
        return s
    raise AssertionError("the schedule without steps can't be lowered")


@pytest.mark.parametrize("seed", range(80))
def test_one_kernel_for_all_sizes(seed: int) -> None:
    """Interpreted as lowered and after all loop passes; every third one as machine code."""
    rnd = random.Random(seed)
    pipeline = random_pipeline(rnd)
    s = scheduled(pipeline, rnd)
    args = [pipeline.input, pipeline.output]
    func = te.lower(s, args)
    verify(func, "nest")
    final = driver.run_loop_passes(func, SESSION)
    built = ts.build(s, args, threads=2) if seed % 3 == 0 else None
    about = f"seed {seed}\n{s.text()}"
    for _ in range(3):
        sizes = tuple(rnd.randint(pipeline.least, pipeline.least + 9) for _ in "nm")
        data = pipeline.data(sizes, seed)
        want = np.ascontiguousarray(pipeline.answer(data))
        by_name = dict(zip(pipeline.dims, sizes, strict=True))
        found = np.full(want.shape, np.nan, np.float32)
        scalars = [by_name[p] for p in func.params if p in by_name]
        interpret(func, [data.copy(), found, *scalars])
        np.testing.assert_array_equal(found, want, err_msg=f"{about}\n{sizes}")
        flat = np.full(want.size, np.nan, np.float32)
        interpret(final, [data.reshape(-1).copy(), flat, *scalars])
        np.testing.assert_array_equal(flat.reshape(want.shape), want, err_msg=f"{about}\n{sizes}")
        if built is not None:
            found[:] = np.nan
            built(data, found)
            np.testing.assert_array_equal(found, want, err_msg=f"{about}\n{sizes}")


def test_most_schedules_are_lowered() -> None:
    """So that the test above doesn't test schedules without steps only."""
    steps = [len(scheduled(random_pipeline(r), r).steps) for r in map(random.Random, range(40))]
    assert sum(n > 0 for n in steps) > 25
