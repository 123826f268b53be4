"""Calls that crash, that fail and that return, tried in a child process."""

from __future__ import annotations

import ctypes
import os

import pytest

from tilesmith.support import rehearsal
from tilesmith.support.rehearsal import survives

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes can't fork here")


def test_only_a_crash_counts():
    assert survives(lambda: 3)
    assert survives(lambda: 1 // 0)
    assert survives(lambda: exit(5))
    assert not survives(lambda: ctypes.string_at(1))


def test_a_call_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rehearsal, "PATIENCE", 0.2)

    def forever() -> None:
        while True:
            pass

    assert not survives(forever)
