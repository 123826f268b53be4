"""Cursors read what a file has, and refuse to read beyond its end."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import ModelError

CONTENT = struct.pack("<IhQ4f", 7, -2, 1 << 40, *range(4))


def test_parts_are_read_in_order() -> None:
    file = Cursor(CONTENT, "some file")
    assert file.number("I", "a count") == 7
    assert file.numbers("hQ", "two numbers") == (-2, 1 << 40)
    array = file.array(np.dtype("<f4"), (2, 2), "an array")
    np.testing.assert_array_equal(array, [[0, 1], [2, 3]])
    assert file.left == 0 and bytes(file.bytes(0, "nothing")) == b""


def test_a_cursor_may_begin_inside_a_file() -> None:
    assert Cursor(CONTENT, "some file", 4).number("h", "a number") == -2


@pytest.mark.parametrize("size", [5, -1, 1 << 70])
def test_no_part_reaches_beyond_the_end(size: int) -> None:
    file = Cursor(CONTENT[:8], "some file", 4)
    with pytest.raises(ModelError, match=f"some file: expected {size} bytes of text at offset 4"):
        file.bytes(size, "text")
    assert file.at == 4


def test_what_was_read_may_be_wrong() -> None:
    file = Cursor(CONTENT, "some file")
    number = file.number("I", "a version")
    with pytest.raises(ModelError, match="some file: expected 3, found 7, before offset 4"):
        file.bad("3", number)
