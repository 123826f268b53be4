"""OpenVINO's recurrent layers against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.openvino import Net

RANDOM = np.random.default_rng(0)
BATCH, STEPS, WIDTH, HIDDEN = 2, 4, 3, 5
X = RANDOM.standard_normal((BATCH, STEPS, WIDTH)).astype(np.float32)


def numbers(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.5).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray):
    """A step of an LSTM, whose gates are forget, input, cell, output."""
    f, i, g, o = np.split(x @ w.T + h @ r.T + b, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("lengths", [(STEPS, STEPS), (2, 4)])
def test_lstm_of_both_directions(tmp_path: Path, lengths: tuple[int, int]) -> None:
    h, c = numbers(BATCH, 2, HIDDEN), numbers(BATCH, 2, HIDDEN)
    w, r = numbers(2, 4 * HIDDEN, WIDTH), numbers(2, 4 * HIDDEN, HIDDEN)
    b = numbers(2, 4 * HIDDEN)
    net = Net(f"{BATCH},{STEPS},{WIDTH}")
    given = [net.const(v) for v in (h, c, np.array(lengths, np.int32), w, r, b)]
    form = f'hidden_size="{HIDDEN}" direction="bidirectional"'
    y = net.add("LSTMSequence", form, net.x, *given, outputs=3)
    found = next(iter(evaluate(load(net.write(tmp_path, y)), [X]).values()))
    wanted = np.zeros((BATCH, 2, STEPS, HIDDEN), np.float32)
    for way in range(2):
        for row, length in enumerate(lengths):
            one = slice(row, row + 1)
            now, memory = h[one, way], c[one, way]
            for t in range(length)[:: -1 if way else 1]:
                now, memory = lstm(X[one, t], now, memory, w[way], r[way], b[way])
                wanted[one, way, t] = now
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("linear", [False, True])
def test_gru_resets_before_or_after_its_weights(tmp_path: Path, linear: bool) -> None:
    x, h = X[:, 0], numbers(BATCH, HIDDEN)
    w, r = numbers(3 * HIDDEN, WIDTH), numbers(3 * HIDDEN, HIDDEN)
    b = numbers((4 if linear else 3) * HIDDEN)
    net = Net(f"{BATCH},{WIDTH}")
    form = f'hidden_size="{HIDDEN}" linear_before_reset="{str(linear).lower()}"'
    y = net.add("GRUCell", form, net.x, *(net.const(v) for v in (h, w, r, b)))
    (found,) = evaluate(load(net.write(tmp_path, y)), [x]).values()
    wz, wr, wh = np.split(w, 3)
    rz, rr, rh = np.split(r, 3)
    bz, br, bh, *late = np.split(b, len(b) // HIDDEN)
    z, reset = sigmoid(x @ wz.T + h @ rz.T + bz), sigmoid(x @ wr.T + h @ rr.T + br)
    inner = reset * (h @ rh.T + late[0]) if linear else (reset * h) @ rh.T
    wanted = (1 - z) * np.tanh(x @ wh.T + inner + bh) + z * h
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "form, error, message",
    [
        ('hidden_size="5" activations="sine"', UnsupportedError, "activation 'sine'"),
        ('hidden_size="5" activations="tanh,tanh"', ModelError, "expected 1 names"),
        ('hidden_size="4"', ModelError, "expected 4 rows of weights"),
    ],
)
def test_other_forms_are_refused(
    tmp_path: Path, form: str, error: type[ModelError], message: str
) -> None:
    net = Net(f"{BATCH},{WIDTH}")
    shapes = (BATCH, HIDDEN), (HIDDEN, WIDTH), (HIDDEN, HIDDEN), (HIDDEN,)
    y = net.add("RNNCell", form, net.x, *(net.const(numbers(*s)) for s in shapes))
    with pytest.raises(error, match=message):
        load(net.write(tmp_path, y))


@pytest.mark.parametrize(
    "form, states, lengths, more, error, message",
    [
        ("", 1, [1, 5], 0, ModelError, r"expected 0 to 4, found \[1, 5\]"),
        ("", 1, [-1, 4], 0, ModelError, r"expected 0 to 4, found \[-1, 4\]"),
        ("", 1, [4.0, 4.0], 0, ModelError, r"expected a list of integers, found f64\[2\]"),
        ("", 3, [4, 4], 0, ModelError, r"expected states \[batch, 1, 5\], found f32\[2,3,5\]"),
        ('clip="-1"', 1, [4, 4], 0, ModelError, r"clip: expected a number from 0, found -1"),
        ("", 1, [4, 4], 1, UnsupportedError, "peepholes"),
    ],
)
def test_other_sequences_are_refused(
    tmp_path: Path,
    form: str,
    states: int,
    lengths: list[float],
    more: int,
    error: type[ModelError],
    message: str,
) -> None:
    net = Net(f"{BATCH},{STEPS},{WIDTH}")
    state = numbers(BATCH, states, HIDDEN)
    weights = [
        numbers(1, 4 * HIDDEN, WIDTH),
        numbers(1, 4 * HIDDEN, HIDDEN),
        numbers(1, 4 * HIDDEN),
    ]
    given = [state, state, np.array(lengths), *weights, *[numbers(1, 3 * HIDDEN)] * more]
    form = f'hidden_size="{HIDDEN}" {form}'
    y = net.add("LSTMSequence", form, net.x, *map(net.const, given), outputs=3)
    with pytest.raises(error, match=message):
        load(net.write(tmp_path, y))


def test_a_run_refuses_lengths_above_the_steps(tmp_path: Path) -> None:
    net = Net(f"{BATCH},{STEPS},{WIDTH}")
    lengths = net.add("Parameter", f'shape="{BATCH}" element_type="i32"', names="lengths")
    net.layers[lengths] = net.layers[lengths].replace('name="parameter"', 'name="lengths"')
    shapes = (BATCH, 1, HIDDEN), (1, HIDDEN, WIDTH), (1, HIDDEN, HIDDEN), (1, HIDDEN)
    state, *weights = (net.const(numbers(*s)) for s in shapes)
    form = f'hidden_size="{HIDDEN}"'
    y = net.add("RNNSequence", form, net.x, state, lengths, *weights, outputs=2)
    graph = load(net.write(tmp_path, y))
    found = next(iter(evaluate(graph, [X, np.array([2, 4], np.int32)]).values()))
    assert found[:, 0, 1].any() and not found[0, 0, 2:].any()
    for wrong in ([2, 5], [-1, 4]):
        with pytest.raises(ModelError, match="expected 0 to 0, found 1"):
            evaluate(graph, [X, np.array(wrong, np.int32)])
