"""Strict models: kernels have the interpreter's bits, and no graph pass rounds otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import model, node

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.nodes import Fused
from tilesmith.loop.interpret import interpret
from tilesmith.search_space.workload import group_workload

MODELS = {
    "elementwise": model(
        [node("Mul", "x w", "m"), node("Add", "m x", "a"), node("Tanh", "a", "t"),
         node("Exp", "t", "e"), node("Max", "e x", "y")],
        {"x": (6, 16), "w": (6, 16)}, ["y"],
    ),
    "matmul": model(
        [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Sigmoid", "a", "y")],
        {"x": (6, 24), "w": (24, 40), "b": (40,)}, ["y"],
    ),
    "softmax": model([node("Softmax", "x", "y", axis=-1)], {"x": (6, 37)}, ["y"]),
    "dots": model([node("MatMul", "x w", "y")], {"x": (1, 300), "w": (300, 1)}, ["y"]),
    "layer norm": model(
        [node("LayerNormalization", "x s b", "y")], {"x": (6, 40), "s": (40,), "b": (40,)}, ["y"]
    ),
}  # fmt: skip


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path, threads=2)


@pytest.mark.parametrize("name", MODELS)
def test_kernels_have_the_interpreters_bits(name: str, options: ts.Options) -> None:
    source = MODELS[name]
    session = driver.Session.of(options, accuracy="strict")
    graph = driver.load_graph(driver.Request(source, session.options), session)
    (fused,) = driver.optimise(graph, session).nodes
    assert isinstance(fused.op, Fused)
    func = session.group(driver.canonical(fused.op.body)).lower("k")
    for p in driver.STRICT_LOOP_PASSES:
        func = p.run(func)
    rng = np.random.default_rng(0)
    given = {
        v.name: (rng.standard_normal(v.type.static_shape) * 3).astype(np.float32)
        for v in graph.inputs
    }
    expected = np.empty(graph.outputs[0].type.static_shape, np.float32)
    interpret(func, [*(given[v.name] for v in fused.inputs), expected])
    exe = ts.compile(source.SerializeToString(), options=options, accuracy="strict")
    np.testing.assert_array_equal(
        exe.run(given)["y"].view(np.uint32), expected.view(np.uint32), err_msg=name
    )


def normalized() -> onnx.ModelProto:
    """A 3x3 convolution that Winograd's algorithm would suit, and a scale that would be folded."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((64, 64, 3, 3)).astype(np.float32),
        **{n: rng.random(64).astype(np.float32) + 0.5 for n in ("s", "b", "m", "v")},
    }
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s b m v", "y"),
    ]
    return model(nodes, {"x": (1, 64, 32, 32)}, ["y"], weights)


@pytest.mark.parametrize(("accuracy", "is_exact"), [("default", False), ("strict", True)])
def test_no_graph_pass_rounds_otherwise(accuracy: str, is_exact: bool, options: ts.Options) -> None:
    session = driver.Session.of(options, accuracy=accuracy)
    graph = driver.optimise(
        driver.load_graph(driver.Request(normalized(), session.options), session), session
    )
    operators = {m.op.name for n in graph.nodes for m in n.op.body.nodes}  # type: ignore[attr-defined]  # Fused
    assert ("mul" in operators) is is_exact
    assert any("winograd" in name for name in operators) is not is_exact


def test_every_key_has_the_policy(options: ts.Options) -> None:
    strict = replace(options, accuracy="strict")
    assert options.key() != strict.key()
    session = driver.Session.of(options)
    graph = driver.optimise(
        driver.load_graph(driver.Request(MODELS["softmax"], session.options), session), session
    )
    body = graph.nodes[0].op.body  # type: ignore[attr-defined]  # Fused
    assert group_workload(body, ()) == group_workload(body, (), "default")
    assert group_workload(body, ()) != group_workload(body, (), "strict")
