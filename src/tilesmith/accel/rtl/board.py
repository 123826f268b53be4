"""The machine as a board has it: registers on a bus, and a unit that fetches the instructions."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, ResetInserter, Signal
from amaranth.lib.fifo import SyncFIFOBuffered

from ..bus import Register
from ..machine import INSTRUCTION_BITS, INSTRUCTION_BYTES, Machine
from .accelerator import UOP_READER, Accelerator
from .copies import ADDRESS_BITS

_WRITTEN = (Register.INSTRUCTIONS, Register.COUNT, Register.MICRO_OPS, Register.DATA)
"""The registers that keep what is written."""


class Board(Elaboratable):
    """Ports, apart from clock and reset, and those of the accelerator's channels to DRAM:

    bus_address, bus_result: a register, and its value in the same cycle.
    bus_write, bus_data: whether the register is written, and its new value.
    fetch_valid, fetch_ready, fetch_address: an instruction that it wants, by its byte in DRAM.
    fetched_valid, fetched: such an instruction, in the order of the questions.

    Addresses on the channels are those of DRAM: the bases in registers are added.
    """

    def __init__(self, machine: Machine) -> None:
        self.core = Accelerator(machine)
        self.bus_address = Signal(8)
        self.bus_result = Signal(32)
        self.bus_write = Signal()
        self.bus_data = Signal(32)
        self.fetch_valid = Signal()
        self.fetch_ready = Signal()
        self.fetch_address = Signal(32)
        self.fetched_valid = Signal()
        self.fetched = Signal(INSTRUCTION_BITS)
        self.read_address = Signal(ADDRESS_BITS)
        self.write_address = Signal(ADDRESS_BITS)
        between = -(-INSTRUCTION_BYTES // machine.dma_bytes)
        self.depth = (machine.dma_latency + 16) // between + 4
        """Instructions on their way: enough to hide the latency of DRAM."""

    def ports(self) -> list[Signal]:
        own = [s for s in vars(self).values() if isinstance(s, Signal)]
        core = self.core
        return [
            *own, core.read_valid, core.read_ready, core.read_tag, core.response_valid,
            core.response_data, core.response_tag, core.write_valid, core.write_ready,
            core.write_data, core.write_mask, core.written,
        ]  # fmt: skip

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        core, start, runs, cycles = self.core, Signal(), Signal(), Signal(32)
        m.submodules.core = ResetInserter(start)(core)
        kept = {r: Signal(32, name=r.name.lower()) for r in _WRITTEN}
        values = {**kept, Register.CONTROL: ~runs, Register.CYCLES: cycles}
        with m.Switch(self.bus_address):
            for register, value in values.items():
                with m.Case(int(register)):
                    m.d.comb += self.bus_result.eq(value)
        for register, value in kept.items():
            with m.If(self.bus_write & (self.bus_address == int(register))):
                m.d.sync += value.eq(self.bus_data)
        m.d.comb += start.eq(self.bus_write & (self.bus_address == int(Register.CONTROL)))
        is_step = core.read_tag[:3] == UOP_READER
        base = Mux(is_step, kept[Register.MICRO_OPS], kept[Register.DATA])
        m.d.comb += [
            self.read_address.eq(core.read_address + base),
            self.write_address.eq(core.write_address + kept[Register.DATA]),
        ]
        has_begun = self._fetch(m, start, runs, kept)
        with m.If(start):
            m.d.sync += [runs.eq(1), cycles.eq(0)]
        with m.Elif(core.finished):
            m.d.sync += runs.eq(0)
        with m.Elif(has_begun):
            m.d.sync += cycles.eq(cycles + 1)
        return m

    def _fetch(
        self, m: Module, start: Signal, runs: Signal, kept: dict[Register, Signal]
    ) -> Signal:
        """Request the instructions, as long as their queue has room.  Returns whether the first one
        has arrived.
        """
        core, has_begun = self.core, Signal()
        queue = SyncFIFOBuffered(width=INSTRUCTION_BITS, depth=self.depth)
        m.submodules.instructions = ResetInserter(start)(queue)
        left, on_the_way = Signal(32), Signal(range(self.depth + 1))
        asked, taken = Signal(), Signal()
        m.d.comb += [
            self.fetch_valid.eq(runs & (left != 0) & (on_the_way != self.depth)),
            asked.eq(self.fetch_valid & self.fetch_ready),
            queue.w_data.eq(self.fetched), queue.w_en.eq(self.fetched_valid),
            core.instruction.eq(queue.r_data), core.instruction_valid.eq(queue.r_rdy),
            taken.eq(queue.r_rdy & core.instruction_ready), queue.r_en.eq(taken),
        ]  # fmt: skip
        with m.If(start):
            m.d.sync += [left.eq(kept[Register.COUNT]), on_the_way.eq(0), has_begun.eq(0)]
            m.d.sync += self.fetch_address.eq(kept[Register.INSTRUCTIONS])
        with m.Else():
            m.d.sync += on_the_way.eq(on_the_way + asked - taken)
            with m.If(self.fetched_valid):
                m.d.sync += has_begun.eq(1)
            with m.If(asked):
                m.d.sync += left.eq(left - 1)
                m.d.sync += self.fetch_address.eq(self.fetch_address + INSTRUCTION_BYTES)
        return has_begun
