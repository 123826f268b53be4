"""The machine as hardware: three units with queues, buffers, and channels to DRAM.

The decoders read the table of instructions, and the ALU the expressions of its operations; sizes
come from `Machine`.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.hdl import Const as Bits
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory as Storage

from tilesmith.support.errors import UnsupportedError

from ..instructions import (
    CODES,
    INSTRUCTIONS,
    OPCODE_BITS,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
)
from ..machine import INSTRUCTION_BITS, Machine, Memory, Unit
from .compute import MOST_INTERVAL, Steps, fields_of
from .copies import ADDRESS_BITS, MOST_LANES, Reader, Writer

READERS = (
    (Memory.INP, False), (Memory.WGT, False), (Memory.UOP, False), (Memory.ACC, False),
    (Memory.ACC, True),
)  # fmt: skip
"""Who asks for bytes, by the number in `read_tag`: a buffer, and whether elements are widened.  The
first two are of the load unit.
"""
MOST_CHANNEL = 64
"""Upper bound on the bytes of a channel: the bench reads the mask of a write as a word of 64 bits.
"""
UOP_READER = READERS.index((Memory.UOP, False))


class Front:
    """The queue of a unit's instructions, and the tokens around each."""

    def __init__(self, m: Module, machine: Machine, unit: Unit) -> None:
        self.unit = unit
        self.queue = SyncFIFOBuffered(width=INSTRUCTION_BITS, depth=machine.command_depth)
        m.submodules[f"{unit.value}_queue"] = self.queue
        self.word = Signal(INSTRUCTION_BITS, name=f"{unit.value}_word")
        self.start, self.done = Signal(), Signal()
        self.is_idle = Signal()


class Accelerator(Elaboratable):
    """Ports, apart from clock and reset:

    instruction, instruction_valid, instruction_ready: the program, one instruction after the other.
    read_valid, read_ready, read_address, read_tag: bytes that the machine asks for; the tag's low
        three bits are a number in `READERS`.
    response_valid, response_data, response_tag: such bytes, in the order of the questions.
    write_valid, write_ready, write_address, write_data, write_mask: bytes for DRAM.
    written: bytes have arrived in DRAM, for each time that they were given.
    finished: `finish` has run, and all units are idle.

    Raises UnsupportedError for a machine whose tiles and channels aren't powers of two, and for one
    with a channel or steps beyond `MOST_CHANNEL`, `MOST_LANES` and `MOST_INTERVAL`.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        sizes = [machine.dma_bytes, *(machine.tile_bytes(m) for m in Memory)]
        if wrong := [size for size in sizes if size & (size - 1)]:
            raise UnsupportedError(
                f"hardware: expected tiles and channels of 2^n bytes, found {wrong[0]}"
            )
        tile, interval = min(sizes[1:]), max(machine.gemm_cycles, machine.alu_cycles)
        for what, found, most in (
            ("bytes of a channel", machine.dma_bytes, MOST_CHANNEL),
            (f"tiles of {tile} bytes in a channel", machine.dma_bytes // tile, MOST_LANES),
            ("cycles for a micro-operation", interval, MOST_INTERVAL),
        ):
            if found > most:
                raise UnsupportedError(f"hardware: expected at most {most} {what}, found {found}")
        data = 8 * machine.dma_bytes
        self.instruction = Signal(INSTRUCTION_BITS)
        self.instruction_valid = Signal()
        self.instruction_ready = Signal()
        self.read_valid = Signal()
        self.read_ready = Signal()
        self.read_address = Signal(ADDRESS_BITS)
        self.read_tag = Signal(7)
        self.response_valid = Signal()
        self.response_data = Signal(data)
        self.response_tag = Signal(7)
        self.write_valid = Signal()
        self.write_ready = Signal()
        self.write_address = Signal(ADDRESS_BITS)
        self.write_data = Signal(data)
        self.write_mask = Signal(machine.dma_bytes)
        self.written = Signal()
        self.finished = Signal()

    def ports(self) -> list[Signal]:
        return [s for s in vars(self).values() if isinstance(s, Signal)]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        fronts = {unit: Front(m, self.machine, unit) for unit in Unit}
        self._dispatch(m, fronts)
        self._tokens(m, fronts)
        self._work(m, fronts)
        has_finished = Signal()
        compute = fronts[Unit.COMPUTE]
        with m.If(compute.start & (compute.word[:OPCODE_BITS] == INSTRUCTIONS.index(Finish))):
            m.d.sync += has_finished.eq(1)
        m.d.comb += self.finished.eq(has_finished & Cat(f.is_idle for f in fronts.values()).all())
        return m

    def _dispatch(self, m: Module, fronts: dict[Unit, Front]) -> None:
        """Hand each instruction to its unit."""
        word = self.instruction
        memory = fields_of(Load, self.machine, word)["memory"]
        of_load = (Memory.INP, Memory.WGT)
        is_load = word[:OPCODE_BITS] == INSTRUCTIONS.index(Load)
        is_store = word[:OPCODE_BITS] == INSTRUCTIONS.index(Store)
        to_load = is_load & Cat(memory == CODES[Memory].index(x) for x in of_load).any()
        chosen = {Unit.LOAD: to_load, Unit.STORE: is_store, Unit.COMPUTE: ~to_load & ~is_store}
        for unit, front in fronts.items():
            m.d.comb += front.queue.w_data.eq(word)
            with m.If(chosen[unit]):
                m.d.comb += front.queue.w_en.eq(self.instruction_valid)
                m.d.comb += self.instruction_ready.eq(front.queue.w_rdy)

    def _tokens(self, m: Module, fronts: dict[Unit, Front]) -> None:
        """Queues of tokens, and the way of each instruction: take, work, give."""
        depth = self.machine.token_depth
        taken: dict[tuple[Unit, Unit], Signal] = {}
        given: dict[tuple[Unit, Unit], Signal] = {}
        counts: dict[tuple[Unit, Unit], Signal] = {}
        for unit in Unit:
            for step in (-1, 1):
                if other := unit.neighbour(step):
                    name = f"{unit.value}_to_{other.value}"
                    taken[unit, other], given[unit, other] = Signal(), Signal()
                    counts[unit, other] = count = Signal(range(depth + 1), name=name)
                    m.d.sync += count.eq(count + given[unit, other] - taken[unit, other])
        for unit, front in fronts.items():
            ahead = fields_of(Instruction, self.machine, front.queue.r_data)
            now = fields_of(Instruction, self.machine, front.word)
            sides = [(n, o) for n, s in (("prev", -1), ("next", 1)) if (o := unit.neighbour(s))]
            may_take = Cat(~ahead[f"pop_{n}"] | (counts[o, unit] != 0) for n, o in sides).all()
            left = {n: Signal(name=f"{unit.value}_gives_{n}") for n, _ in sides}
            with m.FSM(name=unit.value):
                with m.State("TAKE"):
                    m.d.comb += front.is_idle.eq(~front.queue.r_rdy)
                    with m.If(front.queue.r_rdy & may_take):
                        m.d.comb += front.queue.r_en.eq(1)
                        m.d.comb += [taken[o, unit].eq(ahead[f"pop_{n}"]) for n, o in sides]
                        m.d.sync += front.word.eq(front.queue.r_data)
                        m.next = "START"
                with m.State("START"):
                    m.d.comb += front.start.eq(1)
                    m.d.sync += [left[n].eq(now[f"push_{n}"]) for n, _ in sides]
                    m.next = "WORK"
                with m.State("WORK"), m.If(front.done):
                    m.next = "GIVE"
                with m.State("GIVE"):
                    waits = [left[n] & (counts[unit, o] == depth) for n, o in sides]
                    for (n, o), wait in zip(sides, waits, strict=True):
                        m.d.comb += given[unit, o].eq(left[n] & ~wait)
                        m.d.sync += left[n].eq(wait)
                    with m.If(~Cat(waits).any()):
                        m.next = "TAKE"

    def _work(self, m: Module, fronts: dict[Unit, Front]) -> None:
        """Buffers, and what reads and writes them."""
        machine = self.machine
        storages: dict[Memory, Storage] = {}
        writes: dict[Memory, Any] = {}
        for memory in Memory:
            bits = 8 * machine.tile_bytes(memory)
            storages[memory] = Storage(shape=bits, depth=machine.depth(memory), init=[])
            m.submodules[memory.value] = storages[memory]
            writes[memory] = storages[memory].write_port()

        readers = self._readers(m, fronts, writes)
        word = fronts[Unit.COMPUTE].word
        opcode = word[:OPCODE_BITS]
        gemm, alu = fields_of(Gemm, machine, word), fields_of(Alu, machine, word)
        is_alu = opcode == INSTRUCTIONS.index(Alu)
        steps = m.submodules.steps = Steps(machine, gemm, alu, is_alu)
        is_step = is_alu | (opcode == INSTRUCTIONS.index(Gemm))
        m.d.comb += steps.start.eq(fronts[Unit.COMPUTE].start & is_step)
        for memory, ports in steps.read.items():
            for address, data in ports:
                port = storages[memory].read_port(transparent_for=(writes[memory],))
                m.d.comb += [port.addr.eq(address), data.eq(port.data)]
        with m.If(steps.write_enable & ~steps.to_out):
            acc = writes[Memory.ACC]
            m.d.comb += [
                acc.en.eq(1),
                acc.addr.eq(steps.write_address),
                acc.data.eq(steps.write_data),
            ]
        out, bits = writes[Memory.OUT], machine.operand.bits
        elements = machine.batch * machine.block_out
        narrow = Cat(steps.write_data.word_select(n, 32)[:bits] for n in range(elements))
        m.d.comb += [out.en.eq(steps.write_enable & steps.to_out), out.data.eq(narrow)]
        m.d.comb += out.addr.eq(steps.write_address)
        of_load = Cat(r.done for r in readers[:UOP_READER]).all()
        m.d.comb += fronts[Unit.LOAD].done.eq(of_load)
        others = Cat(r.done for r in readers[UOP_READER:]).all()
        m.d.comb += fronts[Unit.COMPUTE].done.eq(others & steps.done)
        self._writers(m, fronts[Unit.STORE], storages)

    def _readers(
        self, m: Module, fronts: dict[Unit, Front], writes: dict[Memory, Any]
    ) -> list[Reader]:
        machine = self.machine
        readers: list[Reader] = []
        for number, (memory, widen) in enumerate(READERS):
            front = fronts[Unit.LOAD if number < UOP_READER else Unit.COMPUTE]
            f = fields_of(Load, machine, front.word)
            reader = Reader(machine, memory, f, widen)
            m.submodules[f"read_{memory.value}{'_wide' * widen}"] = reader
            is_this = (front.word[:OPCODE_BITS] == INSTRUCTIONS.index(Load)) & (
                f["memory"] == CODES[Memory].index(memory)
            )
            if memory is Memory.ACC:
                is_this = is_this & (f["widen"] == int(widen))
            m.d.comb += reader.start.eq(front.start & is_this)
            m.d.comb += [
                reader.response_valid.eq(self.response_valid & (self.response_tag[:3] == number)),
                reader.response_data.eq(self.response_data),
                reader.response_lane.eq(self.response_tag[3:]),
            ]
            data: Value = reader.write_data
            if widen:
                bits = machine.operand.bits
                count = machine.batch * machine.block_out
                narrow = [data.word_select(n, bits) for n in range(count)]
                data = Cat(Cat(n, n[-1].replicate(32 - bits)) for n in narrow)
            port = writes[memory]
            with m.If(reader.write_enable):
                m.d.comb += [port.en.eq(1), port.addr.eq(reader.write_address), port.data.eq(data)]
            readers.append(reader)
        self._take_turns(m, readers)
        return readers

    def _take_turns(self, m: Module, readers: list[Reader]) -> None:
        """The read channel: of the units that ask, the other one than last time."""
        asks = [
            Cat(r.request_valid for r in part).any()
            for part in (readers[:UOP_READER], readers[UOP_READER:])
        ]
        last, chosen = Signal(), Signal()
        m.d.comb += chosen.eq(Mux(last, ~asks[0], asks[1]))
        for number, reader in enumerate(readers):
            with m.If(reader.request_valid & (chosen == int(number >= UOP_READER))):
                m.d.comb += [
                    self.read_valid.eq(1),
                    self.read_address.eq(reader.request_address),
                    self.read_tag.eq(Cat(Bits(number, 3), reader.request_lane)),
                    reader.request_ready.eq(self.read_ready),
                ]
        with m.If(self.read_valid & self.read_ready):
            m.d.sync += last.eq(chosen)

    def _writers(self, m: Module, front: Front, storages: dict[Memory, Storage]) -> None:
        """What copies to DRAM: results, or accumulators."""
        f = fields_of(Store, self.machine, front.word)
        writers: list[Writer] = []
        for memory in (Memory.OUT, Memory.ACC):
            writer = Writer(self.machine, memory, f)
            m.submodules[f"write_{memory.value}"] = writer
            is_this = f["memory"] == CODES[Memory].index(memory)
            port = storages[memory].read_port()
            m.d.comb += [
                writer.start.eq(front.start & is_this),
                port.addr.eq(writer.read_address), writer.read_data.eq(port.data),
                writer.written.eq(self.written & is_this),
            ]  # fmt: skip
            with m.If(writer.request_valid):
                m.d.comb += [
                    self.write_valid.eq(1),
                    writer.request_ready.eq(self.write_ready),
                    self.write_address.eq(writer.request_address),
                    self.write_data.eq(writer.request_data),
                    self.write_mask.eq(writer.request_mask),
                ]
            writers.append(writer)
        m.d.comb += front.done.eq(Cat(w.done for w in writers).all())
