"""Drivers that can't compile, without any driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilesmith.runtime.opencl import OpenClDevice
from tilesmith.support.errors import DeviceError, InternalError


class Error(Exception):
    """As pyopencl's."""


class BuildError(Error):
    """As pyopencl's RuntimeError."""


def device(refuses: str) -> OpenClDevice:
    """A device whose compiler refuses texts that contain this."""

    class Program:
        def __init__(self, context: Any, text: str) -> None:
            self.text = text

        def build(self, **options: Any) -> None:
            if refuses in self.text:
                raise BuildError("unknown target CPU 'generic'")

    found = OpenClDevice.__new__(OpenClDevice)
    found._cl = SimpleNamespace(
        Program=Program, Error=Error, RuntimeError=BuildError, MemoryError=type("M", (Error,), {})
    )
    found.device = SimpleNamespace(name="pthread")  # type: ignore[assignment]  # has just a name
    found._context = None
    return found


def test_a_compiler_that_refuses_everything_is_the_devices_fault() -> None:
    with pytest.raises(
        DeviceError, match=r"of pthread can't build an empty kernel; install a newer"
    ):
        device("").build("__kernel void f(void) {}")


def test_a_compiler_that_refuses_a_text_is_ours() -> None:
    with pytest.raises(InternalError, match="refuses the generated text"):
        device(" f(").build("__kernel void f(void) {}")
    assert device(" f(").build("__kernel void g(void) {}").text
