"""The decoder of the examples against the same network in NumPy, which keeps no cache."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "decoder.py"))
SIZES = EXAMPLE["SIZES"]["tiny"]
POSITIONS = 24


@pytest.fixture(scope="module")
def maker() -> Any:
    return EXAMPLE["DecoderModel"](SIZES, POSITIONS, seed=3)


@pytest.fixture(scope="module")
def model(maker: Any) -> Any:
    return maker.model()


def weights(maker: Any, name: str) -> np.ndarray:
    """A matrix [outputs, inputs] in float64."""
    codes, scales = maker.products[name]
    numbers = np.stack([codes & 15, codes >> 4], -1).reshape(*scales.shape, -1).astype(np.float64)
    return ((numbers - 8) * scales[..., None]).reshape(len(codes), -1)


def normalised(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def rotated(x: np.ndarray) -> np.ndarray:
    """Pairs of [heads, length, width], half a head apart, turned by the angles of positions."""
    half = x.shape[-1] // 2
    frequencies = EXAMPLE["ROTATION"] ** -(np.arange(half) / half)
    angle = np.outer(np.arange(x.shape[1]), frequencies)
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of [length, heads * width]; some heads of q share one of k and v."""
    length, width = len(q), SIZES.width
    q, k, v = (x.reshape(length, -1, width).swapaxes(0, 1) for x in (q, k, v))
    q, k = rotated(q), rotated(k)
    k, v = (x.repeat(len(q) // len(x), 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width)
    scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    y = shares / shares.sum(-1, keepdims=True) @ v
    return y.swapaxes(0, 1).reshape(length, -1)


def expected(maker: Any, tokens: list[int]) -> np.ndarray:
    """The scores of the token behind `tokens`."""

    def product(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights(maker, name).T

    x = weights(maker, "embedding")[tokens]
    for i in range(SIZES.layers):
        at = f"layer{i}."
        normal = normalised(x)
        y = attention(*(product(normal, f"{at}{name}") for name in "qkv"))
        x = x + product(y, f"{at}o")
        normal = normalised(x)
        gate = product(normal, f"{at}gate")
        gated = gate / (1 + np.exp(-gate)) * product(normal, f"{at}up")
        x = x + product(gated, f"{at}down")
    return product(normalised(x[-1:]), "scores")[0]


def test_prompt_and_tokens_have_the_scores_of_the_network(maker, model):
    decoder = EXAMPLE["Decoder"](model, SIZES, POSITIONS)
    tokens = np.random.default_rng(5).integers(0, SIZES.vocabulary, 20).tolist()
    at = 0
    for count in (9, 1, 1, 4, 1, 2, 1, 1):  # a prompt, tokens, and prompts that go on
        scores = decoder(tokens[at : at + count])
        at += count
        np.testing.assert_allclose(scores, expected(maker, tokens[:at]), rtol=1e-4, atol=1e-4)


def test_generated_tokens_are_the_most_likely_ones(maker, model):
    decoder = EXAMPLE["Decoder"](model, SIZES, POSITIONS)
    prompt = np.random.default_rng(6).integers(0, SIZES.vocabulary, 7).tolist()
    found = [token for token, _ in zip(decoder.generate(prompt), range(5))]
    sequence = list(prompt)
    for token in found:
        assert token == expected(maker, sequence).argmax()
        sequence.append(token)


def test_caches_stay_where_they_are(model):
    decoder = EXAMPLE["Decoder"](model, SIZES, POSITIONS)
    before = {name: array.ctypes.data for name, array in decoder.state.items()}
    decoder([1, 2, 3])
    assert {name: array.ctypes.data for name, array in decoder.state.items()} == before
    filled = [np.abs(array).sum((0, 1, 3)) > 0 for array in decoder.state.values()]
    assert all((rows == (np.arange(POSITIONS) < 3)).all() for rows in filled)
