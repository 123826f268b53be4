"""The table of instructions: encoding, text, and checks without a run."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest

from tilesmith.accel.alu import AluOp
from tilesmith.accel.errors import Cause, InstructionError
from tilesmith.accel.instructions import (
    INSTRUCTIONS,
    OPCODE_BITS,
    Alu,
    Finish,
    Gemm,
    Load,
    MicroOp,
    Store,
    layout,
)
from tilesmith.accel.machine import Machine, Memory
from tilesmith.accel.program import Program, decode, encode, verify
from tilesmith.accel.text import parse
from tilesmith.support.errors import ModelError, ParseError, UsageError

from .streams import MACHINES, any_fields, valid_program

SEEDS = range(40)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", (MicroOp, *INSTRUCTIONS))
def test_fields_follow_each_other_and_fit(kind, machine):
    slots = layout(kind, machine)
    assert slots[0].first == (0 if kind is MicroOp else OPCODE_BITS)
    assert all(a.first + a.bits == b.first for a, b in pairwise(slots))
    assert slots[-1].first + slots[-1].bits <= (
        8 * machine.micro_op_bytes if kind is MicroOp else 128
    )


def test_a_machine_with_buffers_too_deep_for_the_encoding_is_refused():
    with pytest.raises(UsageError, match="Gemm: the buffers of this machine are too deep"):
        layout(Gemm, Machine(inp_bytes=1 << 26, acc_bytes=1 << 27, wgt_bytes=1 << 28))


@pytest.mark.parametrize("seed", SEEDS)
def test_texts_of_any_fields_parse_back(seed):
    print("seed", seed)
    rng = random.Random(seed)
    machine = rng.choice(MACHINES)
    program = Program(
        tuple(any_fields(rng, rng.choice(INSTRUCTIONS), machine) for _ in range(30)),
        tuple(any_fields(rng, MicroOp, machine) for _ in range(5)),
    )
    assert parse(program.text()) == program
    assert parse(program.text()).text() == program.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_encodings_of_valid_programs_decode(seed):
    print("seed", seed)
    rng = random.Random(seed)
    machine = rng.choice(MACHINES)
    program = valid_program(rng, machine)
    words, steps = encode(program, machine)
    assert len(words) == 16 * len(program.instructions)
    assert len(steps) == machine.micro_op_bytes * len(program.micro_ops)
    assert decode(words, steps, machine) == program


def test_a_text_names_what_differs_from_the_default():
    load = Load(memory=Memory.WGT, sram=3, columns=9, pad=-1, push_next=True)
    assert str(load) == "load wgt sram=3 columns=9 pad=-1 push_next"
    assert str(Alu(op=AluOp.RESCALE, end=1, to_out=True)) == "alu rescale end=1 to_out"
    assert parse("uop wgt=1 # weights\n\nfinish pop_next\n") == Program(
        (Finish(pop_next=True),), (MicroOp(wgt=1),)
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("jump", "line 1: expected one of uop, load, store, gemm, alu, finish, found 'jump'"),
        ("finish\nuop dst=1", "line 2: micro-operations come before instructions"),
        ("load columns=x", "line 1: expected an integer, found 'x'"),
        ("load depth=1", "line 1: 'depth=1' is no field"),
        ("load push_up", "line 1: 'push_up' is no field"),
        ("load columns", "line 1: 'columns' is no field"),
        ("load push_next=1", "line 1: 'push_next=1' is no field"),
        ("load inp wgt", "line 1: memory is written twice"),
        ("load columns=" + "9" * 30, "line 1: expected an integer"),
    ],
)
def test_a_text_that_is_no_program_is_refused(text, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        parse(text)


@pytest.mark.parametrize(
    "line, cause, message",
    [
        ("load columns=70000", Cause.FIELD, "columns: expected an integer from 0 to 65535"),
        ("load rows=0", Cause.FIELD, "rows and columns: expected at least 1, found 0 and 1"),
        ("load push_prev", Cause.FIELD, "the load unit has no unit on the side `prev`"),
        ("store pop_next", Cause.FIELD, "the store unit has no unit on the side `next`"),
        ("load out", Cause.FIELD, "it can't copy tiles of `out`"),
        ("store inp", Cause.FIELD, "it can't copy tiles of `inp`"),
        ("load wgt widen", Cause.FIELD, "`widen` is for `acc` only"),
        ("load uop left=1", Cause.FIELD, "micro-operations have no padding"),
        ("load uop columns=3", Cause.DRAM, "it reads 3 micro-operations, the program has 2"),
        ("load sram=2047 columns=2", Cause.BOUNDS, "it needs 2049 tiles of `inp`, which has 2048"),
        ("load wgt bottom=1 columns=1000", Cause.BOUNDS, "it needs 2000 tiles of `wgt`"),
        ("gemm", Cause.FIELD, "expected at least one micro-operation, found 0 .. 0"),
        ("gemm end=1 inner=0", Cause.FIELD, "outer and inner: expected at least 1, found 1 and 0"),
        ("gemm begin=8000 end=8193", Cause.BOUNDS, "it needs 8193 tiles of `uop`"),
        ("alu rescale end=1 use_imm", Cause.FIELD, "`rescale` has no form with an immediate"),
        ("alu end=1 imm=40000", Cause.FIELD, "imm: expected an integer from -32768 to 32767"),
        ("finish", Cause.FIELD, "instructions come after the end"),
    ],
)
def test_a_wrong_instruction_is_refused_and_named(line, cause, message):
    program = parse(f"uop\nuop\nload uop columns=2\n{line}\nfinish\n")
    with pytest.raises(InstructionError, match=re.escape(message)) as caught:
        verify(program, Machine())
    assert caught.value.number == 1 and caught.value.cause is cause
    assert str(caught.value).startswith(f"instruction 1, `{program.instructions[1]}`: ")


def test_wrong_micro_operations_and_missing_ends_are_refused():
    with pytest.raises(
        ModelError, match=r"micro-operation 1, .*wgt: expected an integer from 0 to"
    ):
        verify(Program((Finish(),), (MicroOp(), MicroOp(wgt=1024))), Machine())
    for program in (Program(()), Program((Store(),))):
        with pytest.raises(ModelError, match="must end with `finish`"):
            verify(program, Machine())


@pytest.mark.parametrize(
    "words, steps, message",
    [
        (b"\x04" + bytes(10), b"", "instructions: expected a multiple of 16 bytes, found 11"),
        (b"", bytes(5), "micro-operations: expected a multiple of 4 bytes, found 5"),
        (b"\x07" + bytes(15), b"", "instruction 0: no instruction has the opcode 7"),
        (b"\x04\x01" + bytes(14), b"", "instruction 0: expected zeros from bit 7 on"),
        (b"\x80\x03" + bytes(14), b"", "instruction 0: memory: no member has the code 7"),
    ],
)
def test_bytes_that_are_no_program_are_refused(words, steps, message):
    with pytest.raises(ModelError, match=message):
        decode(words, steps, Machine())
