"""Depth is no limit: what nests very deep is compiled, or refused by a typed error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_models import model, node

import tilesmith as ts
from tilesmith import te
from tilesmith.cli import execute
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.archive.tree import Tree
from tilesmith.graph.parse import parse_graph
from tilesmith.ir.expr import Var
from tilesmith.ir.parse import parse_expr
from tilesmith.search_space.record_lines import read_families, read_lines
from tilesmith.support.errors import ModelError, ParseError, TilesmithError

DEEP = 10_000


def test_nodes_in_a_row():
    names = [f"v{i}" for i in range(1200)]
    nodes = [node("Add", f"{a} {names[0]}", b) for a, b in pairwise(names)]
    executable = ts.compile(model(nodes, {names[0]: [2]}, [names[-1]]), threads=1)
    (result,) = executable.run({names[0]: np.ones(2, np.float32)}).values()
    np.testing.assert_array_equal(result, np.full(2, len(names), np.float32))


def _branches(depth: int) -> bytes:
    """A model of `If` nodes within each other, encoded by hand: libraries refuse to."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _length(len(content)) + content

    graph = b""
    for _ in range(depth):
        branch = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(4, b"If") + field(5, branch))
    return b"\x08\x09" + field(7, graph) + field(8, b"\x10\x14")


def _length(n: int) -> bytes:
    encoded = b""
    while n > 127:
        encoded += bytes([n & 127 | 128])
        n >>= 7
    return encoded + bytes([n])


@pytest.mark.parametrize("depth", [10, 40, 200, DEEP])
def test_branches_in_branches(depth):
    with pytest.raises(ModelError):
        ts.compile(_branches(depth))


def test_loops_in_loops():
    depth = 20
    graph = None
    for k in range(depth):
        state, result = f"s{k}", f"r{k}"
        body = [helper.make_node("Identity", [f"c{k}"], [f"d{k}"])]
        if graph is None:
            body.append(helper.make_node("Neg", [state], [result]))
        else:
            body.append(helper.make_node("Loop", ["n", "", state], [result], body=graph))
        inputs = [
            helper.make_tensor_value_info(f"i{k}", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"c{k}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, TensorProto.FLOAT, [2]),
        ]
        outputs = [
            helper.make_tensor_value_info(f"d{k}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(result, TensorProto.FLOAT, [2]),
        ]
        graph = helper.make_graph(body, "b", inputs, outputs)
    made = model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=graph)], {"x": [2]}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    found = ts.compile(onnx.load_from_string(made.SerializeToString()), threads=1).run(
        {"x": np.ones(2, np.float32), "n": np.array(1)}
    )
    np.testing.assert_array_equal(found["y"], -np.ones(2, np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEEP + "x" + ")" * DEEP,
        "-" * DEEP + "x",
        "not " * DEEP + "x",
        "x + (" * DEEP + "x" + ")" * DEEP,
        "select(x < 1, x, " * DEEP + "x" + ")" * DEEP,
        "let(y, x, " * DEEP + "x" + ")" * DEEP,
    ],
)
def test_expressions_in_text(text):
    with pytest.raises(ParseError, match="too deeply"):
        parse_expr(text, {"x": Var("x")})


def test_a_long_sum_in_text():
    text = "x" + " + x" * DEEP
    assert str(parse_expr(text, {"x": Var("x")})) == text


def test_attributes_in_text():
    shape = "(" * DEEP + "1" + ",)" * DEEP
    with pytest.raises(ParseError, match="too deeply"):
        parse_graph(f"graph g(%x: f32[1]) {{ %y: f32[1] = reshape(%x) {{shape={shape}}} }}")


@pytest.mark.parametrize(
    "body",
    [
        "".join(f"{' ' * i}for i{i} in range(2):\n" for i in range(1, 400)) + " " * 400 + "pass\n",
        "".join(f" let v{i}: f32 = {f'v{i - 1}' if i else '1.0'}\n" for i in range(DEEP)),
        f" A[0] = A[0]{' + A[0]' * DEEP}\n",
    ],
)
def test_loops_in_text(tmp_path, capsys, body):
    path = tmp_path / "t.txt"
    path.write_text(f"def f(A: f32[8]) -> A:\n{body}")
    assert execute(["opt", str(path), "--to", "asm"]) in (0, 1)
    assert "bug" not in capsys.readouterr().err


def _chain(length: int, step) -> None:
    def body(i):
        value = x[i]
        for k in range(length):
            value = step(value, k)
        return value

    x = te.placeholder((8,), "f32", "X")
    y = te.compute((8,), body, "Y")
    ts.build(te.create_schedule(y), [x, y])


def test_a_sum_of_te():
    _chain(3000, lambda value, k: value + float(k))


def test_selects_of_te():
    _chain(450, lambda value, k: te.select(value > float(k), value, -value))


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"cores":'])
def test_json(tmp_path, depth, opening):
    closing = "]" if opening == "[" else "}"
    text = opening * depth + "1" + closing * depth
    path = tmp_path / "t.json"
    path.write_text(text)
    x = te.placeholder((8,), "f32", "X")
    y = te.compute((8,), lambda i: x[i] + 1.0, "Y")
    for read in (
        lambda: ts.compile(model([node("Relu", "x", "y")], {"x": [2]}, ["y"]), target=str(path)),
        lambda: te.Schedule.from_json(y.op, text),
        lambda: list(read_lines([text])),
        lambda: read_families([f'{{"anchor": "a", "extents": {text}}}']),
        lambda: Tree.of(Json(text, "t")),
    ):
        with pytest.raises(TilesmithError):
            read()
