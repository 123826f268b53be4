"""Large results reuse memory, but never while anything looks at it."""

from __future__ import annotations

import numpy as np

from tilesmith.runtime.results import LARGE_BYTES, Results

ROWS = LARGE_BYTES // 4096
LARGE = Results((ROWS, 1024), np.dtype(np.float32))


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_result_that_nobody_holds_lends_its_memory_to_the_next() -> None:
    seen = set()
    result = None
    for _ in range(6):  # the last is still held when the next is asked for
        result = LARGE.fresh()
        assert result.shape == (ROWS, 1024) and result.dtype == np.float32
        assert address(result) % 64 == 0
        seen.add(address(result))
    assert len(seen) == 2


def test_held_results_are_apart() -> None:
    held = [LARGE.fresh() for _ in range(5)]
    assert len({address(r) for r in held}) == 5
    for i, r in enumerate(held):
        r[:] = i
    assert [r.max() for r in held] == [r.min() for r in held] == [0, 1, 2, 3, 4]


def test_a_view_of_a_result_holds_its_memory() -> None:
    result = LARGE.fresh()
    row = result[3].reshape(32, 32)
    row[:] = 7
    del result
    others = [LARGE.fresh() for _ in range(3)]
    for o in others:
        o[:] = 0
    assert (row == 7).all()


def test_foreign_owners_hold_the_memory() -> None:
    result = LARGE.fresh()
    start = address(result)
    memory = result.data
    del result
    assert start not in {address(LARGE.fresh()) for _ in range(3)}
    memory.release()


def test_small_results_are_plain_arrays() -> None:
    result = Results((3, 4), np.dtype(np.int8)).fresh()
    assert result.shape == (3, 4) and result.base is None


def test_results_of_one_element_have_no_dimensions() -> None:
    assert Results((), np.dtype(np.float64)).fresh().shape == ()


def test_trim_gives_back_what_nobody_holds() -> None:
    results = Results((ROWS, 1024), np.dtype(np.float32))
    held, other = results.fresh(), results.fresh()
    assert results.trim() == 0
    held[:] = 7
    del other
    assert results.trim() == LARGE_BYTES + 64
    assert results.trim() == 0
    assert address(results.fresh()) != address(held)
    assert (held == 7).all()
