"""What a program does that consists of parts: calls of the parts, and copies between two places.

Values are numbered.  The first ones are the program's inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class PartCall:
    """A part of a program, which runs in one place.

    part: its number.
    inputs, outputs: numbers of values that live in its place, in its order.
    """

    part: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A value copied from the host to the device, or back.

    source, to: numbers of the value in the two places.
    to_device: whether it is copied to the device.
    """

    source: int
    to: int
    to_device: bool


@dataclass(frozen=True, slots=True)
class Results:
    """The last step.

    values: for each output, the number of the value on the host.
    """

    values: tuple[int, ...]


PartStep: TypeAlias = PartCall | Transfer | Results
