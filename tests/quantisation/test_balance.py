"""Channel scales moved into weights: the same model, with a smaller error in integers."""

from __future__ import annotations

import numpy as np
import pytest
from quantised_networks import convolutional, samples, transformer

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.quantisation.balance import balanced
from tilesmith.quantisation.layers import layers_of, prepared
from tilesmith.quantisation.model import observe
from tilesmith.support.options import Options


def chain(groups: int) -> Graph:
    """Two convolutions with relu between them; the channels between them differ in size."""
    rng = np.random.default_rng(groups)
    b = Builder("chain")
    x = b.input("x", TensorType(f32, (1, 3, 6, 6)))
    w = rng.standard_normal((8, 3, 3, 3)) * np.logspace(-1, 2, 8)[:, None, None, None]
    y = b.add(Conv(), x, b.constant(w.astype(np.float32), "w"))
    bias = rng.standard_normal((8, 1, 1)).astype(np.float32)
    y = b.add(Relu(), b.add(Add(), y, b.constant(bias)))
    v = rng.standard_normal((4, 8 // groups, 3, 3))
    if groups == 1:
        v /= np.logspace(-1, 2, 8)[:, None, None]
    return b.finish(b.add(Conv(groups=groups), y, b.constant(v.astype(np.float32), "v")), ["y"])


MODELS = {
    "norm": lambda: transformer(outlier=40.0),
    "residual": convolutional,
    "relu": lambda: chain(1),
    "groups": lambda: chain(2),
}


def _balanced(graph: Graph) -> Graph:
    layers = layers_of(graph)
    axes = {layer.input: layer.input_axis for layer in layers}
    seen = observe(graph, axes, [{"x": x} for x in samples(graph)], Options()).observed
    return balanced(graph, layers, seen)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_stays_the_same(name):
    graph = prepared(MODELS[name]())
    again = _balanced(graph)
    assert (again is not graph) or name == "residual"
    for x in samples(graph, 2, seed=5):
        (wanted,), (found,) = (evaluate(g, {"x": x}).values() for g in (graph, again))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(("name", "gain"), [("norm", 8.0), ("relu", 8.0)])
def test_integers_are_much_nearer(name, gain):
    """`gain` is in dB of the answers."""
    graph = MODELS[name]()
    ratio = {}
    for balance in (False, True):
        _, report = ts.quantize(graph, samples(graph), scheme="int8", balance=balance)
        assert report.snr is not None
        ratio[balance] = report.snr
    assert ratio[True] > ratio[False] + gain


def test_a_norm_takes_the_scales_up():
    """No node is added between the norm and the layer."""
    graph = prepared(transformer(outlier=40.0))
    again = _balanced(graph)
    norm, product = again.nodes[:2]
    assert (norm.op, product.op) == (graph.nodes[0].op, graph.nodes[1].op)
    old, new = (g.constant[g.nodes[0].inputs[1]].data.array for g in (graph, again))
    assert np.ptp(new) / np.abs(new).max() < np.ptp(old) / np.abs(old).max()
