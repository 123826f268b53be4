"""Kernels of image networks for devices: their answers, their races and their memory accesses."""

from __future__ import annotations

import numpy as np
import pytest
from device_images import GPU, averaged, kernels, run, weights

from common import pass_models
from tilesmith.cli.explain_device import counts_of
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.loop.launches import launches
from tilesmith.ops.activation import Relu, Sigmoid
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Mul
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.reduce import ReduceMean
from tilesmith.ops.slicing import Concat


def strided() -> Graph:
    """Strides, borders and an epilogue, then an average of two rows."""
    b = Builder("strided")
    x = b.input("x", TensorType(f32, (1, 8, 15, 15)))
    y = b.add(Conv(pads=(1, 1, 1, 1), strides=(2, 2)), x, weights(b, 40, 8, 3, 3))
    y = b.add(Relu(), b.add(Add(), y, weights(b, 40, 1, 1)))
    y = b.add(AvgPool((2, 2), strides=(2, 2)), y)
    return averaged(b, b.add(Relu(), b.add(Conv(), y, weights(b, 48, 40, 1, 1))))


def gated() -> Graph:
    """A depthwise convolution whose channels are scaled by their averages."""
    b = Builder("gated")
    x = b.input("x", TensorType(f32, (2, 40, 9, 9)))
    y = b.add(Conv(), x, weights(b, 40, 40, 1, 1))
    y = b.add(Conv(pads=(1, 1, 1, 1), groups=40), y, weights(b, 40, 1, 3, 3))
    gate = b.add(ReduceMean((2, 3), keepdims=True), b.add(Relu(), y))
    gate = b.add(Conv(), gate, weights(b, 8, 40, 1, 1))
    gate = b.add(Sigmoid(), b.add(Conv(), gate, weights(b, 40, 8, 1, 1)))
    return averaged(b, b.add(Mul(), y, gate))


def dense() -> Graph:
    """Channels side by side, of a pool and of convolutions."""
    b = Builder("dense")
    x = b.input("x", TensorType(f32, (1, 16, 10, 10)))
    y = b.add(Conv(), x, weights(b, 32, 16, 1, 1))
    y = b.add(MaxPool((3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), y)
    z = b.add(Concat(1), y, b.add(Conv(pads=(1, 1, 1, 1)), y, weights(b, 32, 32, 3, 3)))
    return averaged(b, b.add(Relu(), b.add(Conv(), z, weights(b, 64, 64, 3, 3))))


def grouped() -> Graph:
    b = Builder("grouped")
    x = b.input("x", TensorType(f32, (1, 8, 7, 9)))
    return b.finish([b.add(Conv(groups=2, dilations=(2, 1)), x, weights(b, 12, 4, 3, 2))])


NETWORKS = (strided, gated, dense)
OTHERS = (grouped, pass_models.residual, pass_models.mobile)


@pytest.mark.parametrize("network", (*NETWORKS, *OTHERS), ids=lambda f: f.__name__)
def test_answers(network):
    """As the evaluator's; no two threads race."""
    for body, func in kernels(network()):
        for found, wanted in zip(*run(body, func), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda f: f.__name__)
def test_memory(network):
    """Neighbours in a wave use neighbours in memory."""
    for _, func in kernels(network()):
        for counts in counts_of(func, GPU):
            assert (counts.uncoalesced, counts.unknown, counts.bank_conflicts) == (0, 0, 0), func


def test_averages_of_channels_are_one_launch():
    """A wave for neighbouring channels, and the waves of a block share the positions."""
    averages = [
        f for b, f in kernels(gated()) if any(isinstance(n.op, ReduceMean) for n in b.nodes)
    ]
    assert [[x.threads for x in launches(f)] for f in averages] == [[(32, 8, 1)]] * 2


def test_borders_are_no_launches():
    """What a convolution pads is tested where it is read."""
    body, func = kernels(strided())[0]
    assert all(v.layout is None or not v.layout.has_padding for v in (*body.inputs, *body.outputs))
    assert len(launches(func)) == 1
