"""Steps of the main function as loop IR: what they mean, by the interpreter, and their text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tilesmith.codegen.context import BY_NAME, SIZE, Code
from tilesmith.codegen.lower_main import lower_main
from tilesmith.codegen.lower_steps import CONTEXT, FAILURE, Steps
from tilesmith.ir.dtypes import f32
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import CallFunction, Func, Stmt, seq
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_stmt
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt
from tilesmith.program.nodes import (
    Arg,
    Branch,
    Carried,
    Copy,
    Extent,
    Grow,
    HostArray,
    HostCall,
    KernelCall,
    Measurement,
    Repeat,
    Report,
    Slice,
    Step,
    Store,
)
from tilesmith.support.errors import InternalError

BYTES = 256
"""Bytes of each memory."""


class Memory:
    """The memory of a run: as much of each kind as there is of the context."""

    def __init__(self, *values: int) -> None:
        self.values = np.array(values or (0,), np.int64)
        self.measured = np.full(4, -1, np.int64)
        self.context = np.zeros(BYTES, np.uint8)
        self.failure = np.zeros(4, np.int32)
        self.bytes: dict[Arg, np.ndarray] = {}

    def at(self, arg: Arg) -> np.ndarray:
        """The memory in which an argument lies."""
        return self.bytes.setdefault(arg, np.arange(BYTES, dtype=np.uint8))

    def field(self, name: str, dtype: type, count: int = 1) -> list[int]:
        """A field of the context."""
        begin = BY_NAME[name].offset
        size = np.dtype(dtype).itemsize * count
        return self.context[begin : begin + size].view(dtype).tolist()

    def run(self, step: Step, number: int = 0) -> int:
        """Run a step as a function of loop IR, in which calls do nothing."""
        steps = Steps.of([Measurement(ARENA, 0, (Extent("n", 0, 1),) * 4, "s")], len(self.values))
        steps._counts[type(step)] = number - 1
        body = map_stmt(steps.step(step), f_stmt=_without_calls)
        own = {steps.values: self.values, steps.measured: self.measured, FAILURE: self.failure}
        given = {CONTEXT: self.context} | {b: self.at(arg) for arg, b in steps.fixed.items()}
        func = Func("step", (*given, *own), (*given, *own), body)
        text = str(func).replace("u8[0]", f"u8[{BYTES}]").replace("] heap,", "],")
        func = parse_func(text.replace("] stack,", "],").replace("] heap)", "])"))
        verify(func, "final")
        assert structural_equal(parse_func(str(func)), func)
        return interpret(func, [*given.values(), *own.values()])


def _without_calls(stmt: Stmt) -> Stmt:
    return seq() if isinstance(stmt, CallFunction) else stmt


ARENA = Arg("arena", 0)


def words(data: np.ndarray, begin: int, count: int) -> list[int]:
    return data[begin : begin + 8 * count].view(np.int64).tolist()


def text_of(*steps: Step) -> str:
    """The main function of steps from the first one on; text and parser agree."""
    func = lower_main(steps, sizes=4)
    verify(func, "final")
    assert str(parse_func(str(func))) == str(func)
    return print_stmt(Steps.of(steps, 4).steps(steps))


def test_a_branch_reads_a_byte() -> None:
    memory = Memory()
    for at, stored in ((0, 2), (5, 1)):
        then, otherwise = (Store(Arg("output", 0), (n,)) for n in (1, 2))
        memory.run(Branch(Arg("input", 3, at), (then,), (otherwise,)))
        assert words(memory.at(Arg("output", 0)), 0, 1) == [stored]


def test_bytes_are_copied_unless_they_are_there() -> None:
    memory = Memory(16, 8)
    memory.run(Copy(Arg("input", 0, 4), Arg("place", 0, 32), Arg("extent", 1)))
    assert memory.at(ARENA)[48:57].tolist() == [*range(4, 12), 56]
    memory.run(Copy(Arg("arena", 48), Arg("arena", 48), 8))
    assert memory.at(ARENA)[48:57].tolist() == [*range(4, 12), 56]
    memory.run(Copy(Arg("constant", 2), Arg("output", 1), 3))
    assert memory.at(Arg("output", 1))[:4].tolist() == [2, 3, 4, 3]


def test_numbers_are_stored() -> None:
    memory = Memory(70, 80)
    memory.run(Store(Arg("input", 2, 8), (5, Arg("extent", 1))))
    assert words(memory.at(Arg("input", 2)), 8, 2) == [5, 80]
    memory.run(Report(1, ((0, (7, Arg("extent", 0))), (2, ()))))
    assert words(memory.at(Arg("output", 1)), 0, 2) == [7, 70]


def test_measured_extents_are_checked() -> None:
    step = Measurement(
        Arg("arena", 8), 1, (Extent("n", 2, 9), Extent("m", 0, Arg("extent", 0))), "sizes1"
    )
    memory = Memory(6)
    found = memory.at(ARENA)[8:24].view(np.int64)
    found[:] = 9, 6
    assert memory.run(step, 4) == Code.OK
    assert memory.measured.tolist() == [-1, 9, 6, -1]
    for extents, values in (((1, 6), [0, 1, 2, 9]), ((9, 7), [1, 7, 0, 6])):
        found[:] = extents
        assert memory.run(step, 4) == Code.EXTENT
        assert memory.failure.tolist() == [Code.EXTENT, 4, 0, 4]
        assert memory.field("failure_values", np.int64, 4) == values


def test_a_kernel_gets_places_and_numbers() -> None:
    args = Arg("arena", 64), Arg("output", 1, 8), Arg("scalar", 3), Arg("extent", 2)
    call = KernelCall("k", args, "conv", Arg("place", 1, slot=0), messages=("no",))
    assert text_of(Grow(0, 8), call).split("return 7\n")[1] == """\
locate slot0: u8[0] heap = slots[0], 0
let n: i64 = values[2]
let code: i32 = call k(arena[64], output1[8], 3, n, slot0[values[1]], context[0]), "conv"
if code != 0:i32:
    failure[1] = 0:i32
    return code"""  # fmt: skip


def test_a_kernel_that_can_not_fail_is_not_asked() -> None:
    text = 'let code: i32 = call k(input0[0], arena[0], context[0]), "conv, relu"\npass'
    assert text_of(KernelCall("k", (Arg("input", 0),), sources=("conv", "relu"))) == text


def test_a_function_of_the_host_gets_places_and_extents() -> None:
    array = HostArray(f32, Arg("input", 0), (2, Arg("extent", 3)))
    text = text_of(HostCall("f", "", "F", "node", (array,), (array,)))
    assert text.startswith(
        "let n: i64 = values[3]\nlet n_1: i64 = values[3]\nlet code: i32 = host 0 "
    )
    assert 'of context[0](input0[0], input0[0], n, n_1), "node"\n' in text
    assert text.endswith("failure[3] = 0:i32\n    return 8")


def test_memory_of_threads_grows_if_there_is_less(golden) -> None:
    golden(text_of(Grow(0, Arg("extent", 2), for_threads=True), Grow(1, 64, keep=Arg("extent", 0))))


LOOP = Repeat(
    Arg("arena", 8),
    (Grow(2, Arg("extent", 1), target=2), KernelCall("k", (Arg("pointer", 0), Arg("pointer", 2)))),
    slices=(
        Slice(0, Arg("input", 0, 16), 32, backward=True),
        Slice(5, Arg("arena", 0, slot=1), 8, slot=1),
    ),
    carried=(
        Carried(1, Arg("input", 1), Arg("pointer", 2), None, None, target=2, slot=2),
        Carried(3, Arg("input", 2), Arg("pointer", 4), Arg("output", 0), 64, 4, Arg("arena", 64)),
    ),
    number=Arg("arena", 16),
    first=Arg("input", 3),
    again=Arg("arena", 24),
    ran=Arg("output", 1),
)  # fmt: skip


def test_a_loop(golden) -> None:
    golden(text_of(Grow(1, 0), LOOP))


@pytest.mark.parametrize("count", [3, 4])
def test_buffers_take_turns_so_that_the_last_one_is_the_end(count: int) -> None:
    end, other = Arg("output", 0), Arg("arena", 64)
    carried = Carried(0, Arg("input", 0), Arg("pointer", 1), end, 64, 1, other)
    text = text_of(Repeat(count, (), carried=(carried,)))
    first, second = ("output0[0]", "arena[64]") if count % 2 else ("arena[64]", "output0[0]")
    assert f"point pointers[0], 1 to {first}\npoint pointers[0], 2 to {second}\n" in text


def test_the_context_is_checked(golden) -> None:
    grown = Grow(0, 8)
    call = KernelCall("k", (Arg("input", 0), Arg("output", 1)))
    measured = Measurement(Arg("arena", 0), 2, (Extent("n", 0, 9),), "sizes1")
    host = HostCall("f", "", "", "", (), ())
    golden(str(lower_main([grown, call, measured, host], times=1, clock=3, sizes=4)))


def test_parts_are_no_steps_of_a_main_function() -> None:
    with pytest.raises(InternalError, match="the main function of a CPU has no Step"):
        lower_main([Step()])


def run_while(values: Sequence[int], text: str) -> list[int]:
    func = parse_func(text)
    verify(func, "final")
    data = np.array(values, np.int64)
    interpret(func, [data])
    return data.tolist()


def test_a_loop_ends_as_its_condition_says() -> None:
    body = """\
def f(x: i64[3]) -> x:
    while x[0] < x[1]:
        x[0] = x[0] + 1
        while x[2] < x[0] * 10:
            x[2] = x[2] + 7
"""
    assert run_while((0, 3, 0), body) == [3, 3, 35]
    assert run_while((3, 3, 0), body) == [3, 3, 0]


assert SIZE <= BYTES
