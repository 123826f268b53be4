"""The meaning of programs, in Python: slow, and short enough to be read.

Each unit runs its instructions in order and waits for tokens.  There are no checks: for a wrong
program see `simulate`, whose numbers tests compare with these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np

from tilesmith.ir.dtypes import i32
from tilesmith.ir.expr import substitute
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.interpret import compile_func
from tilesmith.support.errors import InternalError

from .alu import LOW, A, AluOp, B, C
from .instructions import Alu, Gemm, Instruction, Load, Loops, MicroOp, Store
from .machine import Machine, Memory, Unit
from .program import Program, copied_tiles


class Reference:
    """A machine with a program.

    memory: DRAM, an array of u8.
    buffers: on-chip buffers, arrays of tiles.
    steps: the buffer of micro-operations.
    tokens: from one unit to another, how many are in the queue.
    """

    def __init__(self, program: Program, machine: Machine, memory: np.ndarray) -> None:
        self.program, self.machine, self.memory = program, machine, memory
        self.buffers = {
            m: np.zeros((machine.depth(m), *machine.tile_shape(m)), machine.element(m).numpy)
            for m in Memory
            if m is not Memory.UOP
        }
        self.steps = [MicroOp()] * machine.depth(Memory.UOP)
        self.tokens = {(a, b): 0 for a in Unit for b in (a.neighbour(-1), a.neighbour(1)) if b}

    def run(self) -> None:
        """Run all instructions.  Raises InternalError if they wait for ever."""
        queues = {unit: deque[Instruction]() for unit in Unit}
        for x in self.program.instructions:
            queues[x.unit].append(x)
        while any(queues.values()):
            ready = [q for q in queues.values() if q and self._takes(q[0])]
            if not ready:
                raise InternalError("the program waits for tokens that nobody gives")
            for queue in ready:
                self._run_one(queue.popleft())

    def _takes(self, x: Instruction) -> bool:
        return all(self.tokens[other, x.unit] > 0 for other in _sides(x, x.pop_prev, x.pop_next))

    def _run_one(self, x: Instruction) -> None:
        for other in _sides(x, x.pop_prev, x.pop_next):
            self.tokens[other, x.unit] -= 1
        match x:
            case Load(memory=Memory.UOP):
                self._load_steps(x)
            case Load():
                self._load(x)
            case Store():
                self._store(x)
            case Gemm():
                self._gemm(x)
            case Alu():
                self._alu(x)
        for other in _sides(x, x.push_prev, x.push_next):
            self.tokens[x.unit, other] += 1

    def _rows(self, x: Load | Store) -> np.ndarray:
        """The tiles of DRAM that a copy reads or writes, [rows, columns, *tile], a view."""
        shape = self.machine.tile_shape(x.memory)
        widen = isinstance(x, Load) and x.widen
        dtype = np.dtype((self.machine.operand if widen else self.machine.element(x.memory)).numpy)
        tile = int(np.prod(shape)) * dtype.itemsize
        tiles = self.memory[: self.memory.size // tile * tile].view(dtype).reshape(-1, *shape)
        return np.lib.stride_tricks.as_strided(
            tiles[x.dram :],
            (x.rows, x.columns, *shape),
            (x.stride * tile, *tiles.strides[:1], *tiles.strides[1:]),
        )

    def _load(self, x: Load) -> None:
        tiles = self._rows(x)
        around = ((x.top, x.bottom), (x.left, x.right), *[(0, 0)] * (tiles.ndim - 2))
        padded = np.pad(tiles, around, constant_values=x.pad)
        buffer = self.buffers[x.memory]
        buffer[x.sram : x.sram + copied_tiles(x)] = padded.reshape(-1, *buffer.shape[1:])

    def _load_steps(self, x: Load) -> None:
        for place, (row, column) in enumerate(product(range(x.rows), range(x.columns))):
            step = self.program.micro_ops[x.dram + row * x.stride + column]
            self.steps[x.sram + place] = step

    def _store(self, x: Store) -> None:
        tiles = self.buffers[x.memory][x.sram : x.sram + copied_tiles(x)]
        rows = self._rows(x)
        for row, values in zip(rows, tiles.reshape(rows.shape), strict=True):
            row[...] = values

    def _gemm(self, x: Gemm) -> None:
        inp, wgt, acc = (self.buffers[m] for m in (Memory.INP, Memory.WGT, Memory.ACC))
        for i, j, step in self._loop(x):
            dst, src = _addresses(x, i, j, step)
            by = step.wgt + i * x.wgt_outer + j * x.wgt_inner
            exact = inp[src].astype(np.int64) @ wgt[by].astype(np.int64).T
            acc[dst] = (exact + (0 if x.reset else acc[dst])).astype(np.int32)

    def _alu(self, x: Alu) -> None:
        acc, combine = self.buffers[Memory.ACC], operation(x.op, self.buffers[Memory.ACC][0].size)
        limits = np.iinfo(self.machine.operand.numpy)
        for i, j, step in self._loop(x):
            dst, src = _addresses(x, i, j, step)
            a = acc[dst] if x.op.reads_dst else np.zeros_like(acc[0])
            b = np.full_like(acc[0], x.imm) if x.use_imm else acc[src]
            c = acc[src + 1] if x.op.reads_pair else np.zeros_like(b)
            result = combine(a, b, c, x.imm)
            if x.to_out:
                self.buffers[Memory.OUT][dst] = np.clip(result, limits.min, limits.max)
            else:
                acc[dst] = result

    def _loop(self, x: Loops) -> Iterator[tuple[int, int, MicroOp]]:
        for i, j, k in product(range(x.outer), range(x.inner), range(x.begin, x.end)):
            yield i, j, self.steps[k]


def _sides(x: Instruction, prev: bool, next: bool) -> Iterator[Unit]:
    """The units before and after that of an instruction, as far as they are asked for."""
    for is_asked, other in ((prev, x.unit.neighbour(-1)), (next, x.unit.neighbour(1))):
        if is_asked and other is not None:
            yield other


def _addresses(x: Loops, i: int, j: int, step: MicroOp) -> tuple[int, int]:
    dst = step.dst + i * x.dst_outer + j * x.dst_inner
    return dst, step.src + i * x.src_outer + j * x.src_inner


Combine = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


@cache
def operation(op: AluOp, size: int) -> Combine:
    """The interpreter of an operation on tiles of `size` elements."""
    builder = LoopBuilder(op.value)
    a, b, c = (builder.input(v.name, TensorType(i32, (size,))) for v in (A, B, C))
    low = builder.input(LOW.name, TensorType(i32, (1,)))
    result = builder.output("result", TensorType(i32, (size,)))
    with builder.loop(size) as i:
        result[i] = substitute(op.meaning, {A: a[i], B: b[i], C: c[i], LOW: low[0]})
    interpreter = compile_func(builder.finish())

    def combine(a: np.ndarray, b: np.ndarray, c: np.ndarray, low: int) -> np.ndarray:
        result = np.empty(size, np.int32)
        flat = (np.ascontiguousarray(t).reshape(-1) for t in (a, b, c))
        interpreter((*flat, np.array([low], np.int32), result))
        return result.reshape(a.shape)

    return combine
