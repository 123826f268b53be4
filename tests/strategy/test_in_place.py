"""Concatenations and slices for which nothing runs: same answers, fewer kernels, shared kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, InPlace, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Exp, Mul
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.resize import Resize
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.slicing import Concat, Slice, Split
from tilesmith.runtime.executable import Executable
from tilesmith.support.options import Options


class Net(Builder):
    """A builder that makes convolutions with seeded weights."""

    def __init__(self) -> None:
        super().__init__("net")
        self.rng = np.random.default_rng(0)

    def conv(self, x: Value, channels: int, size: int = 3) -> Value:
        shape = (channels, int(x.shape[1]), size, size)
        w = self.rng.standard_normal(shape, np.float32) / np.float32(
            np.sqrt(shape[1] * size * size)
        )
        return self.add(Relu(), self.add(Conv(pads=(size // 2,) * 4), x, self.constant(w)))


def image(b: Builder, channels: int, size: int = 10, batch: int = 1) -> Value:
    return b.input("x", TensorType(f32, (batch, channels, size, size)))


def dense_block(batch: int = 1) -> Graph:
    """Every layer reads all that came before, as one tensor."""
    b = Net()
    features = [b.conv(image(b, 3, batch=batch), 32, 1)]
    for _ in range(4):
        joined = b.add(Concat(1), *features) if len(features) > 1 else features[0]
        scaled = b.add(
            Relu(), b.add(Mul(), joined, b.constant(b.rng.standard_normal((1, 1, 1), np.float32)))
        )
        features.append(b.conv(b.conv(scaled, 48, 1), 16))
    return b.finish(b.conv(b.add(Concat(1), *features), 8, 1))


def branches() -> Graph:
    """A branch that is read elsewhere too, one that is an input and one that is joined twice."""
    b = Net()
    x = image(b, 16)
    a, c = b.conv(x, 32), b.conv(x, 24, 1)
    joined = b.add(Concat(1), a, x, c)
    again = b.add(Concat(1), c, b.conv(a, 16))
    return b.finish((b.conv(joined, 8, 1), b.conv(again, 8, 1)))


def joined_output() -> Graph:
    b = Net()
    x = image(b, 16)
    a = b.conv(x, 32)
    return b.finish(b.add(Concat(1), a, b.add(Exp(), a)))


def rows() -> Graph:
    """Joined along the outermost axis: no spans at all."""
    b = Net()
    x = b.input("x", TensorType(f32, (1, 8, 64)))
    y = b.add(MatMul(), x, b.constant(b.rng.standard_normal((64, 64), np.float32)))
    z = b.add(Concat(1), y, b.add(Exp(), x))
    return b.finish(b.add(MatMul(), z, b.constant(b.rng.standard_normal((64, 32), np.float32))))


def batched_rows() -> Graph:
    b = Net()
    x = b.input("x", TensorType(f32, (3, 8, 64)))
    y = b.add(MatMul(), x, b.constant(b.rng.standard_normal((64, 64), np.float32)))
    z = b.add(Concat(1), y, b.add(Exp(), x))
    return b.finish(b.add(MatMul(), z, b.constant(b.rng.standard_normal((64, 32), np.float32))))


def u_net() -> Graph:
    b = Net()
    x = image(b, 3, 16)
    top = b.conv(x, 16)
    low = b.conv(b.add(Slice((0, 0), (16, 16), (2, 3), (2, 2)), top), 32)
    up = b.add(Resize((1, 32, 16, 16), (1.0, 1.0, 2.0, 2.0)), low)
    return b.finish(b.conv(b.add(Concat(1), up, top), 4))


def cross_stage() -> Graph:
    """Halves of the channels; one goes through a bottleneck, each stage is kept."""
    b = Net()
    parts = list(b.add(Split(1, (32, 32)), b.conv(image(b, 8), 64, 1)))
    for _ in range(2):
        y = b.conv(parts[-1], 32)
        parts.append(b.add(Add(), parts[-1], b.conv(y, 32)))
    return b.finish(b.conv(b.add(Concat(1), *parts), 16, 1))


def channels_last() -> Graph:
    """As exported by frameworks that hold images so: between transpositions nothing is copied."""
    b = Net()
    x = b.input("x", TensorType(f32, (1, 10, 10, 16)))
    y = b.conv(b.conv(b.add(Transpose((0, 3, 1, 2)), x), 16), 24)
    return b.finish(b.add(Transpose((0, 2, 3, 1)), y))


def flat_output() -> Graph:
    b = Net()
    y = b.add(Exp(), b.input("x", TensorType(f32, (4, 6, 32))))
    return b.finish((b.add(Reshape((24, 32)), y), b.add(Reshape((4, 192)), y)))


def reshaped() -> Graph:
    b = Net()
    y = b.add(Exp(), b.input("x", TensorType(f32, (4, 6, 32))))
    flat = b.add(Reshape((24, 32)), y)
    w = b.constant(b.rng.standard_normal((32, 16), np.float32))
    return b.finish((b.add(MatMul(), flat, w), b.add(Add(), y, y)))


GRAPHS: dict[str, tuple[Callable[[], Graph], int]] = {
    "dense block": (dense_block, 0),
    "dense block, batch 2": (lambda: dense_block(2), 0),
    "branches": (branches, 2),
    "joined output": (joined_output, 0),
    "rows": (rows, 0),
    "batched rows": (batched_rows, 0),
    "u-net": (u_net, 0),
    "cross stage": (cross_stage, 0),
    "reshaped": (reshaped, 0),
    "channels last": (channels_last, 0),
    "flat output": (flat_output, 1),
}
"""A graph, and how many kernels only copy in it."""

COPIES = {"concat", "split", "slice", "reshape", "identity", "transpose"}


@pytest.mark.parametrize("name", GRAPHS)
def test_answers_are_the_same(name: str) -> None:
    graph = GRAPHS[name][0]()
    session = driver.Session.of(Options(use_cache=False, verify_each=True), threads=2)
    inputs = driver.random_inputs(graph)
    found = Executable(driver.compile_program(graph, session), 2).run(inputs)
    for key, want in evaluate(graph, inputs).items():
        np.testing.assert_allclose(found[key], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_little_is_copied(name: str) -> None:
    graph = fused(GRAPHS[name][0]())
    kernels = [n.op.body for n in graph.nodes if not isinstance(n.op, InPlace)]
    copies = [k for k in kernels if all(n.op.name in COPIES for n in k.nodes)]
    assert len(copies) == GRAPHS[name][1], print_graph(graph)


@pytest.mark.parametrize("name", GRAPHS)
def test_text_reads_back(name: str) -> None:
    text = print_graph(fused(GRAPHS[name][0]()))
    constants = {}
    for n in fused(GRAPHS[name][0]()).constants:
        constants[n.data.digest] = n.data.array
    assert print_graph(parse_graph(text, constants)) == text


def fused(graph: Graph) -> Graph:
    result = driver.optimise(graph, driver.Session.of(None))
    verify(result)
    return result


def test_layers_of_a_dense_block_share_their_kernels() -> None:
    session = driver.Session.of(Options(use_cache=False))
    graph = driver.optimise(dense_block(), session)
    kernels = driver.compile_kernels(graph, session)
    growth = [n for n in kernels if n.outputs[0].shape == (1, 16, 10, 10)]
    assert len(growth) == 4 and len({kernels[n].symbol for n in growth}) == 1
    arena = driver.assemble(graph, kernels, session)
    assert arena.arena_bytes <= 1.1 * arena.metadata["arena_lower_bound"]


def test_networks_of_convolutions_change_layout_only_at_the_ends() -> None:
    for make in (dense_block, branches, u_net, cross_stage):
        assert relayout_count(fused(make())) <= len(make().outputs)
    assert relayout_count(fused(channels_last())) == 0
