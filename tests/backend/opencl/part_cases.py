"""Models of which parts run on an OpenCL device and parts on the CPU."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.cli.explain_device import rows
from tilesmith.driver.entry import FallbackWarning
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.ir.dtypes import f32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.program.nodes import PartCall
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.parts_runner import PartsRunner
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError

SIDE = 32
"""Of the detector's image: its sort has SIDE * SIDE elements."""


def compiled(model: Any) -> Executable:
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'opencl'"):
        return ts.compile(model, target="opencl")


def detector() -> bytes:
    """A CNN with boxes that are suppressed and a sort of its scores; behind both is more of it."""
    rng, n = np.random.default_rng(0), SIDE * SIDE
    arrays = {
        "w1": rng.standard_normal((8, 3, 3, 3), np.float32),
        "w2": rng.standard_normal((4, 8, 3, 3), np.float32),
        "wb": rng.standard_normal((4, 8, 1, 1), np.float32),
        "ws": rng.standard_normal((1, 8, 1, 1), np.float32),
        "most": np.array([20]),
        "iou": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
        "two": np.array(2),
        "count": np.array([n]),
        "boxes_shape": np.array([1, 4, n]),
        "scores_shape": np.array([1, 1, n]),
        "image": np.array([1, 1, SIDE, SIDE]),
        "column": np.array([1, 4, 1, 1]),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "wb"], ["b"]),
        node("Conv", ["r", "ws"], ["s"]),
        node("Reshape", ["b", "boxes_shape"], ["bt"]),
        node("Transpose", ["bt"], ["boxes"], perm=[0, 2, 1]),
        node("Reshape", ["s", "scores_shape"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["selected"]),
        node("Gather", ["selected", "two"], ["index"], axis=1),
        node("Gather", ["boxes", "index"], ["picked"], axis=1),
        node("Reshape", ["scores", "count"], ["flat"]),
        node("TopK", ["flat", "count"], ["sorted", "order"]),
        node("Reshape", ["sorted", "image"], ["plane"]),
        node("Conv", ["r", "w2"], ["features"], pads=[1, 1, 1, 1]),
        node("ReduceMean", ["picked"], ["mean"], axes=[1]),
        node("Reshape", ["mean", "column"], ["shift"]),
        node("Add", ["features", "plane"], ["shifted"]),
        node("Add", ["shifted", "shift"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in (
                ("picked", TensorProto.FLOAT),
                ("order", TensorProto.INT64),
                ("y", TensorProto.FLOAT),
            )
        ],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def suppression() -> None:
    """Nine copies: the image up; boxes, scores and three counts of candidates down; the mean of the
    boxes that are left up; the order and the image down.  The sort stays on the device.
    """
    model = detector()
    made = compiled(model)
    program = made.program
    down = [False] * 5
    assert [t.to_device for t in program.transfers] == [True, *down, True, *down[3:]]
    calls = [s for s in program.part_steps if isinstance(s, PartCall)]
    targets = [program.parts[c.part].target.name for c in calls]
    assert targets == ["opencl", "native", "opencl"]
    assert {t.name for t in program.places} == {"opencl", "native"}
    on_cpu = {k.operators for k in program.parts[1].kernels.values()}
    assert ("non_max_suppression",) in on_cpu and ("top_k",) not in on_cpu
    x = np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE), np.float32)
    wanted = ts.compile(model)(x)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "model.tsm"))
        again = ts.load(Path(folder, "model.tsm"))
    for exe in (made, made, again):
        for a, b in zip(exe(x), wanted, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    out = np.empty_like(wanted[2])
    assert made(x, out=(None, None, out))[2] is out
    np.testing.assert_allclose(out, wanted[2], rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="expected shape"):
        made(x[:, :2])
    for wrong in (program.part_steps[1:], program.part_steps[:-1] + program.part_steps[:1]):
        with pytest.raises(ModelError, match="do not fit its parts"):
            PartsRunner(replace(program, part_steps=wrong))
    profile = made.profile(x, repeats=2)
    told = rows(made, profile)
    assert all(0 < k.seconds < 60 for k in profile) and profile.whole > 0
    assert {r["place"] for r in told if r["launches"]} == {"opencl"}
    assert {r["place"] for r in told if not r["launches"]} == {"native"}
    checks = ts.check(model, target="opencl")
    assert len(checks) == len(program.calls) and all(c.passed for c in checks)
    with pytest.raises(UnsupportedError, match=r'non_max_suppression .*fallback="warn" runs these'):
        ts.compile(model, target="opencl", fallback="error")


def open_sizes() -> None:
    """Sizes of a run: on the CPU, without copies; the caller's arrays are not results."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (symbol("n"),)))
    graph = b.finish([b.add(Relu(), x), x])
    made = compiled(graph)
    assert not made.program.transfers
    for n in (1, 5):
        given = np.arange(n, dtype=np.float32) - 2
        found, same = made(given)
        np.testing.assert_array_equal(found, np.maximum(given, 0))
        assert same is not given
        np.testing.assert_array_equal(same, given)
    with pytest.raises(UsageError, match="shares memory"):
        made(given, out=(given, None))


def branches() -> None:
    """A branch behind a convolution: its condition and what it reads go to the CPU."""
    rng = np.random.default_rng(2)
    info, node = helper.make_tensor_value_info, helper.make_node
    shape = [1, 2, 6, 6]
    sides = [
        helper.make_graph([node(op, ["c"], [op])], op, [], [info(op, TensorProto.FLOAT, shape)])
        for op in ("Exp", "Neg")
    ]
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("ReduceMean", ["c"], ["mean"], keepdims=0),
        node("Greater", ["mean", "zero"], ["positive"]),
        node("If", ["positive"], ["side"], then_branch=sides[0], else_branch=sides[1]),
        node("Conv", ["side", "v"], ["y"]),
    ]
    arrays = {
        "w": rng.standard_normal((2, 1, 3, 3), np.float32),
        "v": rng.standard_normal((1, 2, 3, 3), np.float32),
        "zero": np.array(0, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
        [info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made = compiled(model.SerializeToString())
    cpu = ts.compile(model.SerializeToString())
    assert len(made.program.transfers) == 5  # x, the condition, what the branch reads, its result
    for sign in (1, -1):
        x = sign * rng.random((1, 1, 8, 8), np.float32)
        np.testing.assert_allclose(made(x), cpu(x), rtol=1e-4, atol=1e-4)


def unwarned() -> None:
    """A model that the device runs alone has no parts, and nothing is said."""
    b = Builder("g")
    graph = b.finish([b.add(Relu(), b.input("x", TensorType(f32, (4,))))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ts.compile(graph, target="opencl", fallback="error")
    given = np.array([-1, 0, 1, 2], np.float32)
    assert not made.program.parts
    (wanted,) = evaluate(graph, [given]).values()
    np.testing.assert_array_equal(made(given), wanted)


def part_calls() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    return {f.__name__: f for f in (suppression, open_sizes, branches, unwarned)}
