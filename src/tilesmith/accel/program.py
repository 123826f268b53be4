"""A program of the accelerator, its checks that need no run, and its encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

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
    Store,
    layout,
)
from .machine import INSTRUCTION_BYTES, Machine, Memory


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
    codecs = _codecs(machine)
    for number, step in enumerate(program.micro_ops):
        if wrong := codecs[MicroOp].out_of_range(step):
            raise ModelError(f"micro-operation {number}, `{step}`: {wrong}")
    if not program.instructions or not isinstance(program.instructions[-1], Finish):
        raise ModelError("the program must end with `finish`")
    depths = {memory: machine.depth(memory) for memory in Memory}
    for number, x in enumerate(program.instructions):
        wrong = codecs[type(x)].out_of_range(x) or _wrong_field(x)
        if not wrong and isinstance(x, Finish) and number < len(program.instructions) - 1:
            wrong = "instructions come after the end"
        if wrong:
            raise program.error(number, Cause.FIELD, wrong)
        if beyond := _beyond_buffer(x, depths):
            raise program.error(number, Cause.BOUNDS, beyond)
        if isinstance(x, Load) and x.memory is Memory.UOP:
            end, there = x.dram + (x.rows - 1) * x.stride + x.columns, len(program.micro_ops)
            if end > there:
                raise program.error(
                    number, Cause.DRAM, f"it reads {end} micro-operations, the program has {there}"
                )


def _wrong_field(x: Instruction) -> str:
    """What is wrong with the fields of an instruction that are in range, if anything."""
    for step, side, is_used in (
        (-1, "prev", x.pop_prev or x.push_prev),
        (1, "next", x.pop_next or x.push_next),
    ):
        if is_used and x.unit.neighbour(step) is None:
            return f"the {x.unit.value} unit has no unit on the side `{side}`"
    if isinstance(x, (Load, Store)):
        return _wrong_copy(x)
    if isinstance(x, Loops):
        return _wrong_loops(x)
    return ""


def _wrong_copy(x: Load | Store) -> str:
    wrong = (Memory.OUT,) if isinstance(x, Load) else (Memory.UOP, Memory.INP, Memory.WGT)
    if x.memory in wrong:
        return f"it can't copy tiles of `{x.memory.value}`"
    if x.rows < 1 or x.columns < 1:
        return f"rows and columns: expected at least 1, found {x.rows} and {x.columns}"
    if isinstance(x, Load):
        if x.widen and x.memory is not Memory.ACC:
            return "`widen` is for `acc` only"
        if x.memory is Memory.UOP and (x.top or x.bottom or x.left or x.right):
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


def _beyond_buffer(x: Instruction, depths: dict[Memory, int]) -> str:
    """Which addresses of an instruction, known without a run, are outside of their buffer."""
    if isinstance(x, (Load, Store)):
        end, memory = x.sram + copied_tiles(x), x.memory
    elif isinstance(x, Loops):
        end, memory = x.end, Memory.UOP
    else:
        return ""
    if end <= depths[memory]:
        return ""
    return f"it needs {end} tiles of `{memory.value}`, which has {depths[memory]}"


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
    codecs = _codecs(machine)
    words = b"".join(
        codecs[type(x)].pack(x).to_bytes(INSTRUCTION_BYTES, "little") for x in program.instructions
    )
    size, pack = machine.micro_op_bytes, codecs[MicroOp].pack
    return words, b"".join(pack(step).to_bytes(size, "little") for step in program.micro_ops)


def decode(words: bytes, steps: bytes, machine: Machine) -> Program:
    """The program whose encoding is given.

    Raises ModelError where bytes are no instruction, and what `verify` raises.
    """
    codecs = _codecs(machine)
    instructions: list[Instruction] = []
    for number, word in enumerate(_split(words, INSTRUCTION_BYTES, "instructions")):
        opcode = word & (1 << OPCODE_BITS) - 1
        if opcode >= len(INSTRUCTIONS):
            raise ModelError(f"instruction {number}: no instruction has the opcode {opcode}")
        what = f"instruction {number}"
        instructions.append(codecs[INSTRUCTIONS[opcode]].unpack(word, what))
    micro_ops = (
        codecs[MicroOp].unpack(word, f"micro-operation {number}")
        for number, word in enumerate(_split(steps, machine.micro_op_bytes, "micro-operations"))
    )
    program = Program(tuple(instructions), tuple(micro_ops))
    verify(program, machine)
    return program


def _split(encoded: bytes, size: int, what: str) -> Iterator[int]:
    """The numbers of some bytes each."""
    if len(encoded) % size:
        raise ModelError(f"{what}: expected a multiple of {size} bytes, found {len(encoded)} bytes")
    for at in range(0, len(encoded), size):
        yield int.from_bytes(encoded[at : at + size], "little")


class _Codec:
    """Writes and reads the bits of one kind of instruction, or of micro-operations."""

    def __init__(self, kind: type[Any], machine: Machine) -> None:
        self.kind = kind
        self.opcode = INSTRUCTIONS.index(kind) if issubclass(kind, Instruction) else 0
        self.slots = layout(kind, machine)
        self.values: Callable[[Any], tuple[Any, ...]] = attrgetter(*(s.name for s in self.slots))
        self.rows = tuple(
            (s.first, (1 << s.bits) - 1, *s.range, type(s.default)) for s in self.slots
        )

    def out_of_range(self, x: object) -> str:
        """What is wrong with a field by itself, if anything."""
        for value, (_, _, low, high, kind), slot in zip(
            self.values(x), self.rows, self.slots, strict=True
        ):
            if type(value) is not kind or (kind is int and not low <= value <= high):
                name = kind.__name__
                expected = f"an integer from {low} to {high}" if kind is int else f"a {name}"
                return f"{slot.name}: expected {expected}, found {value!r}"
        return ""

    def pack(self, x: object) -> int:
        word = self.opcode
        for value, (first, mask, _, _, kind) in zip(self.values(x), self.rows, strict=True):
            if value:
                number = CODES[kind].index(value) if kind in CODES else value
                word |= (number & mask) << first
        return word

    def unpack(self, word: int, what: str) -> Any:
        """Raises ModelError for a code of no member, and for bits after the last field."""
        values: dict[str, Any] = {}
        for slot, (first, mask, _, high, kind) in zip(self.slots, self.rows, strict=True):
            number = word >> first & mask
            if kind is int:
                values[slot.name] = number - mask - 1 if number > high else number
            elif kind is bool:
                values[slot.name] = bool(number)
            elif number < len(CODES[kind]):
                values[slot.name] = CODES[kind][number]
            else:
                raise ModelError(f"{what}: {slot.name}: no member has the code {number}")
        used = self.slots[-1].first + self.slots[-1].bits
        if word >> used:
            raise ModelError(f"{what}: expected zeros from bit {used} on, found {word:#x}")
        return self.kind(**values)


@cache
def _codecs(machine: Machine) -> dict[type[Any], _Codec]:
    return {kind: _Codec(kind, machine) for kind in (*INSTRUCTIONS, MicroOp)}
