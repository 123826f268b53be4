"""A device that runs blocks of threads: its limits for schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Device:
    """The limits of a device.  The defaults hold for nearly every GPU.

    number: its index among the devices of this machine.
    shared_bytes: memory that the threads of a block share.
    block_threads: upper bound on the threads of a block.
    block_x, block_y, block_z: upper bounds on the threads of a block along each index.
    registers: 32-bit registers that a thread may use.
    wave: threads that run in lockstep: a warp, a wavefront, or the lanes of a vector.
    shuffle_lanes: number of neighbouring threads that exchange values by one instruction, a power
        of two; 1 if the device has no such instruction.
    units: number of compute units, a lower bound on the blocks that run at the same time.
    unit_threads, unit_registers, unit_shared_bytes: resources of a unit, which its blocks share.
    load_fmas: time to load an element from global memory, in multiply-adds of a thread.
    memory_bytes: memory that all blocks share.
    has_f64: whether the device computes in f64.
    """

    number: int = 0
    shared_bytes: int = 32 << 10
    block_threads: int = 256
    block_x: int = 256
    block_y: int = 256
    block_z: int = 64
    registers: int = 255
    wave: int = 32
    shuffle_lanes: int = 1
    units: int = 16
    unit_threads: int = 2048
    unit_registers: int = 64 << 10
    unit_shared_bytes: int = 64 << 10
    load_fmas: int = 4
    memory_bytes: int = 4 << 30
    has_f64: bool = True

    @property
    def block(self) -> tuple[int, int, int]:
        """Upper bounds on the threads of a block along x, y and z."""
        return self.block_x, self.block_y, self.block_z

    def rounds(self, blocks: int) -> int:
        """Upper bound on the rounds in which `blocks` blocks run, `units` at a time."""
        return -(-blocks // self.units)

    @property
    def text(self) -> str:
        """The text of all fields except `number` for cache keys, the same in every process."""
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "number"}
        return " ".join(f"{k}={v}" for k, v in shown.items())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(m: Mapping[str, Any], base: Device | None = None) -> Device:
        """`base` with the fields that `m` names.

        Raises ValueError for unknown fields, and for values that are not natural numbers.
        """
        values = (base or Device()).to_json()
        for key, value in m.items():
            if key not in values:
                raise ValueError(f"a device has no field {key!r}; it has {', '.join(values)}")
            if type(value) is not type(values[key]) or value < (key not in ("number", "has_f64")):
                wanted = "true or false" if key == "has_f64" else "a positive integer"
                raise ValueError(f"{key}: expected {wanted}, found {value!r}")
            if key == "shuffle_lanes" and value & (value - 1):
                raise ValueError(f"{key}: expected a power of two, found {value!r}")
            values[key] = value
        return Device(**values)
