"""Convolutions and dense layers compile to programs that compute them."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.accel.convolution import (
    Convolution,
    Tiles,
    candidates,
    choose,
    compiled,
    packed,
    predict,
    scheduled,
    unpacked,
)
from tilesmith.accel.instructions import Alu, layout
from tilesmith.accel.kernel import build
from tilesmith.accel.machine import Machine
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse
from tilesmith.support.errors import ScheduleError, UsageError

from .convolution_cases import inputs, wanted

MACHINE = Machine()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "conv",
    [
        Convolution(inputs=32, outputs=64, height=1, width=24),
        Convolution(inputs=32, outputs=32, height=8, width=6, kernel=(3, 3), padding=(1, 1, 1, 1)),
        Convolution(
            inputs=16, outputs=32, height=9, width=8, kernel=(3, 3), stride=2, padding=(1, 1, 1, 1)
        ),
        Convolution(inputs=48, outputs=40, height=8, width=8, stride=2, has_bias=True),
        Convolution(inputs=20, outputs=32, height=6, width=6, kernel=(2, 3), padding=(0, 2, 1, 0)),
        Convolution(
            inputs=40, outputs=40, height=8, width=6, kernel=(3, 3), padding=(1,) * 4, groups=40
        ),
        Convolution(inputs=64, outputs=64, height=8, width=6, kernel=(3, 3), groups=16, stride=2),
    ],
    ids=["dense", "3x3", "stride", "gathered", "uneven", "depthwise", "groups"],
)
def test_a_convolution_is_numpys(conv: Convolution, threads: int):
    given = inputs(conv, 3)
    kernel = compiled(conv, MACHINE, threads=threads, low=-5)
    assert parse(kernel.program.text()) == kernel.program
    memory, _ = simulate(kernel.program, MACHINE, kernel.memory(packed(conv, MACHINE, *given)))
    found = unpacked(conv, MACHINE, kernel.outputs(memory)["y"])
    np.testing.assert_array_equal(found, wanted(conv, -5, given))


@pytest.mark.parametrize(
    ("conv", "least"),
    [
        (
            Convolution(inputs=32, outputs=32, height=4, width=4, kernel=(3, 3), padding=(1,) * 4),
            10,
        ),
        (Convolution(inputs=16, outputs=32, height=4, width=4, padding=(1,) * 4), 10),
        (Convolution(inputs=16, outputs=32, height=2, width=7, stride=4, padding=(4, 3, 4, 1)), 0),
    ],
    ids=["3x3", "wide padding", "steps over the image"],
)
def test_all_tiles_that_fit_compute_the_same(conv: Convolution, least: int):
    small = Machine(inp_bytes=1024, wgt_bytes=1 << 14, acc_bytes=4096, out_bytes=1024)
    given = inputs(conv, 4)
    every = list(candidates(conv, small, 2))
    assert len(every) > least
    for tiles in every:
        s, args = scheduled(conv, tiles, small)
        kernel = build(s, args, small)
        memory, _ = simulate(kernel.program, small, kernel.memory(packed(conv, small, *given)))
        found = unpacked(conv, small, kernel.outputs(memory)["y"])
        np.testing.assert_array_equal(found, wanted(conv, -128, given), str(tiles))


@pytest.mark.parametrize(
    ("height", "width", "padding"),
    [(1, 1024, (0, 0, 0, 0)), (2, 600, (0, 0, 0, 0)), (20, 20, (15, 1, 1, 1))],
)
def test_tiles_longer_than_the_fields_of_the_alu_are_computed(
    height: int, width: int, padding: tuple[int, int, int, int]
):
    deep = Machine(acc_bytes=1 << 20, wgt_bytes=1 << 16, out_bytes=1 << 16)
    assert {s.name: s.range[1] for s in layout(Alu, deep)}["inner"] == 511
    conv = Convolution(inputs=16, outputs=16, height=height, width=width, padding=padding)
    rows, columns = conv.result
    tiles = Tiles(1, rows, columns, 1, 1)
    assert tiles in candidates(conv, deep, 1)
    s, args = scheduled(conv, tiles, deep)
    kernel, given = build(s, args, deep), inputs(conv, 5)
    memory, _ = simulate(kernel.program, deep, kernel.memory(packed(conv, deep, *given)))
    found = unpacked(conv, deep, kernel.outputs(memory)["y"])
    np.testing.assert_array_equal(found, wanted(conv, -128, given))


def test_padding_beyond_its_field_fits_in_no_tiles():
    conv = Convolution(inputs=16, outputs=16, height=20, width=20, padding=(16, 0, 0, 0))
    assert not list(candidates(conv, MACHINE, 1))


def test_a_tile_in_the_padding_is_refused():
    conv = Convolution(inputs=16, outputs=16, height=4, width=4, padding=(1, 1, 1, 1))
    for tiles in (Tiles(1, 1, 6, 1, 1), Tiles(1, 6, 1, 1, 1), Tiles(1, 1, 1, 1, 1)):
        s, args = scheduled(conv, tiles, MACHINE)
        with pytest.raises(ScheduleError, match="a copy needs at least one tile of DRAM"):
            build(s, args, MACHINE)


def test_the_chosen_tiles_have_the_least_predicted_time():
    conv = Convolution(inputs=64, outputs=64, height=56, width=56, kernel=(3, 3), padding=(1,) * 4)
    best = predict(conv, choose(conv, MACHINE), MACHINE)
    assert best.gemm == 56 * 56 * 4 * 4 * 9
    assert best.total == min(predict(conv, t, MACHINE).total for t in candidates(conv, MACHINE, 2))
    assert best.total < 0.9 * predict(conv, choose(conv, MACHINE, 1), MACHINE).total


def test_a_machine_that_is_too_small_is_refused():
    conv = Convolution(inputs=16, outputs=16, height=8, width=8, kernel=(7, 7))
    with pytest.raises(ScheduleError, match="no tiles for 2 virtual threads"):
        choose(conv, Machine(wgt_bytes=4096))
    with pytest.raises(UsageError, match="batch 1, found 2"):
        compiled(conv, Machine(batch=2, acc_bytes=1 << 18))
    with pytest.raises(UsageError, match="windows inside the image"):
        Convolution(inputs=16, outputs=16, height=2, width=2, kernel=(3, 3))
