"""Unchanged models in Tengine itself, with and without a plugin.

They run where TENGINE_LIBRARY is the path of a `libtengine-lite.so` of version 1.5 that was built
with -DTENGINE_ENABLE_ALL_SYMBOL=ON.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tengine_networks import Engine, Graph
from written_models.tengine import ModelWriter

LIBRARY = os.environ.get("TENGINE_LIBRARY", "")
RANDOM = np.random.default_rng(0)
SHAPE = (1, 3, 33, 33)
WINDOW = {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2}
UNIT = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
MOVES = {"data", "concat", "drop", "flat"}
"""Nodes that compute nothing."""

PADDED = {"pad_h0": 1, "pad_w0": 1, "pad_h1": 1, "pad_w1": 1}

pytestmark = pytest.mark.skipif(not LIBRARY, reason="TENGINE_LIBRARY names no Tengine")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(LIBRARY)


class Network(ModelWriter):
    """Layers that each read what another one made."""

    def normal(self, *shape: int, factor: float = 1, shift: float = 0) -> int:
        array = factor * RANDOM.standard_normal(shape) + shift
        return self.constant(f"c{len(self._tensors)}", array.astype(np.float32))

    def conv(self, x: int, name: str, makes: int, reads: int, size: int, **params: int) -> int:
        group = params.setdefault("group", 1)
        w = self.normal(makes, reads // group, size, size, factor=(reads * size**2 / group) ** -0.5)
        params = {**UNIT, "kernel_h": size, "kernel_w": size, **params, "output_channel": makes}
        return self.add("Convolution", name, x, w, self.normal(makes), **params)


def fire() -> bytes:
    """A part of SqueezeNet, and the pools of other networks."""
    n = Network()
    x = n.input("data", *SHAPE)
    x = n.conv(x, "conv1", 16, 3, 3, stride_h=2, stride_w=2)
    x = n.add("Pooling", "pool1", x, **WINDOW, caffe_flavor=1)
    x = n.conv(x, "squeeze", 8, 16, 1)
    left, right = n.conv(x, "expand1", 16, 8, 1), n.conv(x, "expand3", 16, 8, 3, **PADDED)
    x = n.add("Concat", "concat", left, right, axis=1)
    x = n.add("Pooling", "pool2", n.add("Dropout", "drop", x), **WINDOW, pool_method=1, **PADDED)
    x = n.add("Pooling", "pool3", x, **{"global": 1}, pool_method=1)
    n.add("Softmax", "prob", x, axis=1)
    return n.finish()


def residual() -> bytes:
    """Depthwise convolutions, a sum, normalisations and products."""
    n = Network()
    x = n.input("data", *SHAPE)
    first = n.conv(x, "first", 8, 3, 3, activation=6, **PADDED)
    x = n.conv(first, "depthwise", 8, 8, 3, group=8, **PADDED)
    x = n.conv(x, "linear", 8, 8, 1, activation=-1)
    x = n.add("Eltwise", "sum", x, first, type=2)
    stored = (n.normal(8), n.normal(8), n.normal(8), n.normal(8, factor=0.1, shift=1))
    x = n.add("BatchNormalize", "norm", x, *stored, rescale_factor=1, eps=1e-5)
    x = n.add("Scale", "scale", x, n.normal(8), n.normal(8), axis=1, num_axes=1, bias_term=1)
    x = n.add("InstanceNorm", "instance", x, n.normal(8), n.normal(8), eps=1e-5)
    x = n.add("PReLU", "prelu", x, n.normal(8))
    x = n.add("Lrn", "lrn", x, local_size=5, alpha=1e-2, beta=0.75, k=1)
    x = n.add("ReLU", "leaky", x, negative_slope=0.1)
    x = n.add("Eltwise", "product", x, n.add("Sigmoid", "gate", x), type=0)
    means = n.add("Pooling", "means", x, **{"global": 1}, pool_method=1)
    x = n.add("ReLU6", "relu6", n.add("BroadMul", "scaled", x, means))
    x = n.add("LayerNorm", "layer", x, n.normal(33), n.normal(33), eps=1e-5)
    x = n.add("Eltwise", "shifted", x, n.normal(8), type=4)
    x = n.add("Pooling", "pool", x, **WINDOW)
    x = n.add("Flatten", "flat", x, axis=1, end_axis=3)
    x = n.add("FullyConnected", "rows", x, n.normal(32, 2048, factor=0.02), num_output=32)
    x = n.add("Tanh", "tanh", x)
    n.add("FullyConnected", "last", x, n.normal(5, 32), n.normal(5), num_output=5)
    return n.finish()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [fire, residual])
def test_an_unchanged_model_has_equal_answers(
    engine: Engine, tmp_path: Path, make: object, threads: int
) -> None:
    assert callable(make)
    path = tmp_path / "net.tmfile"
    path.write_bytes(make())
    name = f"{make.__name__}{threads}"
    made = ts.tengine.export_plugin(path, tmp_path / "plugin", name, threads=threads)
    x = RANDOM.standard_normal(SHAPE).astype(np.float32)
    alone = Graph(engine, path, SHAPE, threads)
    own = alone.operators()
    engine.load(name, made.library)
    replaced = Graph(engine, path, SHAPE, threads)
    ours = {node for node, operator in replaced.operators().items() if operator != own[node]}
    assert ours == own.keys() - MOVES
    wanted, found = alone.answer(x), replaced.answer(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(found, ts.compile(path)(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(alone.answer(x), wanted)
    alone.close()
    replaced.close()
    engine.unload(name, made.library)


def test_only_layers_of_the_model_are_replaced(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another model the engine computes what it did, bit for bit."""
    paths = tmp_path / "net.tmfile", tmp_path / "other.tmfile"
    for path in paths:
        path.write_bytes(fire())  # other weights each time
    made = ts.tengine.export_plugin(paths[0], tmp_path / "plugin", "net", layers=["Convolution"])
    x = RANDOM.standard_normal(SHAPE).astype(np.float32)
    graphs = [Graph(engine, path, SHAPE) for path in paths]
    engine.load("net", made.library)
    again = [Graph(engine, path, SHAPE) for path in paths]
    (a, b), (c, d) = ([g.answer(x) for g in pair] for pair in (graphs, again))
    np.testing.assert_array_equal(b, d)
    np.testing.assert_allclose(a, c, rtol=1e-4)
    assert (a != c).any()
    for graph in (*graphs, *again):
        graph.close()
    engine.unload("net", made.library)
