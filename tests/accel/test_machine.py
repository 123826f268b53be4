"""The description of the accelerator."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tilesmith.accel.machine import Machine, Memory, Unit
from tilesmith.ir.dtypes import f32, i16
from tilesmith.support.errors import UsageError


def test_the_default_machine_is_the_published_one():
    machine = Machine()
    depths = {m.value: machine.depth(m) for m in Memory}
    assert depths == {"uop": 8192, "inp": 2048, "wgt": 1024, "acc": 2048, "out": 2048}
    assert machine.products == 256 and machine.micro_op_bytes == 4
    with pytest.raises(FrozenInstanceError):
        machine.batch = 2  # type: ignore[misc]


def test_wider_elements_and_deeper_buffers_change_tiles_and_micro_operations():
    wide = Machine(operand=i16)
    assert wide.tile_bytes(Memory.INP) == 32 and wide.depth(Memory.INP) == 1024
    deep = Machine(acc_bytes=1 << 20)
    assert deep.address_bits(Memory.ACC) == 14 and deep.micro_op_bytes == 8


def test_neighbours_of_a_unit():
    assert Unit.LOAD.neighbour(-1) is None and Unit.LOAD.neighbour(1) is Unit.COMPUTE
    assert Unit.STORE.neighbour(-1) is Unit.COMPUTE and Unit.STORE.neighbour(1) is None


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"batch": 0}, "batch: expected an integer from 1 to 1073741824, found 0"),
        ({"dma_latency": -1}, "dma_latency: expected an integer from 0"),
        ({"alu_cycles": 1.5}, "alu_cycles: expected an integer from 1 to 1073741824, found 1.5"),
        ({"operand": f32}, "operand: expected i8 or i16, found f32"),
        ({"wgt_bytes": 1000}, "wgt_bytes: expected a multiple of a tile's 256 bytes, found 1000"),
        ({"dma_bytes": 24}, r"burst_bytes: expected a multiple of dma_bytes \(24\), found 256"),
    ],
)
def test_a_parameter_out_of_range_is_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        Machine(**parameters)
