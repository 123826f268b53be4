"""What layouts cost decides who brings a value into the order that its readers like."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Relayout
from tilesmith.graph.passes.layout import assign_layouts, relayout_count
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.sample import GridSample
from tilesmith.ops.shape import Transpose
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.support.options import Options


def convolution(channels: int, pads: tuple[int, ...], size: int = 24) -> Graph:
    b = Builder("m")
    weight = np.random.default_rng(0).standard_normal((32, channels, 2, 2)).astype(np.float32)
    x = b.input("x", TensorType(f32, (1, channels, size, size)))
    return b.finish([b.add(Conv(pads=pads), x, b.constant(weight, name="w"))], ["y"])


@pytest.mark.parametrize(
    ("channels", "pads", "converted"),
    [
        (64, (1, 1, 0, 0), True),  # its copy with a border would be read across memory
        (64, (0, 0, 0, 0), False),  # elements are read wherever they lie
        (3, (1, 1, 0, 0), False),  # too few channels to walk along
    ],
)
def test_an_input_is_converted_where_a_border_would_copy_it_across_memory(
    channels: int, pads: tuple[int, ...], converted: bool
) -> None:
    graph = convolution(channels, pads)
    found = assign_layouts(graph, layout_policy(target("x86-64-v4")))
    of_input = [n for n in found.nodes if n.op.name == "relayout" and n.inputs[0] in found.inputs]
    assert bool(of_input) is converted
    x = np.random.default_rng(1).standard_normal((1, channels, 24, 24)).astype(np.float32)
    got = driver.compile(graph, options=Options(use_cache=False)).run({"x": x})["y"]
    np.testing.assert_allclose(got, evaluate(graph, {"x": x})["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "w", "strides"),
    [
        ((2, 48, 64, 64), (48, 1, 3, 3), (1, 1)),
        ((2, 48, 64, 64), (48, 1, 3, 3), (2, 2)),
        ((1, 768, 32, 32), (48, 16, 32, 32), (1, 1)),  # the gradient of a weight
    ],
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_depthwise_convolutions_read_images_in_the_order_of_their_results(
    x: tuple[int, ...], w: tuple[int, ...], strides: tuple[int, ...], is_constant: bool
) -> None:
    """Lanes run along channels only where these are innermost in the result, which weights that are
    constants decide.
    """
    b = Builder("g")
    rng = np.random.default_rng(2)
    arrays = {
        "x": rng.standard_normal(x).astype(np.float32),
        "w": rng.standard_normal(w).astype(np.float32),
    }
    image = b.input("x", TensorType(f32, x))
    if is_constant:
        weight = b.constant(arrays.pop("w"), name="w")
    else:
        weight = b.input("w", TensorType(f32, w))
    y = b.add(Conv(strides, (1, 1, 1, 1), groups=48), image, weight)
    mixing = rng.standard_normal((32, x[1], 1, 1)).astype(np.float32)  # it likes channels last
    other = b.add(Conv(), image, b.constant(mixing, name="m"))
    graph = b.finish([y, other], ["y", "other"])
    found = assign_layouts(graph, layout_policy(target("x86-64-v4")))
    (read,) = (n.inputs[0] for n in found.nodes if isinstance(n.op, Conv) and n.op.groups > 1)
    innermost = 3 if read.layout is None else read.layout.dims[-1].axis
    assert innermost == (1 if is_constant else 3)
    got = driver.compile(graph, options=Options(use_cache=False)).run(arrays)["y"]
    np.testing.assert_allclose(got, evaluate(graph, arrays)["y"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("x", "w", "pads", "has_channels_last"),
    [
        ((8, 64, 4, 4), (64, 64, 3, 3), 1, True),  # a narrow image
        ((64, 8, 18, 18), (64, 8, 16, 16), 0, True),  # the gradient of a weight: 3x3 pixels
        ((3, 8, 38, 38), (64, 8, 32, 32), 0, True),  # of a first layer, whose `w` is 2 MiB
        ((2, 16, 64, 64), (16, 16, 3, 3), 1, False),  # rows of pixels fill the lanes
        ((2, 512, 2, 2), (512, 512, 3, 3), 1, False),  # to pack the weights takes longer
    ],
)
def test_convolutions_of_variables_fill_their_lanes(
    x: tuple[int, ...], w: tuple[int, ...], pads: int, has_channels_last: bool
) -> None:
    b = Builder("g")
    a, f = b.input("x", TensorType(f32, x)), b.input("w", TensorType(f32, w))
    y = b.add(Conv(pads=(pads,) * 4), a, f)
    graph = b.finish([y], ["y"])
    (node,) = graph.nodes
    found = layout_policy(target("x86-64-v4")).fixed(node, frozenset())
    assert found is not None
    (layout,) = found.results
    assert (layout is not None and layout.dims[-1].axis == 1) == has_channels_last


@pytest.mark.parametrize("is_transposed", [False, True])
def test_an_image_lies_along_the_lanes_of_a_convolution_of_variables(is_transposed: bool) -> None:
    """Lanes along rows of pixels read vectors of the image, and gather where channels are last."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (8, 64, 16, 16)))
    w = b.input("w", TensorType(f32, (64, 64, 3, 3)))
    image = b.add(Relu(), x)
    op = ConvTranspose(pads=(1,) * 4) if is_transposed else Conv(pads=(1,) * 4)
    graph = b.finish([b.add(op, image, w)], ["y"])
    found = assign_layouts(graph, layout_policy(target("x86-64-v4")))
    (read,) = (n.inputs[0] for n in found.nodes if isinstance(n.op, (Conv, ConvTranspose)))
    assert read.layout is None
    rng = np.random.default_rng(2)
    given = {v.name: rng.standard_normal(v.type.shape).astype(np.float32) for v in (x, w)}
    got = driver.compile(graph, options=Options(use_cache=False)).run(given)["y"]
    np.testing.assert_allclose(got, evaluate(graph, given)["y"], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("flipped", [False, True])
def test_weights_that_are_packed_in_the_order_of_their_memory_keep_their_places(
    flipped: bool,
) -> None:
    """Lanes run across a weight's memory; a transposed convolution reads windows backwards."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (8, 32, 4, 4)))
    w = b.input("w", TensorType(f32, (32, 32, 3, 3)))
    op = ConvTranspose(pads=(1,) * 4) if flipped else Conv(pads=(1,) * 4)
    graph = b.finish([b.add(op, x, w)], ["y"])
    rng = np.random.default_rng(2)
    given = {v.name: rng.standard_normal(v.type.shape).astype(np.float32) for v in (x, w)}
    got = driver.compile(graph, options=Options(use_cache=False)).run(given)["y"]
    np.testing.assert_allclose(got, evaluate(graph, given)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "mode", "copies"),
    [(32, "linear", 2), (3, "linear", 0), (32, "nearest", 0)],  # one read does not pay for copies
)
def test_samples_of_a_grid_run_along_channels(channels: int, mode: str, copies: int) -> None:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (2, channels, 29, 31)))
    grid = b.input("grid", TensorType(f32, (2, 40, 48, 2)))
    y = b.add(Relu(), b.add(GridSample(mode), b.add(Relu(), x), grid))
    graph = b.finish([y], ["y"])
    made = optimise(graph, Session.of(Options(target="x86-64-v4", threads=1)))
    kernels = [[n.op for n in m.op.body.nodes] for m in made.nodes if isinstance(m.op, Fused)]
    assert sum(any(isinstance(o, Relayout) for o in ops) for ops in kernels) == copies
    samplers = [ops for ops in kernels if any(isinstance(o, GridSample) for o in ops)]
    assert len(samplers) == 1 and not any(isinstance(o, Relayout) for o in samplers[0])
    rng = np.random.default_rng(3)
    given = {
        "x": rng.standard_normal((2, channels, 29, 31)).astype(np.float32),
        "grid": rng.uniform(-1.3, 1.3, (2, 40, 48, 2)).astype(np.float32),
    }
    got = driver.compile(graph, options=Options(use_cache=False)).run(given)["y"]
    np.testing.assert_allclose(got, evaluate(graph, given)["y"], rtol=1e-4, atol=1e-4)


def test_samples_of_a_convolution_need_no_copy_of_it() -> None:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (1, 8, 9, 11)))
    w = np.random.default_rng(4).standard_normal((32, 8, 3, 3)).astype(np.float32)
    grid = b.input("grid", TensorType(f32, (1, 40, 48, 2)))
    image = b.add(Conv(pads=(1,) * 4), x, b.constant(w))
    again = np.random.default_rng(5).standard_normal((8, 32, 1, 1)).astype(np.float32)
    graph = b.finish([b.add(Conv(), b.add(GridSample(), image, grid), b.constant(again))], ["y"])
    made = optimise(graph, Session.of(Options(target="x86-64-v4", threads=1)))
    assert relayout_count(made) == 1  # of the result


def test_a_product_without_axes_has_no_lanes() -> None:
    b = Builder("m")
    x = b.input("x", TensorType(f32, (2, 6)))
    y = b.add(Transpose((1, 0)), b.input("y", TensorType(f32, (6, 2))))
    graph = b.finish([b.add(Einsum("ij,ij->"), x, y)], ["z"])
    exe = driver.compile(graph, options=Options(use_cache=False))
    values = [np.arange(12, dtype=np.float32).reshape(s) for s in ((2, 6), (6, 2))]
    np.testing.assert_allclose(exe(*values), np.sum(values[0] * values[1].T), rtol=1e-6)
