"""The error of a program that is wrong: it names the instruction, and what is wrong with it."""

from __future__ import annotations

from enum import Enum

from tilesmith.support.errors import TilesmithError


class Cause(Enum):
    """What is wrong with an instruction.

    FIELD: a field doesn't fit its bits, or contradicts the unit.
    DEADLOCK: it waits for ever for a token, for room for a token, or for its turn.
    TOKEN: its token is left when all instructions have run.
    DRAM: it accesses memory outside of what there is.
    BOUNDS: it accesses a tile outside of an on-chip buffer.
    UNINITIALISED: it reads a tile or a micro-operation that nothing has written.
    HAZARD: another unit accesses the same tile or bytes, and no token orders the two.
    """

    FIELD = "field"
    DEADLOCK = "deadlock"
    TOKEN = "token"
    DRAM = "dram"
    BOUNDS = "bounds"
    UNINITIALISED = "uninitialised"
    HAZARD = "hazard"


class InstructionError(TilesmithError):
    """An instruction of a program is wrong.

    number: position of the instruction in the program.
    text: its text.
    cause: what is wrong.
    """

    exit_code = 1

    def __init__(self, number: int, text: str, cause: Cause, message: str) -> None:
        super().__init__(f"instruction {number}, `{text}`: {message}")
        self.number, self.text, self.cause = number, text, cause
