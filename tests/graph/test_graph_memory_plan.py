"""Memory plans: what lives at the same time does not overlap; the arena is near its bound."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from graphs import conv_net, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesmith.graph.bind import bind
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.memory_bounds import known_before
from tilesmith.graph.passes.memory_plan import MemoryPlan, plan, value_bytes
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import LARGEST, expected, symbol, value_of
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim, TensorType, same_shape
from tilesmith.ops.elementwise import Add, Exp


def check(graph: Graph, found: MemoryPlan, extra: dict[Node, int]) -> None:
    """Replays the program: every byte still belongs to the value that a node reads."""
    outside = {*graph.inputs, *graph.outputs, *graph.constant}
    assert set(found.offsets) == {v for n in graph.nodes for v in n.outputs} - outside
    assert set(found.workspace) == {n for n, size in extra.items() if size}
    owner = np.full(found.arena_bytes, -1)
    ids = {v: i for i, v in enumerate(found.offsets)}
    for node in graph.nodes:
        live = [v for v in dict.fromkeys((*node.inputs, *node.outputs)) if v in found.offsets]
        spans = [(found.offsets[v], value_bytes(v)) for v in live]
        if node in found.workspace:
            spans.append((found.workspace[node], extra[node]))
        for (a, m), (b, n) in combinations(spans, 2):
            assert a + m <= b or b + n <= a
        for at, size in spans:
            assert at % LINE_BYTES == 0
            assert at + size <= found.arena_bytes
        for v in node.inputs:
            if v in ids:
                at = found.offsets[v]
                assert (owner[at : at + value_bytes(v)] == ids[v]).all()
        for v in node.outputs:
            if v in ids:
                owner[found.offsets[v] : found.offsets[v] + value_bytes(v)] = ids[v]
        if node in found.workspace:
            at = found.workspace[node]
            owner[at : at + extra[node]] = -1
    assert found.lower_bound <= found.arena_bytes


def test_a_chain_needs_two_buffers() -> None:
    b = Builder()
    v = b.input("x", TensorType(f32, (100,)))
    for _ in range(8):
        v = b.add(Exp(), v)
    found = plan(b.finish(v))
    assert found.arena_bytes == found.lower_bound == 2 * 448  # 400 bytes, aligned
    assert set(found.offsets.values()) == {0, 448}


def test_inputs_outputs_and_constants_have_memory_of_their_own() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (4,)))
    y = b.add(Add(), x, b.constant(np.ones(4, np.float32)))
    assert plan(b.finish(y)) == MemoryPlan({}, {}, 0, 0)


def test_layouts_count_with_their_padding() -> None:
    value = Value("v", TensorType(f32, (5, 3)), Layout.parse("0/16 1+1:1 0%16"))
    assert value_bytes(value) == 1 * 5 * 16 * 4


def _symbolic_graph(rng: random.Random, n: Dim, m: Dim) -> Graph:
    """Chains and sums of tensors whose sizes are of different degrees in the symbols."""
    b = Builder()
    shapes = [(n, 16), (n, m), (8, m), (n, n), (40,)]
    values = [b.input(f"x{i}", TensorType(f32, s)) for i, s in enumerate(shapes)]
    for _ in range(rng.randint(4, 30)):
        x = rng.choice(values[-8:])
        same = [v for v in values if same_shape(v.shape, x.shape)]
        values.append(b.add(Add(), x, rng.choice(same)) if len(same) > 1 else b.add(Exp(), x))
    return b.finish([values[-1], values[len(values) // 2]])


def test_plans_for_all_sizes() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(40):
        n = symbol("n", 0, 4096, rng.randint(1, 300))
        m = symbol("m", 1, 4096, rng.randint(1, 300))
        graph = _symbolic_graph(rng, n, m)
        extra: dict[Node, Dim] = {k: rng.choice([0, 128, n * 192]) for k in graph.nodes}
        found = plan(graph, extra)
        usual = {n: expected(n), m: expected(m)}
        for values in (
            usual,
            *({n: rng.randint(0, 999), m: rng.randint(1, 999)} for _ in range(5)),
        ):
            known = bind(graph, values)
            there = dict(zip(all_values(graph), all_values(known), strict=True))
            sizes = {k: value_of(e, values) for k, e in extra.items()}
            nodes = dict(zip(graph.nodes, known.nodes, strict=True))
            bound = MemoryPlan(
                {there[v]: value_of(at, values) for v, at in found.offsets.items()},
                {nodes[k]: value_of(at, values) for k, at in found.workspace.items() if sizes[k]},
                value_of(found.arena_bytes, values),
                0,
            )
            check(known, bound, {nodes[k]: size for k, size in sizes.items()})
            if values is usual:
                fixed = plan(known, {nodes[k]: size for k, size in sizes.items()})
                assert bound.arena_bytes <= fixed.arena_bytes


def all_values(graph: Graph) -> list[Value]:
    return [*graph.inputs, *(v for k in graph.nodes for v in k.outputs)]


def test_conv_net_reaches_the_bound() -> None:
    graph = decompose(conv_net())
    extra = {n: 100 * i for i, n in enumerate(graph.nodes)}
    found = plan(graph, extra)
    check(graph, found, extra)
    assert found.arena_bytes <= 1.1 * found.lower_bound


@settings(max_examples=60, deadline=None)
@given(random_graphs(most=20), st.integers(0, 3))
def test_random_graphs(graph: Graph, scale: int) -> None:
    extra = {n: 48 * scale * (i % 3) for i, n in enumerate(graph.nodes)}
    check(graph, plan(graph, extra), extra)


@dataclass
class Measured:
    """A stage at which extents become known, with their upper bounds."""

    symbols: tuple[Var, ...]
    bounds: tuple[Dim, ...]


def test_a_product_is_known_at_the_last_stage_of_any_factor() -> None:
    a, b = symbol("a", 0), symbol("b", 0)
    cube = a * a * a  # its bound doesn't fit 64 bits
    stages: Any = [Measured((a,), (LARGEST,)), Measured((b,), (LARGEST,))]
    first, second = stages
    for factors in ([4, cube, b], [b, cube], [4, a, b], [cube * b]):
        assert known_before(factors, stages) is second
    for factors in ([4, cube], [cube, a], [4, a]):
        assert known_before(factors, stages) is first
    assert known_before([4, 100], stages) == 400
