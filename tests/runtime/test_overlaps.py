"""Whether a written array has a byte in common with another one."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.runtime.overlaps import shared

A = np.zeros((6, 8), np.float32)
PARTS = {
    "rows": A[:3], "others": A[3:], "columns": A[:, :4], "right": A[:, 4:], "even": A[:, ::2],
    "odd": A[:, 1::2], "backwards": A[2::-1], "turned": A.T, "one": A[5:, 7:], "all": A,
    "empty": A[:0], "bytes": A.view(np.uint8)[:, :1],
}  # fmt: skip
FORWARDS = [name for name, a in PARTS.items() if min(a.strides) > 0]
"""Those that torch has, too."""


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", PARTS)
def test_parts_of_an_array(first, second):
    check(PARTS[first], PARTS[second], np.shares_memory(PARTS[first], PARTS[second]))


@pytest.mark.parametrize("first", FORWARDS)
@pytest.mark.parametrize("second", FORWARDS)
def test_parts_of_a_tensor(first, second):
    torch = pytest.importorskip("torch")
    a, b = PARTS[first], PARTS[second]
    check(torch.from_numpy(a), torch.from_numpy(b), np.shares_memory(a, b))


def check(a, b, expected):
    for i, j, arrays in ((0, 1, [a, b, np.zeros(100)]), (4, 2, [np.zeros(100), 3, b, None, a])):
        assert shared(arrays, []) is None
        assert shared(arrays, [i]) == ((i, j) if expected else None)
        assert shared(arrays, [j]) == ((j, i) if expected else None)


def test_one_array_several_times_and_what_is_allowed():
    arrays = [A, A, A]
    assert shared(arrays, [1]) == (1, 0)
    assert shared(arrays, [1], lambda i, j: j == 0) == (1, 2)
    assert shared(arrays, [1], lambda i, j: True) is None


def test_tensors_that_numpy_lacks():
    torch = pytest.importorskip("torch")
    x = torch.zeros(8, dtype=torch.bfloat16)
    assert shared([x[:4], x[3:]], [0]) == (0, 1)
    assert shared([x[:4], x[4:]], [0]) is None
    z = torch.zeros(4, dtype=torch.complex64)
    y = z.conj().imag
    assert y.is_neg() and shared([y, z], [0]) == (0, 1)
    assert shared([torch.zeros(3).to_sparse(), x], [0, 1]) is None
