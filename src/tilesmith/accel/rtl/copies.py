"""Copies between DRAM and the buffers: walks of rows and columns, with padding."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.hdl import Const as Bits
from amaranth.lib.fifo import SyncFIFOBuffered

from ..machine import Machine, Memory

ADDRESS_BITS = 48
"""Width of an address in DRAM, in bytes."""
_LANE_BITS = 4
MOST_LANES = 1 << _LANE_BITS
"""Upper bound on the tiles that a channel moves in a cycle."""


class Copy(Elaboratable):
    """What both directions share: the shape of tiles in DRAM.

    field: the fields of the instruction, which stay while it runs.
    start: begins the copy.
    done: the copy is done, in all cycles until the next one.
    """

    def __init__(
        self, machine: Machine, memory: Memory, field: Mapping[str, Value], widen: bool = False
    ) -> None:
        self.machine, self.field = machine, field
        self.element = machine.operand.bytes if widen else 0
        tile = machine.tile_bytes(memory)
        if memory is Memory.UOP:
            self.element = tile
        elif not widen:
            self.element = machine.element(memory).bytes
        self.tile = tile // machine.element(memory).bytes * self.element if widen else tile
        self.beats = max(self.tile // machine.dma_bytes, 1)
        self.lanes = max(machine.dma_bytes // self.tile, 1)
        self.start, self.done = Signal(), Signal(init=1)

    def beat_address(self, tile: Value, beat: Value) -> Value:
        """The address of the part of a tile that a channel moves in one cycle."""
        if self.lanes > 1:
            return (tile // self.lanes) * self.machine.dma_bytes
        return tile * self.tile + beat * self.machine.dma_bytes

    def lane(self, tile: Value) -> Value:
        """Which part of these bytes is the tile, if there are several."""
        return tile[: (self.lanes - 1).bit_length()] if self.lanes > 1 else Bits(0, 1)


class Reader(Copy):
    """Reads tiles from DRAM and writes them into a buffer, one in a cycle.

    request_valid, request_ready, request_address, request_lane: a beat that it wants.
    response_valid, response_data, response_lane: a beat that it wanted, in order.
    write_enable, write_address, write_data: of the buffer; the tile as it is in DRAM.
    """

    def __init__(
        self, machine: Machine, memory: Memory, field: Mapping[str, Value], widen: bool = False
    ) -> None:
        super().__init__(machine, memory, field, widen)
        self.request_valid, self.request_ready = Signal(), Signal()
        self.request_address = Signal(ADDRESS_BITS)
        self.request_lane, self.response_lane = Signal(_LANE_BITS), Signal(_LANE_BITS)
        self.response_valid = Signal()
        self.response_data = Signal(8 * machine.dma_bytes)
        self.write_enable = Signal()
        self.write_address = Signal(machine.address_bits(*Memory))
        self.write_data = Signal(8 * self.tile)
        self.depth = (machine.dma_latency + 16) // self.beats + 4
        """Tiles on their way: enough to hide the latency of DRAM."""

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tiles = SyncFIFOBuffered(width=8 * self.tile, depth=self.depth)
        m.submodules.tiles = tiles
        on_the_way = Signal(range(self.depth + 1))
        asked, taken = Signal(), Signal()
        m.d.sync += on_the_way.eq(on_the_way + asked - taken)
        self._ask(m, on_the_way, asked)
        self._assemble(m, tiles)
        self._write(m, tiles, taken)
        return m

    def _ask(self, m: Module, on_the_way: Signal, asked: Signal) -> None:
        """Request the beats of all rows, as long as tiles have room."""
        f = self.field
        asks, beat = Signal(), Signal(range(self.beats + 1))
        row, column, first = Signal(16), Signal(16), Signal(ADDRESS_BITS)
        tile = Signal(ADDRESS_BITS)
        m.d.comb += [
            tile.eq(first + column),
            self.request_valid.eq(asks & ((beat != 0) | (on_the_way != self.depth))),
            self.request_address.eq(self.beat_address(tile, beat)),
            self.request_lane.eq(self.lane(tile)),
            asked.eq(self.request_valid & self.request_ready & (beat == 0)),
        ]
        with m.If(self.start):
            m.d.sync += [asks.eq(1), beat.eq(0), row.eq(0), column.eq(0), first.eq(f["dram"])]
        with m.Elif(self.request_valid & self.request_ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == self.beats - 1):
                m.d.sync += [beat.eq(0), column.eq(column + 1)]
                with m.If(column == f["columns"] - 1):
                    m.d.sync += [column.eq(0), row.eq(row + 1), first.eq(first + f["stride"])]
                    with m.If(row == f["rows"] - 1):
                        m.d.sync += asks.eq(0)

    def _assemble(self, m: Module, tiles: SyncFIFOBuffered) -> None:
        """Put the beats of a tile together."""
        if self.beats == 1:
            parts = Cat(self.response_data).word_select(self.response_lane, 8 * self.tile)
            m.d.comb += [tiles.w_data.eq(parts), tiles.w_en.eq(self.response_valid)]
            return
        width = 8 * self.machine.dma_bytes
        beat, before = Signal(range(self.beats)), Signal(8 * self.tile - width)
        m.d.comb += [
            tiles.w_data.eq(Cat(before, self.response_data)),
            tiles.w_en.eq(self.response_valid & (beat == self.beats - 1)),
        ]
        with m.If(self.response_valid):
            m.d.sync += [
                before.eq(Cat(before, self.response_data)[width:]),
                beat.eq(Mux(beat == self.beats - 1, 0, beat + 1)),
            ]

    def _write(self, m: Module, tiles: SyncFIFOBuffered, taken: Signal) -> None:
        """Write tiles and padding in the order of the buffer."""
        f = self.field
        y, x, is_inside = Signal(17), Signal(17), Signal()
        last_y, last_x = Signal(17), Signal(17)
        pad = (
            f["pad"][: 8 * self.element]
            if self.element == 1
            else Cat(f["pad"], f["pad"][7].replicate(8 * self.element - 8))
        )
        m.d.comb += [
            last_y.eq(f["top"] + f["rows"] + f["bottom"] - 1),
            last_x.eq(f["left"] + f["columns"] + f["right"] - 1),
            is_inside.eq(
                (y >= f["top"]) & (y < f["top"] + f["rows"])
                & (x >= f["left"]) & (x < f["left"] + f["columns"])
            ),
            self.write_enable.eq(~self.done & (~is_inside | tiles.r_rdy)),
            self.write_data.eq(
                Mux(is_inside, tiles.r_data, pad.replicate(self.tile // self.element))
            ),
            taken.eq(self.write_enable & is_inside),
            tiles.r_en.eq(taken),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += [self.done.eq(0), y.eq(0), x.eq(0), self.write_address.eq(f["sram"])]
        with m.Elif(self.write_enable):
            m.d.sync += [x.eq(x + 1), self.write_address.eq(self.write_address + 1)]
            with m.If(x == last_x):
                m.d.sync += [x.eq(0), y.eq(y + 1)]
                with m.If(y == last_y):
                    m.d.sync += self.done.eq(1)


class Writer(Copy):
    """Reads tiles from a buffer and writes them to DRAM.

    read_address, read_data: of the buffer, whose data come a cycle after the address.
    request_valid, request_ready, request_address, request_data, request_mask: a beat to be
        written, with a bit for each byte that is.
    written: a beat is in DRAM.
    """

    def __init__(self, machine: Machine, memory: Memory, field: Mapping[str, Value]) -> None:
        super().__init__(machine, memory, field)
        self.read_address = Signal(machine.address_bits(*Memory))
        self.read_data = Signal(8 * self.tile)
        self.request_valid, self.request_ready = Signal(), Signal()
        self.request_address = Signal(ADDRESS_BITS)
        self.request_data = Signal(8 * machine.dma_bytes)
        self.request_mask = Signal(machine.dma_bytes)
        self.written = Signal()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        f, dma = self.field, self.machine.dma_bytes
        sends, beat, waits = Signal(), Signal(range(self.beats + 1)), Signal(32)
        row, column, first = Signal(16), Signal(16), Signal(ADDRESS_BITS)
        source, tile = Signal.like(self.read_address), Signal(ADDRESS_BITS)
        accepted, last = Signal(), Signal()
        m.d.comb += [
            tile.eq(first + column),
            accepted.eq(self.request_valid & self.request_ready),
            last.eq(accepted & (beat == self.beats - 1)),
            self.read_address.eq(Mux(self.start, f["sram"], source + last)),
            self.request_valid.eq(sends),
            self.request_address.eq(self.beat_address(tile, beat)),
            self.done.eq(~sends & (waits == 0)),
        ]
        if self.lanes > 1:
            lane = self.lane(tile)
            m.d.comb += self.request_data.word_select(lane, 8 * self.tile).eq(self.read_data)
            m.d.comb += self.request_mask.word_select(lane, self.tile).eq(2**self.tile - 1)
        else:
            m.d.comb += self.request_data.eq(self.read_data.word_select(beat, 8 * dma))
            m.d.comb += self.request_mask.eq(2**dma - 1)
        m.d.sync += waits.eq(waits + accepted - self.written)
        with m.If(self.start):
            m.d.sync += [sends.eq(1), beat.eq(0), row.eq(0), column.eq(0)]
            m.d.sync += [first.eq(f["dram"]), source.eq(f["sram"])]
        with m.Elif(accepted):
            m.d.sync += beat.eq(beat + 1)
            with m.If(last):
                m.d.sync += [beat.eq(0), column.eq(column + 1), source.eq(source + 1)]
                with m.If(column == f["columns"] - 1):
                    m.d.sync += [column.eq(0), row.eq(row + 1), first.eq(first + f["stride"])]
                    with m.If(row == f["rows"] - 1):
                        m.d.sync += sends.eq(0)
        return m
