"""Operators written in C give the reference's results, as scalars and with vectors.

All of them are one translation unit each, so that the C compiler starts twice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.c_library import CLibrary
from common.op_cases import CASES, Case, assert_close
from tilesmith import driver
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.ops.structure import stages
from tilesmith.te import create_schedule, lower

OWN = [c for c in CASES if not c.op.is_composite()]
"""Composite operators are made of these."""


def _nest(
    case: Case, arrays: list[np.ndarray], session: driver.Session | None = None
) -> tuple[Func, list[np.ndarray]]:
    """The loops of an operator and the inputs that they read; `session`: with its schedule."""
    types = [TensorType(to_dtype(a.dtype), a.shape) for a in arrays]
    if case.op.is_irregular():
        return case.op.loops(*types), arrays
    tensors = case.op.tensors(*types)
    read = {t for stage in stages(tensors.outputs) for t in stage.inputs}
    inputs = {t: a for t, a in zip(tensors.inputs, arrays, strict=True) if t in read}
    args = [*inputs, *tensors.outputs]
    if session is not None:
        schedule = session.backend.auto_schedule(args, session.target, 0.0)
    else:
        schedule = create_schedule([t.op for t in tensors.outputs])
    return lower(schedule, args), list(inputs.values())


@pytest.fixture(scope="module", params=["c", "vectors"])
def library(request: pytest.FixtureRequest) -> CLibrary:
    session = driver.Session.of(None, target="c")
    session = replace(session, target=replace(session.target, backend=request.param))
    with_vectors = request.param == "vectors"
    nests = (_nest(c, c.arrays(), session if with_vectors else None)[0] for c in OWN)
    functions = {f"op{i}": driver.lower_loops(n, session) for i, n in enumerate(nests)}
    return CLibrary(functions, with_vectors)


@pytest.mark.parametrize("number", range(len(OWN)), ids=[str(c) for c in OWN])
def test_operator_in_c(number: int, library: CLibrary) -> None:
    case = OWN[number]
    arrays = case.arrays()
    _, inputs = _nest(case, arrays)
    wanted = case.op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    results = [np.zeros(w.shape, w.dtype) for w in wanted]
    library.call(f"op{number}", [*map(np.ascontiguousarray, inputs), *results])
    for found, w in zip(results, wanted, strict=True):
        assert_close(found, np.asarray(w))
