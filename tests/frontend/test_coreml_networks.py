"""Core ML's neural networks and models of rows, against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.coreml import array, layer, message, model, network


def run(content: bytes, **inputs: np.ndarray) -> Mapping[str, np.ndarray]:
    return ts.compile(content).run(inputs)


X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(1, 2, 3, 4)


def test_layers_keep_the_values_of_programs() -> None:
    w = np.arange(2 * 2 * 3 * 3, dtype=np.float32).reshape(2, 2, 3, 3) / 9
    edges = {"borderAmounts": [{"startEdgeSize": 1, "endEdgeSize": 1}] * 2}
    layers = [
        layer("convolution", "c", "x", outputChannels=2, kernelChannels=2, nGroups=1,
              kernelSize=[3, 3], valid={"paddingAmounts": edges},
              weights={"floatValue": w.reshape(-1)}),
        layer("activation", "a", "c", leakyReLU={"alpha": 0.5}),
        layer("pooling", "p", "a", type="AVERAGE", globalPooling=True),
        layer("lessThan", "y", "p", alpha=1.0),
    ]  # fmt: skip
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    c = np.einsum("ncyxij,ocij->noyx", windows, w)
    mean = np.where(c < 0, c * 0.5, c).mean((2, 3), keepdims=True)
    assert run(network(layers, X.shape), x=X)["y"].tolist() == (mean < 1).astype(float).tolist()


def test_quantised_weights_have_scales_or_tables() -> None:
    x, packed = np.array([[1, 10]], np.float32), bytes([0b0001_1011])
    linear = {"numberOfBits": 2, "linearQuantization": {"scale": [2.0, 3.0], "bias": [1.0, 0.0]}}
    table = {"numberOfBits": 2, "lookupTableQuantization": {"floatValue": [5.0, 6.0, 7.0, 8.0]}}

    def product(quantization: Any) -> list[float]:
        stored = {"rawValue": packed, "quantization": quantization}
        one = layer("innerProduct", "y", "x", inputChannels=2, outputChannels=2, weights=stored)
        return run(network([one], (1, 2)), x=x)["y"][0].tolist()

    assert product(linear) == [1 * 1 + 10 * 3, 1 * 6 + 10 * 9]
    assert product(table) == [5 + 60, 7 + 80]


def test_older_networks_have_five_axes() -> None:
    layers = [layer("flatten", "f", "x"), layer("softmax", "y", "f")]
    body = {"layers": layers}
    made = model("neuralNetwork", body, {"x": array((2, 1, 2))}, "y")
    x = np.arange(4, dtype=np.float32).reshape(2, 1, 2)
    y = run(made, x=x)["y"]
    assert y.shape == (4, 1, 1)
    assert np.allclose(y.reshape(-1), np.exp(x.reshape(-1)) / np.exp(x).sum(), 1e-5)


@pytest.mark.parametrize("colours", ["RGB", "BGR", "GRAYSCALE"])
def test_pictures_are_scaled_by_colour(colours: str) -> None:
    scaler = {"channelScale": 0.5, "redBias": 1.0, "greenBias": 2.0, "blueBias": 3.0,
              "grayBias": 4.0}  # fmt: skip
    body = {
        "layers": [layer("copy", "y", "x")],
        "preprocessing": [{"featureName": "x", "scaler": scaler}],
        "imageInputShapeMapping": "RANK4_IMAGE_MAPPING",
    }
    image = {"imageType": {"width": 2, "height": 1, "colorSpace": colours}}
    exe = ts.compile(model("neuralNetwork", body, {"x": image}, "y"))
    channels = 1 if colours == "GRAYSCALE" else 3
    x = np.arange(2 * channels, dtype=np.float32).reshape(1, channels, 1, 2)
    bias = {"RGB": [1, 2, 3], "BGR": [3, 2, 1], "GRAYSCALE": [4]}[colours]
    wanted = x[:, :: -1 if colours == "BGR" else 1] * 0.5 + np.reshape(bias, (-1, 1, 1))
    pixels = x[0].transpose(1, 2, 0).astype(np.uint8)
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    for given in (x, picture):
        assert np.allclose(exe.run({"x": given})["y"], wanted)
    with pytest.raises(ModelError, match="expected shape"):
        exe.run({"x": picture.resize((3, 1))})


def test_a_picture_fits_no_vector() -> None:
    exe = ts.compile(network([layer("copy", "y", "x")], (2,)))
    with pytest.raises(ModelError, match="found a picture"):
        exe.run({"x": Image.new("L", (2, 1))})


def test_loops_and_branches_write_to_the_names_around_them() -> None:
    def net(*layers: Any) -> dict[str, Any]:
        return {"layers": list(layers)}

    body = net(layer("add", "next", "value", alpha=1.0), layer("copy", "value", "next"))
    test = net(layer("lessThan", "goes", "value", alpha=4.0))
    then = net(layer("multiply", "r", "value", alpha=10.0), layer("copy", "result", "r"))
    otherwise = net(layer("copy", "result", "value"))
    loop = {"conditionVar": "goes", "conditionNetwork": test, "bodyNetwork": body}
    layers = [
        layer("copy", "value", "x"),
        layer("copy", "result", "x"),
        {"name": "loop", "loop": loop},
        layer("greaterThan", "large", "value", alpha=4.25),
        {"name": "b", "input": ["large"], "branch": {"ifBranch": then, "elseBranch": otherwise}},
        layer("copy", "y", "result"),
    ]
    exe = ts.compile(network(layers, (1,)))
    for x, wanted in ((0.0, 4.0), (1.5, 45.0), (9.0, 90.0)):
        assert exe.run({"x": np.array([x], np.float32)})["y"].tolist() == [wanted]


def test_a_classifier_gives_its_labels_and_probabilities() -> None:
    labels = {"int64ClassLabels": {"vector": [7, 9, 4]}}
    body = {"layers": [layer("softmaxND", "p", "x", axis=-1)], **labels,
            "arrayInputShapeMapping": "EXACT_ARRAY_MAPPING"}  # fmt: skip
    names = {"predictedFeatureName": "label", "predictedProbabilitiesName": "classes"}
    made = model("neuralNetworkClassifier", body, {"x": array((3,))}, "label classes", **names)
    results = run(made, x=np.array([1, 5, 2], np.float32))
    assert results["label"] == 9 and np.isclose(results["classes"].sum(), 1)
    assert inspect(made).metadata["class_labels"] == [7, 9, 4]


def node(tree: int, number: int, **fields: Any) -> dict[str, Any]:
    return {"treeId": tree, "nodeId": number, **fields}


def leaf(tree: int, number: int, value: float) -> dict[str, Any]:
    info = [{"evaluationIndex": 0, "evaluationValue": value}]
    return node(tree, number, nodeBehavior="LeafNode", evaluationInfo=info)


TREES = {
    "nodes": [
        node(0, 0, branchFeatureIndex=1, branchFeatureValue=0.5, trueChildNodeId=1,
             falseChildNodeId=2),
        leaf(0, 1, 1.0),
        leaf(0, 2, 2.0),
        node(1, 0, nodeBehavior="BranchOnValueGreaterThan", branchFeatureIndex=0,
             branchFeatureValue=0.0, trueChildNodeId=5, falseChildNodeId=6),
        leaf(1, 5, 10.0),
        leaf(1, 6, 20.0),
    ],
    "numPredictionDimensions": 1,
    "basePredictionValue": [100.0],
}  # fmt: skip


@pytest.mark.parametrize(("x", "wanted"), [((1, 0), 111), ((-1, 0.5), 121), ((0, 1), 122)])
def test_trees_compare_features(x: tuple[float, float], wanted: float) -> None:
    made = model("treeEnsembleRegressor", {"treeEnsemble": TREES}, {"x": array((2,))}, "y")
    assert run(made, x=np.array(x, np.float32))["y"] == wanted


def test_a_pipeline_joins_numbers_and_scales_them() -> None:
    number = {"doubleType": {}}
    columns = [{"inputColumn": name, "inputDimensions": 1} for name in "ab"]
    stages = [
        message("featureVectorizer", {"inputList": columns}, {"a": number, "b": number}, "v"),
        message("scaler", {"shiftValue": [1.0, -1.0], "scaleValue": [2.0, 3.0]},
                {"v": array((2,))}, "s"),
        message("glmClassifier", {"weights": [{"value": [0.5, 0.25]}], "offset": [-1.0],
                                  "stringClassLabels": {"vector": ["no", "yes"]}},
                {"s": array((2,))}, "label classes", predictedFeatureName="label",
                predictedProbabilitiesName="classes"),
    ]  # fmt: skip
    body = {"pipeline": {"models": stages}}
    made = model("pipelineClassifier", body, {"a": number, "b": number}, "label classes")
    results = run(made, a=np.float32(2), b=np.float32(3))
    p = 1 / (1 + np.exp(-((2 + 1) * 2 * 0.5 + (3 - 1) * 3 * 0.25 - 1)))
    assert results["label"] == 1 and np.allclose(results["classes"], [1 - p, p], 1e-5)


def test_layers_that_are_not_known_are_refused() -> None:
    one = layer("custom", "y", "x")
    with pytest.raises(UnsupportedError, match="custom at 'y'"):
        ts.compile(network([one], (2,)))
    lost = layer("copy", "y", "z")
    with pytest.raises(ModelError, match="'z' is used"):
        ts.compile(network([lost], (2,)))


@pytest.mark.parametrize(("per_class", "kept"), [(False, [1, 2]), (True, [1, 0, 2])])
def test_a_detector_keeps_the_best_boxes(per_class: bool, kept: list[int]) -> None:
    boxes = np.array([[1, 1, 2, 2], [1.1, 1, 2, 2], [5, 5, 1, 1], [9, 9, 1, 1]], np.float32)
    scores = np.array([[0.8, 0.1], [0.2, 0.9], [0.3, 0.4], [0.1, 0.1]], np.float32)
    body = {
        "pickTop": {"perClass": per_class}, "iouThreshold": 0.5, "confidenceThreshold": 0.25,
        "coordinatesInputFeatureName": "boxes", "confidenceInputFeatureName": "scores",
        "coordinatesOutputFeatureName": "coordinates", "confidenceOutputFeatureName": "confidence",
    }  # fmt: skip
    optional = {"doubleType": {}, "isOptional": True}
    inputs = {"boxes": array((4, 4)), "scores": array((4, 2)), "iouThreshold": optional}
    made = model("nonMaximumSuppression", body, inputs, "coordinates confidence")
    results = run(made, boxes=boxes, scores=scores)
    assert np.array_equal(results["coordinates"], boxes[kept])
    assert np.array_equal(results["confidence"], scores[kept])
