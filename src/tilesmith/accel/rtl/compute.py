"""Steps of the matrix unit and of the ALU: two loops around micro-operations, as a pipeline.

A step takes three cycles: its micro-operation is read, then its tiles, then the result is written.
The next step begins `gemm_cycles` or `alu_cycles` later.  Ports that read accumulators see what is
written in the same cycle, so that a step may use the result of the one before.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value

from ..alu import LOW, A, AluOp, B, C
from ..instructions import Alu, Gemm, MicroOp, layout
from ..machine import Machine, Memory
from .expressions import logic


def fields_of(kind: Any, machine: Machine, word: Value) -> dict[str, Value]:
    """The fields in the encoding of an instruction or a micro-operation."""
    found = {s.name: (word[s.first : s.first + s.bits], s.info) for s in layout(kind, machine)}
    return {name: v.as_signed() if info.is_signed else v for name, (v, info) in found.items()}


MOST_INTERVAL = 1 << 16
"""Upper bound on the cycles of a micro-operation."""


class Lane(Elaboratable):
    """The ALU's logic for one element.

    op: code of the operation.
    a, b, c, low: operands; result: what becomes of a.
    """

    def __init__(self) -> None:
        self.op = Signal(range(len(AluOp)))
        self.a, self.b, self.c, self.low = (Signal(32, name=v.name) for v in (A, B, C, LOW))
        self.result = Signal(32)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        values = {A: self.a, B: self.b, C: self.c, LOW: self.low}
        results = [logic(m, op.meaning, values) for op in AluOp]
        with m.Switch(self.op):
            for code, result in enumerate(results):
                with m.Case(code):
                    m.d.comb += self.result.eq(result)
        return m


class Steps(Elaboratable):
    """Runs an instruction of the matrix unit or of the ALU.

    gemm, alu: the fields of the instruction as either; is_alu: which it is.
    start, done: as in `copies.Copy`.
    read: for each buffer, the ports that it reads: (address, data); of `acc` three.
    write_enable, write_address, write_data, to_out: the result, in `acc` or `out`.
    """

    def __init__(
        self, machine: Machine, gemm: Mapping[str, Value], alu: Mapping[str, Value], is_alu: Value
    ) -> None:
        self.machine, self.gemm, self.alu, self.is_alu = machine, gemm, alu, is_alu
        self.start, self.done = Signal(), Signal(init=1)

        def port(memory: Memory) -> tuple[Signal, Signal]:
            return Signal(machine.address_bits(memory)), Signal(8 * machine.tile_bytes(memory))

        self.read = {m: [port(m)] for m in (Memory.UOP, Memory.INP, Memory.WGT)}
        self.read[Memory.ACC] = [port(Memory.ACC) for _ in range(3)]
        self.write_enable, self.to_out = Signal(), Signal()
        self.write_address = Signal(machine.address_bits(Memory.ACC, Memory.OUT))
        self.write_data = Signal(8 * machine.tile_bytes(Memory.ACC))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        machine, gemm = self.machine, self.gemm
        both = {s.name for s in layout(Gemm, machine)} & {s.name for s in layout(Alu, machine)}
        f = {name: Signal.like(gemm[name], name=name) for name in both}
        m.d.comb += [v.eq(Mux(self.is_alu, self.alu[name], gemm[name])) for name, v in f.items()]

        issues, pause = Signal(), Signal(range(MOST_INTERVAL))
        k, i, j = Signal.like(f["end"]), Signal.like(f["outer"]), Signal.like(f["inner"])
        step = self.read[Memory.UOP][0]
        interval = Mux(self.is_alu, machine.alu_cycles, machine.gemm_cycles)
        issued = Signal()
        m.d.comb += [step[0].eq(k), issued.eq(issues & (pause == 0))]
        names = ("dst", "src", "wgt")
        outer = {n: Signal(24, name=f"{n}_of_outer") for n in names}
        inner = {n: Signal(24, name=f"{n}_of_inner") for n in names}
        loops = {**gemm, **f}
        factors = {n: (loops[f"{n}_outer"], loops[f"{n}_inner"]) for n in names}
        with m.If(self.start):
            m.d.sync += [issues.eq(1), pause.eq(0), k.eq(f["begin"]), i.eq(0), j.eq(0)]
            m.d.sync += [s.eq(0) for s in (*outer.values(), *inner.values())]
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(issues):
            m.d.sync += [pause.eq(interval - 1), k.eq(k + 1)]
            with m.If(k == f["end"] - 1):
                m.d.sync += [k.eq(f["begin"]), j.eq(j + 1)]
                m.d.sync += [inner[n].eq(inner[n] + factors[n][1]) for n in names]
                with m.If(j == f["inner"] - 1):
                    m.d.sync += [j.eq(0), i.eq(i + 1)]
                    m.d.sync += [outer[n].eq(outer[n] + factors[n][0]) for n in names]
                    m.d.sync += [inner[n].eq(0) for n in names]
                    with m.If(i == f["outer"] - 1):
                        m.d.sync += issues.eq(0)

        reads, writes = Signal(), Signal()
        offsets = {n: Signal(24, name=f"{n}_offset") for n in names}
        m.d.sync += [reads.eq(issued), writes.eq(reads)]
        m.d.sync += [offsets[n].eq(outer[n] + inner[n]) for n in names]
        word = fields_of(MicroOp, machine, step[1])
        place = {n: Signal(24, name=n) for n in names}
        m.d.comb += [place[n].eq(word[n] + offsets[n]) for n in names]
        acc = self.read[Memory.ACC]
        m.d.comb += [
            self.read[Memory.INP][0][0].eq(place["src"]),
            self.read[Memory.WGT][0][0].eq(place["wgt"]),
            acc[0][0].eq(place["dst"]), acc[1][0].eq(place["src"]), acc[2][0].eq(place["src"] + 1),
            self.write_enable.eq(writes),
            self.to_out.eq(self.is_alu & self.alu["to_out"]),
            self.done.eq(~issues & ~reads & ~writes & (pause == 0)),
        ]  # fmt: skip
        m.d.sync += self.write_address.eq(place["dst"])
        sums, results = self._sums(m, acc[0][1]), self._results(m, [data for _, data in acc])
        m.d.comb += self.write_data.eq(Mux(self.is_alu, results, sums))
        return m

    def _sums(self, m: Module, before: Value) -> Value:
        """The accumulators after a step of the matrix unit."""
        machine, bits = self.machine, self.machine.operand.bits
        inp, wgt = self.read[Memory.INP][0][1], self.read[Memory.WGT][0][1]
        sums: list[Value] = []
        for row in range(machine.batch):
            for column in range(machine.block_out):
                element = row * machine.block_out + column
                sum_: Value = Mux(self.gemm["reset"], 0, before.word_select(element, 32))
                for n in range(machine.block_in):
                    a = inp.word_select(row * machine.block_in + n, bits).as_signed()
                    b = wgt.word_select(column * machine.block_in + n, bits).as_signed()
                    sum_ = sum_ + a * b
                sums.append(sum_[:32])
        return Cat(*sums)

    def _results(self, m: Module, acc: list[Value]) -> Value:
        """The tile after a step of the ALU; limited, if it goes to `out`."""
        bits = self.machine.operand.bits
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        results: list[Value] = []
        for element in range(self.machine.batch * self.machine.block_out):
            lane = Lane()
            m.submodules[f"lane{element}"] = lane
            imm = self.alu["imm"]
            a, b, c = (tile.word_select(element, 32) for tile in acc)
            m.d.comb += [
                lane.op.eq(self.alu["op"]), lane.a.eq(a), lane.c.eq(c), lane.low.eq(imm),
                lane.b.eq(Mux(self.alu["use_imm"], imm, b)),
            ]  # fmt: skip
            whole = lane.result.as_signed()
            limited = Mux(whole < least, least, Mux(whole > most, most, whole))
            results.append(Mux(self.to_out, limited, whole)[:32])
        return Cat(*results)
