"""Searches for garbage while the compiler runs, and afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tilesmith.support.garbage import OLDER, YOUNG, rarely_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(500, 7, 9)
    yield
    gc.set_threshold(*before)


def test_the_thresholds_come_back_with_the_last_that_leaves():
    with rarely_collected():
        with rarely_collected():
            assert gc.get_threshold() == (YOUNG, OLDER, 9)
        assert gc.get_threshold() == (YOUNG, OLDER, 9)
    assert gc.get_threshold() == (500, 7, 9)


def test_they_come_back_after_an_error():
    with pytest.raises(ValueError, match="wrong"), rarely_collected():
        raise ValueError("wrong")
    assert gc.get_threshold() == (500, 7, 9)


def test_what_others_set_stays():
    with rarely_collected():
        gc.set_threshold(900, 5, 5)
    assert gc.get_threshold() == (900, 5, 5)
    gc.set_threshold(0)  # never
    with rarely_collected():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0
