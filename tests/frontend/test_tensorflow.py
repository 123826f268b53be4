"""TensorFlow's SavedModels and frozen graphs: variables, functions, control flow, damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.frontend.tensorflow.bundle import unpacked
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError
from written_models.tensorflow import (
    FLOAT,
    INT,
    RESOURCE,
    VARIANT,
    Called,
    Type,
    const,
    dense,
    frozen,
    function,
    graph,
    info,
    node,
    packed,
    placeholder,
    write_saved,
)

W = np.arange(6, dtype=np.float32).reshape(3, 2) - 2
B = np.array([0.5, -1], np.float32)
X = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)


def run(model: Any, *arrays: np.ndarray, **options: Any) -> list[np.ndarray]:
    exe = ts.compile(model, **options)
    names = [i.name for i in exe.inputs]
    return list(exe.run(dict(zip(names, arrays, strict=True))).values())


def test_a_frozen_graph_with_an_open_batch() -> None:
    model = frozen(
        placeholder("x", -1, 3), const("w", W), const("b", B),
        node("product", "MatMul", "x", "w"), node("sum", "BiasAdd", "product", "b:0"),
        node("y", "Relu", "sum"),
    )  # fmt: skip
    for rows in (1, 2):
        (y,) = run(model, X[:rows])
        np.testing.assert_allclose(y, np.maximum(X[:rows] @ W + B, 0))


def test_convolutions_have_channels_last_and_same_padding() -> None:
    x = np.arange(18, dtype=np.float32).reshape(1, 3, 3, 2)
    w = np.ones((2, 2, 2, 1), np.float32)
    model = frozen(
        placeholder("x", 1, 3, 3, 2), const("w", w),
        node("y", "Conv2D", "x", "w", strides=[1, 2, 2, 1], padding="SAME", data_format="NHWC"),
    )  # fmt: skip
    (y,) = run(model, x)
    wide = np.pad(x[0].sum(-1), ((0, 1), (0, 1)))  # the larger half of the padding is behind
    wanted = [[wide[i : i + 2, j : j + 2].sum() for j in (0, 2)] for i in (0, 2)]
    np.testing.assert_allclose(y[0, ..., 0], wanted)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_saved_model_reads_its_variables(tmp_path: Path, is_packed: bool) -> None:
    folder = dense(tmp_path / "model", W, B, is_packed)
    for path in (folder, folder / "saved_model.pb"):
        exe = ts.compile(str(path))
        assert [i.name for i in exe.inputs] == ["x"]
        assert [o.name for o in exe.outputs] == ["y"]
        np.testing.assert_allclose(exe.run({"x": X})["y"], X @ W + B)


def test_signatures_and_new_weights(tmp_path: Path) -> None:
    folder = str(dense(tmp_path / "model", W, B))
    (z,) = run(folder, X, signature="twice")
    np.testing.assert_allclose(z, 2 * (X @ W + B))
    with pytest.raises(UsageError, match="serving_default"):
        ts.compile(folder, signature="other")


def test_inspection(tmp_path: Path) -> None:
    facts = inspect(dense(tmp_path / "model", W, B))
    assert (facts.format, facts.producer) == ("TensorFlow SavedModel", "TensorFlow 2.21.0")
    assert facts.inputs == {"x": "f32[?,3]"}
    assert facts.outputs == {"y": "f32[?,2]"}
    assert facts.operators["MatMul"] == 1
    assert not facts.unsupported
    assert facts.weight_bytes == W.nbytes + B.nbytes + 160
    assert set(facts.metadata) == {"signature serving_default", "signature twice"}
    odd = inspect(frozen(placeholder("x", 2), node("y", "Oddity", "x")))
    assert odd.unsupported == {"Oddity"}


def test_a_variable_keeps_its_value(tmp_path: Path) -> None:
    count = function(
        "count", {"x": FLOAT, "v": RESOURCE}, {"out": "now:value:0"},
        node("more", "AssignAddVariableOp", "v", "x"),
        node("now", "ReadVariableOp", "v", "^more", dtype=Type(FLOAT)),
    )  # fmt: skip
    stated = graph(
        placeholder("x", 2), node("total", "VarHandleOp", shared_name="total"),
        node("call", "StatefulPartitionedCall", "x", "total", f=Called("count")),
        functions=(count,),
    )  # fmt: skip
    signature = {"inputs": {"x": info("x:0", 2)}, "outputs": {"y": info("call:0", 2)}}
    first = np.array([10, 20], np.float32)
    folder = write_saved(tmp_path, stated, {"serving_default": signature}, {"total": first})
    exe, x = ts.compile(str(folder)), np.array([1, 2], np.float32)
    np.testing.assert_allclose(exe.run({"x": x})["y"], first + x)
    np.testing.assert_allclose(exe.run({"x": x})["y"], first + 2 * x)


def double(name: str, by: float) -> dict[str, Any]:
    return function(
        name, {"a": FLOAT}, {"out": "y:z:0"}, const("c", np.float32(by)),
        node("y", "Mul", "a", "c:output:0"),
    )  # fmt: skip


def test_branches_that_are_functions() -> None:
    names = [Called(n) for n in ("twice", "thrice", "half")]
    functions = (double("twice", 2), double("thrice", 3), double("half", 0.5))
    model = frozen(
        placeholder("p", dtype=10), placeholder("k", dtype=INT), placeholder("x", 2),
        node("if", "If", "p", "x", then_branch=Called("twice"), else_branch=Called("half")),
        node("case", "Case", "k", "x", branches=names),
        node("y", "Pack", "if", "case", axis=0), functions=functions,
    )  # fmt: skip
    x = np.array([1, 2], np.float32)
    for p, a in ((True, 2), (False, 0.5)):
        for k, b in ((0, 2), (1, 3), (2, 0.5), (9, 0.5)):
            exe = ts.compile(model)
            y = exe.run({"p": np.array(p), "k": np.array(k, np.int32), "x": x})["y"]
            np.testing.assert_allclose(y, [a * x, b * x])


def test_a_loop_sets_items_of_a_list_whose_shape_it_determines() -> None:
    types = {"k": INT, "rows": VARIANT, "x": FLOAT}
    going = function(
        "going", types, {"out": "less:z:0"}, const("n", np.int32(4)),
        node("less", "Less", "k", "n:output:0"),
    )  # fmt: skip
    step = function(
        "step", types, {"k2": "more:z:0", "rows2": "set:output_handle:0", "x2": "y:z:0"},
        const("one", np.int32(1)), const("by", np.float32(2)),
        node("more", "AddV2", "k", "one:output:0"), node("y", "Mul", "x", "by:output:0"),
        node("set", "TensorListSetItem", "rows", "k", "y:z:0", element_dtype=Type(FLOAT)),
    )  # fmt: skip
    model = frozen(
        placeholder("x", 2), const("zero", np.int32(0)), const("any", np.int32(-1)),
        const("four", np.int32(4)),
        node("rows", "TensorListReserve", "any", "four", element_dtype=Type(FLOAT)),
        node("loop", "While", "zero", "rows", "x", cond=Called("going"), body=Called("step")),
        node("y", "TensorListStack", "loop:1", "any", element_dtype=Type(FLOAT)),
        node("unread", "Identity", "loop:2", T=Type(FLOAT)), functions=(going, step),
    )  # fmt: skip
    x = np.array([1, -3], np.float32)
    y = ts.compile(model).run({"x": x})["y"]
    np.testing.assert_allclose(y, [x * 2**k for k in (1, 2, 3, 4)])


def test_a_choice_drawn_with_switches() -> None:
    model = frozen(
        placeholder("x", 2), const("zero", np.float32(0)), const("axis", np.int32([0])),
        node("sum", "Sum", "x", "axis"), node("p", "Greater", "sum", "zero"),
        node("switch_p", "Switch", "p", "p"), node("t", "Identity", "switch_p:1"),
        node("id", "Identity", "p"), node("s", "Switch", "x", "id"),
        const("two", np.float32(2), "^t"), node("yes", "Mul", "s:1", "two"),
        node("no", "Neg", "s:0"), node("y", "Merge", "no", "yes"),
    )  # fmt: skip
    for x in (np.array([1, 2], np.float32), np.array([-1, -2], np.float32)):
        y = ts.compile(model).run({"x": x})["y"]
        np.testing.assert_allclose(y, 2 * x if x.sum() > 0 else -x)


def test_a_loop_drawn_with_switches() -> None:
    model = frozen(
        placeholder("x", 2), const("zero", np.int32(0)), const("scale", np.float32(0.5)),
        node("enter_k", "Enter", "zero", frame_name="f"),
        node("enter_x", "Enter", "x", frame_name="f"),
        node("fixed", "Enter", "x", frame_name="f", is_constant=True),
        node("k", "Merge", "enter_k", "next_k"), node("v", "Merge", "enter_x", "next_x"),
        const("n", np.int32(3), "^k"), node("less", "Less", "k", "n"),
        node("going", "LoopCond", "less"),
        node("s_k", "Switch", "k", "going"), node("s_x", "Switch", "v", "going"),
        node("in_k", "Identity", "s_k:1"), const("one", np.int32(1), "^in_k"),
        node("more", "AddV2", "in_k", "one"), node("half", "Mul", "s_x:1", "scale"),
        node("new", "AddV2", "half", "fixed"),
        node("next_k", "NextIteration", "more"), node("next_x", "NextIteration", "new"),
        node("exit_k", "Exit", "s_k"), node("exit_x", "Exit", "s_x"),
        node("y", "Neg", "exit_x"), node("count", "Identity", "exit_k"),
    )  # fmt: skip
    x = np.array([1, -2], np.float32)
    results = ts.compile(model).run({"x": x})
    wanted = x
    for _ in range(3):
        wanted = wanted * np.float32(0.5) + x
    np.testing.assert_allclose(results["y"], -wanted)
    assert results["count"] == 3


def test_unsupported_operators_are_listed_at_once() -> None:
    model = frozen(
        placeholder("x", 2), node("a", "Oddity", "x"), node("b", "Rarity", "x"),
        node("y", "AddV2", "a", "b"),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"Oddity at 'a'.*Rarity at 'b'"):
        ts.compile(model)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("y", "Neg", "x:3")], "output number 4 of node 'x'"),
        ([node("y", "Neg", "nothing")], "found 'nothing'"),
        ([node("y", "Neg", "x:z:q")], "'x:z:q'"),
        ([node("y", "AddV2", "y", "x"), node("z", "Neg", "y")], "'y' is an operand of its own"),
        ([node("y", "PartitionedCall", "x", f=Called("none"))], "function 'none'"),
        ([node("y", "Conv2D", "x", "x")], "images of 4 axes"),
        ([node("y", "Reshape", "x")], "input number 2"),
        ([node("y", "Squeeze", "x", squeeze_dims=[5])], "expected -1 to 0 for rank 1"),
        ([node("y", "MatMul", "x", "x", transpose_a=2)], "transpose_a"),
        ([node("y", "Exit", "x")], "'x'"),
        ([node("y", "VarHandleOp"), node("z", "ReadVariableOp", "y")], "no stored value"),
    ],
)
def test_damaged_graphs(nodes: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ts.compile(frozen(placeholder("x", 2), *nodes))


def test_damaged_variables(tmp_path: Path) -> None:
    folder = dense(tmp_path / "model", W, B)
    index, data = (
        folder / "variables" / n for n in ("variables.index", "variables.data-00000-of-00001")
    )
    good = index.read_bytes()
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(ModelError, match="found a file of 20"):
        ts.compile(str(folder))
    data.unlink()
    with pytest.raises(ModelError, match="found no file"):
        ts.compile(str(folder))
    for end in (10, len(good) - 1):
        index.write_bytes(good[:end])
        with pytest.raises(ModelError, match="expected an index of variables"):
            ts.compile(str(folder))
    rng = np.random.default_rng(0)
    for _ in range(200):  # any byte may be wrong: a typed error, or the byte does not matter
        bad = bytearray(good)
        bad[rng.integers(len(bad))] = rng.integers(256)
        index.write_bytes(bad)
        with pytest.raises(ModelError):
            ts.compile(str(folder))
            raise ModelError("no harm")


def test_an_output_needs_a_name(tmp_path: Path) -> None:
    signatures = {"serve": {"outputs": {"": info("c:0", 2)}}}
    folder = write_saved(tmp_path / "m", graph(const("c", B)), signatures, {})
    with pytest.raises(ModelError, match="expected a name for each output"):
        ts.compile(str(folder))


def test_snappy() -> None:
    raw = bytes(range(70)) + b"z" * 50
    assert unpacked(memoryview(packed(raw))) == raw
    for bad in (b"\xff\xff\xff\x7f\0", b"\x05\x01\x09", b"\x05"):
        with pytest.raises(ModelError, match="damaged file"):
            unpacked(memoryview(bad))


def test_a_loop_reads_a_variable_while_a_condition_of_the_run_holds(tmp_path: Path) -> None:
    types = {"x": FLOAT, "v": RESOURCE}
    going = function(
        "going", types, {"out": "less:z:0"}, const("most", np.float32(50)),
        const("axis", np.int32([0])), node("sum", "Sum", "x", "axis:output:0"),
        node("less", "Less", "sum:output:0", "most:output:0"),
    )  # fmt: skip
    step = function(
        "step", types, {"x2": "y:z:0", "v2": "v"},
        node("by", "ReadVariableOp", "v", dtype=Type(FLOAT)), node("y", "Mul", "x", "by:value:0"),
    )  # fmt: skip
    stated = graph(
        placeholder("x", 2), node("scale", "VarHandleOp", shared_name="scale"),
        node("y", "While", "x", "scale", cond=Called("going"), body=Called("step")),
        functions=(going, step),
    )  # fmt: skip
    signature = {"inputs": {"x": info("x:0", 2)}, "outputs": {"y": info("y:0", 2)}}
    by = np.array([2, 3], np.float32)
    folder = write_saved(tmp_path, stated, {"serving_default": signature}, {"scale": by})
    exe = ts.compile(str(folder))
    for x in (np.array([1, 1], np.float32), np.array([60, 0], np.float32)):
        wanted = x
        while wanted.sum() < 50:
            wanted = wanted * by
        np.testing.assert_allclose(exe.run({"x": x})["y"], wanted)
