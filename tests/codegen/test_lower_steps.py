"""Steps of the main function as loop IR: what they mean, by the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilesmith.codegen.context import BY_NAME, SIZE, Code
from tilesmith.codegen.lower_steps import CONTEXT, FAILURE, MEASURED, VALUES, lower_step
from tilesmith.ir.dtypes import i32
from tilesmith.ir.expr import Var, const
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import CallFunction, Func, If, Return, Stmt, seq
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_stmt
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt
from tilesmith.program.nodes import (
    Arg,
    Branch,
    Copy,
    Extent,
    KernelCall,
    Measurement,
    Report,
    Step,
    Store,
)


class Memory:
    """The memory of a run."""

    def __init__(self, *values: int) -> None:
        self.values = np.array([*values, 0], np.int64)
        self.measured = np.full(4, -1, np.int64)
        self.context = np.zeros(SIZE, np.uint8)
        self.failure = np.zeros(4, np.int32)
        self.bytes: dict[Arg, np.ndarray] = {}

    def at(self, arg: Arg) -> np.ndarray:
        """128 bytes of the memory in which an argument lies."""
        return self.bytes.setdefault(arg, np.arange(128, dtype=np.uint8))

    def field(self, name: str, dtype: type, count: int = 1) -> list[int]:
        """A field of the context."""
        begin = BY_NAME[name].offset
        size = np.dtype(dtype).itemsize * count
        return self.context[begin : begin + size].view(dtype).tolist()

    def run(self, step: Step, number: int = 0) -> int:
        """Run a step as a function of loop IR."""
        lowered = lower_step(step, number)
        own = {VALUES: self.values, MEASURED: self.measured, CONTEXT: self.context}
        own |= {FAILURE: self.failure}
        given = own | {b: self.at(arg) for b, arg in lowered.memory.items()}
        sizes = list(dict.fromkeys(d for b in given for d in b.shape if isinstance(d, Var)))
        length = {b.shape[0]: len(a) for b, a in given.items()}
        func = Func("step", (*given, *sizes), tuple(given), _plain(lowered.stmt))
        verify(func, "final")
        assert structural_equal(parse_func(str(func)), func)
        return interpret(func, [*given.values(), *(length[v] for v in sizes)])


def _plain(stmt: Stmt) -> Stmt:
    """The statement; steps inside a branch leave with a code, and calls do nothing."""
    stmt = map_stmt(stmt, f_stmt=lambda s: seq() if isinstance(s, CallFunction) else s)
    if isinstance(stmt, If) and stmt.otherwise is not None:
        return replace(stmt, then=Return(const(1, i32)), otherwise=Return(const(2, i32)))
    return stmt


ARENA = Arg("arena", 0)


def words(data: np.ndarray, begin: int, count: int) -> list[int]:
    return data[begin : begin + 8 * count].view(np.int64).tolist()


def test_a_branch_reads_a_byte() -> None:
    memory = Memory()
    assert memory.run(Branch(Arg("input", 3, 0), (), ())) == 2
    assert memory.run(Branch(Arg("input", 3, 5), (), ())) == 1


def test_bytes_are_copied_unless_they_are_there() -> None:
    memory = Memory(16, 8)
    memory.run(Copy(Arg("input", 0, 4), Arg("place", 0, 32), Arg("extent", 1)))
    assert memory.at(ARENA)[48:57].tolist() == [*range(4, 12), 56]
    memory.run(Copy(Arg("arena", 48), Arg("arena", 48), 8))
    assert memory.at(ARENA)[48:57].tolist() == [*range(4, 12), 56]
    memory.run(Copy(Arg("constant", 2), Arg("arena", 0, slot=1), 3))
    assert memory.at(Arg("arena", 0, slot=1))[:4].tolist() == [2, 3, 4, 3]


def test_numbers_are_stored() -> None:
    memory = Memory(70, 80)
    memory.run(Store(Arg("pointer", 2, 8), (5, Arg("extent", 1))))
    assert words(memory.at(Arg("pointer", 2)), 8, 2) == [5, 80]
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
    assert (
        print_stmt(lower_step(call, 5).stmt)
        == """let n: i64 = values[2]
let code: i32 = call k(arena[64], output[8], 3, n, slot0[values[1]], context[0]), "conv"
if code != 0:i32:
    failure[1] = 5:i32
    return code"""
    )


def test_a_kernel_that_can_not_fail_is_not_asked() -> None:
    stmt = lower_step(KernelCall("k", (Arg("input", 0),), sources=("conv", "relu"))).stmt
    text = 'let code: i32 = call k(input[0], arena[0], context[0]), "conv, relu"\npass'
    assert print_stmt(stmt) == text
