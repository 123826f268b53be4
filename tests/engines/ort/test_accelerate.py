"""Models of ONNX Runtime in which operators of ours compute parts.  Nothing is timed: the tests say
which models are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.engines.ort import accelerated
from tilesmith.engines.ort.parts import Part, Source

FLOAT = TensorProto.FLOAT


def model(rows: Any = 6) -> onnx.ModelProto:
    """Products before and behind distances that only ONNX Runtime knows, and a branch."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    branch = helper.make_graph(
        [helper.make_node("Mul", ["h", "two"], ["twice"])],
        "then",
        [],
        [helper.make_tensor_value_info("twice", FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", FLOAT, None)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("CDist", ["b", "b"], ["c"], domain="com.microsoft", metric="euclidean"),
        helper.make_node("MatMul", ["b", "w1"], ["d"]),
        helper.make_node("MatMul", ["c", "d"], ["h"]),
        helper.make_node("If", ["flag"], ["e"], then_branch=branch, else_branch=other),
        helper.make_node("Add", ["e", "a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, [rows, 16]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in ("y", "b")],
        [
            *(numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)),
            numpy_helper.from_array(np.float32(2), "two"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def judged(monkeypatch: pytest.MonkeyPatch, faster: Callable[[tuple[Part, ...]], bool]) -> None:
    """Says which sets of parts make the model faster, in place of measuring."""

    def compared(
        _self: object, parts: tuple[Part, ...], _rounds: int, _others: object = ()
    ) -> tuple[float, float]:
        return 1.0, 0.5 if faster(parts) else 2.0

    monkeypatch.setattr(accelerated._Search, "compared", compared)


@pytest.mark.parametrize("rows", [6, "n"])
@pytest.mark.parametrize("flag", [False, True])
def test_parts_around_an_unknown_operator(
    rows: Any, flag: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, lambda _: True)
    given = model(rows)
    found = ts.ort.accelerate(given.SerializeToString(), tmp_path / "a", threads=2)
    assert found.parts == (("first", "second", "d"), ("h", "e", "y"))
    kinds = [n.op_type for n in onnx.load(found.model).graph.node]
    assert kinds == ["Part_0_3", "CDist", "Part_4_7"]
    plain = onnxruntime.InferenceSession(given.SerializeToString())
    own = found.session()
    for n in (6,) if rows == 6 else (1, 6, 33):
        x = np.random.default_rng(n).standard_normal((n, 16), np.float32)
        feed = {"x": x, "flag": np.array(flag)}
        for a, b in zip(own.run(None, feed), plain.run(None, feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_what_does_not_help_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, lambda parts: all(p == Part(4, 6) for p in parts))
    given = model()
    given.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))
    found = ts.ort.accelerate(given, tmp_path, threads=1)
    assert found.parts == (("h", "e"),)
    assert (found.before, found.after) == (1.0, 0.5)


def test_a_model_that_is_fast_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, lambda _: False)
    given = model()
    found = ts.ort.accelerate(given, tmp_path, threads=1)
    assert found.library is None and found.parts == ()
    assert onnx.load(found.model) == given
    assert found.session().get_inputs()[0].name == "x"


def test_borders() -> None:
    source = Source(model(), {})
    assert source.borders(Part(0, 2)) == (["x"], ["a", "b"])
    assert source.borders(Part(4, 6)) == (["c", "d", "flag"], ["e"])  # "h" is read by a branch
    assert source.borders(Part(5, 7)) == (["flag", "h", "a"], ["y"])
    with pytest.raises(ts.ModelError, match="the type of 'x' is not known"):
        source.model_of(Part(0, 2))


def test_known_nodes_that_wait_for_no_unknown_one_come_first() -> None:
    source = Source(model(), {})
    assert source.order == [0, 1, 3, 2, 4, 5, 6]
    assert source.runs() == [Part(0, 3), Part(4, 7)]
    assert Source(model(), {}, refused={1}).runs() == [Part(3, 7), Part(0, 1)]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ts.UsageError, match="expected an ONNX model, found 0: give a path"):
        ts.ort.accelerate(0, tmp_path)
    with pytest.raises(ts.UsageError, match="expected an ONNX model, found b'no'"):
        ts.ort.accelerate(b"no", tmp_path)
    wrong = model()
    wrong.graph.node[0].op_type = "Nothing"
    with pytest.raises(ts.ModelError, match=r"ONNX Runtime can't run the model: .*Nothing"):
        ts.ort.accelerate(wrong, tmp_path)
