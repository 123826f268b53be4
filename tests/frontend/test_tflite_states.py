"""Variables keep their values from run to run, as LiteRT's do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter


def handle(g: GraphWriter, name: str) -> int:
    number = g.tensor((1,), "RESOURCE", name=f"handle_{name}")
    g.op("VAR_HANDLE", [], [number], "VarHandleOptions", shared_name=name, container="")
    return number


def delay_line() -> bytes:
    """y = x + the last two inputs; the first of these are 1 and 2."""
    model = ModelWriter()
    g, first = model.graph(), model.graph("init")
    x, y = g.input((1, 2), name="x"), g.tensor((1, 2), name="y")
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    line = handle(g, "line")
    before, joined = g.tensor((2, 2)), g.tensor((3, 2))
    g.op("READ_VARIABLE", [line], [before], "ReadVariableOptions")
    g.op("CONCATENATION", [before, x], [joined], "ConcatenationOptions", axis=0)
    g.op("SUM", [joined, g.const(np.array([0], np.int32))], [y], "ReducerOptions", keep_dims=True)
    last = g.tensor((2, 2))
    limits = [g.const(np.array(n, np.int32)) for n in ([1, 0], [3, 2], [1, 1])]
    g.op("STRIDED_SLICE", [joined, *limits], [last], "StridedSliceOptions")
    g.op("ASSIGN_VARIABLE", [line, last], [], "AssignVariableOptions")
    g.output(y)
    begin = handle(first, "line")
    values = first.const(np.array([[1, 1], [2, 2]], np.float32))
    first.op("ASSIGN_VARIABLE", [begin, values], [], "AssignVariableOptions")
    return model.bytes()


def litert(content: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    place = interpreter.get_input_details()[0]["index"]
    answers = []
    for x in inputs:
        interpreter.set_tensor(place, x)
        interpreter.invoke()
        answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).copy())
    return answers


def test_a_delay_line(tmp_path: Path) -> None:
    content = delay_line()
    inputs = [np.full((1, 2), n, np.float32) for n in (10, 20, 40, 80)]
    expected = litert(content, inputs)
    exe = ts.compile(content)
    assert [s.name for s in exe.inputs] == ["x"] and [s.name for s in exe.outputs] == ["y"]
    assert [*exe.states] == ["line"]
    for _ in range(2):
        for x, y in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(exe(x), y)
        exe.reset_states()
    out = np.empty((1, 2), np.float32)
    assert exe(inputs[0], out=out) is out
    np.testing.assert_array_equal(exe.run({"x": inputs[1]})["y"], expected[1])
    before = exe.states["line"].copy()
    exe.profile(inputs[0], repeats=3)
    np.testing.assert_array_equal(exe.states["line"], before)
    exe.states["line"][...] = [[1, 1], [2, 2]]
    np.testing.assert_array_equal(exe(inputs[0]), expected[0])
    exe.save(tmp_path / "m.tsm")
    again = ts.load(tmp_path / "m.tsm")
    for x, y in zip(inputs, expected, strict=True):
        np.testing.assert_array_equal(again(x), y)
    with pytest.raises(ts.UsageError, match="keeps 'line' from run to run"):
        exe.export(tmp_path / "lib", format="plugin")
    with pytest.raises(ts.ModelError, match="expected 1 inputs"):
        exe(*inputs)


def test_a_variable_that_is_only_read_is_a_constant() -> None:
    model = ModelWriter()
    g, first = model.graph(), model.graph("init")
    x, y = g.input((2,), name="x"), g.tensor((2,), name="y")
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    value = g.tensor((2,))
    g.op("READ_VARIABLE", [handle(g, "v")], [value], "ReadVariableOptions")
    g.op("ADD", [x, value], [y], "AddOptions")
    g.output(y)
    begin = first.const(np.array([3, 4], np.float32))
    first.op("ASSIGN_VARIABLE", [handle(first, "v"), begin], [], "AssignVariableOptions")
    exe = ts.compile(model.bytes())
    assert not exe.states
    np.testing.assert_array_equal(exe(np.ones(2, np.float32)), [4, 5])


def test_an_rnn_with_a_variable_tensor() -> None:
    rng = np.random.default_rng(0)
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 3), name="x"), g.tensor((1, 4), name="y")
    shapes = (4, 3), (4, 4), (4,)
    weights = [g.const(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    state = g.tensor((1, 4), name="h", is_variable=True)
    g.op("RNN", [x, *weights, state], [y], "RNNOptions", fused_activation_function=4)
    g.output(y)
    content = model.bytes()
    inputs = [rng.standard_normal((1, 3)).astype(np.float32) for _ in range(4)]
    exe = ts.compile(content)
    for x, expected in zip(inputs, litert(content, inputs), strict=True):
        np.testing.assert_allclose(exe(x), expected, rtol=1e-5, atol=1e-6)


def test_a_result_that_is_the_state_before_the_run(tmp_path: Path) -> None:
    """The old value is a result, and the new one is written to its memory in the same run."""
    model = ModelWriter()
    g = model.graph()
    x, old, total = g.input((1, 3), name="x"), g.tensor((1, 3), name="old"), g.tensor((1, 3))
    line = handle(g, "sum")
    g.op("READ_VARIABLE", [line], [old], "ReadVariableOptions")
    g.op("ADD", [x, old], [total], "AddOptions")
    g.op("ASSIGN_VARIABLE", [line, total], [], "AssignVariableOptions")
    g.output(old)
    exe = ts.compile(model.bytes())
    for number, before in ((1, 0), (2, 1), (4, 3)):
        np.testing.assert_array_equal(exe(np.full((1, 3), number, np.float32)), [[before] * 3])
    exe.save(tmp_path / "m.tsm", stubs=True)
    stub = (tmp_path / "m.pyi").read_text()
    assert "x: " in stub and "sum" not in stub
