"""TFLite's selections of boxes, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_cases import litert
from tflite_oracle import check, one_graph

import tilesmith as ts
from tflite_models import GraphWriter


def _boxes(seed: int, count: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    corners = random.uniform(0, 4, (count, 2))
    return np.hstack([corners, corners + random.uniform(0.5, 2, (count, 2))]).astype(np.float32)


@pytest.mark.parametrize("version", ["V4", "V5"])
@pytest.mark.parametrize(("most", "least"), [(4, 0.3), (30, 0.5), (6, 2.0)])
def test_non_max_suppression(version: str, most: int, least: float) -> None:
    def build(g: GraphWriter) -> None:
        numbers = [np.int32(most), np.float32(0.4), np.float32(least)]
        numbers += [np.float32(0)] if version == "V5" else []
        operands = [g.input((20, 4)), g.input((20,)), *(g.const(v) for v in numbers)]
        outputs = [g.tensor((), np.int32), g.tensor((), np.int32)]
        if version == "V5":
            outputs.insert(1, g.tensor(()))
        name = f"NON_MAX_SUPPRESSION_{version}"
        g.op(name, operands, outputs, f"NonMaxSuppression{version}Options")
        g.output(*outputs)

    scores = np.random.default_rng(1).uniform(0, 1, 20).astype(np.float32)
    check(one_graph(build), [_boxes(0, 20), scores])


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(("most", "each"), [(5, 1), (30, 1), (4, 2)])
def test_detections(regular: bool, background: int, most: int, each: int) -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    count, classes = 12, 3
    options: dict[str, Any] = {
        "num_classes": classes, "max_detections": most, "max_classes_per_detection": each,
        "use_regular_nms": regular, "detections_per_class": 4, "nms_score_threshold": 0.4,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    }  # fmt: skip
    random = np.random.default_rng(2)
    anchors = np.hstack([random.uniform(0, 1, (count, 2)), random.uniform(0.1, 0.5, (count, 2))])

    def build(g: GraphWriter) -> None:
        codes, scores = g.input((1, count, 4)), g.input((1, count, classes + background))
        outputs = [g.tensor(()) for _ in range(4)]
        operands = [codes, scores, g.const(anchors.astype(np.float32))]
        content = bytes(flexbuffers.Dumps(options))
        g.op("TFLite_Detection_PostProcess", operands, outputs, custom=content)
        g.output(*outputs)

    codes = random.standard_normal((1, count, 4)).astype(np.float32)
    scores = random.uniform(0, 1, (1, count, classes + background)).astype(np.float32)
    content = one_graph(build)
    wanted, made = litert(content, [codes, scores]), ts.compile(content)(codes, scores)
    assert made[3] == wanted[3]
    rows = int(made[3][0]) * (1 if regular else each)  # LiteRT leaves the others as they are
    for a, b in zip(made[:3], wanted[:3], strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a[0, :rows], b[0, :rows], 1e-5, 1e-6)
        assert not a[0, rows:].any()
