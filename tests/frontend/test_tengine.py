"""Tengine's models: files, layers and errors."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from written_models.tengine import CONSTANT, VARIABLE, ModelWriter, filled

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((1, 4, 7, 7)).astype(np.float32)
ONES = {"kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1}
CONV = {**ONES, "dilation_w": 1, "group": 1, "output_channel": 6, "activation": -1}
WINDOW = {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def one(kind: str, *constants: np.ndarray, x: np.ndarray = X, **params: float) -> np.ndarray:
    """The result of a model with one layer."""
    w = ModelWriter()
    reads = [w.input("x", *x.shape)]
    reads += [w.constant(f"c{i}", c) for i, c in enumerate(constants)]
    w.add(kind, "y", *reads, **params)
    return evaluate(load(w.finish()), {"x": x})["y"]


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def column(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(1, -1, 1, 1)


@pytest.mark.parametrize(("activation", "low", "high"), [(-1, None, None), (0, 0, None), (6, 0, 6)])
def test_convolution_has_its_activation(
    activation: int, low: float | None, high: float | None
) -> None:
    w, b = 4 * normal(6, 4, 1, 1), normal(6)
    y = np.einsum("nchw,oc->nohw", X, w[:, :, 0, 0]) + column(b)
    wanted = y if low is None else np.clip(y, low, high)
    close(one("Convolution", w, b, **{**CONV, "activation": activation}), wanted)


def test_depthwise_convolution_with_padding_on_one_side() -> None:
    w = normal(4, 1, 3, 3)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    pads = {"pad_h0": 1, "pad_w1": 2, "kernel_h": 3, "kernel_w": 3, "group": 4}
    close(one("Convolution", w, **{**CONV, **pads}), np.einsum("nchwij,cij->nchw", views, w[:, 0]))


def test_windows_of_pools_are_those_of_their_flavor() -> None:
    x = X[:, :, :6, :6]  # flavor 1: a third window of two rows
    full = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
    views = np.lib.stride_tricks.sliding_window_view(full, (3, 3), (2, 3))[:, :, ::2, ::2]
    close(one("Pooling", x=x, **WINDOW, caffe_flavor=1), views.max((4, 5)))
    close(one("Pooling", x=x, **WINDOW), views[:, :, :2, :2].max((4, 5)))
    average = one("Pooling", x=x, **WINDOW, pool_method=1, pad_h0=1, pad_w0=1, pad_h1=1, pad_w1=1)
    close(average[0, 0, 0, 0], x[0, 0, :2, :2].mean())
    counted = one("Pooling", x=x, **WINDOW, pool_method=1, pad_h0=1, pad_w0=1, caffe_flavor=1)
    close(counted[0, 0, 0, 0], x[0, 0, :2, :2].sum() / 9)
    whole = one("Pooling", x=x, **WINDOW, pool_method=1, **{"global": 1})
    close(whole, x.mean((2, 3), keepdims=True))


def test_a_product_keeps_the_rank() -> None:
    w, b = normal(3, 196), normal(3)
    y = X.reshape(1, 196) @ w.T + b
    close(one("FullyConnected", w, b, num_output=3), y.reshape(1, 3, 1, 1))
    close(one("FullyConnected", w, x=X.reshape(1, 196), num_output=3), y - b)


@pytest.mark.parametrize(
    ("kind", "constants", "params", "function"),
    [
        ("Softmax", (), {"axis": 1}, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        ("ReLU", (), {"negative_slope": 0.5}, lambda x: np.where(x > 0, x, x / 2)),
        ("ReLU", (), {}, lambda x: np.maximum(x, 0)),
        ("ReLU6", (), {}, lambda x: np.clip(x, 0, 6)),
        ("Sigmoid", (), {}, lambda x: 1 / (1 + np.exp(-x))),
        ("Tanh", (), {}, np.tanh),
        ("Dropout", (), {}, lambda x: x),
        ("Flatten", (), {"axis": 1, "end_axis": 3}, lambda x: x.reshape(1, 196)),
        ("PReLU", (np.float32([0.5]),), {}, lambda x: np.where(x > 0, x, x / 2)),
        ("Eltwise", (np.float32([3]),), {"type": 5}, lambda x: x - 3),
        ("Eltwise", (np.float32([0.5]),), {"type": 8}, lambda x: np.minimum(x, 0.5)),
        ("Eltwise", (np.arange(4, dtype=np.float32),), {}, lambda x: x * column(np.arange(4))),
        ("Eltwise", (X[:, :, ::-1],), {"type": 6}, lambda x: np.maximum(x, x[:, :, ::-1])),
        ("BroadMul", (X[:, :, :1, :1],), {}, lambda x: x * x[:, :, :1, :1]),
        ("Scale", (np.float32([1, 2, 3, 4]), np.float32([1, 0, 0, 1])), {},
         lambda x: x * column(np.arange(1, 5)) + column(np.float32([1, 0, 0, 1]))),
    ],
)  # fmt: skip
def test_a_layer_on_elements(
    kind: str, constants: tuple[np.ndarray, ...], params: dict[str, float], function: object
) -> None:
    assert callable(function)
    close(one(kind, *(np.ascontiguousarray(c) for c in constants), **params), function(X))


def test_normalisations() -> None:
    gamma, beta, mean, variance = normal(4), normal(4), normal(4), normal(4) ** 2
    stored = (gamma, beta, mean, variance)
    y = (X - column(mean / 2)) / np.sqrt(column(variance / 2) + 0.1)
    found = one("BatchNormalize", *stored, rescale_factor=2, eps=0.1)
    close(found, y * column(gamma) + column(beta))
    close(one("BatchNormalize", *stored, rescale_factor=2, eps=0.1, caffe_flavor=1), y)
    centred = X - X.mean((2, 3), keepdims=True)
    y = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 0.1)
    found = one("InstanceNorm", gamma, beta, eps=0.1)
    close(found, y * column(gamma) + column(beta))
    gamma, beta = normal(7), normal(7)
    centred = X - X.mean(3, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(3, keepdims=True) + 0.1)
    close(one("LayerNorm", gamma, beta, eps=0.1), y * gamma + beta)
    squares = np.pad(X * X + 2, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=0)
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    found = one("Lrn", local_size=3, alpha=0.3, beta=0.75, k=2)
    close(found, X * (1 + 0.1 * sums) ** -0.75)


def test_a_network_runs_and_its_weights_are_found(tmp_path: Path) -> None:
    w = ModelWriter()
    x = w.input("data", 1, 4, 7, 7)
    first = w.add("Convolution", "a", x, w.constant("w", normal(6, 4, 1, 1)), **CONV)
    both = w.add("Concat", "both", first, x, axis=1)
    shape = w.vector([0, -1])
    w.add("Reshape", "rows", both, re_shape=shape, is_onnx=1)
    path = tmp_path / "net.tmfile"
    path.write_bytes(w.finish())
    exe = ts.compile(path)
    y = exe(X)
    assert y.shape == (1, 490)
    close(y[:, 294:], X.reshape(1, -1))
    facts = inspect(path)
    assert (facts.format, facts.inputs) == ("Tengine", {"data": "f32[1,4,7,7]"})
    exe.load_weights({"w": np.zeros((6, 4, 1, 1), np.float32)})
    assert not exe(X)[:, :294].any()


def test_a_repeated_name_becomes_one_that_is_free() -> None:
    w = ModelWriter()
    x = w.input("x#2", *X.shape)
    y = w.add("Tanh", "x", w.add("Tanh", "x", x))
    w.add("Concat", "both", x, y, axis=1)
    (found,) = evaluate(load(w.finish()), [X]).values()
    close(found, np.concatenate([X, np.tanh(np.tanh(X))], 1))


def test_two_nodes_of_a_number_are_refused() -> None:
    w = ModelWriter()
    w.add("Tanh", "y", w.add("Tanh", "z", w.input("x", 1, 4)))
    whole = bytearray(w.finish())
    struct.pack_into("<i", whole, w._nodes[2], 1)
    with pytest.raises(ts.ModelError, match="node number 1 is that of two nodes"):
        load(bytes(whole))


def test_files_of_benchmarks_have_no_weights() -> None:
    w = ModelWriter()
    x = w.input("x", 1, 4)
    w.add("FullyConnected", "y", x, w.tensor("w", CONSTANT, (3, 4)), num_output=3)
    content = w.finish()
    with pytest.raises(ts.ModelError, match=r"tensor w: the file has no contents for it"):
        load(content)
    assert evaluate(load(filled(content)), {"x": np.ones((1, 4), np.float32)})["y"].any()


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("Convolution", {**CONV, "pad_h0": -1}, r"padding by a rule"),
        ("Convolution", {**CONV, "activation": 3}, r"activation 3"),
        ("Convolution", {**CONV, "stride_h": 0}, r"'stride_h': expected at least 1, found 0"),
        ("Pooling", {**WINDOW, "caffe_flavor": 2}, r"method 0 of flavor 2"),
        ("Eltwise", {"type": 17}, r"type 17 of f32"),
        ("Lrn", {"local_size": 4}, r"a window of 4 channels"),
        ("Reshape", {}, r"\[\]|shape|reshape"),
    ],
)
def test_what_is_not_supported_is_said(kind: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(ts.ModelError, match=message):
        one(kind, normal(6, 4, 1, 1), **params)


def test_quantised_models_and_channels_last_are_refused() -> None:
    w = ModelWriter()
    x = w.input("x", 1, 4)
    y = w.tensor("y", VARIABLE, (1, 4), type=2)
    w.node(36, "y", (x,), (y,))
    with pytest.raises(ts.UnsupportedError, match=r"y: expected elements of f32, found type 2"):
        load(w.finish())
    w = ModelWriter()
    w.add("Tanh", "y", w.input("x", 1, 4))
    whole = bytearray(w.finish())
    (root,) = struct.unpack_from("<I", whole, 8)
    (subgraphs,) = struct.unpack_from("<I", whole, root + 8)
    (graph,) = struct.unpack_from("<I", whole, subgraphs + 4)
    struct.pack_into("<i", whole, graph + 4, 1)
    with pytest.raises(ts.UnsupportedError, match=r"channels last"):
        load(bytes(whole))


def test_a_damaged_file_is_an_error_that_names_the_place() -> None:
    w = ModelWriter()
    w.add("Tanh", "y", w.input("x", 1, 4))
    whole, refused = w.finish(), 0
    for place in range(0, len(whole), 4):
        damaged = bytearray(whole)
        damaged[place : place + 4] = b"\xf0\xff\xff\x7f"
        try:
            load(bytes(damaged))
        except ts.ModelError as e:
            refused += 1
            assert str(e)
    assert refused > 20  # the other numbers are names and versions
