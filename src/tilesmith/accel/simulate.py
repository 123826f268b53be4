"""Runs programs exactly, with all checks (`run`), and with the time that they take (`simulate`).

The work is in C (`runtime/csrc/accel_run.c`); `reference` is the same meaning in Python.
"""

from __future__ import annotations

import numpy as np

from tilesmith.runtime import native
from tilesmith.support.errors import ModelError

from .clock import Counts, cycles_of
from .failures import explained
from .machine import Machine
from .prepared import Prepared, prepared
from .program import Program


def simulate(
    program: Program, machine: Machine, memory: bytes | np.ndarray
) -> tuple[np.ndarray, Counts]:
    """Run `program` on a copy of `memory`: the memory afterwards, and what the run took.

    memory: bytes of DRAM; all of them count as initialised.

    Raises InstructionError with the first instruction at fault, and what `verify` raises.
    """
    after = np.frombuffer(_bytes(memory), np.uint8).copy()
    ready = prepared(program, machine)
    run_prepared(ready, after)
    return after, cycles_of(ready)


def run(program: Program, machine: Machine, memory: np.ndarray) -> None:
    """Run `program` in `memory`, a writable array of u8, without counting cycles.

    Raises what `verify` and `run_prepared` raise.
    """
    run_prepared(prepared(program, machine), memory)


def run_prepared(ready: Prepared, memory: np.ndarray) -> None:
    """Run a program in `memory`, a writable array of u8, without counting cycles.

    Raises ModelError for another memory, and InstructionError with the first instruction at fault.
    Then `memory` holds what was stored before.
    """
    if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous:
        raise ModelError(
            f"memory: expected a contiguous array of bytes, found {memory.dtype}{memory.shape}"
        )
    failure = native.accel_run(ready.machine, ready.encoding, ready.words, ready.steps, memory)
    if failure is not None:
        raise explained(ready.program, failure)


def _bytes(memory: bytes | np.ndarray) -> bytes:
    return memory.tobytes() if isinstance(memory, np.ndarray) else bytes(memory)
