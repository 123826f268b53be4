"""Strict accuracy: machine code has the interpreter's bits, whatever the expression, the schedule
and the numbers.

`TILESMITH_STRICT_EXAMPLES=5000` tests more than the share that is tested always.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.codegen.targets import covers, host, target
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import ScheduleError

from .families import Family
from .random_schedule import random_steps
from .strict_expressions import data, family

EXAMPLES = int(os.environ.get("TILESMITH_STRICT_EXAMPLES", "300"))
BLOCK = 50
"""Examples of one test."""
TARGETS = [t for t in ("x86-64-v3", "native", "x86-64") if covers(host(), target(t))]


def meaning(func: Func) -> Func:
    """What a loop nest means with strict accuracy, for the interpreter."""
    for p in driver.STRICT_LOOP_PASSES:
        func = p.run(func)
    return func


def bits(array: np.ndarray) -> np.ndarray:
    """The bits, with one pattern for all NaNs."""
    kind = np.dtype(f"u{array.dtype.itemsize}")
    return np.where(array != array, kind.type(1), array.view(kind))


def check(f: Family, s: te.Schedule, target: str, seed: int) -> None:
    arguments = [*f.inputs, *f.outputs]
    given = data(f, seed)
    func = te.lower(s, arguments)
    expected, found = ([np.zeros(t.shape, t.dtype.numpy) for t in f.outputs] for _ in range(2))
    with np.errstate(all="ignore"):
        interpret(meaning(func), [*(x.copy() for x in given), *expected])
    ts.build(s, arguments, target=target, threads=2, accuracy="strict")(*given, *found)
    for want, got in zip(expected, found, strict=True):
        wrong = np.flatnonzero(bits(want) != bits(got))
        assert not wrong.size, (
            f"seed {seed}, target {target}: element {wrong[0]} is {got.flat[wrong[0]]!r}, the "
            f"interpreter's {want.flat[wrong[0]]!r}\n{te.print_ops(f.ops)}\n{s.text()}"
        )


def example(seed: int) -> None:
    rng = random.Random(seed)
    f = family(seed)
    s = te.create_schedule(f.ops)

    def draw(options: Sequence[Any]) -> Any:
        if not options:  # the expression is a constant: there is nothing to prefetch
            raise ScheduleError("nothing to choose from")
        return rng.choice(options)

    random_steps(s, draw, rng.randint(0, 12))
    try:
        check(f, s, "c" if rng.random() < 0.03 else rng.choice(TARGETS), seed)
    except ScheduleError:
        return  # refused at lowering, as allowed for what only regions can show


@pytest.mark.parametrize("first", range(0, EXAMPLES, BLOCK))
def test_bits_are_the_interpreters(first: int) -> None:
    for seed in range(first, min(first + BLOCK, EXAMPLES)):
        example(seed)
