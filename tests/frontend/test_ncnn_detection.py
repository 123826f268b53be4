"""ncnn's priors, and the best boxes of SSD and YOLO, equal their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError
from written_models.ncnn import written

RANDOM = np.random.default_rng(0)
VARIANCES = np.float32([0.1, 0.1, 0.2, 0.2])


def inputs(**arrays: np.ndarray) -> list[str]:
    keys = {1: "0={}", 2: "1={} 0={}", 3: "2={} 1={} 0={}"}
    return [f"Input {n} 0 1 {n} {keys[a.ndim].format(*a.shape)}" for n, a in arrays.items()]


def run(folder: Path, layer: str, **arrays: np.ndarray) -> np.ndarray:
    path = written(folder, *inputs(**arrays), layer)
    return evaluate(load(path), list(arrays.values()))["y"]


def best(rows: np.ndarray, overlap: float) -> np.ndarray:
    """The rows [class, score, box] that no better row overlaps by more than this."""
    kept: list[np.ndarray] = []
    for row in rows[np.argsort(-rows[:, 1])]:
        if all(shared(row[2:], other[2:]) <= overlap for other in kept):
            kept.append(row)
    return np.array(kept)


def shared(a: np.ndarray, b: np.ndarray) -> float:
    sides = (np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])).clip(0)
    areas = [np.prod(v[2:] - v[:2]) for v in (a, b)]
    return float(np.prod(sides) / (areas[0] + areas[1] - np.prod(sides)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x)
    return (e / e.sum(axis, keepdims=True)).astype(np.float32)


X = RANDOM.standard_normal((4, 5, 6)).astype(np.float32)


def test_priors_have_sizes_and_ratios_in_order(tmp_path: Path) -> None:
    image = np.zeros((3, 60, 90), np.float32)
    layer = "PriorBox y 2 1 x im y -23300=1,10.0 -23301=1,40.0 -23302=1,4.0 9=-233 10=-233 13=0.5"
    found = run(tmp_path, layer, x=X, im=image)
    sides = [(10, 10), (20, 20), (20, 5), (5, 20)]
    wanted = [
        ((j + 0.5) * 15 + sx * w / 2, (i + 0.5) * 12 + sy * h / 2)
        for i in range(5)
        for j in range(6)
        for w, h in sides
        for sx, sy in ((-1, -1), (1, 1))
    ]
    np.testing.assert_allclose(found[0], (np.array(wanted) / (90, 60)).reshape(-1), 1e-5, 1e-6)
    np.testing.assert_array_equal(found[1], np.tile(VARIANCES, 5 * 6 * 4))


def test_priors_of_mxnet_are_fractions(tmp_path: Path) -> None:
    layer = "PriorBox y 1 1 x y -23300=2,0.2,0.3 -23302=2,1.0,4.0 8=1 9=-233 10=-233 13=0.5"
    found = run(tmp_path, layer, x=X).reshape(5, 6, 3, 4)
    halves = np.array([(0.2, 0.2), (0.3, 0.3), (0.4, 0.1)]) / 2 * (5 / 6, 1)
    centre = np.array([2.5 / 6, 1.5 / 5])
    np.testing.assert_allclose(found[1, 2], np.hstack([centre - halves, centre + halves]), 1e-5)
    assert found.min() == 0
    assert found.max() == 1


@pytest.mark.parametrize("is_mxnet", [False, True])
def test_best_boxes_of_ssd_by_descending_score(tmp_path: Path, is_mxnet: bool) -> None:
    count, classes = 24, 4
    codes = (RANDOM.standard_normal((count, 4)) / 2).astype(np.float32)
    scores = softmax(2 * RANDOM.standard_normal((count, classes)), 1)
    centres, halves = RANDOM.uniform(0.2, 0.8, (count, 2)), RANDOM.uniform(0.05, 0.3, (count, 2))
    priors = np.hstack([centres - halves, centres + halves]).astype(np.float32)
    places = centres + codes[:, :2] * 0.1 * 2 * halves
    sides = np.exp(codes[:, 2:] * 0.2) * halves
    boxes = np.hstack([places - sides, places + sides])
    rows = [
        best(np.array([(c, s, *b) for s, b in zip(scores[:, c], boxes) if s > 0.25]), 0.45)
        for c in range(1, classes)
    ]
    wanted = np.vstack(rows)
    wanted = wanted[np.argsort(-wanted[:, 1])][:10]
    pair = np.stack([priors.reshape(-1), np.tile(VARIANCES, count)])
    given = (
        {"c": scores.T.copy(), "p": priors} if is_mxnet else {"c": scores.reshape(-1), "p": pair}
    )
    layer = (
        f"DetectionOutput y 3 1 l c p y 0={-233 if is_mxnet else classes} 1=0.45 2=20 3=10 4=0.25"
    )
    found = run(tmp_path, layer, l=codes.reshape(-1), **given)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_best_boxes_of_yolo_2(tmp_path: Path) -> None:
    x = RANDOM.standard_normal((16, 5, 6)).astype(np.float32)
    cells = x.reshape(2, 8, 5, 6)
    kinds = softmax(cells[:, 5:], 1)
    rows = heads(
        cells, kinds.argmax(1), sigmoid(cells[:, 4]) * kinds.max(1), [(1, 2), (3, 4)], 6, 5
    )
    layer = "YoloDetectionOutput y 1 1 x y 0=3 1=2 2=0.2 3=0.4 -23304=4,1.0,2.0,3.0,4.0"
    wanted = best(rows[rows[:, 1] >= 0.2], 0.4)
    np.testing.assert_allclose(run(tmp_path, layer, x=x), wanted, rtol=1e-4, atol=1e-5)


def test_best_boxes_of_yolo_3_with_masks_and_scales(tmp_path: Path) -> None:
    arrays = {
        n: RANDOM.standard_normal((16, *s)).astype(np.float32)
        for n, s in (("a", (5, 6)), ("b", (10, 12)))
    }
    anchors, masks, scales = [(10, 15), (20, 30), (7, 8), (9, 4)], [(2, 3), (0, 1)], (32, 16)
    rows = []
    for x, mask, scale in zip(arrays.values(), masks, scales, strict=True):
        cells = x.reshape(2, 8, *x.shape[1:])
        top = cells[:, 5:].max(1)
        score = 1 / (1 + np.exp(-cells[:, 4]) * (1 + np.exp(-top)))
        height, width = (scale * n for n in x.shape[1:])
        own = [anchors[i] for i in mask]
        rows.append(heads(cells, cells[:, 5:].argmax(1), score, own, width, height))
    every = np.vstack(rows)
    layer = (
        "Yolov3DetectionOutput y 2 1 a b y 0=3 1=2 2=0.4 3=0.4 "
        "-23304=8,10.0,15.0,20.0,30.0,7.0,8.0,9.0,4.0 -23305=4,2.0,3.0,0.0,1.0 -23306=2,32.0,16.0"
    )
    wanted = best(every[every[:, 1] >= 0.4], 0.4)
    np.testing.assert_allclose(run(tmp_path, layer, **arrays), wanted, rtol=1e-4, atol=1e-5)


def heads(
    cells: np.ndarray, kind: np.ndarray, score: np.ndarray, anchors: list, width: int, height: int
) -> np.ndarray:
    """The rows [class, score, box] of all cells [boxes, 5 + classes, rows, columns]."""
    rows = []
    for b, i, j in np.ndindex(*score.shape):
        tx, ty, tw, th = cells[b, :4, i, j]
        x, y = (j + sigmoid(tx)) / cells.shape[3], (i + sigmoid(ty)) / cells.shape[2]
        w, h = np.exp(tw) * anchors[b][0] / width, np.exp(th) * anchors[b][1] / height
        box = x - w / 2, y - h / 2, x + w / 2, y + h / 2
        rows.append((kind[b, i, j] + 1, score[b, i, j], *box))
    return np.array(rows)


@pytest.mark.parametrize(
    "layer, message",
    [
        ("PriorBox y 1 1 x y -23300=1,-1.0", "expected sizes and ratios above 0"),
        ("PriorBox y 1 1 x y -23300=1,1.0", "expected the image's size, found"),
        ("Yolov3DetectionOutput y 1 1 x y 0=1 1=1 -23304=2,1.0,1.0", "a scale and 1 masks for"),
        (
            "Yolov3DetectionOutput y 1 1 x y 0=1 1=1 -23304=2,1.0,1.0 -23305=1,3.0 -23306=1,8.0",
            "expected masks from 0 to 0",
        ),
        ("YoloDetectionOutput y 1 1 x y 0=3 1=2 -23304=4,1.0,2.0,3.0,4.0", "reshape|elements"),
    ],
)
def test_refusals(tmp_path: Path, layer: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run(tmp_path, layer, x=X)
