"""What a float becomes that an integer type can't hold: as on x86 in NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.ir.dtypes import DType, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from tilesmith.ir.expr import Const, cast, const
from tilesmith.ir.simplify import simplify
from tilesmith.ir.storage import truncated

X = [-0.5, -1.9, -2.0, -129.0, -300.0, -70000.0, 3e9, 5e9, -3e9, 1e20, np.nan, np.inf, -np.inf]
LEAST32, LEAST64 = -(2**31), -(2**63)
WANTED: dict[DType, list[int]] = {
    i8: [0, -1, -2, 127, -44, -112, 0, 0, 0, 0, 0, 0, 0],
    u8: [0, 255, 254, 127, 212, 144, 0, 0, 0, 0, 0, 0, 0],
    i16: [0, -1, -2, -129, -300, -4464, 0, 0, 0, 0, 0, 0, 0],
    u16: [0, 65535, 65534, 65407, 65236, 61072, 0, 0, 0, 0, 0, 0, 0],
    i32: [0, -1, -2, -129, -300, -70000, *[LEAST32] * 7],
    u32: [0, *(2**32 + n for n in (-1, -2, -129, -300, -70000)), 3 * 10**9, 0, 2**31, 0, 2**31, 0,
          2**31],
    i64: [0, -1, -2, -129, -300, -70000, 3 * 10**9, 5 * 10**9, -3 * 10**9, *[LEAST64] * 4],
    u64: [0, *(2**64 + n for n in (-1, -2, -129, -300, -70000)), 3 * 10**9, 5 * 10**9,
          2**64 - 3 * 10**9, 0, 2**63, 0, 2**63],
}  # fmt: skip


@pytest.mark.parametrize("to", WANTED, ids=str)
@pytest.mark.parametrize("source", (f32, f64), ids=str)
def test_floats_outside_of_the_range(source: DType, to: DType) -> None:
    found = truncated(np.array(X, source.numpy), to)
    assert found.dtype == to.numpy
    assert found.tolist() == WANTED[to]


@pytest.mark.parametrize("to", WANTED, ids=str)
def test_literals_fold_to_the_same(to: DType) -> None:
    for x, wanted in zip(X, WANTED[to], strict=True):
        found = simplify(cast(const(x, f64), to))
        assert isinstance(found, Const)
        assert found.value == wanted
