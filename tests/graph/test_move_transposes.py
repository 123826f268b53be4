"""Regions between transposes are computed on the other side of these, with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.move_transposes import move_transposes
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import DType, f32, i8, i16, i32, u8
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Cast, Clip, Mul, Neg
from tilesmith.ops.gather import Gather
from tilesmith.ops.reduce import ArgMax, ReduceMax, ReduceMean, ReduceSum
from tilesmith.ops.resample import Resample
from tilesmith.ops.shape import Expand, Transpose
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice, Split, Tile

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Permutations that make the channels last, and first."""


def transposed(graph: Graph) -> int:
    """The number of elements that the graph's transposes move."""
    return sum(n.inputs[0].type.size for n in graph.nodes if isinstance(n.op, Transpose))


def test_a_residual_block_between_convolutions() -> None:
    before = """
graph net(%x: f32[1,8,4,4], %w: f32[8,8,1,1]) {
  %0: f32[1,8,4,4] = conv(%x, %w) {strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)}
  %1: f32[1,4,4,8] = transpose(%0) {perm=(0, 2, 3, 1)}
  %2: f32[1,4,4,8] = transpose(%x) {perm=(0, 2, 3, 1)}
  %3: f32[1,4,4,8] = add(%1, %2)
  %4: f32[1,5,4,8] = pad(%3) {pads=(0, 1, 0, 0, 0, 0, 0, 0), value=0}
  %5: f32[1,8,5,4] = transpose(%4) {perm=(0, 3, 1, 2)}
  %6: f32[1,8,5,4] = conv(%5, %w) {strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)}
  return %6 as "y"
}
"""
    after = """
graph net(%x: f32[1,8,4,4], %w: f32[8,8,1,1]) {
  %0: f32[1,8,4,4] = conv(%x, %w) {strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)}
  %1: f32[1,8,4,4] = add(%0, %x)
  %2: f32[1,8,5,4] = pad(%1) {pads=(0, 0, 1, 0, 0, 0, 0, 0), value=0}
  %3: f32[1,8,5,4] = conv(%2, %w) {strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)}
  return %3 as "y"
}
"""
    assert_structural_equal(move_transposes(parse_graph(before)), parse_graph(after))


def test_a_region_that_would_need_more_transposes_stays() -> None:
    """One transpose vanishes, but two larger ones would be needed."""
    text = """
graph net(%x: f32[1,8,4,4], %y: f32[1,4,4,8], %w: f32[8,8,1,1]) {
  %0: f32[1,4,4,8] = transpose(%x) {perm=(0, 2, 3, 1)}
  %1: f32[1,4,4,8] = add(%0, %y)
  %2: f32[1,4,4,8] = relu(%1)
  %3: f32[1,8,4,4] = transpose(%y) {perm=(0, 3, 1, 2)}
  %4: f32[1,8,4,4] = conv(%3, %w) {strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)}
  return %2 as "z", %4 as "v"
}
"""
    graph = parse_graph(text)
    assert move_transposes(graph) is graph


def random_region(rng: np.random.Generator) -> Graph:
    """A chain of images [N, H, W, C] with branches, between convolutions of [N, C, H, W]."""
    b = Builder("net")
    x = b.input("x", TensorType(f32, (2, 4, 6, 8)))

    def convolved(v: Value) -> Value:
        w = rng.standard_normal((4, v.type.static_shape[-1], 1, 1)).astype(np.float32)
        return b.add(Transpose(LAST), b.add(Conv(), b.add(Transpose(FIRST), v), b.constant(w)))

    images: list[Value] = [b.add(Transpose(LAST), x), b.add(Transpose(LAST), b.add(Relu(), x))]
    results: list[Value] = []
    for _ in range(int(rng.integers(3, 9))):
        v = images[int(rng.integers(len(images)))]
        height, channels = v.type.static_shape[1::2]
        alike = [u for u in images if u.type == v.type]
        number = b.constant(rng.standard_normal(channels).astype(np.float32))
        made = [
            lambda v=v, n=number: b.add(Mul(), v, n),
            lambda v=v, a=alike: b.add(Add(), v, a[-1]),
            lambda v=v: b.add(Clip(-1.0, 1.0), v),
            lambda v=v: b.add(Neg(), v),
            lambda v=v: b.add(Concat(-1), v, v),
            lambda v=v: b.add(Pad((0, 1, 0, 0, 0, 0, 2, 1)), v),
            lambda v=v, h=height: b.add(Slice((0,), (h - 1,), (1,), (1,)), v),
            lambda v=v, c=channels: b.add(Split(3, (c // 2, c - c // 2)), v)[0],
            lambda v=v: b.add(Flip((2,)), v),
            lambda v=v: b.add(Tile((1, 2, 1, 1)), v),
            lambda v=v: b.add(Mul(), v, b.add(ReduceMean((1, 2), True), v)),
            lambda v=v: b.add(Resample(1, 5, 1, 0, 2), v),
            lambda v=v: b.add(
                Add(), v, b.add(Expand(v.type.shape), b.add(ReduceMax((1,), True), v))
            ),
            lambda v=v: convolved(v),
        ]
        images.append(made[int(rng.integers(len(made)))]())
    last = images[-1]
    results = [
        b.add(ReduceSum((1, 2), False), last),
        b.add(ArgMax(3, False), last),
        convolved(last),
        images[int(rng.integers(len(images)))],
    ]
    count = int(rng.integers(1, 5))
    return b.finish(results[-count:], [f"y{i}" for i in range(count)])


@pytest.mark.parametrize("seed", range(40))
def test_random_regions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_region(rng)
    moved = move_transposes(graph)
    verify(moved)
    x = rng.standard_normal((2, 4, 6, 8)).astype(np.float32)
    answers = evaluate(moved, [x])
    for name, expected in evaluate(graph, [x]).items():
        np.testing.assert_allclose(answers[name], expected, rtol=1e-5, atol=1e-5)
    assert [v.type for v in moved.outputs] == [v.type for v in graph.outputs]
    assert transposed(moved) <= transposed(graph)


def test_most_random_regions_move() -> None:
    graphs = [random_region(np.random.default_rng(seed)) for seed in range(40)]
    assert sum(move_transposes(g) is not g for g in graphs) > 20


def random_matrices(rng: np.random.Generator) -> Graph:
    """A chain of square matrices, whose transposes undo themselves."""
    b = Builder("net")
    values = [b.input("x", TensorType(f32, (4, 4)))]
    for _ in range(int(rng.integers(3, 12))):
        v, u = (values[int(i)] for i in rng.integers(len(values), size=2))
        row = b.constant(rng.standard_normal(4).astype(np.float32))
        made = [
            lambda v=v: b.add(Transpose((1, 0)), v),
            lambda v=v: b.add(Transpose((1, 0)), v),
            lambda v=v, u=u: b.add(Add(), v, u),
            lambda v=v, u=u: b.add(Mul(), v, u),
            lambda v=v, row=row: b.add(Add(), v, b.add(Expand((4,)), row)),
            lambda v=v, u=u: b.add(Add(), v, b.add(Expand((4,)), b.add(ReduceMax((1,)), u))),
            lambda v=v: b.add(Relu(), v),
        ]
        values.append(made[int(rng.integers(len(made)))]())
    results = values[-int(rng.integers(1, 4)) :]
    return b.finish(results, [f"y{i}" for i in range(len(results))])


@pytest.mark.parametrize("seed", range(60))
def test_random_chains_of_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_matrices(rng)
    moved = move_transposes(graph)
    verify(moved)
    x = rng.standard_normal((4, 4)).astype(np.float32)
    answers = evaluate(moved, [x])
    for name, expected in evaluate(graph, [x]).items():
        np.testing.assert_allclose(answers[name], expected, rtol=1e-5, atol=1e-5)
    assert transposed(moved) <= transposed(graph)


def looked_up(index: DType, first: int, entries: int = 256) -> Graph:
    """A convolution, a lookup of its result in a list, another convolution; between the
    convolutions the channels are last.
    """
    b = Builder("net")
    x, w = b.input("x", TensorType(f32, (1, 8, 4, 4))), b.input("w", TensorType(f32, (8, 8, 1, 1)))
    image = b.add(Cast(index), b.add(Transpose(LAST), b.add(Conv(), x, w)))
    numbers = b.constant(np.linspace(-1, 1, entries).astype(np.float32))
    place = b.add(Add(), b.add(Cast(i32), image), b.constant(np.asarray(first, np.int32)))
    y = b.add(Transpose(FIRST), b.add(Gather(0), numbers, place))
    return b.finish([b.add(Conv(), y, w)], ["y"])


@pytest.mark.parametrize(("index", "first"), [(i8, 128), (u8, 0)])
def test_a_lookup_moves(index: DType, first: int) -> None:
    graph = looked_up(index, first)
    moved = move_transposes(graph)
    verify(moved)
    assert transposed(moved) == 0
    rng = np.random.default_rng(0)
    arrays = [np.abs(rng.normal(size=v.type.static_shape)).astype(np.float32) for v in graph.inputs]
    np.testing.assert_allclose(
        evaluate(moved, arrays)["y"], evaluate(graph, arrays)["y"], rtol=1e-5
    )


@pytest.mark.parametrize(("index", "first", "entries"), [(i8, 0, 256), (u8, 0, 255), (i16, 0, 256)])
def test_a_lookup_that_may_fail_stays(index: DType, first: int, entries: int) -> None:
    """Its error states the position of the index."""
    assert transposed(move_transposes(looked_up(index, first, entries))) > 0
