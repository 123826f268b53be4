"""A program of the accelerator, its checks that need no run, and its encoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tilesmith.support.errors import ModelError

from .errors import Cause, InstructionError
from .instructions import (
    CODES,
    INSTRUCTIONS,
    OPCODE_BITS,
    Alu,
    Finish,
    Instruction,
    Load,
    Loops,
    MicroOp,
    Slot,
    Store,
    layout,
)
from .machine import INSTRUCTION_BITS, Machine, Memory

INSTRUCTION_BYTES = INSTRUCTION_BITS // 8


@dataclass(frozen=True, slots=True)
class Program:
    """A list of instructions, and the micro-operations that they copy into the machine.

    instructions: in the order in which the machine fetches them; each unit runs its own in this
        order.
    micro_ops: the memory from which `load uop` reads.
    """

    instructions: tuple[Instruction, ...]
    micro_ops: tuple[MicroOp, ...] = ()

    def text(self) -> str:
        """One line for each micro-operation, then one for each instruction."""
        steps = (f"uop dst={u.dst} src={u.src} wgt={u.wgt}" for u in self.micro_ops)
        return "".join(f"{line}\n" for line in (*steps, *map(str, self.instructions)))

    def error(self, number: int, cause: Cause, message: str) -> InstructionError:
        """The error of the instruction at a position."""
        return InstructionError(number, str(self.instructions[number]), cause, message)


def verify(program: Program, machine: Machine) -> None:
    """Check all that is known without a run: ranges of fields, units, addresses of copies.

    Raises InstructionError with the first wrong instruction, ModelError for a wrong
    micro-operation and for a program without `finish` at its end.
    """
    for number, step in enumerate(program.micro_ops):
        for slot in layout(MicroOp, machine):
            if wrong := _out_of_range(slot, getattr(step, slot.name)):
                raise ModelError(f"micro-operation {number}, `{step}`: {wrong}")
    if not program.instructions or not isinstance(program.instructions[-1], Finish):
        raise ModelError("the program must end with `finish`")
    for number, instruction in enumerate(program.instructions):
        wrong = _wrong_field(instruction, machine)
        if not wrong and isinstance(instruction, Finish):
            is_last = number == len(program.instructions) - 1
            wrong = "" if is_last else "instructions come after the end"
        if wrong:
            raise program.error(number, Cause.FIELD, wrong)
        if beyond := _beyond_buffer(instruction, machine):
            raise program.error(number, Cause.BOUNDS, beyond)
        if isinstance(instruction, Load) and instruction.memory is Memory.UOP:
            end = instruction.dram + (instruction.rows - 1) * instruction.stride
            end += instruction.columns
            if end > len(program.micro_ops):
                there = len(program.micro_ops)
                raise program.error(
                    number, Cause.DRAM, f"it reads {end} micro-operations, the program has {there}"
                )


def _out_of_range(slot: Slot, value: Any) -> str:
    """What is wrong with the value of a field, if anything."""
    if isinstance(value, (Enum, bool)):
        return ""
    low, high = slot.range
    if type(value) is int and low <= value <= high:
        return ""
    return f"{slot.name}: expected an integer from {low} to {high}, found {value!r}"


def _wrong_field(x: Instruction, machine: Machine) -> str:
    """What is wrong with the fields of an instruction, if anything."""
    for slot in layout(type(x), machine):
        if wrong := _out_of_range(slot, getattr(x, slot.name)):
            return wrong
    for step, side in ((-1, "prev"), (1, "next")):
        if x.unit.neighbour(step) is None and (
            getattr(x, f"pop_{side}") or getattr(x, f"push_{side}")
        ):
            return f"the {x.unit.value} unit has no unit on the side `{side}`"
    if isinstance(x, (Load, Store)):
        return _wrong_copy(x)
    if isinstance(x, Loops):
        return _wrong_loops(x)
    return ""


def _wrong_copy(x: Load | Store) -> str:
    wrong = {Load: (Memory.OUT,), Store: (Memory.UOP, Memory.INP, Memory.WGT)}[type(x)]
    if x.memory in wrong:
        return f"it can't copy tiles of `{x.memory.value}`"
    if x.rows < 1 or x.columns < 1:
        return f"rows and columns: expected at least 1, found {x.rows} and {x.columns}"
    if isinstance(x, Load) and x.memory is not Memory.ACC and x.widen:
        return "`widen` is for `acc` only"
    if (
        isinstance(x, Load)
        and x.memory is Memory.UOP
        and (x.top, x.bottom, x.left, x.right) != (0,) * 4
    ):
        return "micro-operations have no padding"
    return ""


def _wrong_loops(x: Loops) -> str:
    if x.begin >= x.end:
        return f"begin and end: expected at least one micro-operation, found {x.begin} .. {x.end}"
    if x.outer < 1 or x.inner < 1:
        return f"outer and inner: expected at least 1, found {x.outer} and {x.inner}"
    if isinstance(x, Alu) and x.op.reads_pair and x.use_imm:
        return f"`{x.op.value}` has no form with an immediate number"
    return ""


def _beyond_buffer(x: Instruction, machine: Machine) -> str:
    """Which addresses of an instruction, known without a run, are outside of their buffer."""
    if isinstance(x, (Load, Store)):
        end, memory = x.sram + copied_tiles(x), x.memory
    elif isinstance(x, Loops):
        end, memory = x.end, Memory.UOP
    else:
        return ""
    depth = machine.depth(memory)
    return "" if end <= depth else f"it needs {end} tiles of `{memory.value}`, which has {depth}"


def copied_tiles(x: Load | Store) -> int:
    """Tiles of the buffer that a copy reads or writes, padding included."""
    if isinstance(x, Store):
        return x.rows * x.columns
    return (x.top + x.rows + x.bottom) * (x.left + x.columns + x.right)


def encode(program: Program, machine: Machine) -> tuple[bytes, bytes]:
    """The instructions, 16 bytes each, and the micro-operations, as the machine reads them.  The
    least significant byte comes first.

    Raises what `verify` raises.
    """
    verify(program, machine)
    words = b"".join(
        (_packed(x, machine) | INSTRUCTIONS.index(type(x))).to_bytes(INSTRUCTION_BYTES, "little")
        for x in program.instructions
    )
    size = machine.micro_op_bytes
    steps = b"".join(_packed(u, machine).to_bytes(size, "little") for u in program.micro_ops)
    return words, steps


def decode(words: bytes, steps: bytes, machine: Machine) -> Program:
    """The program whose encoding is given.

    Raises ModelError where bytes are no instruction, and what `verify` raises.
    """
    size = machine.micro_op_bytes
    for encoded, unit, what in (
        (words, INSTRUCTION_BYTES, "instructions"),
        (steps, size, "micro-operations"),
    ):
        if len(encoded) % unit:
            raise ModelError(
                f"{what}: expected a multiple of {unit} bytes, found {len(encoded)} bytes"
            )
    instructions: list[Instruction] = []
    for number, word in enumerate(_words(words, INSTRUCTION_BYTES)):
        opcode = word & (1 << OPCODE_BITS) - 1
        if opcode >= len(INSTRUCTIONS):
            raise ModelError(f"instruction {number}: no instruction has the opcode {opcode}")
        what = f"instruction {number}"
        instructions.append(_unpacked(INSTRUCTIONS[opcode], word, machine, what))
    micro_ops = (
        _unpacked(MicroOp, word, machine, f"micro-operation {number}")
        for number, word in enumerate(_words(steps, size))
    )
    program = Program(tuple(instructions), tuple(micro_ops))
    verify(program, machine)
    return program


def _words(encoded: bytes, size: int) -> Iterator[int]:
    for at in range(0, len(encoded), size):
        yield int.from_bytes(encoded[at : at + size], "little")


def _packed(x: Instruction | MicroOp, machine: Machine) -> int:
    """The bits of all fields."""
    word = 0
    for slot in layout(type(x), machine):
        value = getattr(x, slot.name)
        number = CODES[type(value)].index(value) if isinstance(value, Enum) else int(value)
        word |= (number & (1 << slot.bits) - 1) << slot.first
    return word


T = TypeVar("T", bound=Instruction | MicroOp)


def _unpacked(kind: type[T], word: int, machine: Machine, what: str) -> T:
    values: dict[str, Any] = {}
    used = OPCODE_BITS if issubclass(kind, Instruction) else 0
    for slot in layout(kind, machine):
        number = word >> slot.first & (1 << slot.bits) - 1
        used = slot.first + slot.bits
        if isinstance(slot.default, bool):
            values[slot.name] = bool(number)
        elif isinstance(slot.default, Enum):
            members = CODES[type(slot.default)]
            if number >= len(members):
                raise ModelError(f"{what}: {slot.name}: no member has the code {number}")
            values[slot.name] = members[number]
        else:
            _, high = slot.range
            values[slot.name] = number - (1 << slot.bits) if number > high else number
    if word >> used:
        raise ModelError(f"{what}: expected zeros from bit {used} on, found {word:#x}")
    return kind(**values)
