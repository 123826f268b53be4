"""The device memory that a program needs, and its limit.

Other allocators, such as PyTorch's, use the same memory.  So the need is computed before anything
is allocated, and programs above the limit are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from tilesmith.codegen.kernel import LaunchCall
from tilesmith.codegen.packed import unpacked
from tilesmith.program.nodes import PartCall
from tilesmith.support.errors import DeviceError

from .device import FAILURE_TYPE
from .program import Program


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory that an executable allocates on its device, in bytes, for as long as it lives.

    weights: constants, in the form that kernels read.
    arena: intermediate values, the kernels' workspaces, and the record of a kernel's failure.
    inputs: copies of the inputs, except those that other parts of the program compute.
    outputs: results, before they are copied back, except those that live in an input.
    """

    weights: int = 0
    arena: int = 0
    inputs: int = 0
    outputs: int = 0

    @property
    def total(self) -> int:
        """Total bytes."""
        return self.weights + self.arena + self.inputs + self.outputs

    def __add__(self, other: DeviceMemory) -> DeviceMemory:
        return DeviceMemory(
            self.weights + other.weights,
            self.arena + other.arena,
            self.inputs + other.inputs,
            self.outputs + other.outputs,
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size}" for name, size in asdict(self).items())
        return f"{self.total} bytes ({parts})"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total}


def device_memory(program: Program) -> DeviceMemory:
    """Device memory that a program's executable allocates."""
    if not program.parts:
        return _memory_of(program, ())
    calls = [s for s in program.steps if isinstance(s, PartCall)]
    total, known = DeviceMemory(), set[int]()
    for call, part in zip(calls, program.parts, strict=True):
        if part.target.device is not None:
            there = {i for i, place in enumerate(call.inputs) if place in known}
            total += _memory_of(part, there)
            known.update((*call.inputs, *call.outputs))
    return total


def _memory_of(program: Program, there: Collection[int]) -> DeviceMemory:
    """The device memory of a program.

    there: numbers of inputs that are already on the device.
    """
    homes = {o for o, _ in program.in_place}
    return DeviceMemory(
        program.constants.nbytes,
        program.arena_bytes + FAILURE_TYPE.itemsize,
        sum(s.bytes for i, s in enumerate(program.inputs) if i not in there),
        sum(s.bytes for i, s in enumerate(program.outputs) if i not in homes),
    )


def check_memory(program: Program, limit: int | None) -> None:
    """Raises DeviceError for a program that needs more than `limit` bytes of its device."""
    if limit is None:
        return
    needed = device_memory(program)
    if needed.total > limit:
        raise DeviceError(
            f"target {program.target.name!r}: expected a model that needs at most {limit} bytes of "
            f"the device's memory (memory_limit), found one that needs {needed}; raise "
            "memory_limit, choose smaller shapes, or compile for 'native'"
        )


def launches_of(program: Program) -> dict[str, tuple[LaunchCall, ...]]:
    """The launches of each device kernel, by symbol."""
    if program.parts:
        return {symbol: x for part in program.parts for symbol, x in launches_of(part).items()}
    if program.target.device is None:
        return {}
    return {symbol: unpacked(symbol, code).launches for symbol, code in program.objects.items()}
