"""The text of the main program is read back as the same program."""

from __future__ import annotations

import json

import pytest

from tilesmith.ir.dtypes import by_name, f32, host_type, string
from tilesmith.ir.grammar import fields_of
from tilesmith.program import nodes
from tilesmith.program.json_values import from_json, to_json
from tilesmith.program.main import Main, Symbol, TensorSpec
from tilesmith.program.nodes import Arg
from tilesmith.program.operands import parse_operand, print_operand
from tilesmith.program.parse import parse_program
from tilesmith.program.text import print_program
from tilesmith.support.errors import ParseError

SLOT = Arg("arena", 0, slot=3)
PLACE = Arg("place", 4, 64)
EXTENT = Arg("extent", 2)
PARTS = (
    nodes.PartCall(0, (0, 1), (2,)),
    nodes.Transfer(2, 3, to_device=True),
    nodes.Transfer(3, 4, to_device=False),
    nodes.PartCall(1, (), ()),
    nodes.Results((2, 4)),
)
LOOP = nodes.Repeat(
    EXTENT,
    (nodes.KernelCall("slot3", (Arg("pointer", 1), Arg("pointer", 3, 8), Arg("scalar", 7))),),
    (nodes.Slice(0, Arg("input", 0), 32), nodes.Slice(5, SLOT, EXTENT, True, 3)),
    (
        nodes.Carried(1, PLACE, Arg("pointer", 3), Arg("output", 0, 8), 16, 3, Arg("arena", 8)),
        nodes.Carried(2, Arg("constant", 0), Arg("arena", 0), None, None),
        nodes.Carried(4, SLOT, Arg("pointer", 6), None, EXTENT, 6, None, 4),
    ),
    number=Arg("arena", 64),
    first=Arg("arena", 65),
    again=Arg("pointer", 0),
    ran=PLACE,
)
STEPS = (
    nodes.KernelCall("k.0$a", (Arg("input", 0), Arg("constant", 128), PLACE, EXTENT), "a \"b\"\n#",
                     Arg("place", 1, slot=2), ("too long", ""), ("a", "ü")),
    nodes.Copy(Arg("input", 1, 64), SLOT, EXTENT),
    nodes.Branch(Arg("arena", 9), (), (nodes.Branch(PLACE, (LOOP,), ()),)),
    nodes.Branch(Arg("arena", 9), (nodes.Copy(PLACE, SLOT, 0),), (nodes.Grow(0, 5),)),
    LOOP,
    nodes.Repeat(3, ()),
    nodes.HostCall("zip", "{}", "Op", "", (nodes.HostArray(host_type("seq", f32), PLACE, ()),),
                   (nodes.HostArray(string, SLOT, (EXTENT, 2)),), True),
    nodes.HostCall("none", "", "", "x", (), ()),
    nodes.Measurement(PLACE, 3, (nodes.Extent("n", 0, EXTENT), nodes.Extent("m * 2", 1, 9)), "s1"),
    nodes.Grow(3, EXTENT, keep=8),
    nodes.Grow(4, 64, for_threads=True),
    nodes.Grow(5, 64, target=6),
    nodes.Store(PLACE, (1, EXTENT)),
    nodes.Report(1, ((0, (EXTENT, 2)), (2, ()))),
)  # fmt: skip
SPECS = (
    TensorSpec("x:0", f32, ("n", 3)),
    TensorSpec("", by_name("map_string_f32") or f32, ()),
    TensorSpec("in/π", f32, (1,)),
)


def programs() -> list[Main]:
    inputs, outputs = SPECS[:2], SPECS[1:]
    return [
        Main((), ()),
        Main(inputs, outputs, (Symbol("n", 0, 64, 8),), 64, 32, 128, 9, ((0, 1), (1, 0)), 0, STEPS),
        Main(SPECS, (), (), 0, 0, 0, 0, (), 2, PARTS),
    ]


def test_a_program_is_read_back_as_itself() -> None:
    kinds = {k for k in vars(nodes).values() if isinstance(k, type) and issubclass(k, nodes.Step)}
    assert {type(s) for s in (*STEPS, *PARTS)} == kinds - {nodes.Step}
    for main in programs():
        text = print_program(main)
        assert parse_program(text) == main, text
        assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    "text",
    ("input0", "output1+8", "constants", "constants+128", "arena", "arena+64", "arena+%3",
     "arena+%3+64", "slot2", "slot2+8", "slot2+%3", "pointer4+16", "%3", "7", "-7"),
)  # fmt: skip
def test_an_argument_is_read_back_as_itself(text: str) -> None:
    assert print_operand(parse_operand(text)) == text


@pytest.mark.parametrize("text", ("", "input", "slot", "arena+", "constants+%1", "%", "x0", "1.5"))
def test_other_arguments_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="expected an argument such as"):
        parse_operand(text)


@pytest.mark.parametrize(
    ("steps", "message"),
    (
        ("copy arena -> arena+64", "line 2, column 27: expected ',', found the end of the line"),
        ("copy arena -> arena+64, x", "expected a number or an argument, found 'x'"),
        ("call k(arena", r"expected '\)'"),
        ("call 3(arena)", "expected a word, found '3'"),
        ("host f(f9[2] at arena) -> ()", "expected an element type, found 'f9'"),
        ("leap 3", r"expected a step \(call, .*\), found 'leap'"),
        ("repeat 3:", "expected an indented block, found the end"),
        ("slice pointer0 = input0 by 4", "a Slice does not belong here"),
        ("grow 3 to 64", "expected slot and a number, found '3'"),
        ('call k() label="\\q"', "the text in quotes has a bad escape"),
        ("pass\n  pass", r"expected a step at column 5, found 'pass'"),
        ("measure 3 from 0 to 2 at arena, first 0, sizes s", "expected text in quotes"),
        ("copy arena ; arena", "line 2, column 16: unexpected character ';'"),
    ),
)
def test_what_is_no_program_is_refused(steps: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_program(f"main() -> ():\n    {steps}\n")


def test_what_follows_a_program_is_refused() -> None:
    with pytest.raises(ParseError, match="expected the end of the program"):
        parse_program("main() -> ():\n    pass\nmain() -> ():\n    pass\n")


def test_every_field_has_a_role() -> None:
    for kind in vars(nodes).values():
        if isinstance(kind, type) and issubclass(kind, nodes.Node):
            fields_of(kind)


def test_json_is_read_back_as_the_same_program() -> None:
    for main in programs():
        assert from_json(Main, json.loads(json.dumps(to_json(main)))) == main


@pytest.mark.parametrize(
    ("value", "message"),
    (
        ({"step": "leap"}, "expected a step, found {'step': 'leap'}"),
        ({"step": ["copy"]}, "expected a step"),
        ({"step": "slice", "pointer": 0, "first": "arena", "stride": 4}, "expected a step"),
        (3, "expected a step, found 3"),
        ({"step": "copy", "source": "arena", "to": "arena"}, "a Copy needs 'bytes'"),
        ({"step": "results", "values": [1], "x": 2}, "a Results has no 'x'"),
        ({"step": "results", "values": [True]}, "expected a number, found True"),
        ({"step": "results", "values": 1}, "expected a list, found 1"),
        ({"step": "grow", "slot": 1, "bytes": "x"}, "expected an argument such as"),
        ({"step": "grow", "slot": 1, "bytes": 1.5}, "expected a number, found 1.5"),
        ({"step": "grow", "slot": 1, "bytes": 1, "for_threads": 1}, "expected true or false"),
        ({"step": "call", "symbol": 3, "args": []}, "expected text, found int"),
        ({"step": "report", "to": 1, "shapes": [[0, [1], 2]]}, "expected 2 values, found 3"),
    ),
)
def test_other_json_is_refused(value: object, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        from_json(Main, {"inputs": [], "outputs": [], "steps": [value]})


def test_an_unknown_element_type_in_json_is_refused() -> None:
    spec = {"name": "x", "dtype": "f7", "shape": []}
    with pytest.raises(ParseError, match="'f7' is no element type"):
        from_json(Main, {"inputs": [spec], "outputs": []})
    with pytest.raises(ParseError, match="expected the fields of a Main, found 3"):
        from_json(Main, 3)
