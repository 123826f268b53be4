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


def test_attention_does_not_look_ahead(tmp_path: Path) -> None:
    x = floats(1, 4, 3)
    net = Net("1,4,3")
    y = net.add("ScaledDotProductAttention", 'causal="true"', net.x, net.x, net.x)
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
        ("DFT", "", [np.array([0]), np.array([-3])], ModelError, "sizes from 1"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(
    tmp_path: Path, kind: str, data: str, inputs: list[np.ndarray], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path, kind, data, BOXES, *inputs)
