"""The verifier refuses each kind of unsound program, and says where."""

from __future__ import annotations

import pytest

from tilesmith.program.parse import parse_program
from tilesmith.program.verify import verify
from tilesmith.support.errors import VerifyError

HEAD = (
    'main("x": f32["n", 4], "y": f32[2, 4]) -> ("z": f32[2, 4], "w": f32["n"]) '
    'symbols=["n" from 1 to 9 expected 4] arena_bytes=128 constant_bytes=64 size_values=6:\n'
)
HOST = 'host f(string[7] at arena+120) -> (f32[2, 4] at output0) settings="" operator="" label=""'
LOOP = """\
grow slot2 to 0
repeat 4 number=arena+64:
    slice pointer0 = input1 by 8
    slice pointer4 = slot2 by %1 slot=slot2
    carry pointer1 = input1 then pointer2 end=output0 bytes=32 target=pointer2 other=arena
    carry pointer3 = arena then arena+32
    call k(pointer0, pointer1, pointer2, pointer4)
copy pointer3 -> output0, 32"""
TURNS = """\
grow slot3 to 64
repeat 4:
    carry pointer1 = slot3 then pointer2 target=pointer2 slot=slot2
    grow slot2 to %2 target=pointer2
copy pointer1 -> output1, %3"""


def program(steps: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in steps.split("\n"))


@pytest.mark.parametrize(
    "steps",
    (
        "call k(input0, input1, output1, constants+64, arena+128, arena+%5, %0, 7)",
        "copy input1 -> output0, 32",
        "copy arena -> arena+64, 64",
        "copy arena -> arena, 64",
        'measure "a" from 0 to %3 at arena, first 1, sizes s\n'
        'measure "b" from 0 to 7, "c" from 1 to 1 at arena, first 2, sizes s',
        "report [1, [%2]] -> output2",
        HOST,
        "store 1, %2 -> arena+112",
        LOOP,
        TURNS,
    ),
)
def test_sound_programs(steps: str) -> None:
    verify(parse_program(program(steps)), {"k", "s"}, 1 << 20, 3)


@pytest.mark.parametrize(
    ("steps", "message"),
    (
        ("call f()", "the function 'f' has no code"),
        ("call k(input2)", r"number from 0 to 1 .* found input 2 and 0: call k\(input2\)"),
        ("call k(output0+33)", "an offset from 0 to 32, found output 0 and 33"),
        ("call k(input0+1)", "an offset from 0 to 0, found input 0 and 1"),
        ("call k(arena+129)", "expected a number from 0 to 128"),
        ("call k(constants+65)", "expected a number from 0 to 64"),
        ("call k(arena+%6)", "expected a number from 0 to 5"),
        ("call k(%6)", "expected a number from 0 to 5"),
        ("call k(slot0)", "nothing grows in slot 0"),
        ("call k(pointer0)", "pointer 0 is used outside of its loop"),
        ("call k(-1)", "found scalar -1"),
        ("call k() workspace=%1", "expected memory, found extent 1"),
        ("copy input1+8 -> output0, 32", "bytes 8 to 40 lie beyond the end at 32: copy input1"),
        ("copy arena -> arena+32, 64", "the 64 bytes at 0 and at 32 overlap: copy arena -> arena"),
        ("copy input1 -> constants, 8", "a constant is written"),
        ("copy input1 -> 8, 8", "expected memory, found scalar 8"),
        ("copy arena -> output0, arena", "a size is of kind 'arena'"),
        ("copy arena -> output0, 2000000", "expected a size from 0 to 1048576, found 2000000"),
        ("store 1, 2 -> arena+120", "bytes 120 to 136 lie beyond the end at 128"),
        ("store arena -> arena", "a size is of kind 'arena'"),
        ("if arena+128:\n    pass", "bytes 128 to 129 lie beyond"),
        ("grow slot70000 to 8", "number of a slot: expected a number from 0 to 65536"),
        ("grow slot2 to 8 target=pointer2", "memory grows for pointer 2 outside of its loop"),
        ("report [2, [%2]] -> output2", "number of an output: expected a number from 0 to 1"),
        ("report [1, [%2]] -> output3", "number of an output: expected a number from 0 to 2"),
        ('measure "a" from 0 to 3 at arena, first 0, sizes s', "from number 0 on, expected 1"),
        ('measure "a" from 0 to 3 at arena, first 1, sizes f', "the function 'f' has no code"),
        ('measure "a" from 0 to 3 at arena+121, first 1, sizes s', "bytes 121 to 129 lie beyond"),
        (HOST.replace("output0", "arena+97"), "bytes 97 to 129 lie beyond"),
        (HOST.replace("output0", "constants"), "a constant is written"),
        (LOOP.replace("pointer4 = slot2", "pointer1 = slot2"), "two loops move the same pointer"),
        (LOOP.replace("by 8", "by 9"), "bytes 0 to 36 lie beyond the end at 32: slice pointer0"),
        (LOOP.replace(" other=arena", ""), "a carried value has half of two buffers: carry"),
        (LOOP.replace(" end=output0", ""), "a buffer takes turns with no other: carry"),
        (LOOP.replace("other=arena", "other=output0+8"), "bytes 8 to 40 lie beyond"),
        (LOOP.replace("other=arena", "other=pointer2"), "pointer 2 is used outside of its loop"),
        (LOOP.replace("end=output0", "end=arena+16"), "bytes at 16 and at 0 overlap: carry"),
        (LOOP.replace("number", "first"), "a loop has half of a condition"),
        (LOOP.replace("slot=slot2", "slot=slot3"), "nothing grows in slot 3: slice pointer4"),
        (LOOP.replace("grow slot2 to 0\n", "") + "\ngrow slot2 to %1", "before it has memory"),
        ("copy slot0 -> output0, 32\ngrow slot0 to 32", "slot 0 is used before it has memory"),
        (LOOP.replace("copy pointer3", "copy pointer0"), "pointer 0 is used outside"),
        (TURNS.replace("slot=slot2", "slot=slot3"), "nothing grows in slot 3: carry pointer1"),
        ("if arena:\n    if arena:\n        if arena:\n            if arena:\n"
         "                pass", "control flow is nested more than 3 deep"),
        ("part 0(0) -> (1)", "only a program of parts has this step"),
    ),
)  # fmt: skip
def test_unsound_programs(steps: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(program(steps)), {"k", "s"}, 1 << 20, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    (
        (("f32[2, 4]", "f32[-2, 4]"), "an extent of 'y': expected a number from 0"),
        (("f32[2, 4]", f"f32[{', '.join('1' * 17)}]"), "'y' has more than 16 dimensions"),
        (("f32[2, 4]", "f32[2000, 4000]"), "'y' needs 32000000 bytes, the machine has"),
        (("from 1 to 9", "from 1 to 3"), "symbol 'n': expected 0 <= low <= expected"),
        (("arena_bytes=128", "arena_bytes=-1"), "arena_bytes: expected a number from 0"),
        (("constant_bytes=64", "constant_bytes=-1"), "constant_bytes: expected a number"),
        (("size_values=6", "size_values=99999999"), "size_values: expected a number"),
        (("size_values=6", "size_values=6 in_place=[[2, 0]]"), "number of an output"),
        (("size_values=6", "size_values=6 in_place=[[0, 2]]"), "number of an input"),
        (("size_values=6", "size_values=6 in_place=[[0, 0]]"), "output z.* does not fit"),
    ),
)  # fmt: skip
def test_unsound_memories(change: tuple[str, str], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(program("pass").replace(*change)), (), 1 << 20)


PARTS = 'main("x": f32[2]) -> ("y": f32[2]) parts=2:\n    part 0(0) -> (1)\n    {}\n'


@pytest.mark.parametrize(
    ("steps", "message"),
    (
        ("transfer 1 -> 2\n    part 1(2) -> (3)\n    results 3", ""),
        ("part 1(2) -> (3)\n    results 3", r"do not fit its parts: part 1\(2\) -> \(3\)"),
        ("part 0(1) -> (3)\n    results 3", "do not fit its parts: part 0"),
        ("results 1", "1 calls of 2 parts"),
        ("part 1(1) -> (2)\n    results 1, 2", "do not fit its parts: results 1, 2"),
        ("results 1\n    part 1(1) -> (2)", "do not fit its parts: results 1"),
        ("part 1(1) -> (2)", "do not fit its parts: part 1"),
        ("part 1(1) -> (20000000)\n    results 1", "number of a value"),
        ("copy arena -> arena, 0\n    results 1", "a program of parts has no such step: copy"),
    ),
)
def test_programs_of_parts(steps: str, message: str) -> None:
    main = parse_program(PARTS.format(steps))
    if not message:
        return verify(main)
    with pytest.raises(VerifyError, match=message):
        verify(main)
    return None
