"""Darknet's networks: files, layers, heads and errors."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.darknet import written

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0, 1, (1, 2, 6, 6)).astype(np.float32)
NET = "# a network\n[net]\nbatch=64\nheight=6\nwidth = 6\nchannels=2\n\n"
CONV = "[convolutional]\nbatch_normalize=1\nfilters=4\nsize=3\nstride=1\npad=1\nactivation={}\n\n"


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


BIAS, SCALE, MEAN, W = normal(4), normal(4), normal(4), normal(4, 2, 3, 3)
VARIANCE = RANDOM.uniform(0.5, 2, 4).astype(np.float32)
STORED = [BIAS, SCALE, MEAN, VARIANCE, W]


def run(path: object, x: np.ndarray = X) -> dict[str, np.ndarray]:
    return evaluate(load(path), {"data": x})


def convolved(x: np.ndarray = X) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", views, W)
    bias, scale, mean, variance = (v.reshape(1, 4, 1, 1) for v in STORED[:4])
    return (y - mean) / np.sqrt(variance + 1e-5) * scale + bias


@pytest.mark.parametrize(
    "header", [struct.pack("<iiiq", 0, 2, 5, 9), struct.pack("<iiii", 0, 1, 0, 9)]
)
def test_weights_of_both_versions(tmp_path: Path, header: bytes) -> None:
    path = written(tmp_path, NET + CONV.format("leaky"), STORED, header)
    y = convolved()
    exe = ts.compile(path)
    found = exe.run({"data": X})["convolutional_0"]
    np.testing.assert_allclose(found, np.where(y > 0, y, 0.1 * y), rtol=1e-3, atol=1e-4)


def test_the_files_may_be_given_as_a_pair(tmp_path: Path) -> None:
    path = written(tmp_path, NET + CONV.format("linear"), STORED)
    weights = path.with_suffix(".weights").rename(tmp_path / "other")
    np.testing.assert_allclose(
        run((path, weights))["convolutional_0"], convolved(), rtol=1e-3, atol=1e-4
    )
    with pytest.raises(ModelError, match="expected a file of weights: give the paths"):
        load(path)


def test_branches(tmp_path: Path) -> None:
    text = NET + CONV.format("linear") + "[maxpool]\nsize=2\nstride=1\n\n"
    text += "[route]\nlayers = -1, 0  # both\ngroups=2\ngroup_id=1\n\n[shortcut]\nfrom=-3\n\n"
    text += "[upsample]\nstride=2\n\n[cost]\ntype=sse\n"
    y = convolved()
    padded = np.pad(y, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
    views = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3)).max((4, 5))
    wanted = np.concatenate([views[:, 2:], y[:, 2:]], 1) + y
    result = run(written(tmp_path, text, STORED))
    assert list(result) == ["upsample_4"]
    np.testing.assert_allclose(
        result["upsample_4"], wanted.repeat(2, 2).repeat(2, 3), rtol=1e-3, atol=1e-4
    )


def test_reorg_keeps_darknet_s_order(tmp_path: Path) -> None:
    text = NET.replace("channels=2", "channels=4") + "[reorg]\nstride=2\n"
    x = normal(1, 4, 6, 6)
    image = x.reshape(1, 12, 12)  # 4 channels of 6 x 6 as one of 12 x 12
    wanted = np.stack([image[0, i::2, j::2] for i in range(2) for j in range(2)])
    found = run(written(tmp_path, text, []), x)["reorg_0"]
    np.testing.assert_array_equal(found, wanted.reshape(1, 16, 3, 3))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_the_boxes_of_yolo_follow_the_input_s_size(tmp_path: Path) -> None:
    text = NET.replace("channels=2", "channels=14")
    text += "[yolo]\nmask=0,2\nanchors=2,3, 4,5, 6,7\nclasses=2\nnum=3\nscale_x_y=1.2\n"
    exe = ts.compile(written(tmp_path, text, []), dynamic={"data": {2: (2, 9), 3: (2, 9)}})
    for h, w in ((6, 6), (3, 5)):
        x = normal(1, 14, h, w)
        rows = exe.run({"data": x})["yolo_0"]
        assert rows.shape == (1, h * w * 2, 7)
        for number, anchor in enumerate([(2, 3), (6, 7)]):
            for i, j in np.ndindex(h, w):
                p = x[0, 7 * number : 7 * number + 7, i, j]
                centre = (sigmoid(p[:2]) * 1.2 - 0.1 + [j, i]) / [w, h]
                size = np.exp(p[2:4]) * anchor / [w, h]
                score = sigmoid(p[4])
                wanted = [*centre, *size, score, *sigmoid(p[5:]) * score]
                found = rows[0, (i * w + j) * 2 + number]
                np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_facts_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, NET + CONV.format("relu") + "[avg]\n[soft]\n", STORED)
    facts = inspect(path)
    assert facts.format == "Darknet"
    assert facts.inputs == {"data": "f32[1,2,6,6]"}
    assert facts.operators == {"convolutional": 1, "avgpool": 1, "softmax": 1}
    assert facts.weight_bytes == 4 * sum(a.size for a in STORED)


@pytest.mark.parametrize(
    "text, error, message",
    [
        (CONV.format("wavy"), UnsupportedError, "activation 'wavy'"),
        ("[rnn]\noutput=3\n[gru]\noutput=3\n", UnsupportedError,
         "2 nodes of 2 operators cannot be compiled: rnn at 'rnn_0'"),
        ("[convolutional]\nfilters=4\nxnor=1\n", UnsupportedError, "option xnor=1"),
        ("[convolutional]\nfilters=9999999\nsize=3\n", ModelError,
         "weights .*: expected 179999982 numbers|bias .*: expected 9999999 numbers"),
        ("[route]\nlayers=-1\n", ModelError, "layer 0 .route. layers: expected a layer before"),
        ("[route]\nlayers=\n", ModelError, "expected numbers of layers, found none"),
        ("[maxpool]\nsize=two\n", ModelError, "attribute 'size': expected an integer, found 'two'"),
        ("[maxpool]\nsize\n", ModelError, "line 9: expected .section. or option=value"),
        ("[yolo]\nclasses=2\nnum=1\nmask=3\n", ModelError, "mask: expected numbers of 1 anchors"),
    ],
)  # fmt: skip
def test_errors(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(written(tmp_path, NET + text, STORED))


def test_damaged_weights(tmp_path: Path) -> None:
    path = written(tmp_path, NET + CONV.format("relu"), STORED)
    whole = path.with_suffix(".weights").read_bytes()
    for size in range(0, len(whole), 5):
        path.with_suffix(".weights").write_bytes(whole[:size])
        with pytest.raises(ModelError):
            load(path)
