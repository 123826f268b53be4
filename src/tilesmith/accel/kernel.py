"""From a schedule to a program with its place in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.loop.nodes import Buffer, Func
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import tensorize
from tilesmith.loop.verify import verify
from tilesmith.support.errors import ModelError, ScheduleError
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor

from .machine import Machine, Memory
from .program import Program
from .program import verify as verify_program
from .writer import write


@dataclass(frozen=True, slots=True)
class AccelKernel:
    """A compiled kernel.

    machine: the machine for which it is compiled.
    func: the loop nest with tensor calls, whose meaning the program has.
    program: its instructions.
    places: for each parameter, the byte at which it begins in DRAM.
    size: bytes of DRAM for all parameters.
    """

    machine: Machine
    func: Func
    program: Program
    places: Mapping[Buffer, int]
    size: int

    def memory(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """DRAM with the inputs, u8[size]; outputs are zeros.

        arrays: an array for each input, by the name of its parameter.

        Raises ModelError for a missing array, or one of another shape or type.
        """
        memory = np.zeros(self.size, np.uint8)
        for buffer, begin in self.places.items():
            if buffer in self.func.outputs:
                continue
            array = arrays.get(buffer.name)
            wanted = math.prod(_shape(buffer)), buffer.dtype.numpy
            if array is None or (array.size, array.dtype) != wanted:
                found = "none" if array is None else f"{array.size} of {array.dtype}"
                raise ModelError(
                    f"{buffer.name}: expected {wanted[0]} elements of {buffer.dtype}, found {found}"
                )
            memory[begin : begin + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        return memory

    def outputs(self, memory: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs after a run, flat, by the names of their parameters."""
        found: dict[str, np.ndarray] = {}
        for buffer in self.func.outputs:
            begin, count = self.places[buffer], math.prod(_shape(buffer))
            end = begin + count * buffer.dtype.bytes
            found[buffer.name] = memory[begin:end].view(buffer.dtype.numpy)
        return found


def build(
    schedule: Schedule, args: Sequence[Tensor], machine: Machine, name: str = "main"
) -> AccelKernel:
    """Compile a schedule whose loops are tensorised with intrinsics of the machine.

    args: the tensors of the parameters, in the order of their places in DRAM.

    Raises ScheduleError for schedules that the machine can't run.
    """
    func = simplify_func(flatten(simplify_func(lower(schedule, args, name))))
    func = tensorize(func)
    verify(func, "flat")
    alignment = math.lcm(*(machine.tile_bytes(m) for m in Memory))
    places: dict[Buffer, int] = {}
    end = 0
    for buffer in func.buffers:
        places[buffer] = end
        size = math.prod(_shape(buffer)) * buffer.dtype.bytes
        end += -(-size // alignment) * alignment
    program = write(func, machine, places)
    verify_program(program, machine)
    return AccelKernel(machine, func, program, places, end)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a parameter.  Raises ScheduleError if it isn't constant."""
    if not all(isinstance(n, int) for n in buffer.shape):
        raise ScheduleError(f"{buffer.name}: the accelerator needs constant shapes")
    return tuple(n for n in buffer.shape if isinstance(n, int))
