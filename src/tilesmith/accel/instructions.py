"""The instructions: one table from which encoding, text, checks and documentation follow.

The table is the classes in `INSTRUCTIONS`.  A class is an instruction, its fields in order are
those of the encoding after opcode and tokens, and each field says how many bits it has on a given
machine.  Fields without a width share what 128 bits leave.

All addresses count tiles (see `machine.Memory`).  A `pop` takes a token before the instruction
runs and waits for it; a `push` gives one after it.  `prev` and `next` are the units before and
after this one in the order load, compute, store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, ClassVar, NamedTuple

from tilesmith.support.errors import UsageError

from .alu import AluOp
from .machine import INSTRUCTION_BITS, Machine, Memory, Unit

OPCODE_BITS = 3
"""Width of the opcode, in the least significant bits of an instruction."""
_MOST_SHARED = 16
_LEAST_SHARED = 6
"""Bounds on the bits of a field without a width: below the least, loops are too short to be of
use.
"""

Bits = Callable[[Machine], int]


class FieldInfo(NamedTuple):
    """A row of the table.

    bits: its width; None for an equal share of the bits that the others leave, at most 16.
    doc: its meaning.
    is_signed: whether it is a number in two's complement.
    """

    bits: Bits | None
    doc: str
    is_signed: bool = False


def _field(bits: Bits | int | None, doc: str, default: Any = 0, *, is_signed: bool = False) -> Any:
    width = (lambda _: bits) if isinstance(bits, int) else bits
    return field(default=default, metadata={"info": FieldInfo(width, doc, is_signed)})


def _flag(doc: str) -> Any:
    return _field(1, doc, False)


def _address(*memories: Memory) -> Bits:
    return lambda machine: machine.address_bits(*memories)


def _end(machine: Machine) -> int:
    return machine.address_bits(Memory.UOP) + 1


_SOURCES = (Memory.INP, Memory.ACC)
_TARGETS = (Memory.ACC, Memory.OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroOp:
    """Addresses of one step of the matrix unit or of the ALU; the loops around it add to them."""

    dst: int = _field(_address(*_TARGETS), "accumulators, or results of an ALU step with `to_out`")
    src: int = _field(_address(*_SOURCES), "inputs; of a step of the ALU, accumulators")
    wgt: int = _field(_address(Memory.WGT), "weights; unused by the ALU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What all instructions have: tokens, and the unit that runs them."""

    name: ClassVar[str]

    pop_prev: bool = _flag("waits for a token of the unit before, and takes it")
    pop_next: bool = _flag("waits for a token of the unit after, and takes it")
    push_prev: bool = _flag("gives a token to the unit before")
    push_next: bool = _flag("gives a token to the unit after")

    @property
    def unit(self) -> Unit:
        return Unit.COMPUTE

    @property
    def kind(self) -> str:
        """The name, and the member of an enumeration if it has one: `load inp`, `alu add`."""
        values = (getattr(self, f.name) for f in fields(self))
        return " ".join((self.name, *(v.value for v in values if isinstance(v, Enum))))

    def __str__(self) -> str:
        """The kind, and fields that haven't their default value; tokens come last."""
        tokens, own = fields(Instruction), fields(self)[len(fields(Instruction)) :]
        words = (_word(getattr(self, f.name), f) for f in (*own, *tokens))
        return " ".join((self.kind, *filter(None, words)))


def _word(value: Any, f: Field[Any]) -> str:
    if value == f.default or isinstance(value, Enum):
        return ""
    return f.name if value is True else f"{f.name}={value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Instruction):
    """Copies `rows` rows of `columns` tiles from DRAM into consecutive tiles of a buffer.

    Row y begins at tile `dram + y * stride` of DRAM.  In the buffer, padding surrounds the rows:
    `top` and `bottom` rows, and `left` and `right` tiles in each row.  All elements of padding are
    `pad`.  Micro-operations are read from the program's own, everything else from the memory of
    data.  The load unit copies inputs and weights, the compute unit accumulators and
    micro-operations.
    """

    name: ClassVar[str] = "load"

    memory: Memory = _field(3, "the buffer: `uop`, `inp`, `wgt` or `acc`", Memory.INP)
    sram: int = _field(_address(*Memory), "first tile in the buffer")
    dram: int = _field(32, "first tile in DRAM")
    rows: int = _field(None, "rows in DRAM", 1)
    columns: int = _field(None, "tiles of a row in DRAM", 1)
    stride: int = _field(None, "tiles from a row to the next one in DRAM")
    top: int = _field(4, "rows of padding before")
    bottom: int = _field(4, "rows of padding after")
    left: int = _field(4, "tiles of padding before each row")
    right: int = _field(4, "tiles of padding after each row")
    pad: int = _field(8, "value of the padding", is_signed=True)
    widen: bool = _flag("of `acc`: elements in DRAM are operands, and their signs are extended")

    @property
    def unit(self) -> Unit:
        return Unit.LOAD if self.memory in (Memory.INP, Memory.WGT) else Unit.COMPUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Instruction):
    """Copies consecutive tiles of a buffer to `rows` rows of `columns` tiles in DRAM.

    Row y begins at tile `dram + y * stride` of DRAM.
    """

    name: ClassVar[str] = "store"

    memory: Memory = _field(3, "the buffer: `out` or `acc`", Memory.OUT)
    sram: int = _field(_address(*Memory), "first tile in the buffer")
    dram: int = _field(32, "first tile in DRAM")
    rows: int = _field(None, "rows in DRAM", 1)
    columns: int = _field(None, "tiles of a row in DRAM", 1)
    stride: int = _field(None, "tiles from a row to the next one in DRAM")

    @property
    def unit(self) -> Unit:
        return Unit.STORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops(Instruction):
    """Two loops around micro-operations.

    for i in outer:
        for j in inner:
            for k in begin .. end:
                step at uop[k].dst + i * dst_outer + j * dst_inner, and src and wgt likewise
    """

    begin: int = _field(_address(Memory.UOP), "first micro-operation, in the buffer")
    end: int = _field(_end, "the micro-operation after the last one")
    outer: int = _field(None, "iterations of the outer loop", 1)
    inner: int = _field(None, "iterations of the inner loop", 1)
    dst_outer: int = _field(_address(*_TARGETS), "added to `dst` in each outer iteration")
    dst_inner: int = _field(_address(*_TARGETS), "added to `dst` in each inner iteration")
    src_outer: int = _field(_address(*_SOURCES), "added to `src` in each outer iteration")
    src_inner: int = _field(_address(*_SOURCES), "added to `src` in each inner iteration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Loops):
    """Each step adds the product of a tile of inputs and the transpose of a tile of weights to a
    tile of accumulators: `acc[dst][m, n] += sum over k of inp[src][m, k] * wgt[wgt][n, k]`.

    Sums wrap around.
    """

    name: ClassVar[str] = "gemm"

    wgt_outer: int = _field(_address(Memory.WGT), "added to `wgt` in each outer iteration")
    wgt_inner: int = _field(_address(Memory.WGT), "added to `wgt` in each inner iteration")
    reset: bool = _flag("each step begins with zero in place of the accumulators")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu(Loops):
    """Each step combines tiles of accumulators element by element:
    `acc[dst] = op(a=acc[dst], b=acc[src], c=acc[src + 1], low=imm)`, or with `b = imm`.
    """

    name: ClassVar[str] = "alu"

    op: AluOp = _field(4, "the operation", AluOp.MOV)
    use_imm: bool = _flag("`b` is the immediate number")
    imm: int = _field(16, "the immediate number", is_signed=True)
    to_out: bool = _flag("the result, limited to the range of an operand, goes to `out[dst]`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Instruction):
    """Ends the program; the last instruction, and no other."""

    name: ClassVar[str] = "finish"


INSTRUCTIONS: tuple[type[Instruction], ...] = (Load, Store, Gemm, Alu, Finish)
"""The table.  The position of a class is its opcode."""

CODES: dict[type[Enum], tuple[Enum, ...]] = {Memory: tuple(Memory), AluOp: tuple(AluOp)}
"""For each enumeration in fields: its members by their codes."""


class Slot(NamedTuple):
    """A field in an encoding: its first bit, its width, and its row of the table."""

    name: str
    first: int
    bits: int
    info: FieldInfo
    default: Any

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest number that it holds."""
        if self.info.is_signed:
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


@cache
def layout(kind: type[Instruction | MicroOp], machine: Machine) -> tuple[Slot, ...]:
    """The fields of an instruction after its opcode, or those of a micro-operation, from the least
    significant bit on.

    Raises UsageError if they have no room.
    """
    is_instruction = issubclass(kind, Instruction)
    room = INSTRUCTION_BITS if is_instruction else 8 * machine.micro_op_bytes
    first = OPCODE_BITS if is_instruction else 0
    rows = [(f, f.metadata["info"]) for f in fields(kind)]
    given = [info.bits and info.bits(machine) for _, info in rows]
    sharing = given.count(None)
    left = room - first - sum(bits or 0 for bits in given)
    share = min(left // sharing, _MOST_SHARED) if sharing else 0
    if left < 0 or (sharing and share < _LEAST_SHARED):
        needed = room - left + sharing * _LEAST_SHARED
        raise UsageError(
            f"{kind.__name__}: the buffers of this machine are too deep: its fields need {needed} "
            f"bits, and {room} are there; make buffers smaller or tiles larger"
        )
    slots: list[Slot] = []
    for (f, info), bits in zip(rows, given, strict=True):
        slots.append(Slot(f.name, first, bits or share, info, f.default))
        first += bits or share
    return tuple(slots)
