"""Graphs written as Relay, in both forms, and read back."""

from __future__ import annotations

import numpy as np
import onnx_models as om
import pytest
import torch
from onnx import TensorProto, helper

from tilesmith.frontend.load import load
from tilesmith.frontend.relay.export import save_relay, to_relay
from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import UnsupportedError

DRAW = np.random.default_rng(0)


def f(*shape):
    return DRAW.standard_normal(shape).astype(np.float32)


def check(graph: Graph, *arrays, tolerance=1e-6):
    """Both forms are read back as the same graph, which computes the same as `graph`."""
    texts = [to_relay(graph, form) for form in ("graph", "anf")]
    graphs = [load(t.encode()) for t in texts]
    assert_structural_equal(*graphs)
    wanted = [*evaluate(graph, [*arrays]).values()]
    for a, b in zip(wanted, evaluate(graphs[0], [*arrays]).values(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, tolerance, tolerance)
    return texts


def of_module(module, *examples):
    exported = torch.export.export(module.eval(), tuple(map(torch.from_numpy, examples)))
    return load(exported)


def of_nodes(*nodes, outputs=("y",), shape=(2, 3)):
    return load(om.model(nodes, [om.value("x", shape)], outputs))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.depth = torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm = torch.nn.BatchNorm2d(8)
        self.up = torch.nn.ConvTranspose2d(8, 4, 2, 2)
        self.group = torch.nn.GroupNorm(2, 8)
        self.dense = torch.nn.Linear(4 * 256, 5)

    def forward(self, x):
        y = torch.nn.functional.silu(self.norm(self.conv(x)))
        y = self.group(torch.nn.functional.hardswish(self.depth(y)) + y)
        y = torch.nn.functional.max_pool2d(self.up(y), 2)
        y = torch.nn.functional.avg_pool2d(y, 3, 1, 1)
        y = torch.nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
        return torch.softmax(self.dense(y.flatten(1)), -1), y.mean((2, 3))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids):
        y = self.layer(self.embed(ids))
        best, place = torch.topk(y, 3)
        return y.cumsum(1), best, place, torch.nn.functional.gelu(y).argmax(1)


def test_a_convolutional_network():
    x = f(1, 3, 16, 16)
    check(of_module(Network(), x), x, tolerance=1e-5)


def test_a_transformer():
    ids = DRAW.permutation(14).reshape(2, 7)  # distinct, so that no maxima are equal
    texts = check(of_module(Transformer(), ids), ids, tolerance=1e-5)
    assert "nn.layer_norm(" in texts[0]
    assert "nn.batch_matmul(" in texts[0]


def test_the_two_forms():
    graph = of_nodes(
        helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])
    )
    plain, normal = check(graph, f(2, 3))
    type_ = "Tensor[(2, 3), float32]"
    head = f'#[version = "0.0.5"]\ndef @main(%x: {type_}) -> {type_} {{\n'
    assert plain == head + "  %0 = add(%x, %x);\n  %1 = nn.relu(%0);\n  %1\n}\n"
    assert normal == head + "  let %x0 = add(%x, %x);\n  let %x1 = nn.relu(%x0);\n  %x1\n}\n"


def test_ties_are_rounded_to_even_numbers():
    graph = of_nodes(helper.make_node("Round", ["x"], ["y"]))
    check(graph, np.array([[-2.5, -1.5, -0.5], [0.5, 2.5, 0.49999997]], np.float32))


def test_branches():
    def branch(op):
        y = helper.make_tensor_value_info("b", TensorProto.FLOAT, (2, 3))
        return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [y])

    condition = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg")),
    ]
    for sign in (1, -1):
        check(of_nodes(*condition), sign * np.abs(f(2, 3)))


def test_loops():
    source = b"""def @main(%n: int32, %x: Tensor[(3), float32]) {
  let %go = fn (%i, %y, %z) {
    if (less(%i, %n)) { %go(add(%i, 1), add(%y, %x), multiply(%z, 2f)) } else { (%i, %y, %z) }
  };
  let %r = %go(0, %x, 1f);
  (%r.1, %r.2)
}"""
    graph = load(source)
    for count in (0, 1, 5):
        texts = check(graph, np.array(count, np.int32), f(3))
    assert "let %x" in texts[0]


def test_what_relay_lacks_is_listed(tmp_path):
    nodes = [helper.make_node("NonZero", ["x"], ["t"]), helper.make_node("Det", ["x"], ["y"])]
    graph = of_nodes(*nodes, outputs=("t", "y"), shape=(3, 3))
    with pytest.raises(UnsupportedError, match=r"no form in Relay is known for .*det.*non_zero"):
        save_relay(graph, tmp_path / "m.relay")
    assert not (tmp_path / "m.relay").exists()
