"""A small interpreter of instruction streams in NumPy, with the cycles of a simple model.

Instructions run in program order, if each pops a token that an earlier one has pushed.  Every
instruction takes its time on its own unit, and begins after those whose tokens it pops.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from tilesmith.accel.alu import LOW, A, B, C
from tilesmith.accel.instructions import Alu, Finish, Gemm, Load, Store
from tilesmith.accel.machine import Machine, Memory, Unit
from tilesmith.accel.program import Program
from tilesmith.ir.expr import Binary, Call, Cast, Const, Expr


@dataclass(frozen=True)
class Run:
    """memory: DRAM afterwards, u8.  cycles: those of the whole program.  busy: those in which the
    matrix unit multiplies.
    """

    memory: np.ndarray
    cycles: int
    busy: int


def value(e: Expr, named: dict[Expr, np.ndarray]) -> np.ndarray:
    """The value of an expression of `AluOp.meaning` for all elements."""
    if e in named:
        return named[e]
    if isinstance(e, Const):
        return np.asarray(e.value, e.dtype.numpy)
    parts = [value(c, named) for c in e.children]
    match e:
        case Binary():
            binary = {
                "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
                "max": np.maximum, "shl": np.left_shift, "shr": np.right_shift,
                "and": np.bitwise_and,
            }  # fmt: skip
            return binary[e.op](*parts)
        case Call(name="bitcast"):
            return parts[0].view(e.dtype.numpy)
        case Call(name="round"):
            return np.rint(parts[0])
        case Cast():
            return parts[0].astype(e.dtype.numpy)
    raise NotImplementedError(str(e))


def interpret(program: Program, machine: Machine, memory: np.ndarray) -> Run:
    dram = memory.copy()
    buffers = {
        m: np.zeros((machine.depth(m), *machine.tile_shape(m)), machine.element(m).numpy)
        for m in Memory
        if m is not Memory.UOP
    }
    uops = np.zeros((machine.depth(Memory.UOP), 3), int)
    own = np.array([(u.dst, u.src, u.wgt) for u in program.micro_ops]).reshape(-1, 3)
    queues: dict[tuple[Unit, Unit], deque[int]] = {}
    free = dict.fromkeys(Unit, 0)
    busy = 0
    for x in program.instructions:
        begin = free[x.unit]
        for step, side in ((-1, "prev"), (1, "next")):
            if getattr(x, f"pop_{side}"):
                other = x.unit.neighbour(step)
                begin = max(begin, queues[other, x.unit].popleft())
        work = 0
        match x:
            case Load(memory=Memory.UOP):
                uops[x.sram : x.sram + x.columns] = own[x.dram : x.dram + x.columns]
                work = machine.dma_latency + x.columns * machine.micro_op_bytes // machine.dma_bytes
            case Load():
                target = buffers[x.memory]
                narrow = machine.operand if x.widen else machine.element(x.memory)
                elements = int(np.prod(target.shape[1:]))
                size = elements * narrow.bytes
                grid = np.full(
                    (x.top + x.rows + x.bottom, x.left + x.columns + x.right, elements), x.pad,
                    narrow.numpy,
                )  # fmt: skip
                for row in range(x.rows):
                    at = (x.dram + row * x.stride) * size
                    read = dram[at : at + x.columns * size].view(narrow.numpy)
                    grid[x.top + row, x.left : x.left + x.columns] = read.reshape(-1, elements)
                tiles = grid.reshape(-1, *target.shape[1:])
                target[x.sram : x.sram + len(tiles)] = tiles
                work = machine.dma_latency + x.rows * x.columns * size // machine.dma_bytes
            case Store():
                source = buffers[x.memory]
                size = machine.tile_bytes(x.memory)
                for row in range(x.rows):
                    at = (x.dram + row * x.stride) * size
                    first = x.sram + row * x.columns
                    raw = source[first : first + x.columns].reshape(-1).view(np.uint8)
                    dram[at : at + len(raw)] = raw
                work = machine.dma_latency + x.rows * x.columns * size // machine.dma_bytes
            case Gemm() | Alu():
                i, j = np.indices((x.outer, x.inner)).reshape(2, -1, 1)
                steps = uops[x.begin : x.end]
                dst = steps[:, 0] + i * x.dst_outer + j * x.dst_inner
                src = steps[:, 1] + i * x.src_outer + j * x.src_inner
                work = dst.size
                if isinstance(x, Gemm):
                    wgt = steps[:, 2] + i * x.wgt_outer + j * x.wgt_inner
                    busy += work * machine.gemm_cycles
                    acc = buffers[Memory.ACC]
                    for k in range(dst.shape[1]):
                        made = np.einsum(
                            "tmk,tnk->tmn",
                            buffers[Memory.INP][src[:, k]].astype(np.int32),
                            buffers[Memory.WGT][wgt[:, k]].astype(np.int32),
                        )
                        if x.reset:
                            acc[dst[:, k]] = made
                        else:
                            np.add.at(acc, dst[:, k], made)
                else:
                    acc = buffers[Memory.ACC]
                    imm = np.full_like(acc[dst.ravel()], x.imm)
                    pair = acc[src.ravel() + 1] if x.op.reads_pair else imm
                    b = imm if x.use_imm else acc[src.ravel()]
                    got = value(x.op.meaning, {A: acc[dst.ravel()], B: b, C: pair, LOW: imm})
                    if x.to_out:
                        limits = np.iinfo(machine.operand.numpy)
                        buffers[Memory.OUT][dst.ravel()] = got.clip(limits.min, limits.max)
                    else:
                        acc[dst.ravel()] = got
                    work *= machine.alu_cycles
            case Finish():
                begin = max(free.values())
        free[x.unit] = begin + work + machine.instruction_cycles
        for step, side in ((-1, "prev"), (1, "next")):
            if getattr(x, f"push_{side}"):
                queues.setdefault((x.unit, x.unit.neighbour(step)), deque()).append(free[x.unit])
    assert not any(queues.values()), "tokens are left"
    return Run(dram, max(free.values()), busy)
