"""Programs as the simulators read them: verified and encoded once for all runs."""

from __future__ import annotations

from dataclasses import dataclass

from .header import encoding, machine_numbers
from .machine import Machine
from .program import Program, encode


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that `verify` accepted.

    program: its instructions.
    machine: bytes of `header.machine_numbers`.
    encoding: bytes of `header.encoding`.
    words, steps: bytes of the encoded instructions and micro-operations.
    """

    program: Program
    machine: bytes
    encoding: bytes
    words: bytes
    steps: bytes


def prepared(program: Program, machine: Machine) -> Prepared:
    """A program for the simulators of a machine.

    Raises what `verify` raises.
    """
    numbers, layouts = machine_numbers(machine).tobytes(), encoding(machine).tobytes()
    return Prepared(program, numbers, layouts, *encode(program, machine))
