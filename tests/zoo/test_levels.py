"""Each level of a network has one meaning: kernels against references, texts that read back."""

from __future__ import annotations

from collections.abc import Iterator

from zoo_models import Model

import tilesmith as ts
from tilesmith import driver
from tilesmith.driver.compiler import plan_report
from tilesmith.graph.compare import assert_structural_equal as assert_graphs_equal
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify as verify_graph
from tilesmith.loop.compare import assert_structural_equal as assert_loops_equal
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.strategy.cpu import lower_by_rule

NATIVE = driver.Session.of(ts.Options())


def graph_stages(model: Model) -> Iterator[Graph]:
    """The graph as imported, and after each pass that changed it."""
    graph = driver.load_graph(driver.Request.of(model.path))
    yield graph
    for name, run in driver.graph_passes(NATIVE):
        before, graph = graph, run(graph)
        verify_graph(graph, after=name)
        if graph is not before:
            yield graph


def test_every_kernel_agrees_with_its_reference(model: Model) -> None:
    kernels = ts.check(model.path, inputs=model.inputs)
    assert len(kernels) > 10
    assert not [k for k in kernels if not k.passed]


def test_every_stage_reads_back_from_its_text(model: Model) -> None:
    """The graph after each pass; each distinct kernel as lowered and after each loop pass."""
    graph = None
    for graph in graph_stages(model):
        assert_graphs_equal(graph, parse_graph(print_graph(graph), constants_of(graph)))
    assert graph is not None
    bodies = {}
    for node in graph.nodes:
        assert isinstance(node.op, Fused)
        body = driver.canonical(node.op.body)
        bodies.setdefault(print_graph(body), body)
    for body in bodies.values():
        func = lower_by_rule(body, NATIVE.target, "kernel")
        assert_loops_equal(func, parse_func(print_func(func)))
        for p in NATIVE.backend.loop_passes:
            before, func = func, p.run(func)
            if func is not before:
                assert_loops_equal(func, parse_func(print_func(func)))


def test_the_arena_is_near_its_lower_bound_and_few_layouts_change(model: Model) -> None:
    program = ts.compile(model.path).program
    assert 0 <= program.metadata["relayouts"] <= 2
    bound = program.metadata["arena_lower_bound"]
    assert 0 < bound <= program.arena_bytes <= 1.1 * bound
    assert "at least" in plan_report(program)
