"""Extents that a node measures: text, rules, meaning, and passes that keep their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilesmith.driver.passes import graph_passes
from tilesmith.driver.session import Session
from tilesmith.graph.bind import bind, expected_graph
from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.control import everywhere
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.measure import Measure, entry_symbols, stages_in
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.cse import cse
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.fuse import fuse
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.support.errors import ModelError, VerifyError
from tilesmith.support.options import Options

SESSION = Session.of(Options(target="x86-64-v3", threads=1))

FIRST = """\
graph main<n 1..64~8, m 0..16~4>(%x: f32[n], %k: i64[1]) {
  %e: f32[n] = exp(%x)
  measure(%k) {symbols=(`m`,), bounds=(`n`,)}  # "first"
  %i: i64[m] = iota() {count=`m`}
  %y: f32[m] = gather(%e, %i)
  return %y as "y"
}
"""

TWICE = """\
graph main<n 1..64~8, m 0..16~4, k 0..16~4>(%x: f32[n], %k: i64[1]) {
  measure(%k) {symbols=(`m`,), bounds=(`n`,)}
  %i: i64[m] = iota() {count=`m`}
  measure(%k) {symbols=(`k`,), bounds=(`n`,)}
  %j: i64[k] = iota() {count=`k`}
  return %i as "i", %j as "j"
}
"""

IN_A_BRANCH = """\
graph main<m 0..16~4>(%c: bool[], %x: f32[8], %k: i64[1]) {
  %y: f32[1] = if(%c, %x, %k) {then=graph a(%x: f32[8], %k: i64[1]) {
    measure(%k) {symbols=(`m`,), bounds=(8,)}
    %i: i64[m] = iota() {count=`m`}
    %f: f32[m] = gather(%x, %i)
    %s: f32[1] = reduce_sum(%f) {axes=(0,)}
    return %s as "out"
  }, otherwise=graph b(%x: f32[8], %k: i64[1]) {
    const %0: f32[1] = [-1.0]
    return %0 as "out"
  }}
  return %y as "y"
}
"""

X = np.linspace(0, 1, 8, dtype=np.float32)


def _parsed(text: str) -> Graph:
    graph = parse_graph(text)
    verify(graph)
    return graph


@pytest.mark.parametrize("text", [FIRST, TWICE, IN_A_BRANCH])
def test_the_text_reads_and_prints_the_same(text: str) -> None:
    graph = _parsed(text)
    assert print_graph(graph) == text
    assert_structural_equal(parse_graph(text), graph)


def test_symbols_of_the_entry_are_those_that_are_not_measured() -> None:
    graph = _parsed(TWICE)
    assert [s.name for s in graph.symbols] == ["n", "m", "k"]
    assert [s.name for s in entry_symbols(graph)] == ["n"]
    assert entry_symbols(_parsed(IN_A_BRANCH)) == ()


@pytest.mark.parametrize("count", [0, 3, 8])
def test_results_have_the_extents_that_are_measured(count: int) -> None:
    found = evaluate(_parsed(FIRST), {"x": X, "k": np.array([count])})
    np.testing.assert_array_equal(found["y"], np.exp(X)[:count])


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (-1, "measure node 'first': extent 'm': expected 0 to 8, found -1"),
        (9, "extent 'm': expected 0 to 8, found 9"),
    ],
)
def test_extents_out_of_range_are_refused(count: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        evaluate(_parsed(FIRST), {"x": X, "k": np.array([count])})


def test_the_range_holds_where_the_bound_is_larger() -> None:
    with pytest.raises(ModelError, match="expected 0 to 16, found 17"):
        evaluate(_parsed(FIRST), {"x": np.zeros(64, np.float32), "k": np.array([17])})


def test_a_body_measures_for_itself() -> None:
    graph = _parsed(IN_A_BRANCH)
    for count in (2, 5):
        given = {"c": np.array(True), "x": X, "k": np.array([count])}
        np.testing.assert_allclose(evaluate(graph, given)["y"], [X[:count].sum()])
    off = {"c": np.array(False), "x": X, "k": np.array([99])}  # not measured, so not refused
    np.testing.assert_array_equal(evaluate(graph, off)["y"], [-1])


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (TWICE, "(%x: f32[n]", "(%x: f32[m]", "'m' is used before it is measured, in inputs"),
        (TWICE, "%i: i64[m] = iota() {count=`m`}", "%i: i64[k] = iota() {count=`k`}", "'k' is"),
        (FIRST, "bounds=(`n`,)", "bounds=(`m`,)", "'m' is used before it is measured"),
        (FIRST, "bounds=(`n`,)", "bounds=(1, 2)", "expected 1 elements and bounds"),
        (FIRST, "k: i64[1]", "k: i32[1]", "expected one i64 tensor of known shape"),
        (TWICE, "symbols=(`k`,)", "symbols=(`m`,)", "'m' is measured twice"),
        (IN_A_BRANCH, "const %0", "%1: i64[m] = iota() {count=`m`}\n const %0", "'m' is used"),
    ],
)
def test_the_verifier_refuses_symbols_out_of_place(
    text: str, old: str, new: str, message: str
) -> None:
    assert old in text
    with pytest.raises(VerifyError, match=message):
        verify(parse_graph(text.replace(old, new)))


def test_a_measure_lives_as_long_as_its_symbols() -> None:
    graph = _parsed(TWICE)
    assert dce(graph) is graph
    only = replace(graph, outputs=graph.outputs[:1], output_names=("i",))
    assert [s.name for s in dce(only).symbols] == ["n", "m"]
    assert not dce(replace(only, outputs=graph.inputs[:1])).nodes
    body = everywhere(dce)(_parsed(IN_A_BRANCH))
    assert len(list(stages_in(body))) == 1


def test_equal_measures_become_one() -> None:
    shared = cse(_parsed(TWICE))
    verify(shared)
    assert len(shared.nodes) == 2
    assert shared.outputs[0] is shared.outputs[1]
    other = TWICE.replace("k 0..16", "k 0..15")  # refuses more
    assert len(cse(_parsed(other)).nodes) == 4


def test_groups_hold_nodes_of_one_segment() -> None:
    fused = fuse(_parsed(FIRST))
    verify(fused)
    assert [n.op.name for n in fused.nodes] == ["fused", "measure", "fused"]


@pytest.mark.parametrize("text", [FIRST, TWICE, IN_A_BRANCH])
def test_passes_keep_answers(text: str) -> None:
    graph = passed = _parsed(text)
    for name, run in graph_passes(SESSION):
        passed = run(passed)
        verify(passed, after=name)
    assert any(isinstance(n.op, Measure) for n in passed.nodes) or text is IN_A_BRANCH
    given = [X, np.array([3])]
    if text is IN_A_BRANCH:
        given.insert(0, np.array(True))
    for a, b in zip(evaluate(graph, given).values(), evaluate(passed, given).values()):
        np.testing.assert_array_equal(a, b)


def test_a_measure_of_numbers_is_no_measure() -> None:
    graph = _parsed(FIRST)
    n, m = graph.symbols
    assert next(stages_in(bind(graph, {n: 8}))).bounds == (8,)
    fixed = bind(graph, {n: 8, m: 3})
    verify(fixed)
    assert not list(stages_in(fixed))
    assert expected_graph(graph).outputs[0].type.shape == (4,)
    assert expected_graph(graph).outputs[0].dtype is f32
