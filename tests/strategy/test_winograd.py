"""Winograd convolutions: exact in exact arithmetic, within their error bounds in float32, chosen
where the model says so and the accuracy policy allows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.driver.passes import optimise
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.winograd import winograd
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.winograd import WinogradConv, transform_weights
from tilesmith.strategy.cpu.contraction import resident_rows
from tilesmith.strategy.cpu.winograd import winograd_op
from tilesmith.strategy.cpu.winograd_cost import ERRORS, Sizes, blocking, winograd_choice
from tilesmith.support.arrays import difference
from tilesmith.support.options import BOUNDS, Options
from tilesmith.te.interpolation import SQUARES, matrices

TILES = sorted(SQUARES)
PADS = [(1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 2, 0), (2, 3, 1, 2), (-1, 0, 1, -1)]
UNCACHED = Options(use_cache=False, threads=2)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network(
    x: tuple[int, ...], filters: int, pads: tuple[int, ...] = (1, 1, 1, 1), residual: bool = False
) -> Graph:
    """A 3x3 convolution with bias, a second one (for the layout between them), maybe a residual
    addition, and relu.
    """
    b = Builder("net")
    image = b.input("x", TensorType(f32, x))
    bias = b.constant(normal(filters, 1, 1, seed=3), name="bias")
    w = b.constant(normal(filters, x[1], 3, 3, seed=1), name="w")
    v = b.constant(normal(filters, filters, 3, 3, seed=2) / 10, name="v")
    y = b.add(Relu(), b.add(Add(), b.add(Conv(pads=pads), image, w), bias))
    z = b.add(Conv(pads=(1, 1, 1, 1)), y, v)
    if residual:
        z = b.add(Add(), z, y)
    return b.finish([b.add(Relu(), z)], ["z"])


def convolutions(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if isinstance(n.op, (Conv, WinogradConv))]


@pytest.mark.parametrize("m", TILES)
def test_matrices_give_the_correlation(m: int) -> None:
    to, g, back = matrices(m)
    d, w = normal(m + 2).astype(np.float64), normal(3, seed=1).astype(np.float64)
    np.testing.assert_allclose(back @ ((g @ w) * (to @ d)), np.correlate(d, w), rtol=1e-12)


@pytest.mark.parametrize("m", TILES)
@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("image", [(7, 7), (5, 12), (13, 4), (8, 8)])
def test_reference_is_the_convolution(
    m: int, pads: tuple[int, ...], image: tuple[int, int]
) -> None:
    x, w = normal(2, 3, *image).astype(np.float64), normal(4, 3, 3, 3, seed=1).astype(np.float64)
    expected = Conv(pads=pads).reference(x, w)
    found = WinogradConv(m, pads).reference(x, transform_weights(w, m))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("m", TILES)
@pytest.mark.parametrize(
    ("x", "filters", "pads"),
    [
        ((1, 16, 8, 8), 16, (1, 1, 1, 1)),
        ((1, 5, 7, 11), 7, (0, 1, 2, 0)),
        ((2, 20, 9, 6), 40, (1, 1, 1, 1)),
        ((1, 3, 3, 3), 1, (0, 0, 0, 0)),
        ((3, 17, 14, 5), 33, (2, 3, 1, 2)),
        ((1, 12, 57, 50), 18, (1, 1, 1, 1)),
        ((1, 70, 6, 30), 70, (-1, 0, 1, -2)),
    ],
)
def test_kernels_compute_what_the_direct_graph_does(
    m: int, x: tuple[int, ...], filters: int, pads: tuple[int, ...]
) -> None:
    graph = network(x, filters, pads, residual=True)
    rewritten = winograd(graph, lambda _: m)
    verify(rewritten, "winograd")
    assert all(isinstance(n.op, WinogradConv) for n in convolutions(rewritten))
    image = normal(*x, seed=5)
    expected = evaluate(graph, {"x": image})["z"]
    exe = driver.compile(rewritten, options=UNCACHED)
    for _ in range(2):  # the workspace is dirty the second time
        assert difference(exe(image), expected) < 1e-5


def test_each_kernel_is_within_the_policy() -> None:
    graph = winograd(network((1, 24, 15, 13), 24), lambda _: 4)
    checks = driver.check(graph, options=UNCACHED)
    assert [c.operators[0] for c in checks if "winograd_conv" in c.operators]
    assert all(c.passed for c in checks)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_other_vector_widths(level: str) -> None:
    graph = network((1, 10, 9, 9), 12)
    image = normal(1, 10, 9, 9)
    exe = driver.compile(winograd(graph, lambda _: 4), target=level, options=UNCACHED)
    assert difference(exe(image), evaluate(graph, {"x": image})["z"]) < 1e-5


@pytest.mark.parametrize("m", TILES)
@pytest.mark.parametrize("channels", [16, 64, 512])
def test_error_against_float64_is_as_documented(m: int, channels: int) -> None:
    x, w = normal(1, channels, 12, 12), normal(16, channels, 3, 3, seed=1)
    b = Builder("one")
    y = b.add(Conv(), b.input("x", TensorType(f32, x.shape)), b.constant(w, name="w"))
    exe = driver.compile(winograd(b.finish([y]), lambda _: m), options=UNCACHED)
    exact = Conv().reference(x.astype(np.float64), w.astype(np.float64))
    assert difference(exe(x), exact) < ERRORS[m]


def test_the_policy_decides_what_may_be_chosen() -> None:
    machine = target("x86-64-v4")
    (node,) = convolutions(network((1, 64, 56, 56), 64))[:1]
    chosen = {policy: winograd_choice(machine, BOUNDS[policy]["f32"])(node) for policy in BOUNDS}
    assert chosen == {"default": 4, "strict": 2}
    assert winograd_choice(machine, 1e-7)(node) is None


@pytest.mark.parametrize(
    ("x", "filters", "expected"),
    [
        ((1, 128, 28, 28), 128, 4),
        ((1, 512, 7, 7), 512, 2),  # transformed weights of a large tile would have to be streamed
        ((8, 512, 7, 7), 512, 4),  # which many images share
        ((1, 1, 64, 64), 8, None),  # transforms cost more than they save
        ((1, 64, 3, 3), 64, None),  # tiles mostly outside of the image
    ],
)
def test_the_cost_model_chooses(x: tuple[int, ...], filters: int, expected: int | None) -> None:
    (node,) = convolutions(network(x, filters))[:1]
    machine = target("x86-64-v4").with_model(fma_ports=1, l2_bytes=1 << 20)
    assert winograd_choice(machine, 1e-4)(node) == expected


@pytest.mark.parametrize("m", TILES)
@pytest.mark.parametrize("tiles", [1, 4, 16, 49, 196, 3136])
@pytest.mark.parametrize("channels", [3, 64, 512, 1024])
def test_blocks_fit_the_cache(m: int, tiles: int, channels: int) -> None:
    for level in ("x86-64", "x86-64-v3", "x86-64-v4"):
        machine = target(level)
        b = blocking(Sizes(m, tiles, channels, 64), machine)
        assert b.tiles % b.tile.rows == 0 and b.tile.rows <= tiles
        assert b.tile.rows <= resident_rows(channels * 4, machine)
        own = 0 if b.shared else channels
        assert b.tiles * (own + b.tile.columns) * (m + 2) ** 2 * 4 <= machine.model.l2_bytes


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("tiles", "channels", "filters"),
    [(196, 64, 64), (196, 128, 32), (49, 128, 32), (16, 128, 32), (784, 64, 64)],
)
def test_two_threads_share_blocks_evenly(level: str, tiles: int, channels: int, filters: int):
    b = blocking(Sizes(4, tiles, channels, filters), target(level))
    shares = -(-tiles // b.tiles) * (-(-filters // b.tile.columns) if b.shared else 1)
    assert -(-shares // 2) <= 1.07 * shares / 2


def test_column_blocks_share_transformed_inputs_where_there_are_some() -> None:
    machine = target("x86-64-v4")
    assert not blocking(Sizes(4, 16, 64, 32), machine).shared
    assert blocking(Sizes(4, 16, 64, 256), machine).shared


@pytest.mark.parametrize(("l2_bytes", "far"), [(1 << 18, True), (1 << 22, False)])
def test_weights_that_leave_the_cache_are_prefetched(l2_bytes: int, far: bool) -> None:
    session = driver.Session.of(UNCACHED.with_(target="x86-64-v4"))
    session = replace(session, target=session.target.with_model(l2_bytes=l2_bytes))
    fused = optimise(winograd(network((1, 64, 28, 28), 64), lambda _: 4), session)
    bodies = [n.op.body for n in fused.nodes if isinstance(n.op, Fused)]
    nests = [str(session.group(b).lower("k")) for b in bodies if winograd_op(b) is not None]
    assert nests and all(("prefetch" in text) == far for text in nests)


@pytest.mark.parametrize(
    "op", [Conv(strides=(2, 2)), Conv(dilations=(2, 1)), Conv(groups=2), Conv((2, 1), (1, 1, 1, 1))]
)
def test_other_convolutions_stay(op: Conv) -> None:
    b = Builder("other")
    x = b.input("x", TensorType(f32, (1, 8, 12, 12)))
    graph = b.finish([b.add(op, x, b.constant(normal(8, 8 // op.groups, 3, 3), name="w"))])
    assert winograd(graph, lambda _: 4) is graph


def test_windows_of_other_sizes_and_unknown_weights_stay() -> None:
    b = Builder("other")
    x = b.input("x", TensorType(f32, (1, 8, 12, 12)))
    y = b.add(Conv(), x, b.input("w", TensorType(f32, (8, 8, 3, 3))))
    graph = b.finish([b.add(Conv(), y, b.constant(normal(8, 8, 3, 1), name="v"))])
    assert winograd(graph, lambda _: 4) is graph
    assert winograd(network((1, 4, 8, 8), 4), lambda _: None).nodes[0].op == Conv(pads=(1,) * 4)


def test_shared_weights_are_transformed_once() -> None:
    b = Builder("twice")
    x = b.input("x", TensorType(f32, (1, 8, 12, 12)))
    w = b.constant(normal(8, 8, 3, 3), name="w")
    graph = winograd(b.finish([b.add(Conv(), b.add(Conv(), x, w), w)]), lambda _: 2)
    assert len(graph.constants) == 1
    assert graph.constants[0].value.type.shape == (4, 4, 8, 8)
    known = {c.data.digest: c.data.array for c in graph.constants}
    assert print_graph(parse_graph(print_graph(graph), known)) == print_graph(graph)
