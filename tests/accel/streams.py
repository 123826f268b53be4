"""Random programs for the tests of the accelerator."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from tilesmith.accel.alu import AluOp
from tilesmith.accel.errors import InstructionError
from tilesmith.accel.instructions import (
    INSTRUCTIONS,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MicroOp,
    Store,
    layout,
)
from tilesmith.accel.machine import Machine, Memory
from tilesmith.accel.program import Program, copied_tiles, verify
from tilesmith.ir.dtypes import i16

MACHINES = (
    Machine(),
    Machine(batch=2, block_in=8, block_out=4, operand=i16, inp_bytes=4096, uop_bytes=4096),
    Machine(acc_bytes=1 << 19, wgt_bytes=1 << 19, uop_bytes=8192),
    Machine(block_in=64, block_out=64, acc_bytes=1 << 16, dma_bytes=16, alu_cycles=1),
)
"""The default machine, and others with wider elements, longer micro-operations, larger tiles."""


def any_fields(
    rng: random.Random, kind: type[Instruction | MicroOp], machine: Machine
) -> Instruction | MicroOp:
    """An instruction or a micro-operation whose fields have any values that their bits hold."""
    values = {}
    for slot in layout(kind, machine):
        low, high = slot.range
        if isinstance(slot.default, Enum):
            values[slot.name] = rng.choice(list(type(slot.default)))
        elif isinstance(slot.default, bool):
            values[slot.name] = rng.random() < 0.5
        else:
            values[slot.name] = rng.choice((low, high, rng.randint(low, high)))
    return kind(**values)


def valid_program(rng: random.Random, machine: Machine) -> Program:
    """A program that `verify` accepts: any fields that do."""
    micro_ops = tuple(any_fields(rng, MicroOp, machine) for _ in range(rng.randint(1, 6)))
    instructions: list[Instruction] = []
    while len(instructions) < 20:
        drawn = any_fields(rng, rng.choice(INSTRUCTIONS[:-1]), machine)
        if isinstance(drawn, (Load, Store)):
            drawn = replace(drawn, rows=rng.randint(1, 3), columns=rng.randint(1, 9))
        program = Program((drawn, Finish()), micro_ops)
        try:
            verify(program, machine)
        except InstructionError:
            continue
        instructions.append(drawn)
    return Program((*instructions, Finish()), micro_ops)


WHOLE = tuple(op for op in AluOp if op not in (AluOp.FADD, AluOp.ROUND, AluOp.SCALE, AluOp.RESCALE))
"""Operations whose results don't depend on how a NaN is written."""
ROUND_BYTES = 1 << 14
"""Bytes of DRAM into which a round stores."""
READ_BYTES = 1 << 14
"""Bytes of DRAM that nothing stores into; the last quarter holds moderate numbers of f32."""


@dataclass
class Round:
    """Positions of the instructions of a round: load, compute and store once, in parallel with
    other rounds.
    """

    inp: int = 0
    wgt: int = 0
    first: int = 0
    gemms: list[int] = field(default_factory=list)
    alus: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)


class Stream:
    """A random program without errors, whose rounds use the halves of all buffers in turn.

    The load unit is up to two rounds before the compute unit, and that one up to two before the
    store unit.  From the fifth round on, a load may read what an earlier round has stored.
    """

    def __init__(self, rng: random.Random, machine: Machine, rounds: int) -> None:
        self.rng, self.machine = rng, machine
        self.code: list[Instruction] = []
        self.micro_ops: list[MicroOp] = []
        self.rounds: list[Round] = []
        for number in range(rounds):
            self._round(number, rounds)
        self.code.append(Finish())
        self.memory_bytes = READ_BYTES + rounds * ROUND_BYTES

    @property
    def program(self) -> Program:
        return Program(tuple(self.code), tuple(self.micro_ops))

    def memory(self) -> np.ndarray:
        """DRAM before the run."""
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        memory = rng.integers(0, 256, self.memory_bytes).astype(np.uint8)
        reals = (rng.standard_normal(READ_BYTES // 16) * 0.01).astype(np.float32)
        memory[READ_BYTES * 3 // 4 : READ_BYTES] = reals.view(np.uint8)
        return memory

    def _add(self, x: Instruction) -> int:
        self.code.append(x)
        return len(self.code) - 1

    def _mark(self, number: int, **tokens: bool) -> None:
        self.code[number] = replace(self.code[number], **tokens)

    def _round(self, number: int, rounds: int) -> None:
        rng, half = self.rng, number % 2
        base = {m: half * (self.machine.depth(m) // 2) for m in Memory}
        goes_on = number + 2 < rounds
        r = Round()
        r.inp = self._add(self._load(Memory.INP, base, number, rng.random() < 0.5))
        self._mark(r.inp, pop_next=number >= 2)
        r.wgt = self._add(self._load(Memory.WGT, base, number, False))
        self._mark(r.wgt, push_next=True)
        inputs, weights = copied_tiles(self.code[r.inp]), copied_tiles(self.code[r.wgt])

        sums = self._load(Memory.ACC, base, number, rng.random() < 0.5)
        r.first = self._add(sums)
        self._mark(r.first, pop_prev=True, pop_next=number >= 2)
        tiles = copied_tiles(sums)
        reals = READ_BYTES * 3 // 4 // self.machine.tile_bytes(Memory.ACC) + 1
        self._add(Load(memory=Memory.ACC, sram=base[Memory.ACC] + tiles, dram=reals, columns=3))
        self.steps = base[Memory.UOP]
        for _ in range(rng.randint(1, 3)):
            reset = rng.random() < 0.3
            r.gemms.append(self._loops(Gemm, base, tiles, inputs, weights, reset=reset))
        all_inputs = self._steps(
            [MicroOp(dst=base[Memory.ACC], src=base[Memory.INP], wgt=base[Memory.WGT])]
        )
        r.gemms.append(self._add(Gemm(**all_inputs, inner=inputs, src_inner=1)))
        for _ in range(rng.randint(1, 3)):
            self._alu(r, base, tiles)
        self._mark(r.gemms[-1], push_prev=goes_on)
        every = self._steps([MicroOp(dst=base[Memory.OUT], src=base[Memory.ACC])])
        last = Alu(op=AluOp.MOV, to_out=True, inner=tiles, dst_inner=1, src_inner=1, **every)
        r.alus.append(self._add(last))
        self._mark(r.alus[-1], push_next=True)

        for memory in (Memory.OUT, rng.choice((Memory.OUT, Memory.ACC))):
            size = self.machine.tile_bytes(memory)
            rows = rng.randint(1, min(tiles, 4))
            columns = rng.randint(1, tiles // rows)
            first = -(-(READ_BYTES + number * ROUND_BYTES) // size)
            there = (READ_BYTES + (number + 1) * ROUND_BYTES) // size
            stride = rng.randint(0, min(there - first - columns, 40)) if rows > 1 else 0
            while first + (rows - 1) * stride + columns > there:
                stride -= 1
            store = Store(memory=memory, dram=first, rows=rows, columns=columns, stride=stride)
            sram = base[memory] + rng.randint(0, tiles - rows * columns)
            r.stores.append(self._add(replace(store, sram=sram)))
        self._mark(r.stores[0], pop_prev=True)
        self._mark(r.stores[-1], push_prev=goes_on)
        self.rounds.append(r)

    def _load(self, memory: Memory, base: dict[Memory, int], number: int, padded: bool) -> Load:
        """A load of a few tiles into the first ones of a half of a buffer."""
        rng = self.rng
        widen = memory is Memory.ACC and rng.random() < 0.5
        size = self.machine.tile_bytes(Memory.OUT if widen else memory)
        lo, hi = 0, READ_BYTES // size
        if number >= 5 and rng.random() < 0.5:
            lo = -(-(READ_BYTES + (number - 5) * ROUND_BYTES) // size)
            hi = (READ_BYTES + (number - 4) * ROUND_BYTES) // size
        rows, columns = rng.randint(1, 3), rng.randint(1, 3)
        dram = rng.randint(lo, hi - columns)
        stride = rng.randint(0, (hi - columns - dram) // max(rows - 1, 1)) % 60000
        around: dict[str, int] = {}
        if padded:
            around = {side: rng.randint(0, 2) for side in ("top", "bottom", "left", "right")}
            around["pad"] = rng.randint(-128, 127)
        return Load(
            memory=memory, sram=base[memory], dram=dram, rows=rows, columns=columns,
            stride=stride, widen=widen, **around,
        )  # fmt: skip

    def _steps(self, steps: list[MicroOp]) -> dict[str, int]:
        """Load micro-operations; `begin` and `end` of theirs."""
        first = self.steps
        columns = len(steps)
        self._add(Load(memory=Memory.UOP, sram=first, dram=len(self.micro_ops), columns=columns))
        self.micro_ops += steps
        self.steps += columns
        return {"begin": first, "end": self.steps}

    def _loops(
        self,
        kind: type[Gemm] | type[Alu],
        base: dict[Memory, int],
        dst: int,
        src: int,
        wgt: int,
        **own: Any,
    ) -> int:
        """Loops over random tiles, the first `dst`, `src` and `wgt` ones of a half; a position."""
        rng = self.rng
        outer, inner = rng.randint(1, 3), rng.randint(1, 3)
        tiles = {"dst": dst, "src": src} | ({"wgt": wgt} if kind is Gemm else {})
        first = {"dst": base[Memory.ACC], "wgt": base[Memory.WGT]}
        first["src"] = base[Memory.INP if kind is Gemm else Memory.ACC]
        if own.get("to_out"):
            first["dst"] = base[Memory.OUT]
        fields: dict[str, int] = {}
        span: dict[str, int] = {}
        for name, there in tiles.items():
            a = rng.randint(0, (there - 1) // max(outer - 1, 1)) if outer > 1 else rng.randint(0, 9)
            left = there - 1 - (outer - 1) * a
            b = rng.randint(0, left // max(inner - 1, 1)) if inner > 1 else rng.randint(0, 9)
            fields[f"{name}_outer"], fields[f"{name}_inner"] = a, b
            span[name] = left - (inner - 1) * b
        steps = [
            MicroOp(**{n: first[n] + rng.randint(0, span[n]) for n in tiles})
            for _ in range(rng.randint(1, 4))
        ]
        return self._add(kind(outer=outer, inner=inner, **self._steps(steps), **fields, **own))

    def _alu(self, r: Round, base: dict[Memory, int], tiles: int) -> None:
        """An operation on integers, or one that rescales: in one step or in three."""
        rng, imm = self.rng, self.rng.randint(-300, 300)
        same_place = (
            base[Memory.OUT] == base[Memory.ACC]
        )  # `dst` is read in `acc`, written in `out`
        to_out = same_place and rng.random() < 0.3
        if rng.random() < 0.4:
            own = {"op": rng.choice(WHOLE), "use_imm": rng.random() < 0.5, "to_out": to_out}
            r.alus.append(self._loops(Alu, base, tiles, tiles, 1, imm=imm, **own))
            return
        step = MicroOp(dst=base[Memory.ACC], src=base[Memory.ACC] + tiles)
        where: dict[str, Any] = {"dst_inner": 1, "inner": tiles, **self._steps([step])}
        if rng.random() < 0.5:
            last = Alu(op=AluOp.RESCALE, imm=imm, to_out=to_out, **where)
        else:
            r.alus += [self._add(Alu(op=op, **where)) for op in (AluOp.SCALE, AluOp.FADD)]
            last = Alu(op=AluOp.ROUND, use_imm=True, imm=imm, to_out=to_out, **where)
        r.alus.append(self._add(last))
