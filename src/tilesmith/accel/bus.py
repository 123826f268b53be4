"""The driver of an accelerator in hardware: registers on a bus, and DRAM that both sides share.

A board implements `Bus`; `run_on` runs a program behind it.  `rtl.verilate.Hardware` is one whose
hardware is simulated.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Protocol

import numpy as np

from tilesmith.support.errors import DeviceError

from .machine import INSTRUCTION_BYTES
from .prepared import Prepared


class Register(IntEnum):
    """A register of 32 bits, by its address on the bus in bytes.

    CONTROL: a write starts a run; a read gives 1 while no run is under way.
    INSTRUCTIONS, MICRO_OPS, DATA: where these begin in DRAM, in bytes.
    COUNT: number of instructions.
    CYCLES: cycles of the last run, from its first instruction on.
    """

    CONTROL = 0
    INSTRUCTIONS = 4
    COUNT = 8
    MICRO_OPS = 12
    DATA = 16
    CYCLES = 20


class Bus(Protocol):
    """What a board implements."""

    def read(self, register: Register) -> int:
        """The value of a register."""
        ...

    def write(self, register: Register, value: int) -> None:
        """Write a register."""
        ...

    def get(self, address: int, count: int) -> bytes:
        """Bytes of DRAM."""
        ...

    def put(self, address: int, data: bytes) -> None:
        """Write bytes of DRAM."""
        ...


_PAGE = 4096
"""Alignment of what lies in DRAM, in bytes: a multiple of all tiles and channels."""


def run_on(bus: Bus, ready: Prepared, memory: np.ndarray, seconds: float = 60.0) -> int:
    """Run a program on the hardware behind a bus, in `memory`, a writable array of u8.  Returns the
    cycles that it took.

    seconds: upper bound on the time of the run.

    Raises DeviceError if the run doesn't end.
    """
    steps = -(-len(ready.words) // _PAGE) * _PAGE
    data = steps + -(-len(ready.steps) // _PAGE) * _PAGE
    for address, content in ((0, ready.words), (steps, ready.steps), (data, memory.tobytes())):
        bus.put(address, content)
    bus.write(Register.INSTRUCTIONS, 0)
    bus.write(Register.COUNT, len(ready.words) // INSTRUCTION_BYTES)
    bus.write(Register.MICRO_OPS, steps)
    bus.write(Register.DATA, data)
    bus.write(Register.CONTROL, 1)
    end = time.monotonic() + seconds
    while not bus.read(Register.CONTROL):
        if time.monotonic() > end:
            raise DeviceError(f"the accelerator: expected the end of a run in {seconds} s")
    memory[:] = np.frombuffer(bus.get(data, memory.size), np.uint8)
    return bus.read(Register.CYCLES)
