"""The interpreter of main programs, with kernels that are Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilesmith.loop.parse import parse_func
from tilesmith.program.interpret import interpret, view
from tilesmith.program.parse import parse_program
from tilesmith.program.run import Actions, Address, Run
from tilesmith.program.verify import verify
from tilesmith.support.errors import InternalError, ModelError

I64 = np.dtype(np.int64)


def add(args: Sequence[Address | int]) -> None:
    """The sum of two numbers in memory."""
    a, b, out = (view(x, I64) for x in args if isinstance(x, tuple))
    out[...] = a + b


def seen(args: Sequence[Address | int]) -> None:
    """The first argument, read in memory."""
    at, to = (x for x in args if isinstance(x, tuple))
    view(to, I64)[...] = view(at, I64)


DOUBLE = parse_func("""\
def double(x: i64[n], y: i64[n], n: i64) -> y:
    for i in range(n):
        y[i] = x[i] * 2
""")
FIRST = parse_func("""\
def first(x: i64[4], y: i64[4]) -> y:
    y[0] = x[0]
""")
SIZES = parse_func("""\
def tilesmith_sizes(extents: i64[1], values: i64[5]) -> values:
    if extents[0] < 0:
        return 4
    values[0] = extents[0] * 8
    values[1] = 0
    values[2] = extents[0]
    values[3] = extents[0]
    values[4] = extents[0] * 8
""")
COUNT = parse_func("""\
def count(extents: i64[1], values: i64[2]) -> values:
    values[0] = extents[0] * 8
    values[1] = extents[0]
""")
FUNCTIONS = {
    "add": add,
    "seen": seen,
    "double": DOUBLE,
    "first": FIRST,
    "tilesmith_sizes": SIZES,
    "count": COUNT,
}


def run(head: str, steps: str, *inputs: Any) -> list[Any]:
    main = parse_program(f"main({head}:\n" + "".join(f"    {s}\n" for s in steps.split("\n")))
    verify(main, FUNCTIONS)
    given = [np.asarray(x, np.int64) for x in inputs]
    return interpret(main, given, np.arange(8).view(np.uint8), FUNCTIONS)


VECTOR = '"x": i64[4]) -> ("y": i64[4]) arena_bytes=64 constant_bytes=64'
FOUR = (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("steps", "expected"),
    (
        ("copy input0 -> output0, 32", FOUR),
        ("copy output0 -> output0, 32\ncopy constants+8 -> output0, 32", (1, 2, 3, 4)),
        ("call double(input0, output0, 4)", (2, 4, 6, 8)),
        ("store 5, 6, 7, 8 -> output0", (5, 6, 7, 8)),
        ("if constants+8:\n    copy input0 -> output0, 32\nelse:\n    store 1 -> output0", FOUR),
        ("if constants:\n    pass\nelse:\n    copy input0 -> output0, 32", FOUR),
        (
            "repeat 4:\n    slice pointer0 = input0 by 8\n"
            "    slice pointer1 = output0 by 8 backward\n    copy pointer0 -> pointer1, 8",
            (4, 3, 2, 1),
        ),
        (  # the sums up to each element: both handed on and collected
            "repeat 4 number=arena:\n    slice pointer0 = input0 by 8\n"
            "    slice pointer1 = output0 by 8\n"
            "    carry pointer2 = constants then pointer1\n"
            "    call add(pointer0, pointer2, pointer1)",
            (1, 3, 6, 10),
        ),
        (
            "repeat 3:\n    carry pointer0 = constants+8 then pointer1 end=output0 bytes=8 "
            "target=pointer1 other=arena\n    call add(pointer0, pointer0, pointer1)\n"
            "copy input0+8 -> output0+8, 24",
            (8, 2, 3, 4),
        ),
        (
            "repeat 2:\n    carry pointer0 = constants+8 then pointer1 end=output0 bytes=8 "
            "target=pointer1 other=arena\n    call add(pointer0, pointer0, pointer1)\n"
            "copy input0+8 -> output0+8, 24",
            (4, 2, 3, 4),
        ),
        (
            "repeat 9 number=arena first=input0 again=constants ran=output0:\n    pass\n"
            "copy input0+8 -> output0+8, 24",
            (1, 2, 3, 4),
        ),
        ("repeat input0+8 ran=output0:\n    pass\ncopy input0+8 -> output0+8, 24", (2, 2, 3, 4)),
        (
            "grow slot1 to 8\ncopy input0 -> slot1, 8\ngrow slot1 to 32 keep=8\n"
            "copy input0+8 -> slot1+8, 24\ncopy slot1 -> output0, 32",
            FOUR,
        ),
        (
            "grow slot1 to 0\nrepeat 4:\n    slice pointer0 = slot1 by 8 slot=slot1\n"
            "    slice pointer1 = input0 by 8\n    copy pointer1 -> pointer0, 8\n"
            "copy slot1 -> output0, 32",
            FOUR,
        ),
        (
            "grow slot2 to 8\ncopy constants+8 -> slot2, 8\nrepeat 4:\n"
            "    carry pointer0 = slot2 then pointer1 target=pointer1 slot=slot1\n"
            "    slice pointer2 = output0 by 8\n    grow slot1 to 8 target=pointer1\n"
            "    call add(pointer0, pointer0, pointer1)\n    call seen(pointer1, pointer2)",
            (2, 4, 8, 16),
        ),
    ),
)
def test_steps(steps: str, expected: tuple[int, ...]) -> None:
    (found,) = run(VECTOR, steps, FOUR)
    assert found.tolist() == [*expected]


def test_a_kernel_need_not_use_all_that_it_declares() -> None:
    """As where its rows lie in longer rows of another value."""
    (found,) = run(VECTOR, "copy input0 -> output0, 32\ncall first(input0+24, output0+16)", FOUR)
    assert found.tolist() == [1, 2, 4, 4]


def test_sizes_of_inputs() -> None:
    head = '"x": i64["n"]) -> ("y": i64["n"]) symbols=["n" from 0 to 9 expected 4] size_values=5'
    steps = "call double(input0, arena, %3)\ncopy arena -> output0, %4"
    for n in (0, 1, 5):
        (found,) = run(head, steps, range(n))
        assert found.tolist() == [2 * i for i in range(n)]


def test_sizes_that_a_run_measures() -> None:
    head = '"x": i64[4]) -> ("y": i64["n"]) arena_bytes=64 size_values=2'
    steps = (
        'measure "n" from 0 to 4 at input0, first 0, sizes count\ngrow slot0 to %0\n'
        "copy input0 -> slot0, %0\nreport [0, [%1]] -> output1"
    )
    (found,) = run(head, steps, (3, 1, 2, 4))
    assert found.tolist() == [3, 1, 2]
    with pytest.raises(ModelError, match="'n' is 5; expected 0 to 4"):
        run(head, steps, (5, 1, 2, 4))


def test_outputs_in_inputs() -> None:
    head = '"x": i64[4]) -> ("y": i64[4]) in_place=[[0, 0]]'
    x = np.array(FOUR)
    (found,) = run(head, "call double(input0, input0, 4)", x)
    assert found.tolist() == [2, 4, 6, 8] and x.tolist() == [*FOUR]


def test_what_reaches_too_far_is_refused() -> None:
    with pytest.raises(InternalError, match=r"call double.* written behind a memory of 32"):
        run(VECTOR, "call double(input0, output0+8, 4)", FOUR)
    with pytest.raises(InternalError, match="bytes 8 to 72 of a memory of 32 bytes"):
        run(VECTOR, "call double(input0, output0+8, 8)", FOUR)
    measured = 'measure "n" from 0 to 4 at input0, first 0, sizes count\n'
    with pytest.raises(InternalError, match="the 24 bytes at 8 and 0 overlap"):
        run(f"{VECTOR} size_values=2", measured + "copy arena+8 -> arena, %0", (3, 0, 0, 0))


def test_inputs_are_checked() -> None:
    main = parse_program('main("x": f32[2]) -> ():\n    pass\n')
    with pytest.raises(ModelError, match=r"input x: f32.* found an array of int64"):
        interpret(main, [np.zeros(2, np.int64)], np.zeros(0, np.uint8), {})


PARTS = """\
main("x": i64[2]) -> ("y": i64[2], "z": i64[2]) parts=2:
    part 0(0) -> (1)
    transfer 1 -> 2 to_device
    part 1(2) -> (3)
    transfer 3 -> 4
    results 4, 1
"""


def test_a_program_of_parts() -> None:
    main, x = parse_program(PARTS), np.array([1, 2])
    verify(main)
    parts = [
        lambda values: [values[0] + 1],
        lambda values: [np.multiply(values[0], 3, out=values[0])],
    ]
    y, z = interpret(main, [x], np.zeros(0, np.uint8), {}, parts)
    assert (y.tolist(), z.tolist(), x.tolist()) == ([6, 9], [2, 3], [1, 2])
    with pytest.raises(InternalError, match="the program has 2 parts, 1 are given"):
        interpret(main, [x], np.zeros(0, np.uint8), {}, parts[:1])


@pytest.mark.parametrize(
    "step",
    ("call k(arena)", "copy arena -> arena, 8", "if arena:\n    pass", "repeat arena:\n    pass",
     "repeat 3 number=arena:\n    pass", "store 1 -> arena", "grow slot0 to 8", "part 0() -> ()",
     'measure "n" from 0 to 3 at arena, first 0, sizes s', "transfer 0 -> 1",
     'host f(f32[1] at arena) -> () settings="" operator="" label=""'),
)  # fmt: skip
def test_a_run_refuses_steps_for_which_it_has_no_action(step: str) -> None:
    lines = "".join(f"    {line}\n" for line in step.split("\n"))
    main = parse_program(f"main() -> ():\n{lines}")
    run = Run(Actions(), {("arena", 0): None}, [0])
    with pytest.raises(InternalError, match=f"{step.split()[0]} .*: .* has no such step"):
        run.steps(main.steps)
