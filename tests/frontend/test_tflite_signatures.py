"""Signatures of a TFLite model are compiled by name, and share their variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter


def handle(g: GraphWriter, name: str) -> int:
    number = g.tensor((1,), "RESOURCE", name=f"handle_{name}")
    g.op("VAR_HANDLE", [], [number], "VarHandleOptions", shared_name=name, container="")
    return number


def sign(model: ModelWriter, number: int, key: str, inputs: Any, outputs: Any) -> None:
    named = (
        [{"name": name, "tensor_index": t} for name, t in pairs.items()]
        for pairs in (inputs, outputs)
    )
    ins, outs = named
    model.signatures.append(
        {"inputs": ins, "outputs": outs, "signature_key": key, "subgraph_index": number}
    )


def account() -> bytes:
    """`add` adds to a sum, which `tell` only reads; both count their calls in variable tensors of
    the same name.  The sum begins as 5.
    """
    model = ModelWriter()
    add, first, tell = model.graph(), model.graph("init"), model.graph("tell")
    begin = first.const(np.array([5, 5], np.float32))
    first.op("ASSIGN_VARIABLE", [handle(first, "sum"), begin], [])
    for g, kind in ((add, "ADD"), (tell, "MUL")):
        g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
        x, y, before = g.input((2,), name="x"), g.tensor((2,), name="y"), g.tensor((2,))
        number = handle(g, "sum")
        g.op("READ_VARIABLE", [number], [before])
        g.op(kind, [before, x], [y], "AddOptions" if kind == "ADD" else "MulOptions")
        if kind == "ADD":
            g.op("ASSIGN_VARIABLE", [number, y], [])
        g.output(y)
    sign(model, 0, "add", {"amount": 0}, {"now": 1})
    sign(model, 2, "tell", {"unit": 0}, {"told": 1})
    return model.bytes()


def test_signatures_share_a_variable(tmp_path: Path) -> None:
    content = account()
    interpreter = Interpreter(model_content=content)
    theirs = {name: interpreter.get_signature_runner(name) for name in ("add", "tell")}
    ours = {name: ts.compile(content, signature=name) for name in theirs}
    assert [s.name for s in ours["add"].inputs] == ["amount"]
    assert [s.name for s in ours["tell"].outputs] == ["told"]
    for exe in ours.values():
        assert [*exe.states] == ["sum"]
        assert exe.signatures["tell"] == {
            "inputs": {"unit": "float32[2]"},
            "outputs": {"told": "float32[2]"},
        }
    ours["tell"].share_states(ours["add"])
    for name, argument in (
        ("tell", "unit"),
        ("add", "amount"),
        ("add", "amount"),
        ("tell", "unit"),
    ):
        x = np.array([2, 3], np.float32)
        expected = theirs[name](**{argument: x})
        made = ours[name].run({argument: x})
        assert made.keys() == expected.keys()
        for key, array in made.items():
            np.testing.assert_array_equal(array, expected[key])
    ours["tell"].reset_states()
    np.testing.assert_array_equal(ours["add"](np.zeros(2, np.float32)), [5, 5])
    ours["tell"].save(tmp_path / "tell.tsm")
    assert [*ts.load(tmp_path / "tell.tsm").signatures] == ["add", "tell"]
    assert [s.name for s in ts.compile(content).inputs] == ["amount"]


def test_variable_tensors_of_two_signatures_have_two_names() -> None:
    model = ModelWriter()
    rng = np.random.default_rng(0)
    for number in range(2):
        g = model.graph(f"part{number}")
        x, y = g.input((1, 3), name="x"), g.tensor((1, 4), name="y")
        weights = [g.const(rng.random(s, np.float32)) for s in ((4, 3), (4, 4), (4,))]
        state = g.tensor((1, 4), name="h", is_variable=True)
        g.op("RNN", [x, *weights, state], [y], "RNNOptions", fused_activation_function=4)
        g.output(y)
        sign(model, number, f"s{number}", {"x": x}, {"y": y})
    made = [ts.compile(model.bytes(), signature=f"s{n}") for n in range(2)]
    assert [[*exe.states] for exe in made] == [["h"], ["part1/h"]]
    with pytest.raises(ts.UsageError, match="expected states in common, found part1/h and h"):
        made[1].share_states(made[0])


def test_refusals() -> None:
    content = account()
    with pytest.raises(ts.UsageError, match="expected one of 'add', 'tell', found 'tel'"):
        ts.compile(content, signature="tel")
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((2,), name="x"), g.tensor((2,), name="y")
    g.op("EXP", [x], [y])
    g.output(y)
    with pytest.raises(ts.UsageError, match="the model has a single function"):
        ts.compile(model.bytes(), signature="add")
    exe = ts.compile(model.bytes())
    assert exe.signatures == {}
    with pytest.raises(ts.UsageError, match="two executables with states"):
        exe.share_states(ts.compile(content))
