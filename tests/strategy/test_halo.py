"""Halos: padding is read from zeros that the producer leaves around its result."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.bind import bind
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.halo import add_halos
from tilesmith.ir.dtypes import f32
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.structure import stages, zero_padding
from tilesmith.support.options import Options


def two_convolutions(
    pads: tuple[int, ...],
    groups: int = 1,
    reuse: bool = False,
    image: tuple[Dim, ...] = (1, 5, 9, 8),
) -> Graph:
    rng = np.random.default_rng(0)

    def weight(*shape: int):
        return rng.standard_normal(shape).astype(np.float32)

    b = Builder("two")
    x = b.input("x", TensorType(f32, image))
    y = b.add(Conv(), x, b.constant(weight(16, 5, 1, 1), name="w0"))
    z = b.add(
        Conv(pads=pads, groups=groups), y, b.constant(weight(16, 16 // groups, 3, 3), name="w1")
    )
    if reuse:
        z = b.add(Add(), z, y)
    return b.finish([z], ["z"])


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 1, 2, 0), (2, 2, 2, 2)])
def test_padding_is_read_from_the_halo(pads: tuple[int, ...], groups: int) -> None:
    graph = two_convolutions(pads, groups, reuse=pads == (1, 1, 1, 1))
    session = driver.Session.of(Options(use_cache=False))
    fused = driver.optimise(graph, session)
    between = fused.nodes[0].outputs[0]
    assert between.layout is not None
    room = {d.axis: (d.before, d.after) for d in between.layout.dims}
    wanted = {2: (pads[0], pads[2]), 3: (pads[1], pads[3])}
    for axis, (before, after) in wanted.items():  # another algorithm may want more room
        assert room[axis][0] >= before
        assert room[axis][1] >= after
    x = np.random.default_rng(1).standard_normal((1, 5, 9, 8)).astype(np.float32)
    expected = evaluate(graph, {"x": x})["z"]
    exe = driver.compile(graph, options=Options(use_cache=False))
    for _ in range(2):  # the arena is dirty the second time
        np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-4)


def test_images_of_all_sizes_get_a_halo() -> None:
    n, h = symbol("n", 1, 8, 1), symbol("h", 1, 64, 9)
    graph = two_convolutions((0, 1, 2, 0), 16, image=(n, 5, h, 8))
    fused = driver.optimise(graph, driver.Session.of(None))
    layout = fused.nodes[0].outputs[0].layout
    assert layout is not None
    assert {d.axis: (d.before, d.after) for d in layout.dims if d.axis > 1} == {
        2: (0, 2),
        3: (1, 0),
    }
    exe = driver.compile(graph)
    for images, height in ((1, 9), (3, 1), (2, 33)):
        x = np.random.default_rng(1).standard_normal((images, 5, height, 8)).astype(np.float32)
        expected = evaluate(bind(graph, {n: images, h: height}), {"x": x})["z"]
        np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-4)


def test_an_input_of_the_model_gets_no_halo() -> None:
    b = Builder("one")
    x = b.input("x", TensorType(f32, (1, 3, 6, 6)))
    w = b.constant(np.ones((4, 3, 3, 3), np.float32), name="w")
    graph = b.finish([b.add(Conv(pads=(1, 1, 1, 1)), x, w)], ["y"])
    assert add_halos(graph) is graph


def test_zero_padding_is_recognised_exactly() -> None:
    conv = Conv(pads=(1, 0, 2, 1))
    tensors = conv.tensors(TensorType(f32, (1, 2, 5, 5)), TensorType(f32, (3, 2, 3, 3)))
    found = [p for p in map(zero_padding, stages(tensors.outputs)) if p is not None]
    assert [pads for _, pads in found] == [((0, 0), (0, 0), (1, 2), (0, 1))]


def test_layout_with_a_halo_round_trips() -> None:
    layout = Layout.parse("0 2+1:2 3+1:1 1")
    assert layout.physical_shape((1, 4, 5, 6)) == (1, 8, 8, 4)
    assert Layout.parse(str(layout)) == layout
