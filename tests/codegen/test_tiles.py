"""The permission to use AMX tiles, with systems that answer in each way."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import pytest

from tilesmith.codegen import targets, tiles


class System:
    """A kernel that knows some components of state and grants tiles or not."""

    def __init__(self, supported: int | None, refuses: bool) -> None:
        self.supported = supported
        self.refuses = refuses
        self.asked: list[int] = []

    def syscall(self, number: int, function: int, argument: Any) -> int:
        assert number == 158
        if function == 0x1021:
            if self.supported is None:
                return -1
            argument._obj.value = self.supported
            return 0
        assert function == 0x1023
        self.asked.append(argument)
        return -1 if self.refuses else 0


@pytest.fixture
def fresh() -> Iterator[None]:
    tiles.tile_permission.cache_clear()
    targets.host.cache_clear()
    yield
    tiles.tile_permission.cache_clear()
    targets.host.cache_clear()


CASES = {
    "granted": (System(0x60007, False), "granted", [18]),
    "refused": (System(0x60007, True), "refused", [18]),
    "no tiles": (System(0x7, False), "none", []),
    "an old kernel": (System(None, False), "none", []),
}


@pytest.mark.parametrize("case", CASES)
def test_tiles_are_used_only_with_permission(
    case: str, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, answer, asked = CASES[case]
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=system.syscall))
    assert tiles.tile_permission() == answer
    assert tiles.tile_permission() == answer
    assert system.asked == asked, "asked once"
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"sse2": True, "amx-tile": True})
    assert ("amx-tile" in targets.host().features) == (answer == "granted")
