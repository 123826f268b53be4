"""OpenVINO's operators on indices, blocks, sequences of symbols and boxes, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.openvino import Net

RANDOM = np.random.default_rng(0)


def run(folder: Path, kind: str, data: str, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """The first result of an operator on x and constants."""
    net = Net(",".join(map(str, x.shape)))
    y = net.add(kind, data, net.x, *map(net.const, others))
    return next(iter(evaluate(load(net.write(folder, y)), [x]).values()))


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_slices_at_indices_are_replaced(tmp_path: Path) -> None:
    x, new = floats(3, 4, 5), floats(3, 2, 5)
    wanted = x.copy()
    wanted[:, [3, 0]] = new
    found = run(tmp_path, "ScatterUpdate", "", x, np.array([-1, 0]), new, np.array(1))
    np.testing.assert_array_equal(found, wanted)


def test_a_slice_is_replaced(tmp_path: Path) -> None:
    x, new = floats(5, 6), floats(2, 3)
    wanted = x.copy()
    wanted[0:4:2, 1:-2] = new
    bounds = [np.array(v) for v in ([0, 1], [4, -2], [2, 1], [0, 1])]
    np.testing.assert_array_equal(run(tmp_path, "SliceScatter", "", x, new, *bounds), wanted)


@pytest.mark.parametrize("right", [True, False])
def test_buckets_have_either_bound(tmp_path: Path, right: bool) -> None:
    x, edges = np.float32([-1, 0, 0.5, 1, 2]), np.float32([0, 1])
    found = run(tmp_path, "Bucketize", f'with_right_bound="{right}"', x, edges)
    np.testing.assert_array_equal(found, np.digitize(x, edges, right=right))


def test_blocks_go_to_the_batch_and_back(tmp_path: Path) -> None:
    x = floats(2, 4, 6)
    lists = [np.array(v) for v in ([1, 2, 3], [0, 0, 2], [0, 2, 1])]
    padded = np.pad(x, ((0, 0), (0, 2), (2, 1)))
    wanted = padded.reshape(2, 3, 2, 3, 3).transpose(2, 4, 0, 1, 3).reshape(12, 3, 3)
    np.testing.assert_array_equal(run(tmp_path, "SpaceToBatch", "", x, *lists), wanted)
    np.testing.assert_array_equal(run(tmp_path, "BatchToSpace", "", wanted, *lists), x)


def test_symbols_without_repetitions_and_blanks(tmp_path: Path) -> None:
    best = np.array([[1, 1, 3, 1, 0, 0], [2, 3, 2, 2, 1, 1]])
    scores = np.eye(4, dtype=np.float32)[best]
    found = run(tmp_path, "CTCGreedyDecoderSeqLen", "", scores, np.array([6, 4], np.int32))
    np.testing.assert_array_equal(found, [[1, 1, 0, -1, -1, -1], [2, 2, -1, -1, -1, -1]])


def test_beams_are_read_from_their_ends(tmp_path: Path) -> None:
    symbols = np.array([[[1, 2]], [[3, 4]], [[5, 9]], [[7, 8]]], np.float32)
    parents = np.array([[[0, 0]], [[1, 0]], [[1, 0]], [[0, 1]]], np.float32)
    found = run(tmp_path, "GatherTree", "", symbols, parents, np.float32([4]), np.float32(9))
    np.testing.assert_array_equal(found[:, 0], [[1, 2], [4, 3], [5, 9], [7, 9]])


@pytest.mark.parametrize("has_mask", [False, True])
def test_attention_that_does_not_look_ahead_ignores_a_mask(tmp_path: Path, has_mask: bool) -> None:
    x = floats(1, 4, 3)
    net = Net("1,4,3")
    reads = [net.x] * 3 + ([net.const(floats(4, 4))] if has_mask else [])
    y = net.add("ScaledDotProductAttention", 'causal="true"', *reads)
    (found,) = evaluate(load(net.write(tmp_path, y)), [x]).values()
    scores = np.where(np.tri(4, dtype=bool), x[0] @ x[0].T / np.sqrt(3), -np.inf)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(found[0], shares @ x[0], rtol=1e-4, atol=1e-5)


BOXES = np.float32([[[0, 0, 1, 1], [0, 0, 0.9, 1], [0.5, 0.5, 1, 1], [2, 2, 3, 3]]])


def test_overlapping_boxes_are_dropped(tmp_path: Path) -> None:
    scores = np.float32([[[0.5, 0.9, 0.6, 0.1]]])
    limits = np.array(4), np.float32(0.5), np.float32(0.2)
    found = run(tmp_path, "NonMaxSuppression", "", BOXES, scores, *limits)
    np.testing.assert_array_equal(found, [[0, 0, 1], [0, 0, 2]])


def test_the_best_boxes_of_ssd_end_with_minus_one(tmp_path: Path) -> None:
    priors = np.stack([BOXES.reshape(-1), np.ones(16, np.float32)])[None]
    scores = np.float32([[0.1, 0.9, 0.3, 0.7, 0.9, 0.1, 0.9, 0.1]])
    form = 'keep_top_k="3" nms_threshold="0.5" confidence_threshold="0.5" normalized="true"'
    zeros = np.zeros((1, 16), np.float32)
    found = run(tmp_path, "DetectionOutput", form, zeros, scores, priors)
    wanted = np.zeros((3, 7), np.float32)
    wanted[0], wanted[1, 0] = (0, 1, 0.9, 0, 0, 1, 1), -1
    np.testing.assert_allclose(found, wanted[None, None])


def priors(folder: Path, kind: str, data: str, cells: list[int], image: list[int]) -> np.ndarray:
    net = Net("1")
    lists = (net.const(np.array(v)) for v in (cells, image))
    y = net.add(kind, f'variance="0.1" {data}', *lists)
    (found,) = evaluate(load(net.write(folder, y)), [np.zeros(1, np.float32)]).values()
    return found[0].reshape(-1, 4)


@pytest.mark.parametrize("kind, data, wanted", [
    ("PriorBox", 'min_size="2" offset="0"', [0.04166667, 0.10714287, 0.2916667, 0.39285716]),
    ("PriorBox", 'min_size="2" offset="0" step="2"', [-0.125, -0.14285715, 0.125, 0.14285715]),
    ("PriorBoxClustered", 'width="2" height="2" offset="0.25"',
     [-0.04166666, -0.01785714, 0.20833334, 0.26785713]),
    ("PriorBoxClustered", 'width="2" height="2" offset="0.25" step_w="1" step="2"',
     [-0.09375, -0.07142857, 0.15625, 0.21428571]),
    ("PriorBoxClustered", 'width="2" height="2" offset="0.25" step_w="1"',
     [-0.09375, -0.14285714, 0.15625, 0.14285714]),
])  # fmt: skip
def test_centres_of_priors_are_those_of_openvino(
    tmp_path: Path, kind: str, data: str, wanted: list[float]
) -> None:
    """Numbers of OpenVINO 2026.4 for 2 x 3 cells of an image of 7 x 8."""
    first = priors(tmp_path, kind, data, [2, 3], [7, 8])[0]
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-7)


APART = np.float32([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5], [6, 6, 7, 7]]])


@pytest.mark.parametrize("most, kept", [(-1, 4), (0, 0), (2, 2), (9, 4)])
def test_the_first_of_equal_scores_are_candidates(tmp_path: Path, most: int, kept: int) -> None:
    form = f'nms_top_k="{most}" iou_threshold="0.5"'
    found = run(tmp_path, "MulticlassNms", form, APART, np.full((1, 1, 4), 0.5, np.float32))
    np.testing.assert_array_equal(found[:, 2:], APART[0, :kept])
    stored = np.stack([APART.reshape(-1), np.ones(16, np.float32)])[None]
    scores = np.float32([[0.1, 0.5] * 4])
    form = (
        f'top_k="{most}" keep_top_k="4" nms_threshold="0.5" confidence_threshold="0.2" '
        'normalized="true" code_type="caffe.PriorBoxParameter.CORNER"'
    )
    zeros = np.zeros((1, 16), np.float32)
    found = run(tmp_path, "DetectionOutput", form, zeros, scores, stored)[0, 0]
    np.testing.assert_array_equal(found[:kept, 3:], APART[0, :kept])
    assert not found[kept:, 1:].any()


@pytest.mark.parametrize(
    "kind, data, inputs, error, message",
    [
        ("RandomUniform", "", [np.array([2])], UnsupportedError, "drawn at random"),
        (
            "NonMaxSuppression", "", [BOXES[:, :, :1].transpose(0, 2, 1), np.array(1),
            np.float32(0), np.float32(0), np.float32(0.5)], UnsupportedError, "a sigma",
        ),
        ("MulticlassNms", 'nms_eta="0.5"', [BOXES[:, :, 0][None]], UnsupportedError, "shrinks"),
        ("ROIPooling", 'method="bilinear"', [], UnsupportedError, "interpolated"),
        ("SpaceToBatch", "", [np.array([2, 1, 1])] + [np.zeros(3, int)] * 2, ModelError, "batch"),
        ("PriorBox", 'min_size="4" max_size="5,6"', [], ModelError, "as many max_size"),
        ("PriorBoxClustered", 'width="2,3" height="2"', [], ModelError, "as many heights"),
        (
            "MulticlassNms", "", [np.zeros((2, 1, 4), np.float32)], ModelError,
            "boxes of 2 images, found 1",
        ),
        (
            "DetectionOutput", 'normalized="true" code_type="CENTRE"', [np.zeros(1)] * 2,
            ModelError, "one of CORNER, .*found 'CENTRE'",
        ),
        (
            "EmbeddingBagPacked", 'reduction="max"', [np.array([[0, 0]])], ModelError,
            "one of sum, mean, found 'max'",
        ),
        (
            "Interpolate", 'mode="nearest" shape_calculation_mode="sizes"',
            [np.array([4, 4]), np.float32([1]), np.array([1])], ModelError,
            "expected sizes for 1 axes, found 2",
        ),
        (
            "Interpolate", 'mode="nearest" axes="1"', [np.array([4, 4])], ModelError,
            "expected sizes for 1 axes, found 2",
        ),
        (
            "STFT", "", [np.ones(5, np.float32), np.array(4), np.array(1)], ModelError,
            "a window within a frame of 4",
        ),
        ("DFT", "", [np.array([0]), np.array([-3])], ModelError, "sizes from 1"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(
    tmp_path: Path, kind: str, data: str, inputs: list[np.ndarray], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path, kind, data, BOXES, *inputs)


def test_priors_have_cells_of_rows_and_columns(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the cells: expected rows and columns, found \[1\]"):
        priors(tmp_path, "PriorBox", 'min_size="2"', [1], [4, 4])
