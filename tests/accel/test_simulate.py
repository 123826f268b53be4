"""The simulators: exact numbers, and what the exact one checks."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilesmith
from tilesmith.accel import header
from tilesmith.accel.errors import Cause, InstructionError
from tilesmith.accel.machine import Machine
from tilesmith.accel.reference import Reference
from tilesmith.accel.simulate import run, simulate
from tilesmith.accel.text import parse
from tilesmith.support.errors import ModelError

from .streams import MACHINES, Stream


@pytest.mark.parametrize("seed", range(60))
def test_the_simulator_computes_what_the_reference_computes(seed):
    print("seed", seed)
    rng = random.Random(seed)
    machine = MACHINES[seed % len(MACHINES)]
    machine = replace(
        machine, token_depth=rng.choice((2, 512)), command_depth=rng.choice((40, 512))
    )
    stream = Stream(rng, machine, rng.randint(1, 9))
    before = stream.memory()
    expected = before.copy()
    Reference(stream.program, machine, expected).run()
    found, _ = simulate(stream.program, machine, before)
    assert (found == expected).all()
    assert (found != before).any()


def test_a_matrix_product_with_bias_and_limits():
    program = parse("""
        uop
        load uop columns=1
        load inp columns=4
        load wgt dram=1 push_next
        gemm end=1 outer=4 dst_outer=1 src_outer=1 reset pop_prev
        alu add end=1 outer=4 dst_outer=1 use_imm imm=5 to_out push_next
        store columns=4 dram=64 pop_prev push_prev
        finish pop_next
    """)
    before = np.random.default_rng(0).integers(-9, 9, 2048).astype(np.int8)
    after, counts = simulate(program, Machine(), before.view(np.uint8))
    x, w = before[:64].reshape(4, 16).astype(int), before[256:512].reshape(16, 16).astype(int)
    expected = np.clip(x @ w.T + 5, -128, 127)
    assert (np.abs(x @ w.T + 5) > 128).any()
    assert (after[1024:1088].view(np.int8).reshape(4, 16) == expected).all()
    assert counts.gemm_cycles == 4


@pytest.mark.parametrize(
    "text, depths, cause, number, message",
    [
        (
            "load push_next\n" * 3 + "alu end=1 pop_prev use_imm\nfinish pop_prev",
            {"token_depth": 1},
            Cause.UNINITIALISED, 3, "it reads tile 0 of `uop`, which nothing has written",
        ),
        (
            "load push_next\nload push_next\nfinish",
            {"token_depth": 1},
            Cause.DEADLOCK, 1, "it waits for room for a token to the compute unit, which takes",
        ),
        (
            "load push_next\nload push_next\nfinish",
            {},
            Cause.TOKEN, 0, "its token to the compute unit is never taken; 2 are left at the end",
        ),
        (
            "load acc pop_prev\nload\nload push_next\nfinish pop_prev",
            {"command_depth": 1},
            Cause.DEADLOCK, 3, "it waits for a token of the load unit, which gives none",
        ),
        (
            "load inp pop_next\nload inp\nload acc push_prev\nfinish",
            {"command_depth": 1},
            Cause.DEADLOCK, 0, "it waits for a token of the compute unit, which gives none",
        ),
    ],
)  # fmt: skip
def test_queues_are_as_long_as_the_machine_says(text, depths, cause, number, message):
    with pytest.raises(InstructionError, match=re.escape(message)) as caught:
        run(parse(text), Machine(**depths), np.zeros(64, np.uint8))
    assert (caught.value.cause, caught.value.number) == (cause, number)


def test_a_unit_may_be_far_behind_in_the_program():
    text = "load inp pop_next\nload inp\nload acc push_prev\nfinish"
    run(parse(text), Machine(), np.zeros(64, np.uint8))


def test_memory_must_be_bytes():
    with pytest.raises(
        ModelError, match=r"memory: expected a contiguous array of bytes, found int8"
    ):
        run(parse("finish"), Machine(), np.zeros(64, np.int8))


def test_the_simulators_in_c_read_the_table_as_it_is():
    path = Path(tilesmith.__file__).parent / "runtime" / "csrc" / "accel_table.h"
    assert path.read_text() == header.text(), (
        f"run `python -m tilesmith.accel.header {path.name}` in its folder, and build the extension"
    )
