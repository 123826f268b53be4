"""`inspect` says what a file is, for each format, and marks operators that can't be imported."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import helper


def test_an_onnx_file_with_an_operator_that_nobody_knows(tilesmith, tmp_path):
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])],
        "body",
        [],
        [helper.make_tensor_value_info("n", 1, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body),
        helper.make_node("Strange", ["z"], ["y"], domain="nowhere"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", 1, ["n", 3]),
            helper.make_tensor_value_info("c", 9, []),
        ],
        [helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("w", 1, [4], np.arange(4, dtype=np.float32))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="maker")
    onnx.save(model, tmp_path / "m.onnx")
    found = tilesmith("inspect", tmp_path / "m.onnx", "--json").json
    assert found["format"].endswith("opsets ai.onnx 17, nowhere 1")
    assert found["producer"] == "maker"
    assert found["inputs"] == {"x": "f32[n,3]", "c": "bool[]"}
    assert {o["operator"]: (o["count"], o["supported"]) for o in found["operators"]} == {
        "Neg": (2, True),
        "If": (1, True),
        "nowhere.Strange": (1, False),
    }
    shown = tilesmith("inspect", tmp_path / "m.onnx")
    assert "nowhere.Strange" in shown.out and "not supported" in shown.out
    assert "1 of 3 operators are not supported" in shown.err


def test_an_archive_and_a_compiled_program(tilesmith, model, tmp_path):
    module = torch.nn.Linear(3, 4)
    torch.export.save(torch.export.export(module, (torch.ones(2, 3),)), tmp_path / "m.pt2")
    found = tilesmith("inspect", tmp_path / "m.pt2", "--json").json
    assert [*found["inputs"].values()] == ["f32[2,3]"]
    assert all(o["supported"] for o in found["operators"]) and found["weight_bytes"] == 64
    assert tilesmith("compile", model, "-o", tmp_path / "m.tsm").code == 0
    found = tilesmith("inspect", tmp_path / "m.tsm", "--json").json
    assert found["format"].startswith("tilesmith program for")
    assert found["metadata"]["kernels"] > 0


def test_what_is_no_model(tilesmith, tmp_path):
    (tmp_path / "a.tflite").write_bytes(b"\x10\0\0\0TFL3" + bytes(3))
    done = tilesmith("inspect", tmp_path / "a.tflite")
    assert done.code == 2 and "damaged file" in done.err


def test_help(tilesmith):
    assert "Say what a model's file is" in tilesmith("inspect", "--help").out
