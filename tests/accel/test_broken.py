"""The exact simulator finds what is wrong with programs that were broken on purpose."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tilesmith.accel.errors import Cause, InstructionError
from tilesmith.accel.instructions import Instruction, Load
from tilesmith.accel.machine import Machine, Memory
from tilesmith.accel.program import Program
from tilesmith.accel.simulate import run

from .streams import Stream

MACHINE = Machine()
TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")
Broken = tuple[dict[int, Instruction], set[Cause], set[int]]
"""Instructions to replace by their positions; possible causes; instructions that the message must
name, one of them at least, or none if any may be at fault.
"""


def with_tokens(rng: random.Random, stream: Stream, prefix: str) -> tuple[int, str]:
    """A position and one of its tokens that begins with a prefix."""
    found = [
        (number, token)
        for number, x in enumerate(stream.code)
        for token in TOKENS
        if token.startswith(prefix) and getattr(x, token)
    ]
    return rng.choice(found)


def changed(stream: Stream, number: int, **fields: object) -> dict[int, Instruction]:
    return {number: replace(stream.code[number], **fields)}


def drop_push(rng: random.Random, stream: Stream) -> Broken:
    number, token = with_tokens(rng, stream, "push")
    return changed(stream, number, **{token: False}), {Cause.DEADLOCK, Cause.HAZARD}, set()


def drop_pop(rng: random.Random, stream: Stream) -> Broken:
    number, token = with_tokens(rng, stream, "pop")
    causes = {Cause.TOKEN, Cause.HAZARD, Cause.UNINITIALISED}
    return changed(stream, number, **{token: False}), causes, set()


def add_push(rng: random.Random, stream: Stream) -> Broken:
    r = rng.choice(stream.rounds)
    return changed(stream, r.first, push_next=True), {Cause.TOKEN, Cause.HAZARD}, set()


def add_pop(rng: random.Random, stream: Stream) -> Broken:
    r = rng.choice(stream.rounds)
    return changed(stream, r.gemms[0], pop_prev=True), {Cause.DEADLOCK}, set()


def push_too_early(rng: random.Random, stream: Stream) -> Broken:
    """The inputs are said to be there, and the weights aren't."""
    r = rng.choice(stream.rounds)
    swapped = changed(stream, r.inp, push_next=True) | changed(stream, r.wgt, push_next=False)
    return swapped, {Cause.HAZARD}, {r.wgt}


def swap_pushes(rng: random.Random, stream: Stream) -> Broken:
    """The store unit gets its token before the results are there."""
    r = rng.choice(stream.rounds)
    swapped = changed(stream, r.gemms[-1], push_next=True)
    return swapped | changed(stream, r.alus[-1], push_next=False), {Cause.HAZARD}, {r.alus[-1]}


def leave_buffer(rng: random.Random, stream: Stream) -> Broken:
    number = rng.choice(rng.choice(stream.rounds).gemms)
    far = {"outer": 9, rng.choice(("dst_outer", "src_outer", "wgt_outer")): 700}
    return changed(stream, number, **far), {Cause.BOUNDS}, {number}


def leave_memory(rng: random.Random, stream: Stream) -> Broken:
    r = rng.choice(stream.rounds)
    number = rng.choice((r.inp, r.wgt, r.first, *r.stores))
    far = stream.memory_bytes // rng.randint(1, 64)
    far = max(far, stream.memory_bytes // MACHINE.tile_bytes(Memory.INP))
    return changed(stream, number, dram=far), {Cause.DRAM}, {number}


def read_unwritten(rng: random.Random, stream: Stream) -> Broken:
    number = rng.choice(rng.choice(stream.rounds).gemms)
    never = {"inner": 1, "outer": 2, rng.choice(("src_outer", "wgt_outer")): 300}
    return changed(stream, number, **never), {Cause.UNINITIALISED}, {number}


def load_into_other_half(rng: random.Random, stream: Stream) -> Broken:
    """A load overwrites inputs that the compute unit reads at the same time."""
    before, r = rng.choice(list(zip(stream.rounds, stream.rounds[1:], strict=False)))
    sram = stream.code[before.inp].sram  # type: ignore[attr-defined]
    causes = {Cause.HAZARD, Cause.UNINITIALISED}
    return changed(stream, r.inp, sram=sram), causes, {r.inp, *before.gemms, *r.gemms}


def store_over_loads(rng: random.Random, stream: Stream) -> Broken:
    """A store overwrites what a load reads at the same time."""
    r, after = rng.choice(list(zip(stream.rounds, stream.rounds[1:], strict=False)))
    load = stream.code[after.inp]
    assert isinstance(load, Load)
    number = r.stores[0]
    over = {"memory": Memory.OUT, "dram": load.dram, "sram": stream.code[r.first].sram}  # type: ignore[attr-defined]
    return changed(stream, number, **over, rows=1), {Cause.HAZARD}, {number, after.inp}


WAYS: tuple[Callable[[random.Random, Stream], Broken], ...] = (
    drop_push, drop_pop, add_push, add_pop, push_too_early, swap_pushes, leave_buffer,
    leave_memory, read_unwritten, load_into_other_half, store_over_loads,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(28))
@pytest.mark.parametrize("way", WAYS)
def test_a_broken_program_is_caught_and_the_instruction_named(way, seed):
    print("seed", seed)
    rng = random.Random(seed)
    stream = Stream(rng, MACHINE, rng.randint(3, 8))
    memory = stream.memory()
    run(stream.program, MACHINE, memory.copy())  # it is right before it is broken
    replaced, causes, named = way(rng, stream)
    code = [replaced.get(number, x) for number, x in enumerate(stream.code)]
    program = Program(tuple(code), stream.program.micro_ops)
    with pytest.raises(InstructionError) as caught:
        run(program, MACHINE, memory)
    error = caught.value
    assert error.cause in causes
    assert error.text == str(code[error.number])
    assert str(error).startswith(f"instruction {error.number}, `{error.text}`: ")
    said = {int(n) for n in re.findall(r"instruction (\d+)", str(error))}
    assert not named or named & said
