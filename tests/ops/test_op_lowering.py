"""Operators lowered to loops and interpreted give the reference's results."""

from __future__ import annotations

import numpy as np
import pytest

from common.op_cases import CASES, Case, assert_close
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.verify import verify
from tilesmith.ops.structure import stages
from tilesmith.te import create_schedule, lower


@pytest.mark.parametrize("case", [c for c in CASES if c.op.is_primitive()], ids=str)
def test_lowered_operator(case: Case) -> None:
    arrays = case.arrays()
    tensors = case.op.tensors(*(TensorType(to_dtype(a.dtype), a.shape) for a in arrays))
    read = {t for stage in stages(tensors.outputs) for t in stage.inputs}
    inputs = {t: a for t, a in zip(tensors.inputs, arrays, strict=True) if t in read}
    schedule = create_schedule([t.op for t in tensors.outputs])
    _check(case, lower(schedule, [*inputs, *tensors.outputs]), list(inputs.values()))


@pytest.mark.parametrize("case", [c for c in CASES if c.op.is_irregular()], ids=str)
def test_loops_of_irregular_operator(case: Case) -> None:
    arrays = case.arrays()
    func = case.op.loops(*(TensorType(to_dtype(a.dtype), a.shape) for a in arrays))
    verify(func, "nest")
    _check(case, func, arrays)


def _check(case: Case, func: Func, inputs: list[np.ndarray]) -> None:
    wanted = case.op.reference(*case.arrays())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    results = [np.zeros(w.shape, w.dtype) for w in wanted]
    interpret(func, [*inputs, *results])
    for found, w in zip(results, wanted, strict=True):
        assert_close(found, np.asarray(w))
