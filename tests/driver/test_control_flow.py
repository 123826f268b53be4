"""Control flow in machine code against the evaluator: branches, loops, and both in each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import If, Loop
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import bool_, f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Cast, Clip, Less, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceSum
from tilesmith.ops.shape import Transpose
from tilesmith.support.options import Options

VECTOR = TensorType(f32, (3, 4))
WHILE = """\
graph main(%n: i64[], %limit: f32[], %x: f32[2,2]) {
  const %yes: bool[] = [True]
  %y: f32[2,2], %s: f32[] = loop(%n, %yes, %x, %limit, %limit) {body=graph double(%i: i64[], \
%x: f32[2,2], %s: f32[], %limit: f32[]) {
    %0: f32[2,2] = matmul(%x, %x)
    %1: f32[] = reduce_sum(%0) {axes=(0, 1), keepdims=False}
    %2: bool[] = less(%1, %limit)
    return %2 as "again", %0 as "x", %1 as "s"
  }, carried=2, conditional=True}
  return %y as "y", %s as "s"
}
"""
SWAP = """\
graph main(%a: f32[3], %b: f32[3], %n: i64[]) {
  %x: f32[3], %y: f32[3], %z: i64[] = loop(%n, %a, %b, %n) {body=graph swap(%i: i64[], \
%x: f32[3], %y: f32[3], %z: i64[]) {
    return %y as "x", %x as "y", %i as "z"
  }, carried=3}
  return %x as "x", %y as "y", %z as "z"
}
"""

COLLECTED = """\
graph main(%a: f32[3], %b: f32[3]) {
  %x: f32[3], %y: f32[3], %all: f32[3,3] = loop(%a, %b) {body=graph step(%i: i64[], %x: f32[3], \
%y: f32[3]) {
    %0: f32[3] = exp(%x)
    return %y as "x", %0 as "y", %y as "seen"
  }, carried=2, collected=(1,), steps=3}
  return %x as "x", %y as "y", %all as "all"
}
"""


def compared(graph: Graph, inputs: Sequence[np.ndarray], options: Options | None = None) -> None:
    """The results of machine code and of the evaluator are equal up to rounding."""
    program = driver.compile_program(graph, driver.Session.of(options))
    found = ts.Executable(program).run(
        {v.name: a for v, a in zip(graph.inputs, inputs, strict=True)}
    )
    for name, expected in evaluate(graph, list(inputs)).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("n", [-1, 0, 1, 2, 7])
def test_a_loop_with_a_count_and_a_condition_of_the_input(n: int, target: str) -> None:
    x = np.full((2, 2), 0.75, np.float32)
    options = Options.from_environment().with_(target=target)
    compared(parse_graph(WHILE), [np.asarray(n), np.asarray(np.float32(30)), x], options)


def test_a_value_that_is_collected_and_carried_on_as_another() -> None:
    graph = parse_graph(COLLECTED)
    compared(graph, list(np.arange(6, dtype=np.float32).reshape(2, 3)))


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_carried_values_that_are_others_of_the_iteration(n: int, target: str) -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3)
    options = Options.from_environment().with_(target=target)
    compared(parse_graph(SWAP), [a, b, np.asarray(n)], options)


class _Nests:
    """Random graphs with control flow in control flow; each makes one matrix from those it sees."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def values(self, b: Builder, seen: list[Value], flag: Value, depth: int) -> list[Value]:
        """Values computed in `b` from those seen, all of one type."""
        known = list(seen)
        for _ in range(self.integer(1, 3)):
            kinds = ("add", "matmul", *(("if", "loop", "while") if depth else ()))
            kind = self.draw(st.sampled_from(kinds))
            x, y = (known[self.integer(0, len(known) - 1)] for _ in range(2))
            if kind == "add":
                known.append(b.add(Clip(-9, 9), b.add(Add(), x, y)))
            elif kind == "matmul":
                square = b.add(MatMul(), b.add(Transpose((1, 0)), y), y)
                known.append(b.add(Clip(-9, 9), b.add(MatMul(), x, square)))
            elif kind == "if":
                total = b.add(ReduceSum((0, 1), False), x)
                less = b.add(Less(), total, b.add(ReduceSum((0, 1), False), y))
                condition = self.draw(st.sampled_from((less, flag)))
                branches = [self.body(name, known, flag, depth - 1) for name in ("a", "b")]
                known += b.add(If(*branches), condition, flag, *known)
            else:
                known += self.loop(b, kind, known, flag, depth)
        return known

    def body(self, name: str, seen: list[Value], flag: Value, depth: int) -> Graph:
        b = Builder(name)
        flag = b.input("flag", flag.type)
        inner = [b.input(f"x{i}", v.type) for i, v in enumerate(seen)]
        return b.finish(self.some(self.values(b, inner, flag, depth), 2), ["p", "q"])

    def loop(
        self, b: Builder, kind: str, known: list[Value], flag: Value, depth: int
    ) -> list[Value]:
        body = Builder(kind)
        i = body.input("i", TensorType(i64, ()))
        carried = [body.input(f"c{k}", VECTOR) for k in range(2)]
        is_sliced = kind == "loop" and self.draw(st.booleans())
        row = [body.input("row", TensorType(f32, (4,)))] if is_sliced else []
        inner_flag = body.input("flag", flag.type)
        same = [body.input(f"x{k}", VECTOR) for k in range(len(known))]
        number = body.add(Cast(f32), i)
        first = body.add(Sub(), carried[0], row[0] if is_sliced else number)
        made = self.values(body, [*same, first, carried[1]], inner_flag, depth - 1)
        after = self.some([*made, *carried], 2)
        if kind == "while":
            total = body.add(ReduceSum((0, 1), False), after[0])
            going = body.add(Less(), total, body.add(Mul(), number, body.constant(np.float32(50))))
            graph = body.finish([going, *after], ["go", "p", "q"])
            op = Loop(graph, 2, conditional=True)
            count = b.constant(np.int64(self.integer(0, 4)))
            start = (count, flag, *self.some(known, 2))
            return list(b.add(op, *start, flag, *known))
        ways = tuple(self.draw(st.sampled_from((1, -1))) for _ in range(2))
        graph = body.finish([*after, self.some(made, 1)[0]], ["p", "q", "r"])
        op = Loop(graph, 2, ways[: len(row)], ways[1:], steps=3)
        *ends, whole = b.add(op, *self.some(known, 2), *self.some(known, len(row)), flag, *known)
        return [*ends, b.add(ReduceSum((0,), False), whole)]

    def some(self, values: list[Value], count: int) -> list[Value]:
        return [values[self.integer(0, len(values) - 1)] for _ in range(count)]


@st.composite
def nests(draw: st.DrawFn) -> Graph:
    b = Builder("main")
    flag = b.input("flag", TensorType(bool_, ()))
    inputs = [b.input(f"x{i}", VECTOR) for i in range(2)]
    maker = _Nests(draw)
    values = maker.values(b, inputs, flag, 2)
    return b.finish(values[-2:], ["y", "z"])


@pytest.mark.parametrize("target", ["native", "c"])
@settings(max_examples=12, deadline=None, print_blob=True)
@given(graph=nests(), seed=st.integers(0, 99), flag=st.booleans())
def test_random_nests(target: str, graph: Graph, seed: int, flag: bool) -> None:
    verify(graph)
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2)]
    options = Options.from_environment().with_(target=target, verify_each=True)
    compared(graph, [np.asarray(flag), *inputs], options)


def test_times_of_kernels_in_loops_are_sums(tmp_path: Path) -> None:
    graph = parse_graph(WHILE)
    exe = ts.Executable(driver.compile_program(graph, driver.Session.of(None)))
    inputs = [np.asarray(5), np.float32(1e9), np.zeros((2, 2), np.float32)]
    arrays = [np.asarray(a) for a in inputs]
    assert {k.runs for k in exe.profile(*arrays, repeats=1)} == {5}
    exe.save(tmp_path / "m.tsm")
    again = ts.Executable.load(tmp_path / "m.tsm")
    assert again.program.steps == exe.program.steps
    for a, b in zip(again(*arrays), exe(*arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_check_compares_the_kernels_of_branches_and_loops() -> None:
    checks = driver.check(parse_graph(WHILE), {"n": np.asarray(3), "limit": np.float32(1),
                                               "x": np.eye(2, dtype=np.float32)})  # fmt: skip
    assert [c.index for c in checks] == list(range(len(checks))) and len(checks) >= 2
    assert all(c.passed for c in checks)
