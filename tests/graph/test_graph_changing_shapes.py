"""Control flow that defines symbols: text, rules, and what simplification makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.bind import bind
from tilesmith.graph.control import If, Loop
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.measure import entry_symbols, stages_in
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.control_flow import control_flow
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.memory_plan import plan
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.support.errors import ModelError, VerifyError

BRANCH = """\
graph main<n 0..64~8, m 0..128~8>(%c: bool[], %x: f32[n]) {
  %y: f32[m] = if(%c, %x) {then=graph then(%x: f32[n]) {
    %y: f32[n * 2] = concat(%x, %x) {axis=0}
    return %y as "out"
  }, otherwise=graph otherwise(%x: f32[n]) {
    return %x as "out"
  }, results=(f32[m],), symbols=(`m`,), bounds=(`n * 2`,)}
  %z: f32[m] = exp(%y)
  return %z as "z"
}
"""

LOOP = """\
graph main<n 0..64~8, m 0..4096~8, r 0..99~8, k 0..4096~8>(%t: i64[], %x: f32[n], %e: f32[3]) {
  const %go: bool[] = [1]
  %y: f32[m], %s: f32[r] = loop(%t, %go, %x, %e) {
    body=graph step(%i: i64[], %x: f32[k], %e: f32[3]) {
    %y: f32[k + 3] = concat(%x, %e) {axis=0}
    %s: f32[] = reduce_sum(%y) {axes=(0,), keepdims=False}
    %a: bool[] = less(%s, %s)
    return %a as "again", %y as "out", %s as "row"
  }, carried=1, collected=(1,), conditional=True, results=(f32[m], f32[r]),
  symbols=(`m`, `r`), bounds=(4096, 99), inside=(`k`,)}
  %z: f32[m] = exp(%y)
  return %z as "z", %s as "s"
}
"""

COUNTED = """\
graph main<n 0..64~8, k 0..4096~8>(%x: f32[n], %e: f32[3]) {
  %y: f32[n + 21] = loop(%x, %e) {body=graph step(%i: i64[], %x: f32[k], %e: f32[3]) {
    %y: f32[k + 3] = concat(%x, %e) {axis=0}
    return %y as "out"
  }, carried=1, steps=7, results=(f32[n + 21],), inside=(`k`,)}
  return %y as "y"
}
"""


def graph(text: str) -> Graph:
    found = parse_graph(text)
    verify(found)
    return found


@pytest.mark.parametrize("text", [BRANCH, LOOP, COUNTED])
def test_text_and_symbols(text: str) -> None:
    g = graph(text)
    assert print_graph(graph(print_graph(g))) == print_graph(g)
    assert [s.name for s in entry_symbols(g)] == ["n"]


def test_stages_are_in_the_order_of_a_run() -> None:
    found = [(s.is_inside, [v.name for v in s.symbols]) for s in stages_in(graph(LOOP))]
    assert found == [(True, ["k"]), (False, ["m", "r"])]


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (BRANCH, ("results=(f32[m],)", "results=(f32[n],)"), "then: expected"),
        (BRANCH, ("results=(f32[m],)", "results=(f16[m],)"), "then: expected"),
        (LOOP, ("m], %s: f32[r] =", "k], %s: f32[r] ="), "expected results of type"),
        (LOOP, ("symbols=(`m`, `r`)", "symbols=(`r`, `m`)"), "extent 'k' behind the loop"),
        (LOOP, (", inside=(`k`,)", ""), "carried values"),
        (COUNTED, ("n + 21", "n + 20"), "is not n . 20 behind 7 steps"),
        (COUNTED, ("f32[k + 3] = concat(%x, %e)", "f32[k * 2] = concat(%x, %x)"), "behind 7 steps"),
    ],
)  # fmt: skip
def test_extents_that_do_not_fit_are_refused(
    text: str, change: tuple[str, str], message: str
) -> None:
    assert change[0] in text
    with pytest.raises(VerifyError, match=message):
        verify(parse_graph(text.replace(*change)))


def test_a_symbol_is_used_only_behind_its_node() -> None:
    early = LOOP.replace("  %y: f32[m], %s", "  %j: i64[m] = iota() {count=`m`}\n  %y: f32[m], %s")
    with pytest.raises(VerifyError, match="symbol 'm' is used before it is measured"):
        verify(parse_graph(early))
    after = LOOP.replace("  return %z", "  %j: i64[k] = iota() {count=`k`}\n  return %z")
    with pytest.raises(VerifyError, match="symbol 'k' is used before it is measured"):
        verify(parse_graph(after))


def test_the_evaluator_checks_ranges() -> None:
    text = BRANCH.replace("m 0..128", "m 0..9")
    x = np.zeros(5, np.float32)
    assert evaluate(graph(text), [np.array(False), x])["z"].shape == (5,)
    with pytest.raises(ModelError, match="extent 'm': expected 0 to 9, found 10"):
        evaluate(graph(text), [np.array(True), x])


@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_that_is_known_says_what_its_symbols_are(taken: bool) -> None:
    text = BRANCH.replace("%c: bool[], ", "").replace(
        "  %y: f32[m]", f"  const %c: bool[] = [{int(taken)}]\n  %y: f32[m]"
    )
    before = graph(text)
    after = control_flow(before)
    verify(after)
    assert not any(isinstance(n.op, If) for n in after.nodes)
    assert [str(d) for d in after.outputs[0].shape] == ["n * 2" if taken else "n"]
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(before, [x])["z"], evaluate(after, [x])["z"])


@pytest.mark.parametrize("steps", [0, 1])
def test_a_loop_of_few_steps_says_what_its_symbols_are(steps: int) -> None:
    text = LOOP.replace("%t: i64[], ", "").replace(
        "  const %go", f"  const %t: i64[] = [{steps}]\n  const %go"
    )
    before = graph(text)
    after = control_flow(before)
    verify(after)
    assert not any(isinstance(n.op, Loop) for n in after.nodes)
    assert [str(d) for v in after.outputs for d in v.shape] == [
        "n + 3" if steps else "n", str(steps)
    ]  # fmt: skip
    inputs = [np.arange(5, dtype=np.float32), np.ones(3, np.float32)]
    for a, b in zip(evaluate(before, inputs).values(), evaluate(after, inputs).values()):
        np.testing.assert_array_equal(a, b)


def test_results_that_define_symbols_stay() -> None:
    """Although nothing reads the result itself."""
    text = BRANCH.replace("%z: f32[m] = exp(%y)", "%z: i64[m] = iota() {count=`m`}")
    found = dce(control_flow(graph(text)))
    verify(found)
    assert any(isinstance(n.op, If) for n in found.nodes)


def test_a_result_with_a_bound_lies_in_the_arena() -> None:
    g = graph(BRANCH)
    memory = plan(g)
    assert not memory.grown and [str(memory.arena_bytes)] == ["(n + 7) // 8 * 64"]
    g = graph(BRANCH.replace("`n * 2`", "2147483647").replace("m 0..128", "m 0..2147483647"))
    assert [v.name for v in plan(g).grown] == ["y"]


def test_sizes_of_inputs_are_bound_inside_and_out() -> None:
    g = graph(COUNTED)
    fixed = bind(g, {entry_symbols(g)[0]: 4})
    verify(fixed)
    assert fixed.outputs[0].shape == (25,)
