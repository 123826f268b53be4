"""Convolutions as products for instructions on tiles: answers, races and memory accesses."""

from __future__ import annotations

import numpy as np
import pytest
from device_images import GPU, averaged, kernels, run, weights

from tilesmith.cli.explain_device import counts_of
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add

CASES = {
    "1x1": (1, Conv()),
    "border": (3, Conv(pads=(1, 1, 1, 1))),
    "stride": (3, Conv(pads=(1, 1, 1, 1), strides=(2, 2))),
    "dilation": (3, Conv(pads=(2, 0, 1, 3), dilations=(2, 1))),
}


def network(name: str, channels: int) -> Graph:
    """Two images; positions are no multiple of a tile, nor are filters."""
    size, op = CASES[name]
    b = Builder("g")
    x = b.input("x", TensorType(f32, (2, 4, 5, 4)))
    x = b.add(Relu(), b.add(Conv(), x, weights(b, channels, 4, 1, 1)))
    y = b.add(op, x, weights(b, 40, channels, size, size))
    return averaged(b, b.add(Relu(), b.add(Add(), y, weights(b, 40, 1, 1))))


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "f16") for name in CASES), ("stride", "bf16")]
)
def test_tiles(name: str, precision: str):
    """The evaluator's answers without a race, loads in vectors, and no bank conflicts."""
    found = 0
    for body, func in kernels(network(name, 64), precision):
        if "mma_" not in str(func.attrs):
            continue
        found += 1
        (counts,) = counts_of(func, GPU)
        assert (counts.uncoalesced, counts.unknown, counts.bank_conflicts) == (0, 0, 0)
        assert counts.matrix and counts.vector_bytes == 16
        for x, wanted in zip(*run(body, func), strict=True):
            np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-3)
    assert found == 1


def test_other_channels():
    """Numbers of channels that are no multiple of an instruction's take the rule for threads."""
    for body, func in kernels(network("border", 24), "f16"):
        assert "mma_" not in str(func.attrs)
        for x, wanted in zip(*run(body, func), strict=True):
            np.testing.assert_allclose(x, wanted, rtol=1e-3, atol=1e-2)
