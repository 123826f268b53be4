"""Options of training: accumulated gradients, low-rank adapters, products in bf16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Tanh
from tilesmith.ops.matmul import MatMul
from tilesmith.support.errors import ModelError
from tilesmith.training import SGD, Adam, Batches, StepDecay
from tilesmith.training.lora import adapters_of, merged, with_adapters
from tilesmith.training.weights import contents, with_contents

X, Y = samples()
RATE = StepDecay(0.1, steps=2, factor=0.5)


def test_accumulated_gradients_are_those_of_the_batches_together() -> None:
    whole = ts.Trainer(classifier(), optimizer=Adam(RATE), clip_norm=0.1)
    whole.fit(Batches([X, Y], size=64, seed=None), epochs=2)
    parts = ts.Trainer(classifier(), optimizer=Adam(RATE), clip_norm=0.1, accumulate=4)
    parts.fit(Batches([X, Y], size=16, seed=None), epochs=2)
    assert parts.steps == whole.steps == 8
    for name, w in whole.weights.items():
        np.testing.assert_allclose(parts.weights[name], w, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_between_accumulated_batches_resumes_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    batches = Batches([X, Y], size=32)  # 8 in an epoch, 3 in a step
    whole = ts.Trainer(classifier(), optimizer=Adam(0.01), accumulate=3)
    whole.fit(batches, epochs=1, checkpoint=path)
    assert whole.steps == 2
    whole.fit(batches, epochs=3)
    assert whole.steps == 8
    resumed = ts.Trainer(classifier(), optimizer=Adam(0.01), accumulate=3)
    resumed.restore(path)
    resumed.fit(batches, epochs=3)
    for name, w in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], w)


def test_adapters_train_and_are_merged_into_the_weights(tmp_path: Path) -> None:
    source, path = classifier(), tmp_path / "trained.onnx"
    old = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    trainer = ts.Trainer(source, optimizer=SGD(0.1), lora={"*.weight": 2}, trainable="head.bias")
    assert {*trainer.weights} == {"head.bias"} | {
        f"{layer}.weight.lora_{factor}" for layer in ("body", "head") for factor in "ab"
    }
    before = trainer.evaluate([(X, Y)])["loss"]
    trainer.fit(Batches([X, Y], size=32), epochs=20)
    after = trainer.evaluate([(X, Y)])["loss"]
    assert after < 0.7 * before
    trainer.save_onnx(path)
    new = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    assert {*new} == {*old}
    for name in ("body.weight", "head.weight"):
        assert np.linalg.matrix_rank(new[name] - old[name], tol=1e-4) == 2
    np.testing.assert_array_equal(new["body.bias"], old["body.bias"])
    plain = ts.Trainer(path)
    assert plain.evaluate([(X, Y)])["loss"] == pytest.approx(after, rel=1e-5)
    np.testing.assert_allclose(ts.compile(trainer.model())(X), ts.compile(path)(X), rtol=1e-6)


@pytest.mark.parametrize("kind", ["right", "right turned", "left", "left turned", "convolution"])
def test_adapters_are_multiplied_one_after_the_other(kind: str) -> None:
    rng = np.random.default_rng(0)
    turned = kind.endswith("turned")
    b = Builder()
    if kind == "convolution":
        shape, w = (2, 5, 6, 6), b.constant(_random(rng, 7, 5, 3, 3), "w")
        y = b.add(Conv(strides=(2, 2), pads=(1, 1, 1, 1)), b.input("x", TensorType(f32, shape)), w)
    elif kind.startswith("left"):
        shape, w = (3, 6, 4), b.constant(_random(rng, *((6, 5) if turned else (5, 6))), "w")
        y = b.add(MatMul(transpose_a=turned), w, b.input("x", TensorType(f32, shape)))
    else:
        shape, w = (3, 4, 6), b.constant(_random(rng, *((5, 6) if turned else (6, 5))), "w")
        y = b.add(MatMul(transpose_b=turned), b.input("x", TensorType(f32, shape)), w)
    plain = b.finish([y], ["y"])
    adapted = with_adapters(plain, {"w": 2})
    assert {c.value.name for c in adapted.constants} == {"w", *adapters_of("w")}
    products = [n for n in adapted.nodes if isinstance(n.op, (MatMul, Conv))]
    assert len(products) == 3, "x W, x B and the product of the latter with A"
    held = contents(adapted, adapters_of("w"))
    states = {n: _random(rng, *a.shape) for n, a in held.items()}
    new = merged(plain, {"w": 2}, states)
    x = _random(rng, *shape)
    found = evaluate(with_contents(adapted, states), [x])["y"]
    np.testing.assert_allclose(
        found, evaluate(with_contents(plain, new), [x])["y"], rtol=1e-4, atol=1e-4
    )


def _random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def test_products_in_bf16_keep_f32_weights_that_small_steps_change() -> None:
    exact = ts.Trainer(classifier(), optimizer=SGD(1e-4))
    low = ts.Trainer(classifier(), optimizer=SGD(1e-4), precision="bf16")
    before = {n: w.copy() for n, w in low.weights.items()}
    losses = [
        [e.measures["loss"] for e in t.fit(Batches([X, Y], size=64), epochs=2)]
        for t in (exact, low)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2) and losses[1] != losses[0]
    for name, w in low.weights.items():
        assert w.dtype == np.float32
        moved, wanted = w - before[name], exact.weights[name] - before[name]
        assert np.abs(moved - wanted).max() < 0.1 * np.abs(wanted).max()


def test_a_loss_that_is_not_finite_names_the_first_operator_and_keeps_the_weights() -> None:
    source = classifier()
    source.graph.node[-1].output[0] = "scores"
    source.graph.node.append(helper.make_node("Log", ["scores"], ["y"], name="broken"))
    trainer = ts.Trainer(source, optimizer=Adam(0.1))
    before = {n: w.copy() for n, w in trainer.weights.items()}
    message = (
        r"step 1 \(epoch 1, batch 0\): the loss is nan.*log of node 'broken' makes the first NaN"
    )
    with pytest.raises(ModelError, match=message):
        trainer.fit([(X, Y)])
    assert trainer.steps == 0
    for name, w in trainer.weights.items():
        np.testing.assert_array_equal(w, before[name])


def _deep() -> Graph:
    """Four layers of 32 units."""
    rng = np.random.default_rng(0)
    b = Builder()
    y = b.input("x", TensorType(f32, (128, 32)))
    for layer in range(4):
        w = (rng.standard_normal((32, 32)) / 5).astype(np.float32)
        y = b.add(Tanh(), b.add(MatMul(), y, b.constant(w, f"w{layer}")))
    return b.finish([y], ["y"])


def test_a_memory_limit_computes_values_again_and_changes_no_bit() -> None:
    x, y = np.random.default_rng(0).random((2, 128, 32), np.float32)
    weights = []
    for limit in (None, 100_000):  # of about 120 KB
        trainer = ts.Trainer(_deep(), loss="mse", optimizer=SGD(0.1), memory_limit=limit, threads=1)
        trainer.fit([(x, y)], epochs=3)
        weights.append(trainer.weights)
    for name, w in weights[0].items():
        np.testing.assert_array_equal(weights[1][name], w)
    with pytest.raises(ModelError, match="memory_limit: expected at most 64 bytes"):
        ts.Trainer(_deep(), loss="mse", memory_limit=64).fit([(x, y)])
