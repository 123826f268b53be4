"""Caffe's nets: files, layers and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.caffe.schema import SCHEMA
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models import protobuf
from written_models.caffe import blob, blobs

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 6, 5)).astype(np.float32)
W = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)
B = RANDOM.standard_normal(4).astype(np.float32)

HEAD = 'name: "net" input: "data" input_shape { dim: 2 dim: 3 dim: 6 dim: 5 }'
CONV = """
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"  # a comment
  param { lr_mult: 1 } unknown_param { list: [1, 2] other < text: "a" "b" > }
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }
}
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""


def written(folder: Path, text: str, **layers: list[np.ndarray]) -> Path:
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(blobs(**layers))
    return folder / "net.prototxt"


def run(path: object, x: np.ndarray = X) -> dict[str, np.ndarray]:
    return evaluate(load(path), {"data": x})


def expected_conv(x: np.ndarray = X) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", views, W) + B.reshape(1, 4, 1, 1)
    return np.maximum(y, 0)


def test_a_net_in_two_files(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + CONV, conv=[W, B])
    exe = ts.compile(path)
    np.testing.assert_allclose(exe.run({"data": X})["conv"], expected_conv(), rtol=1e-4, atol=1e-5)


def test_either_file_and_both_as_a_pair(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + CONV, conv=[W, B])
    weights = path.with_suffix(".caffemodel").rename(tmp_path / "other.caffemodel")
    text = path.rename(tmp_path / "text.prototxt")
    for pair in ((text, weights), (weights, text)):
        np.testing.assert_allclose(run(pair)["conv"], expected_conv(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match="expected at least 2 stored tensors, found 0"):
        load(text)
    with pytest.raises(ModelError, match="found two files of one kind"):
        load((text, text))


def test_a_caffemodel_carries_its_net(tmp_path: Path) -> None:
    conv = {"num_output": 4, "kernel_size": [3], "pad": [1]}
    layers = [
        {"name": "data", "type": "Input", "top": ["data"],
         "input_param": {"shape": [{"dim": X.shape}]}},
        {"name": "conv", "type": "Convolution", "bottom": ["data"], "top": ["conv"],
         "convolution_param": conv, "blobs": [blob(W), blob(B)]},
        {"name": "relu", "type": "ReLU", "bottom": ["conv"], "top": ["conv"]},
    ]  # fmt: skip
    content = protobuf.encode(SCHEMA, "Net", {"name": "net", "layer": layers})
    (tmp_path / "model").write_bytes(content)
    np.testing.assert_allclose(
        run(tmp_path / "model")["conv"], expected_conv(), rtol=1e-4, atol=1e-5
    )
    found = inspect(content)
    assert found.format == "Caffe" and not found.unsupported
    assert found.operators == {"Convolution": 1, "ReLU": 1}
    assert found.weight_bytes == W.nbytes + B.nbytes


def test_layers_of_version_1(tmp_path: Path) -> None:
    text = """
    name: "old" input: "data" input_dim: 2 input_dim: 3 input_dim: 6 input_dim: 5
    layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1
      convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
    layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
    """
    conv = {"name": "conv", "type": "CONVOLUTION", "blobs": [blob(W, True), blob(B, True)]}
    (tmp_path / "net.prototxt").write_text(text)
    stored = protobuf.encode(SCHEMA, "Net", {"name": "old", "layers": [conv]})
    (tmp_path / "net.caffemodel").write_bytes(stored)
    np.testing.assert_allclose(
        run(tmp_path / "net.prototxt")["conv"], expected_conv(), rtol=1e-4, atol=1e-5
    )


def test_only_layers_of_the_test_phase_count(tmp_path: Path) -> None:
    text = """
    name: "n"
    layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } }
    layer { name: "data" type: "MemoryData" top: "data" top: "label" include { phase: TEST }
      memory_data_param { batch_size: 2 channels: 3 height: 6 width: 5 } }
    layer { name: "half" type: "Power" bottom: "data" top: "y" power_param { scale: 0.5 }
      exclude { phase: TRAIN } }
    layer { name: "no" type: "Python" bottom: "y" top: "z" include { stage: "deploy" } }
    """
    (tmp_path / "net.prototxt").write_text(text)
    graph = load(tmp_path / "net.prototxt")
    assert [v.name for v in graph.inputs] == ["data"]
    assert list(graph.output_names) == ["y"]
    np.testing.assert_allclose(evaluate(graph, [X])["y"], X / 2)


def test_dimensions_may_be_opened(tmp_path: Path) -> None:
    dense = """
    layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
      pooling_param { pool: AVE global_pooling: true } }
    layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
      inner_product_param { num_output: 7 } }
    """
    weights = RANDOM.standard_normal((7, 4)).astype(np.float32), np.zeros(7, np.float32)
    path = written(tmp_path, HEAD + CONV + dense, conv=[W, B], fc=[*weights])
    exe = ts.compile(path, dynamic={"data": {0: (1, 8), 2: (3, 20)}})
    for n, h in ((1, 9), (5, 4)):
        x = RANDOM.standard_normal((n, 3, h, 5)).astype(np.float32)
        wanted = expected_conv(x).mean((2, 3)) @ weights[0].T
        np.testing.assert_allclose(exe.run({"data": x})["fc"], wanted, rtol=1e-4, atol=1e-4)


def layer(kind: str, params: str = "", more: str = "") -> str:
    return f'{HEAD} layer {{ name: "y" type: "{kind}" bottom: "data" top: "y" {params} }} {more}'


@pytest.mark.parametrize(
    "kind, params, wanted",
    [
        ("Power", "power_param { power: 3 scale: 2 shift: 1 }", (2 * X + 1) ** 3),
        ("Exp", "exp_param { base: 2 }", 2.0**X),
        ("Threshold", "threshold_param { threshold: 0.5 }", X > 0.5),
        ("Reduction", "reduction_param { operation: ASUM axis: 2 coeff: 2 }",
         2 * abs(X).sum((2, 3))),
        ("Permute", "permute_param { order: 0 order: 2 }", X.transpose(0, 2, 1, 3)),
        ("Reshape", "reshape_param { shape { dim: -1 dim: 2 } axis: 1 num_axes: 2 }",
         X.reshape(2, 9, 2, 5)),
        ("ArgMax", "argmax_param { axis: 1 }", X.argmax(1, keepdims=True)),
        ("MVN", "", (X - X.mean((2, 3), keepdims=True)) / X.std((2, 3), keepdims=True)),
    ],
)  # fmt: skip
def test_layers(tmp_path: Path, kind: str, params: str, wanted: np.ndarray) -> None:
    (tmp_path / "net.prototxt").write_text(layer(kind, params))
    np.testing.assert_allclose(run(tmp_path / "net.prototxt")["y"], wanted, rtol=1e-4, atol=1e-5)


def test_the_boxes_of_a_detector(tmp_path: Path) -> None:
    text = """
    name: "ssd" input: "data" input_shape { dim: 1 dim: 3 dim: 6 dim: 5 }
    input: "loc" input_shape { dim: 1 dim: 8 } input: "conf" input_shape { dim: 1 dim: 4 }
    layer { name: "p" type: "PriorBox" bottom: "grid" bottom: "data" top: "p"
      prior_box_param { min_size: 2 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
    layer { name: "d" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "p" top: "d"
      detection_output_param { num_classes: 2 nms_param { nms_threshold: 0.5 top_k: 5 }
        code_type: CENTER_SIZE keep_top_k: 3 confidence_threshold: 0.3 } }
    """
    pool = """layer { name: "grid" type: "Pooling" bottom: "data" top: "grid"
      pooling_param { kernel_h: 6 kernel_w: 3 stride_h: 1 stride_w: 2 } }"""
    at = text.index("    layer")
    (tmp_path / "net.prototxt").write_text(text[:at] + pool + text[at:])
    graph = load(tmp_path / "net.prototxt")
    given = {
        "data": X[:1],
        "loc": np.zeros((1, 8), np.float32),
        "conf": np.float32([[0.4, 0.6, 0.1, 0.9]]),
    }
    found = evaluate(graph, given)["d"]
    boxes = [[0.05, 1 / 3, 0.45, 2 / 3], [0.55, 1 / 3, 0.95, 2 / 3]]  # of 2 pixels in 5 x 6
    wanted = [[0, 1, 0.9, *boxes[1]], [0, 1, 0.6, *boxes[0]]]
    np.testing.assert_allclose(found, np.reshape(wanted, (1, 1, 2, 7)), rtol=1e-4)
    given["conf"] = np.float32([[1, 0, 1, 0]])
    none = np.reshape([0, -1, -1, -1, -1, -1, -1], (1, 1, 1, 7))
    np.testing.assert_array_equal(evaluate(graph, given)["d"], none)


@pytest.mark.parametrize(
    "text, error, message",
    [
        (layer("Python"), UnsupportedError, "a layer that is code in Python"),
        (layer("Flow", "", 'layer { name: "z" type: "Warp" bottom: "y" top: "z" }'),
         UnsupportedError, "2 nodes of 2 operators cannot be compiled: Flow at 'y'"),
        (layer("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"),
         UnsupportedError, "a stochastic pool"),
        (layer("Pooling", "pooling_param { kernel_size: 0 }"), ModelError,
         "the kernel: expected 2 numbers from 1"),
        (layer("Pooling", "pooling_param { kernle_size: 3 }"), ModelError,
         "line 1, column 145: expected a field of pooling_param, found 'kernle_size'"),
        (layer("Concat", "concat_param { axis: 7 }"), ModelError, "expected -4 to 3 for rank 4"),
        (layer("ReLU", "include { phase: TEST } exclude { phase: TRAIN }"), ModelError,
         "expected rules to include or to exclude, found both"),
        (layer("ReLU").replace('bottom: "data"', 'bottom: "other"'), ModelError,
         "'other' is used, which nothing before defines"),
        ("layer { name: ", ModelError, "expected a string, found the end of the text"),
    ],
)  # fmt: skip
def test_errors(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    (tmp_path / "net.prototxt").write_text(text)
    with pytest.raises(error, match=message):
        load(tmp_path / "net.prototxt")


def test_damaged_blobs(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + CONV, conv=[W, B])
    weights = path.with_suffix(".caffemodel")
    whole = weights.read_bytes()
    for size in range(0, len(whole), 7):
        weights.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            run(path)
    stored = {"name": "conv", "type": "Any", "blobs": [blob(B), blob(B)]}
    stored["blobs"][0] |= {"shape": {"dim": [1 << 40, 8]}}
    weights.write_bytes(protobuf.encode(SCHEMA, "Net", {"layer": [stored]}))
    with pytest.raises(ModelError, match=r"a blob of shape .* has 4 numbers"):
        run(path)
