"""Dimensions that nodes restrict: named when the model is compiled, and where a run is refused."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.support.errors import ModelError, OpenShapesError


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    **constants: Sequence[Any],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


PLUS = [helper.make_node("Add", ["x", "w"], ["y"], name="plus")]
DEMAND = r"node 'plus' \(Add, opset 18\): add: expected extents that are equal or broadcast, found "


def test_a_number_that_a_weight_demands(caplog: pytest.LogCaptureFixture) -> None:
    made = model(PLUS, {"a": ["b", "s"], "x": ["n", "t"]}, w=ones(1, 128))
    with caplog.at_level(logging.INFO, "tilesmith.sizes"):
        exe = ts.compile(made)
    said = [r.getMessage() for r in caplog.records if r.name == "tilesmith.sizes"]
    assert len(said) == 1
    shown = r"expected shape \(n, 128\), found \(2, 64\); dimension 't' is 128: "
    with pytest.raises(ModelError, match=f"input 'x': {shown}{DEMAND}t and 128$"):
        exe(ones(2, 3), ones(2, 64))
    assert said[0].startswith("dimension 't' (axis 1 of 'x') is 128: node 'plus' (Add, opset 18)")
    assert "; give" not in said[0]
    (told,) = exe.program.metadata["narrowed"]
    assert (told["dimension"], told["places"], told["now"]) == ("t", [["x", 1]], "128")
    with pytest.raises(ModelError) as found:  # of another axis, or another type
        exe(ones(2, 3)[0], ones(2, 128))
    assert "plus" not in str(found.value)
    with pytest.raises(ModelError) as found:
        exe(ones(2, 3), ones(2, 64).astype(np.float64))
    assert "plus" not in str(found.value)


def test_files_keep_the_demand(tmp_path: Path) -> None:
    exe = ts.compile(model(PLUS, {"x": ["n", "t"], "w": ["n", "s"]}))
    stream = io.BytesIO()
    exe.save(stream)
    options = ts.Options(cache_dir=tmp_path)
    onnx.save(model(PLUS, {"x": ["n", "t"], "w": ["n", "s"]}), tmp_path / "m.onnx")
    for again in (
        ts.load(stream.getvalue()),
        ts.compile(tmp_path / "m.onnx", options=options),
        ts.compile(tmp_path / "m.onnx", options=options),
    ):
        with pytest.raises(
            ModelError, match=rf"expected one size.*is that of '\w': {DEMAND}t and s"
        ):
            again(ones(2, 64), ones(2, 63))


def test_a_range_that_a_node_demands() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "axis"], ["u"]),
        helper.make_node("Add", ["u", "x"], ["y"], name="plus"),
    ]
    constants = {"begin": [0], "end": [16], "axis": [1]}
    exe = ts.compile(model(nodes, {"x": ["n", "t"]}, **constants))
    (symbol,) = (s for s in exe.program.symbols if s.name == "t")
    assert (symbol.sizes.low, symbol.sizes.high) == (1, 16)
    np.testing.assert_array_equal(exe(ones(2, 16)), 2 * ones(2, 16))
    with pytest.raises(ModelError, match=r"expected 1 to 16, found 17; dimension 't' is from 1 to"):
        exe(ones(2, 17))
    free = ts.compile(model(PLUS, {"x": ["n", "t"]}, w=ones(1, 1)), dynamic={"t": (1, 8)})
    with pytest.raises(ModelError, match="compile the model with another range"):
        free(ones(2, 9))


def test_models_that_nothing_restricts_say_nothing() -> None:
    exe = ts.compile(model(PLUS, {"x": ["n", "t"]}, w=ones(1, 1)))
    assert "narrowed" not in exe.program.metadata


def test_what_a_file_says_of_demands_is_not_trusted() -> None:
    exe = ts.compile(model(PLUS, {"x": ["n", "t"]}, w=ones(1, 128)))
    hostile: tuple[Any, ...] = (
        3, {}, [None], [{}], [{"places": 1}], [{"places": [[[], 1]], "dimension": "t", "now": "1"}],
        [{"places": [["x", 1]], "dimension": "t", "now": 1, "demand": "d"}],
    )  # fmt: skip
    for told in hostile:
        exe.program.metadata["narrowed"] = told  # type: ignore[index]  # a dictionary, here
        with pytest.raises(ModelError, match=r"found \(2, 64\)$"):
            exe(ones(2, 64))


def test_hints_name_the_input_that_needs_numbers() -> None:
    zoom = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)
    inputs = {"a": ["b", "c"], "x": [1, 3, "h", "w"]}
    made = model([zoom], inputs, s=np.array([1, 1, 0.7, 0.7], np.float32))
    with pytest.raises(OpenShapesError, match=r"shapes=\{'x': .*--shape x=") as found:
        ts.compile(made)
    assert found.value.inputs == ("x", "a")


@pytest.mark.parametrize(
    ("declared", "shown"),
    [([1, "t"], "1,?"), (["n", 1, "s"], "?,1,?"), (["n", 7], "?,7")],
)
def test_a_declared_output_is_no_demand(
    caplog: pytest.LogCaptureFixture, declared: list[int | str], shown: str
) -> None:
    made = model(PLUS, {"x": ["n", 1, 3]}, w=ones(2, 3))
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, declared))
    with caplog.at_level(logging.WARNING, "tilesmith.sizes"):
        exe = ts.compile(made)
    (said,) = [r.getMessage() for r in caplog.records if r.name == "tilesmith.sizes"]
    assert said.startswith(
        f"output 'y' is declared as f32[{shown}], but the model computes f32[n,2,3]"
    )
    assert exe(ones(5, 1, 3)).tolist() == np.full((5, 2, 3), 2.0).tolist()


def test_a_declared_output_that_fits_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = model(PLUS, {"x": ["n", 1, 3]}, w=ones(2, 3))
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 2, 3]))
    with caplog.at_level(logging.WARNING, "tilesmith.sizes"):
        ts.compile(made)
    assert not caplog.records
