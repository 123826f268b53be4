"""Random numbers: the generator's published answers, distributions, and what they depend on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.ir.threefry import threefry_word
from tilesmith.support.errors import ModelError

COUNT = 20_000
"""Numbers that moments are taken of; bounds are 5 standard errors."""


@pytest.mark.parametrize(
    ("counter", "key", "word"),
    [
        ((0, 0), (0, 0), 0x6B200159),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), 0x1CB996FC),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), 0xC4923A9C),
    ],
)
def test_threefry(counter: tuple[int, int], key: tuple[int, int], word: int) -> None:
    """The known answers of its authors' library, Random123."""
    assert int(threefry_word(*counter, *key)) == word


def model(*nodes: onnx.NodeProto, shape: list[int] | None = None, opset: int = 22) -> bytes:
    """`x` f32 (if `shape`) to `y`, of whatever type."""
    x = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)] if shape is not None else []
    y = [onnx.ValueInfoProto(name=name) for name in nodes[-1].output]
    constants = [n for n in nodes if n.op_type == "Constant"]
    graph = helper.make_graph([*constants, *(n for n in nodes if n not in constants)], "g", x, y)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run(content: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """What machine code gives, which the evaluator gives, too."""
    exe = ts.compile(content, threads=2)
    arrays = dict(zip((s.name for s in exe.inputs), inputs, strict=True))
    found = list(exe.run(arrays).values())
    expected = evaluate(load(content), arrays).values()
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), 2e-5, 2e-5)
    for a, b in zip(exe.run(arrays).values(), found, strict=True):
        np.testing.assert_array_equal(a, b)  # a call changes nothing
    return found


def node(op: str, inputs: list[str] | None = None, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs or [], ["y"], **attributes)


def check_moments(found: np.ndarray, mean: float, deviation: float, fourth: float) -> None:
    """Mean, variance and independence of neighbours; `fourth`: the kurtosis."""
    x = (found.astype(np.float64).ravel() - mean) / deviation
    least = 5 / math.sqrt(x.size)
    assert abs(x.mean()) < least
    assert abs((x * x).mean() - 1) < least * math.sqrt(fourth - 1)
    for lag in (1, 2, 16, 200):
        assert abs((x[lag:] * x[:-lag]).mean()) < least


@pytest.mark.parametrize("shape", [[COUNT], [100, COUNT // 100]])
@pytest.mark.parametrize("seed", [None, 1.0, -2.5])
def test_uniform(shape: list[int], seed: float | None) -> None:
    given = {} if seed is None else {"seed": seed}
    (found,) = run(model(node("RandomUniform", shape=shape, low=-1.0, high=3.0, **given)))
    assert found.dtype == np.float32 and list(found.shape) == shape
    assert found.min() >= -1 and found.max() < 3 and np.ptp(found) > 3.99
    check_moments(found, 1.0, 4 / math.sqrt(12), 1.8)
    counts, _ = np.histogram(found, 100, (-1, 3))
    expected = COUNT / 100
    assert ((counts - expected) ** 2 / expected).sum() < 99 + 5 * math.sqrt(2 * 99)


@pytest.mark.parametrize("seed", [None, 7.0])
def test_normal(seed: float | None) -> None:
    given = {} if seed is None else {"seed": seed}
    (found,) = run(model(node("RandomNormal", shape=[COUNT], mean=2.0, scale=3.0, **given)))
    check_moments(found, 2.0, 3.0, 3.0)
    within = np.abs(found - 2) < 3
    assert abs(within.mean() - math.erf(math.sqrt(0.5))) < 5 * 0.47 / math.sqrt(COUNT)


@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal"])
def test_seeds_and_streams(name: str) -> None:
    def of(**given: float) -> np.ndarray:
        return run(model(node(name, shape=[1000], **given)))[0]

    assert not np.array_equal(of(seed=1.0), of(seed=2.0))
    assert not np.array_equal(of(seed=1.0), of())
    two = [helper.make_node(name, [], [o], shape=[1000]) for o in "ab"]
    found = run(model(*two, helper.make_node("Sub", ["a", "b"], ["y"])))[0]
    assert abs(np.count_nonzero(found) - 1000) < 5
    more = run(model(node(name, shape=[2000], seed=1.0)))[0]
    np.testing.assert_array_equal(more[:1000], of(seed=1.0))  # by place, whatever the shape
    seeded = [helper.make_node(name, [], [o], shape=[1000], seed=3.0) for o in "ab"]
    assert not run(model(*seeded, helper.make_node("Sub", ["a", "b"], ["y"])))[0].any()


@pytest.mark.parametrize("code", [TensorProto.FLOAT16, TensorProto.DOUBLE, None])
@pytest.mark.parametrize("name", ["RandomUniformLike", "RandomNormalLike"])
def test_like(name: str, code: int | None) -> None:
    given = {} if code is None else {"dtype": code}
    x = np.zeros((30, 50), np.float32)
    content = model(node(name, ["x"], seed=5.0, **given), shape=[30, 50])
    exe = ts.compile(content)
    found = exe.run({"x": x} if exe.inputs else {})["y"]
    assert found.dtype == helper.tensor_dtype_to_np_dtype(code or TensorProto.FLOAT)
    assert found.shape == x.shape and 0.2 < found.astype(np.float64).std() < 1.1


def test_bernoulli() -> None:
    p = np.repeat(np.float32([0.0, 0.2, 0.7, 1.0]), COUNT // 4)
    (found,) = run(model(node("Bernoulli", ["x"], dtype=TensorProto.BOOL), shape=[COUNT]), p)
    assert found.dtype == np.bool_
    none, some, most, all_ = found.reshape(4, -1).mean(1)
    assert none == 0 and all_ == 1
    assert abs(some - 0.2) < 0.03 and abs(most - 0.7) < 0.03
    (floats,) = run(model(node("Bernoulli", ["x"]), shape=[COUNT]), p)
    np.testing.assert_array_equal(floats, found.astype(np.float32))


def test_multinomial() -> None:
    p = np.array([[0.5, 0.25, 0.25, 0.0], [0.0, 0.1, 0.0, 0.9]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32) + np.float32([[3], [-4]])  # not normalised
    content = model(
        node("Multinomial", ["x"], sample_size=4000, dtype=TensorProto.INT64), shape=[2, 4]
    )
    (found,) = run(content, logits)
    assert found.dtype == np.int64 and found.shape == (2, 4000)
    shares = np.array([np.bincount(row, minlength=4) / 4000 for row in found])
    assert np.abs(shares - p).max() < 5 * 0.5 / math.sqrt(4000)
    assert not shares[p == 0].any()
    (one,) = run(model(node("Multinomial", ["x"]), shape=[3, 1]), np.zeros((3, 1), np.float32))
    np.testing.assert_array_equal(one, np.zeros((3, 1), np.int32))


def dropout(ratio: float | None, training: bool = True, **given: int) -> bytes:
    """Dropout with its mask."""
    constants = [
        helper.make_node("Constant", [], ["on"], value=numpy_tensor(np.array(training))),
        helper.make_node("Constant", [], ["r"], value=numpy_tensor(np.float32(ratio or 0))),
    ]
    names = ["x", "" if ratio is None else "r", "on"]
    return model(
        *constants[: 1 if ratio is None else 2],
        helper.make_node("Dropout", names, ["y", "mask"], **given), shape=[COUNT],
    )  # fmt: skip


def numpy_tensor(array: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array))


@pytest.mark.parametrize(("ratio", "dropped"), [(None, 0.5), (0.1, 0.1), (0.75, 0.75)])
def test_dropout_in_training(ratio: float | None, dropped: float) -> None:
    x = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    y, mask = run(dropout(ratio, seed=4), x)
    assert mask.dtype == np.bool_
    assert abs(1 - mask.mean() - dropped) < 5 * 0.5 / math.sqrt(COUNT)
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(1 - dropped), 0), 1e-6)
    _, other = run(dropout(ratio, seed=5), x)
    assert not np.array_equal(mask, other)


def test_dropout_in_inference() -> None:
    x = np.arange(COUNT, dtype=np.float32)
    for content in (dropout(0.5, training=False), dropout(0.0)):
        y, mask = run(content, x)
        np.testing.assert_array_equal(y, x)
        assert mask.all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model(node("RandomNormal")), "expected attribute 'shape'"),
        (model(node("RandomUniform", shape=[2, -1])), "expected dimensions >= 0"),
        (model(node("RandomUniform", shape=[2], dtype=TensorProto.INT32)), "floating-point type"),
        (model(node("Multinomial", ["x"]), shape=[4]), "expected log-probabilities"),
        (model(node("Multinomial", ["x"], sample_size=-1), shape=[2, 4]), "sample_size >= 0"),
        (dropout(1.0), "at least 0 and less than 1"),
    ],
)
def test_bad_nodes(content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(content)
