"""A library in the place of the driver's, which notes its calls and runs nothing."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tilesmith.codegen.cuda import driver
from tilesmith.runtime import cuda


class Fake:
    """The library, and what it was asked for."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.fake_calls.restype = ctypes.c_char_p
        self.library.fake_arg.restype = self.library.fake_stream.restype = ctypes.c_uint64

    def calls(self) -> list[str]:
        """The calls since the last time."""
        found = self.library.fake_calls().decode().split()
        self.library.fake_forget()
        return found

    def fail(self, function: str, code: int) -> None:
        self.library.fake_fail(function.encode(), code)

    def args(self, count: int) -> list[int]:
        """The first arguments of the last launch."""
        return [self.library.fake_arg(n) for n in range(count)]

    @property
    def stream(self) -> int:
        """Of the last launch; 0: the device's own."""
        return self.library.fake_stream()


def forget() -> None:
    driver.driver.cache_clear()
    cuda.opened.cache_clear()
