from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from tilesmith.support.mapped import map_model, release

PAGE = mmap.PAGESIZE


def resident(array: np.ndarray) -> int:
    """Pages of this process's mapping of the array's memory that are in it."""
    address, inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            low, high = (int(n, 16) for n in head.split("-"))
            inside = low <= address < high
        elif inside and head == "Rss:":
            return int(line.split()[1]) * 1024 // PAGE
    raise AssertionError("the array is mapped nowhere")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's list of mappings")
def test_pages_are_given_back_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    contents = np.arange(64 * PAGE // 4, dtype=np.int32)
    path.write_bytes(contents.tobytes())
    view = map_model(path)
    whole = np.frombuffer(view, np.uint8)
    middle = whole[PAGE // 2 : 40 * PAGE].view(np.int32)
    assert whole.sum() >= 0  # reads every page
    before = resident(whole)
    release(middle)
    assert resident(whole) <= before - 38
    np.testing.assert_array_equal(np.frombuffer(view, np.int32), contents)


def test_other_arrays_stay_as_they_are() -> None:
    a = np.arange(10 * PAGE, dtype=np.uint8)
    expected = a.copy()
    for view in (a, a[::2], a[:0], a.reshape(10, -1).T, np.frombuffer(os.urandom(8), np.uint8)):
        release(view)
    np.testing.assert_array_equal(a, expected)
