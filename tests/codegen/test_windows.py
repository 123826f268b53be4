"""Columns of register blocks that begin at different rows are put together of whole blocks."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import TARGETS, run

from tilesmith.codegen.survey import Survey
from tilesmith.ir.dtypes import DType, f32, u8
from tilesmith.ir.expr import Load, Ramp, const
from tilesmith.loop.nodes import Allocate, Buffer, Func, Store, seq


def columns(
    dtype: DType, rows: int, width: int, lanes: int, starts: tuple[int, ...]
) -> tuple[Func, Buffer]:
    """Column `i` of a block of `rows` rows is read from row `starts[i]` on."""
    x, r = Buffer("x", dtype, (rows * width,)), Buffer("r", dtype, (rows * width,), "register")
    y = Buffer("y", dtype, (len(starts) * lanes,))
    fill = [
        Store(r, (at,), Load(x, (at,)))
        for at in (Ramp(const(k * width), const(1), width) for k in range(rows))
    ]
    take = [
        Store(
            y,
            (Ramp(const(i * lanes), const(1), lanes),),
            Load(r, (Ramp(const(start * width + i), const(width), lanes),)),
        )
        for i, start in enumerate(starts)
    ]
    return Func("columns", (x, y), (y,), Allocate(r, seq(*fill, *take))), r


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("width", "lanes"), [(4, 4), (4, 16), (8, 8), (8, 16), (8, 24), (8, 32), (16, 16), (3, 12)]
)
@pytest.mark.parametrize("dtype", [f32, u8])
def test_columns_from_any_row(dtype: DType, width: int, lanes: int, target: str) -> None:
    starts = tuple(5 * i % 16 for i in range(width))
    rows = max(starts) + lanes
    func, block = columns(dtype, rows, width, lanes, starts)
    survey = Survey()
    survey.statement(func.body)
    assert block in survey.windows
    x = np.random.default_rng(0).integers(0, 200, (rows, width)).astype(dtype.numpy)
    y = np.zeros((width, lanes), x.dtype)
    run(func, [x.reshape(-1), y.reshape(-1)], target)
    wanted = np.array([x[start : start + lanes, i] for i, start in enumerate(starts)])
    np.testing.assert_array_equal(y, wanted)
