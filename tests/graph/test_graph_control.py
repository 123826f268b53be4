"""Control flow in graphs: text, types, meaning, and what the passes make of it."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.control import If, Loop, everywhere, kernels_in
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.control_flow import control_flow
from tilesmith.graph.passes.fold import fold
from tilesmith.graph.passes.fuse import fuse
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ops.matmul import MatMul
from tilesmith.support.errors import VerifyError

BRANCH = """\
graph main(%c: bool[], %x: f32[3]) {
  const %two: f32[] = [2.0]
  %y: f32[3] = if(%c, %x, %two) {then=graph a(%a: f32[3], %b: f32[]) {
    %0: f32[3] = mul(%a, %b)
    return %0 as "out"
  }, otherwise=graph b(%a: f32[3], %b: f32[]) {
    return %a as "out"
  }}
  return %y as "y"
}
"""

LOOP = """\
graph main(%h0: f32[2], %xs: f32[4,2], %w: f32[2]) {
  %h: f32[2], %all: f32[4,2] = loop(%h0, %xs, %w) {body=graph step(%i: i64[], %h: f32[2], \
%x: f32[2], %w: f32[2]) {
    %0: f32[2] = mul(%w, %w)
    %1: f32[2] = mul(%h, %0)
    %2: f32[2] = add(%1, %x)
    return %2 as "h", %2 as "seen"
  }, carried=1, sliced=(-1,), collected=(1,), steps=4}
  return %h as "h", %all as "all"
}
"""

RECURRENT = """\
graph main(%h0: f32[8,32], %w: f32[32,32]) {{
  %h: f32[8,32] = loop(%h0, %w) {{body=graph step(%i: i64[], %h: f32[8,32], %w: f32[32,32]) {{
    %0: f32[8,32] = matmul(%h, %w) {{transpose_b=True}}
    return %0 as "h"
  }}, carried=1, steps={steps}}}
  return %h as "h"
}}
"""

WHILE = """\
graph main(%n: i64[], %limit: f32[], %x: f32[]) {
  const %yes: bool[] = [True]
  %y: f32[], %same: f32[] = loop(%n, %yes, %x, %limit) {body=graph double(%i: i64[], %x: f32[], \
%limit: f32[]) {
    %0: f32[] = add(%x, %x)
    %1: bool[] = less(%0, %limit)
    return %1 as "again", %0 as "x", %limit as "limit"
  }, carried=2, conditional=True}
  return %y as "y", %same as "same"
}
"""


def simplified(text: str) -> Graph:
    graph = everywhere(fold)(control_flow(everywhere(fold)(parse_graph(text))))
    verify(graph)
    return graph


@pytest.mark.parametrize("text", [BRANCH, LOOP, WHILE])
def test_the_text_reads_and_prints_the_same(text: str) -> None:
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(graph) == text
    assert_structural_equal(graph, parse_graph(print_graph(graph)))


def test_a_branch_runs_one_of_its_graphs() -> None:
    graph, x = parse_graph(BRANCH), np.arange(3, dtype=np.float32)
    for c in (True, False):
        (y,) = evaluate(graph, [np.asarray(c), x]).values()
        np.testing.assert_array_equal(y, x * 2 if c else x)


def test_a_loop_carries_slices_and_collects() -> None:
    rng = np.random.default_rng(1)
    h, xs, w = (rng.standard_normal(s).astype(np.float32) for s in ((2,), (4, 2), (2,)))
    found = evaluate(parse_graph(LOOP), [h, xs, w])
    seen = []
    for x in xs[::-1]:
        h = h * (w * w) + x
        seen.append(h)
    np.testing.assert_array_equal(found["h"], h)
    np.testing.assert_array_equal(found["all"], np.stack(seen))


@pytest.mark.parametrize(("n", "steps"), [(0, 0), (-3, 0), (2, 2), (9, 4)])
def test_a_loop_ends_by_its_count_or_its_condition(n: int, steps: int) -> None:
    inputs = [np.asarray(n), np.float32(10), np.float32(1)]
    found = evaluate(parse_graph(WHILE), [np.asarray(i) for i in inputs])
    assert found["y"] == 2.0**steps and found["same"] == 10


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (BRANCH, ("if(%c, %x, %two)", "if(%x, %x, %two)"), r"condition: expected \(bool\[\]\)"),
        (BRANCH, ("if(%c, %x, %two)", "if(%c, %two, %two)"), "inputs of then: expected"),
        (LOOP, ("steps=4", "steps=5"), "sliced input: expected 5 elements"),
        (LOOP, ("steps=4", "steps=4, conditional=True"), "needs a symbol"),
        (LOOP, ("h0: f32[2]", "h0: f32[1]"), r"carried values: expected \(f32\[2\]\), found"),
        (WHILE, ("carried=2", "carried=1"), "expected 2 results of the body, found 3"),
    ],
)
def test_the_verifier_refuses_bodies_that_do_not_fit(
    text: str, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(parse_graph(text.replace(*change)))


def test_values_at_the_border_are_row_major() -> None:
    text = BRANCH.replace("%x: f32[3]", "%xx: f32[3]").replace(
        "  %y", '  %x: f32[3]@"0 0%2" = relayout(%xx) {layout=@"0 0%2"}\n  %y'
    )
    text = text.replace("0 0%2", "0/2 0%2")
    with pytest.raises(VerifyError, match="border of control flow"):
        verify(parse_graph(text))


def test_a_known_condition_leaves_one_branch() -> None:
    text = BRANCH.replace("const %two", "const %c = [True]\n  const %two")
    text = text.replace("%c: bool[], ", "").replace("const %c", "const %c: bool[]")
    assert print_graph(simplified(text)) == (
        "graph main(%x: f32[3]) {\n  const %0: f32[] = [2.0]\n"
        '  %1: f32[3] = mul(%x, %0)\n  return %1 as "y"\n}\n'
    ).replace("%0", "%two").replace("%1", "%0")


def test_constants_move_into_branches() -> None:
    graph = simplified(BRANCH)
    (node,) = graph.nodes
    assert isinstance(node.op, If) and len(node.inputs) == 2
    assert len(node.op.then.constants) == 1 and not node.op.otherwise.constants


def test_what_an_iteration_does_not_change_leaves_the_loop() -> None:
    square, loop = simplified(LOOP).nodes
    assert square.op.name == "mul" and isinstance(loop.op, Loop)
    assert [n.op.name for n in loop.op.body.nodes] == ["mul", "add"]
    graph = simplified(WHILE)
    (loop,) = graph.nodes
    assert isinstance(loop.op, Loop) and loop.op.carried == 1
    assert graph.outputs[1] is graph.inputs[1]


@pytest.mark.parametrize(("steps", "is_transposed_before"), [(2, False), (16, True)])
def test_a_matrix_that_many_rows_read_is_transposed_before_the_loop(
    steps: int, is_transposed_before: bool
) -> None:
    text = RECURRENT.format(steps=steps)
    graph = simplified(text)
    *before, loop = graph.nodes
    assert [n.op.name for n in before] == ["transpose"] * is_transposed_before
    assert isinstance(loop.op, Loop)
    (product,) = loop.op.body.nodes
    assert isinstance(product.op, MatMul) and product.op.transpose_b is not is_transposed_before
    rng = np.random.default_rng(0)
    given = {"h0": rng.standard_normal((8, 32), np.float32), "w": np.eye(32, dtype=np.float32)}
    given["w"] += 0.01 * rng.standard_normal((32, 32), np.float32)
    wanted = evaluate(parse_graph(text), given)["h"]
    np.testing.assert_allclose(evaluate(graph, given)["h"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_loop_of_at_most_one_iteration_becomes_part_of_the_graph(steps: int) -> None:
    text = LOOP.replace("[4,2]", f"[{steps},2]").replace("steps=4", f"steps={steps}")
    graph = simplified(text)
    assert not any(isinstance(n.op, Loop) for n in graph.nodes)
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((2,), (steps, 2), (2,))]
    for found, expected in zip(
        evaluate(graph, inputs).values(), evaluate(parse_graph(text), inputs).values(), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_results_that_nobody_reads_are_not_computed() -> None:
    text = LOOP.replace('return %h as "h", %all as "all"', 'return %h as "h"')
    (*_, loop) = simplified(text).nodes
    assert isinstance(loop.op, Loop) and not loop.op.collected and len(loop.outputs) == 1


@pytest.mark.parametrize("text", [BRANCH, LOOP, WHILE])
def test_bodies_become_groups_of_their_own(text: str) -> None:
    graph = everywhere(fuse)(simplified(text))
    verify(graph)
    assert everywhere(fuse)(graph) is graph
    assert [n.op.name for _, n in kernels_in(graph)] == ["fused"] * (1 if text == BRANCH else 2)
