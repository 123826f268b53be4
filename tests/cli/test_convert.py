"""`convert` writes ONNX models that compute the same."""

from __future__ import annotations

import numpy as np
import onnxruntime
import torch

import tilesmith as ts
from tflite_models import ModelWriter


def test_a_tflite_model_with_a_state(tilesmith, tmp_path):
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 4, 4, 2), name="x"), g.tensor((1, 4, 4, 3), name="y")
    w = np.random.default_rng(0).standard_normal((3, 3, 3, 2)).astype(np.float32)
    options = {"stride_w": 1, "stride_h": 1, "fused_activation_function": 1}
    image = g.tensor((1, 4, 4, 3))
    g.op("CONV_2D", [x, g.const(w), -1], [image], "Conv2DOptions", **options)
    handle, before = g.tensor((1,), "RESOURCE"), g.tensor((1, 4, 4, 3))
    g.op("VAR_HANDLE", [], [handle], "VarHandleOptions", shared_name="sum")
    g.op("READ_VARIABLE", [handle], [before])
    g.op("ADD", [image, before], [y], "AddOptions")
    g.op("ASSIGN_VARIABLE", [handle, y], [])
    g.output(y)
    (tmp_path / "m.tflite").write_bytes(model.bytes())
    done = tilesmith("convert", tmp_path / "m.tflite", "-o", tmp_path / "m.onnx", "--json")
    assert done.code == 0, done.err
    assert max(done.json["differences"].values()) < 1e-5
    image = np.random.default_rng(1).standard_normal((1, 4, 4, 2)).astype(np.float32)
    zeros = np.zeros((1, 4, 4, 3), np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    expected = ts.compile(tmp_path / "m.tflite")(image)
    for result in session.run(None, {"x": image, "sum": zeros}):
        np.testing.assert_allclose(result, expected, atol=1e-5)
    assert tilesmith("run", tmp_path / "m.tflite").code == 0
    assert tilesmith("bench", tmp_path / "m.tflite", "--iters", 3).code == 0


def test_an_archive(tilesmith, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU()).eval()
    x = torch.ones(2, 4)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    assert tilesmith("convert", tmp_path / "m.pt2", "-o", tmp_path / "m.onnx").code == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(result, module(x).detach().numpy(), atol=1e-5)


def test_relay(tilesmith, tmp_path):
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Hardswish()).eval()
    x = torch.ones(1, 2, 5, 5)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    done = tilesmith("convert", tmp_path / "m.pt2", "-o", tmp_path / "m.relay", "--json")
    assert done.code == 0, done.err
    assert max(done.json["differences"].values()) < 1e-6
    result = ts.compile(tmp_path / "m.relay")(x.numpy())
    np.testing.assert_allclose(result, module(x).detach().numpy(), atol=1e-5)
    assert tilesmith("convert", tmp_path / "m.relay", "-o", tmp_path / "m.onnx").code == 0
    assert "nn.conv2d" in tilesmith("inspect", tmp_path / "m.relay").out
    assert tilesmith("opt", tmp_path / "m.relay", "--to", "fold").code == 0


def test_refusals(tilesmith, model, tmp_path):
    done = tilesmith("convert", model, "-o", tmp_path / "m.tsm")
    assert done.code == 1 and "expected an .onnx or .relay file" in done.err
