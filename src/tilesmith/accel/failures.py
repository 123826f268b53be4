"""What the simulators in C say of a program that is wrong, in words."""

from __future__ import annotations

from .errors import Cause, InstructionError
from .machine import Memory, Unit
from .program import Program

_CAUSES = tuple(Cause)
_MEMORIES = tuple(Memory)
_UNITS = tuple(Unit)


def explained(program: Program, failure: tuple[int, int, int, int, int]) -> InstructionError:
    """The error of a failure: its cause, the instruction, and three numbers of details."""
    cause, number, a, b, c = failure
    message = {
        Cause.DEADLOCK: _deadlock,
        Cause.TOKEN: _token,
        Cause.DRAM: _dram,
        Cause.BOUNDS: _bounds,
        Cause.UNINITIALISED: _uninitialised,
        Cause.HAZARD: _hazard,
    }[_CAUSES[cause]](program, a, b, c)
    return program.error(number, _CAUSES[cause], message)


def _deadlock(program: Program, waits: int, unit: int, _: int) -> str:
    """waits: for a token of the unit before (0) or after (1), or for room for one (2, 3)."""
    other = _UNITS[unit - 1 if waits % 2 == 0 else unit + 1].value
    if waits < 2:
        return f"it waits for a token of the {other} unit, which gives none"
    return f"it waits for room for a token to the {other} unit, which takes none"


def _token(program: Program, count: int, queue: int, _: int) -> str:
    """queue: 2u from unit u to the next one, 2u + 1 back."""
    taker = _UNITS[queue // 2 + (1 if queue % 2 == 0 else 0)].value
    return f"its token to the {taker} unit is never taken; {count} are left at the end"


def _dram(program: Program, end: int, there: int, _: int) -> str:
    return f"it accesses DRAM to byte {end}, and there are {there} bytes"


def _bounds(program: Program, memory: int, tile: int, step: int) -> str:
    name = _MEMORIES[memory].value
    return f"its micro-operation {step} reaches tile {tile} of `{name}`, beyond its end"


def _uninitialised(program: Program, memory: int, tile: int, _: int) -> str:
    return f"it reads tile {tile} of `{_MEMORIES[memory].value}`, which nothing has written"


def _hazard(program: Program, memory: int, place: int, other: int) -> str:
    """memory: -1 for DRAM."""
    where = (
        f"tile {place} of `{_MEMORIES[memory].value}`" if memory >= 0 else f"byte {place} of DRAM"
    )
    return (
        f"it accesses {where}, as instruction {other}, `{program.instructions[other]}`, does, and "
        "no token orders the two"
    )
