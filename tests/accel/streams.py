"""Random values for the tests of the accelerator."""

from __future__ import annotations

import random
from dataclasses import replace
from enum import Enum

from tilesmith.accel.errors import InstructionError
from tilesmith.accel.instructions import (
    INSTRUCTIONS,
    Finish,
    Instruction,
    Load,
    MicroOp,
    Store,
    layout,
)
from tilesmith.accel.machine import Machine
from tilesmith.accel.program import Program, verify
from tilesmith.ir.dtypes import i16

MACHINES = (
    Machine(),
    Machine(batch=2, block_in=8, block_out=4, operand=i16, inp_bytes=4096, uop_bytes=4096),
    Machine(acc_bytes=1 << 19, wgt_bytes=1 << 19, uop_bytes=8192),
    Machine(block_in=64, block_out=64, acc_bytes=1 << 16, dma_bytes=16, alu_cycles=1),
)
"""The default machine, and others with wider elements, longer micro-operations, larger tiles."""


def any_fields(
    rng: random.Random, kind: type[Instruction | MicroOp], machine: Machine
) -> Instruction | MicroOp:
    """An instruction or a micro-operation whose fields have any values that their bits hold."""
    values = {}
    for slot in layout(kind, machine):
        low, high = slot.range
        if isinstance(slot.default, Enum):
            values[slot.name] = rng.choice(list(type(slot.default)))
        elif isinstance(slot.default, bool):
            values[slot.name] = rng.random() < 0.5
        else:
            values[slot.name] = rng.choice((low, high, rng.randint(low, high)))
    return kind(**values)


def valid_program(rng: random.Random, machine: Machine) -> Program:
    """A program that `verify` accepts: any fields that do."""
    micro_ops = tuple(any_fields(rng, MicroOp, machine) for _ in range(rng.randint(1, 6)))
    instructions: list[Instruction] = []
    while len(instructions) < 20:
        drawn = any_fields(rng, rng.choice(INSTRUCTIONS[:-1]), machine)
        if isinstance(drawn, (Load, Store)):
            drawn = replace(drawn, rows=rng.randint(1, 3), columns=rng.randint(1, 9))
        program = Program((drawn, Finish()), micro_ops)
        try:
            verify(program, machine)
        except InstructionError:
            continue
        instructions.append(drawn)
    return Program((*instructions, Finish()), micro_ops)
