"""Reading a binary file from front to back.  Nothing is read beyond its end."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilesmith.support.errors import ModelError


class Cursor:
    """A place in a file, which moves forward as parts are read.  Numbers are little-endian."""

    def __init__(self, content: bytes | memoryview, file: str, at: int = 0) -> None:
        """file: the file's kind, with which messages begin.

        at: offset of the first part.
        """
        self.content, self.file, self.at = memoryview(content), file, at

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self.content) - self.at

    def bytes(self, size: int, what: str) -> memoryview:
        """The next bytes.  Raises ModelError, which names `what`, if the file has fewer."""
        if not 0 <= size <= self.left:
            raise ModelError(
                f"{self.file}: expected {size} bytes of {what} at offset {self.at}, found "
                f"{self.left}"
            )
        self.at += size
        return self.content[self.at - size : self.at]

    def numbers(self, codes: str, what: str) -> tuple[Any, ...]:
        """The next numbers; `codes` are their types in `struct`."""
        layout = struct.Struct(f"<{codes}")
        return layout.unpack(self.bytes(layout.size, what))

    def number(self, code: str, what: str) -> Any:
        """The next number; `code` is its type in `struct`."""
        return self.numbers(code, what)[0]

    def array(self, dtype: np.dtype, shape: Sequence[int], what: str) -> np.ndarray:
        """The next elements, as a view of the file."""
        stored = self.bytes(dtype.itemsize * math.prod(shape), what)
        return np.frombuffer(stored, np.uint8).view(dtype).reshape(shape)

    def bad(self, expected: str, found: object) -> NoReturn:
        """Raises ModelError: what was just read is wrong."""
        raise ModelError(
            f"{self.file}: expected {expected}, found {found}, before offset {self.at}"
        )
