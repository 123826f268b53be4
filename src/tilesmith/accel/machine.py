"""The accelerator as one frozen description.

It has three units that run in parallel.  `load` copies tiles from DRAM into the buffers of inputs
and weights.  `compute` has a matrix unit and a vector ALU, and copies accumulators and
micro-operations from DRAM.  `store` copies results to DRAM.  Neighbouring units tell each other by
tokens when data are there and when a buffer is free; this design is called decoupled
access-execute (Smith, 1982).

The defaults are those published for VTA (Moreau et al., "A Hardware-Software Blueprint for Flexible
Deep Learning Specialization", 2018): a product of 1x16 by 16x16 in each cycle, on-chip buffers of
32, 256, 128 and 32 KiB, a bus of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from tilesmith.ir.dtypes import DType, i8, i16, i32
from tilesmith.support.errors import UsageError


class Unit(Enum):
    """A part of the machine with its own queue of instructions, in the order of data flow."""

    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"

    @property
    def place(self) -> int:
        """Position in the order of data flow; neighbours differ by one."""
        return _PLACES[self]

    def neighbour(self, step: int) -> Unit | None:
        """The unit before (`step` -1) or after (1) this one in the order of data flow."""
        place = self.place + step
        return tuple(Unit)[place] if 0 <= place < len(Unit) else None


_PLACES = {unit: place for place, unit in enumerate(Unit)}


class Memory(Enum):
    """An on-chip buffer.  Its rows are tiles, and addresses count tiles.

    UOP: micro-operations, one in each row.
    INP: inputs, `batch` x `block_in` operands in each tile.
    WGT: weights, `block_out` x `block_in` operands in each tile.
    ACC: accumulators, `batch` x `block_out` 32-bit integers in each tile.
    OUT: results, `batch` x `block_out` operands in each tile.
    """

    UOP = "uop"
    INP = "inp"
    WGT = "wgt"
    ACC = "acc"
    OUT = "out"


INSTRUCTION_BITS = 128
"""Width of an encoded instruction."""
INSTRUCTION_BYTES = INSTRUCTION_BITS // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Parameters of an accelerator.

    batch: rows of a product.
    block_in: length of the reduction of a product.
    block_out: columns of a product.
    operand: element type of inputs, weights and results, `i8` or `i16`.
    inp_bytes, wgt_bytes, acc_bytes, out_bytes, uop_bytes: sizes of the on-chip buffers, in bytes.
    dma_bytes: bytes that a channel to DRAM moves in a cycle, of one tile at most.  Loads share the
        read channel; the store unit has the write channel.
    dma_latency: cycles from the request of a burst to its first bytes.
    burst_bytes: upper bound on the bytes of a burst; between bursts another unit gets its turn.
    command_depth: instructions that fit the queue of a unit.
    token_depth: tokens that fit the queue between two units.
    gemm_cycles: cycles of the matrix unit for a micro-operation.
    alu_cycles: cycles of the ALU for a micro-operation; it is 2 where both operands come through
        one port of the accumulators, as in VTA.
    instruction_cycles: cycles of a unit for an instruction besides its work.

    Raises UsageError if a parameter is out of range, or if a buffer isn't a whole number of tiles.
    """

    batch: int = 1
    block_in: int = 16
    block_out: int = 16
    operand: DType = i8
    inp_bytes: int = 32 << 10
    wgt_bytes: int = 256 << 10
    acc_bytes: int = 128 << 10
    out_bytes: int = 32 << 10
    uop_bytes: int = 32 << 10
    dma_bytes: int = 8
    dma_latency: int = 64
    burst_bytes: int = 256
    command_depth: int = 512
    token_depth: int = 512
    gemm_cycles: int = 1
    alu_cycles: int = 2
    instruction_cycles: int = 6

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "operand":
                if value not in (i8, i16):
                    raise UsageError(f"operand: expected i8 or i16, found {value}")
                continue
            least = 0 if f.name in ("dma_latency", "instruction_cycles") else 1
            if type(value) is not int or not least <= value <= _MOST:
                raise UsageError(
                    f"{f.name}: expected an integer from {least} to {_MOST}, found {value!r}"
                )
        for memory in Memory:
            size, tile = self._bytes(memory), self.tile_bytes(memory)
            if size % tile:
                raise UsageError(
                    f"{memory.value}_bytes: expected a multiple of a tile's {tile} bytes, "
                    f"found {size}"
                )
        if self.burst_bytes % self.dma_bytes:
            raise UsageError(
                f"burst_bytes: expected a multiple of dma_bytes ({self.dma_bytes}), "
                f"found {self.burst_bytes}"
            )

    def tile_shape(self, memory: Memory) -> tuple[int, ...]:
        """Elements of a tile along its axes."""
        return {
            Memory.UOP: (),
            Memory.INP: (self.batch, self.block_in),
            Memory.WGT: (self.block_out, self.block_in),
            Memory.ACC: (self.batch, self.block_out),
            Memory.OUT: (self.batch, self.block_out),
        }[memory]

    def element(self, memory: Memory) -> DType:
        """Element type of a buffer with tiles of numbers."""
        return i32 if memory is Memory.ACC else self.operand

    def tile_bytes(self, memory: Memory) -> int:
        """Bytes of a tile."""
        if memory is Memory.UOP:
            return self.micro_op_bytes
        elements = 1
        for extent in self.tile_shape(memory):
            elements *= extent
        return elements * self.element(memory).bytes

    def depth(self, memory: Memory) -> int:
        """Tiles that fit the buffer."""
        return self._bytes(memory) // self.tile_bytes(memory)

    def address_bits(self, *memories: Memory) -> int:
        """Bits of an address in the deepest of some buffers."""
        return max(max(self.depth(m) - 1, 1).bit_length() for m in memories)

    @property
    def micro_op_bytes(self) -> int:
        """Bytes of a micro-operation: 4, or 8 if its three addresses need more than 32 bits."""
        accumulators = self.address_bits(Memory.ACC, Memory.OUT)
        inputs = self.address_bits(Memory.INP, Memory.ACC)
        needed = accumulators + inputs + self.address_bits(Memory.WGT)
        return 4 if needed <= 32 else 8

    @property
    def products(self) -> int:
        """Multiplications of the matrix unit for a micro-operation."""
        return self.batch * self.block_in * self.block_out

    def _bytes(self, memory: Memory) -> int:
        return int(getattr(self, f"{memory.value}_bytes"))


_MOST = 1 << 30
"""Upper bound on all parameters; products of some of them fit 64 bits."""
