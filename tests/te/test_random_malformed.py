"""Random expressions and schedules, right and wrong ones: typed errors or the right answer.

`TILESMITH_MALFORMED=1000 pytest tests/te/test_random_malformed.py` tries a thousand.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.verify import verify
from tilesmith.support.errors import (
    ExpressionError,
    InternalError,
    ScheduleError,
    TilesmithError,
    VerifyError,
)

from .random_malformed import Program

COUNT = int(os.environ.get("TILESMITH_MALFORMED", "120"))
BATCH = 40
NATIVE = 8  # one program in so many is also compiled


def outcome(seed: int) -> str:
    """What became of a program: the error, or "right"."""
    rng = np.random.default_rng(seed)
    try:
        program = Program(seed)
        args = [t for t in program.inputs if t in program_inputs(program)]
        plain = te.lower(te.create_schedule(program.output.op), [*args, program.output])
    except (ExpressionError, ScheduleError) as e:
        return type(e).__name__
    arrays = [random_array(t, rng) for t in args]
    expected = run(plain, arrays, program.output)
    schedule = program.schedule()
    try:
        physical = te.lower(schedule, [*args, program.output])
        verify(physical, "nest")
        native = ts.build(schedule, [*args, program.output]) if seed % NATIVE == 0 else None
    except ScheduleError as e:
        return type(e).__name__
    if any(s.state.layout is not None for s in schedule.stages if s.state.is_placeholder):
        return "physical arguments"
    if schedule.stages[-1].state.layout is None:
        same(run(physical, arrays, program.output), expected)
        if native is not None:
            result = np.zeros_like(expected)
            native(*arrays, result)
            same(result, expected)
    return "right"


def program_inputs(program: Program) -> set[te.Tensor]:
    first = [t.op for t in program.output.op.inputs if isinstance(t.op, te.Compute)]
    return {t for op in (program.output.op, *first) for t in op.inputs}


def random_array(t: te.Tensor, rng: np.random.Generator) -> np.ndarray:
    if t.dtype.is_float:
        return rng.standard_normal(t.shape).astype(np.float32)
    if t.dtype.is_bool:
        return rng.integers(0, 2, t.shape).astype(bool)
    return rng.integers(-3, 12, t.shape).astype(t.dtype.numpy)


def run(func: Func, arrays: list[np.ndarray], output: te.Tensor) -> np.ndarray:
    result = np.zeros(output.shape, output.dtype.numpy)
    interpret(func, [*(a.copy() for a in arrays), result])
    return result


def same(result: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_typed_errors_or_the_right_answer(first: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        try:
            found[outcome(seed)] += 1
        except (InternalError, VerifyError) as e:
            raise AssertionError(f"seed {seed}: a bug of the compiler") from e
        except TilesmithError as e:
            raise AssertionError(f"seed {seed}: {type(e).__name__} is not for this: {e}") from e
        except Exception as e:
            raise AssertionError(f"seed {seed} (of {COUNT}): {e}") from e
    assert found["ExpressionError"] and found["right"], found
