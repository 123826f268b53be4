"""Limits and faults of an OpenCL device: what is refused, and what answers then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from part_cases import compiled, detector

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.runtime.device_executable import UnpredictedExecutable
from tilesmith.runtime.opencl import OpenClDevice
from tilesmith.support.errors import DeviceError


def relu(size: int = 100) -> Graph:
    b = Builder("g")
    return b.finish([b.add(Relu(), b.input("x", TensorType(f32, (size,))))])


def memory_of_parts() -> None:
    """What is said to be needed is what is allocated; values that parts share count once."""
    taken: list[int] = []
    real = OpenClDevice.empty

    def empty(self: OpenClDevice, size: int):
        taken.append(size)
        return real(self, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenClDevice, "empty", empty)
        made = compiled(detector())
    assert isinstance(made, UnpredictedExecutable)
    assert sum(part.target.device is not None for part in made.program.parts) > 1
    assert sum(taken) == made.memory.total


def memory_limit() -> None:
    made = ts.compile(relu(), target="opencl")
    assert isinstance(made, UnpredictedExecutable)
    enough = made.memory.total
    given = np.linspace(-1, 1, 100, dtype=np.float32)
    limited = ts.compile(relu(), target="opencl", memory_limit=enough)
    np.testing.assert_array_equal(limited(given), np.maximum(given, 0))
    with pytest.raises(DeviceError, match=rf"at most {enough - 1} bytes .* needs {enough} bytes"):
        ts.compile(relu(), target="opencl", memory_limit=enough - 1)


def faults() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    return {f.__name__: f for f in (memory_of_parts, memory_limit)}
