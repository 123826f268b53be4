"""What layouts cost decides who brings a value into the order that its readers like."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.layout import assign_layouts
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
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
