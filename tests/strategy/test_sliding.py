"""Depthwise convolutions: windows slide along rows of a tile; what these share is loaded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Load, Ramp, post_order
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import For, Store
from tilesmith.loop.visit import exprs, walk
from tilesmith.ops.conv import Conv
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.strategy.cpu.sliding import Slide, sliding_tile
from tilesmith.support.options import Options


def depthwise(channels: int, size: tuple[int, int], window: tuple[int, int], **how) -> Graph:
    b = Builder("depthwise")
    x = b.input("x", TensorType(f32, (1, channels, *size)))
    w = np.random.default_rng(0).standard_normal((channels, 1, *window)).astype(np.float32)
    y = b.add(Conv(groups=channels, **how), x, b.constant(w, name="w"))
    return b.finish([y], ["y"])


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("machine", ("x86-64-v3", "native"))
def test_depthwise_convolutions_of_any_form(machine: str, data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 7)), "window")
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "dilation")
    least = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    size = tuple(draw(st.integers(n, n + 20), "size") for n in least)
    graph = depthwise(
        draw(st.integers(2, 40), "channels"),
        size,
        window,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "strides"),
        dilations=dilation,
        pads=draw(st.tuples(*[st.integers(0, 2)] * 4), "pads"),
    )
    x = np.random.default_rng(1).standard_normal(graph.inputs[0].type.static_shape)
    x = x.astype(np.float32)
    (expected,) = evaluate(graph, {"x": x}).values()
    exe = driver.compile(graph, target=machine, options=Options(use_cache=False))
    np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("window", "stride"), ((3, 1), (5, 1), (3, 2)))
def test_what_rows_share_is_loaded_once(window: int, stride: int) -> None:
    machine = target("x86-64-v4")
    options = Options(use_cache=False)
    session = driver.Session.of(options, target="x86-64-v4")
    graph = depthwise(64, (65, 65), (window, window), strides=(stride, stride))
    ops = [n.op for n in driver.optimise(graph, session).nodes if isinstance(n.op, Fused)]
    (op,) = (op for op in ops if len(op.body.inputs) > 1)
    func = driver.run_loop_passes(lower_by_rule(op.body, machine, "k"), session)
    slide, columns = Slide(stride, 1, window), -(-(66 - window) // stride)
    tile, taps = sliding_tile(slide, columns, 64, machine, 4)
    adds, loads = innermost(func.body)
    assert adds == tile.rows * tile.vectors * window and taps == window
    assert loads == slide.loads(tile.rows, window) * tile.vectors <= 0.75 * adds


def innermost(body) -> tuple[int, int]:
    """Multiply-adds in the largest innermost loop, and different vectors of the image in it."""
    best = 0, 0
    for loop in (s for s in walk(body) if isinstance(s, For)):
        if any(isinstance(s, For) for s in walk(loop.body)):
            continue
        stores = [s for s in walk(loop.body) if isinstance(s, Store)]
        found = {n for s in stores for e in exprs(s) for n in post_order(e) if isinstance(n, Load)}
        image = {n for n in found if n.buffer.name == "in0" and isinstance(n.indices[0], Ramp)}
        best = max(best, (len(stores), len(image)))
    return best


def test_tiles_fit_into_the_registers() -> None:
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        machine = target(name)
        for slide in (Slide(1, 1, 3), Slide(2, 1, 3), Slide(1, 2, 5), Slide(1, 1, 7)):
            tile, taps = sliding_tile(slide, 56, 96, machine, 4)
            assert (taps > 1) == (name == "x86-64-v4")  # 16 registers hold too little to share
            shared = slide.loads(tile.rows, taps) if taps > 1 else 1
            assert slide.taps % taps == 0
            assert (tile.rows + shared + 1) * tile.vectors <= machine.vector_registers
            assert taps in (1, slide.taps)
