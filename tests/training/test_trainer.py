"""`ts.Trainer` trains models, refuses what does not fit, and gives them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.training import SGD, Batches, CrossEntropy, EarlyStopping, Epoch

X, Y = samples()
BATCHES = Batches([X, Y], size=32)
FAST = SGD(0.1, momentum=0.9)


def _answers(path: Path, x: np.ndarray) -> np.ndarray:
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert isinstance(found, np.ndarray)
    return found


def test_a_trained_onnx_model_runs_in_onnx_runtime_with_its_own_names(tmp_path: Path) -> None:
    source, path = classifier(), tmp_path / "trained.onnx"
    trainer = ts.Trainer(source, optimizer=FAST, metrics=["accuracy"])
    before = trainer.evaluate([(X, Y)])
    history = trainer.fit(BATCHES, epochs=10)
    after = trainer.evaluate([(X, Y)])
    assert before["accuracy"] < 0.6 and after["accuracy"] > 0.9
    losses = [epoch.measures["loss"] for epoch in history]
    assert losses[-1] < losses[0] / 3 and history[-1].steps == 80
    trainer.save_onnx(path)
    expected = ts.compile(trainer.model())(X[:5])
    np.testing.assert_allclose(_answers(path, X[:5]), expected, rtol=1e-5, atol=1e-5)
    assert np.mean(_answers(path, X).argmax(1) == Y) == after["accuracy"]
    kept = onnx.load(path)
    for tensor in kept.graph.initializer:
        tensor.CopyFrom(next(t for t in source.graph.initializer if t.name == tensor.name))
    assert kept == source, "only the weights differ"


def test_a_trained_graph_is_written_with_its_open_batch(tmp_path: Path) -> None:
    path = tmp_path / "trained.onnx"
    trainer = ts.Trainer(load(classifier()), optimizer=FAST)
    trainer.fit(BATCHES)
    trainer.save_onnx(path)
    exe = ts.compile(trainer.model())
    for rows in (1, 7):
        np.testing.assert_allclose(_answers(path, X[:rows]), exe(X[:rows]), rtol=1e-5, atol=1e-5)


def test_batches_that_end_in_an_error_are_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").touch()
    with (tmp_path / "closed").open() as file:
        pass
    trainer = ts.Trainer(classifier(), optimizer=FAST)
    with pytest.raises(UsageError, match=r"expected batches, found .*closed file"):
        trainer.evaluate(file)


def test_only_the_weights_that_a_pattern_names_are_trained(tmp_path: Path) -> None:
    source = classifier()
    trainer = ts.Trainer(source, optimizer=FAST, trainable="head.*")
    trainer.fit(BATCHES)
    assert [*trainer.weights] == ["head.weight", "head.bias"]
    trainer.save_onnx(tmp_path / "trained.onnx")
    new = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "trained.onnx").graph.initializer
    }
    for tensor in source.graph.initializer:
        is_old = np.array_equal(new[tensor.name], numpy_helper.to_array(tensor))
        assert is_old == tensor.name.startswith("body")


def test_a_smaller_last_batch_is_a_batch() -> None:
    trainer = ts.Trainer(classifier(), optimizer=FAST)
    history = trainer.fit(Batches([X[:40], Y[:40]], size=32, seed=None, drop_last=False))
    assert history[0].steps == 2
    sizes = trainer.evaluate([(X[:32], Y[:32])]), trainer.evaluate([(X[32:40], Y[32:40])])
    whole = trainer.evaluate([(X[:32], Y[:32]), (X[32:40], Y[32:40])])
    weighted = (32 * sizes[0]["loss"] + 8 * sizes[1]["loss"]) / 40
    assert whole["loss"] == pytest.approx(weighted, rel=1e-6)


def test_training_resumes_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    whole = ts.Trainer(classifier(), optimizer="adamw")
    expected = whole.fit(BATCHES, epochs=3)

    class Stop(Exception):
        pass

    def stop(trainer: Any, epoch: Epoch) -> None:
        raise Stop

    first = ts.Trainer(classifier(), optimizer="adamw")
    with pytest.raises(Stop):
        first.fit(BATCHES, epochs=3, callbacks=[stop], checkpoint=path)
    assert first.steps == 8
    second = ts.Trainer(classifier(), optimizer="adamw")
    second.restore(path)
    found = second.fit(BATCHES, epochs=3)
    assert second.steps == whole.steps == 24
    for name, weight in whole.weights.items():
        np.testing.assert_array_equal(second.weights[name], weight)
    assert [e.measures for e in found] == [e.measures for e in expected[1:]]


def test_training_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    whole, first, second = (ts.Trainer(classifier(), optimizer=FAST) for _ in range(3))
    expected = whole.fit(BATCHES)
    broken = [*BATCHES]
    broken[5] = (X[:32] * np.nan, Y[:32])
    with pytest.raises(
        ModelError, match=r"step 6 \(epoch 1, batch 5\): the loss is nan.*input 'x' has a NaN"
    ):
        first.fit(broken, checkpoint=path, every=1)
    second.restore(path)
    assert second.steps == 5
    assert second.fit(BATCHES)[0].measures == expected[0].measures
    np.testing.assert_array_equal(second.weights["head.bias"], whole.weights["head.bias"])


def test_threads_do_not_change_a_bit() -> None:
    one, two = (ts.Trainer(classifier(), optimizer="adamw", threads=n) for n in (1, 2))
    assert one.fit(BATCHES)[0].measures == two.fit(BATCHES)[0].measures
    for name, weight in one.weights.items():
        np.testing.assert_array_equal(two.weights[name], weight)


def test_early_stopping_ends_the_training() -> None:
    trainer = ts.Trainer(classifier(), optimizer=SGD(0.0), metrics=["accuracy"])
    stop = EarlyStopping("accuracy", patience=2)
    history = trainer.fit(BATCHES, epochs=10, validation=[(X, Y)], callbacks=[stop])
    assert len(history) == 3
    assert {*history[0].validation} == {"loss", "accuracy"}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((X[:32], Y[:32] + 4), "batch 1: expected labels from 0 to 3, or -100 .*, found "),
        ((X[:32], Y[:32].astype(np.int32)), r"batch 1: labels: expected i64\[32\], found int32"),
        ((X[:32], Y[:31]), r"batch 1: labels: expected i64\[32\], found int64\[31\]"),
        ((X[:32, :7], Y[:32]), r"batch 1: x: expected f32\[32,8\], found float32\[32, 7\]"),
        ((X[:32].astype(float), Y[:32]), r"batch 1: x: expected f32\[32,8\], found float64"),
        ((X[:32],), "batch 1: expected 2 arrays, for x, labels, found 1 arrays"),
        ({"x": X[:32], "y": Y[:32]}, "batch 1: expected arrays named x, labels"),
        ("text", "batch 1: expected 2 arrays"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_before_the_first_step(
    batch: Any, message: str
) -> None:
    trainer = ts.Trainer(classifier())
    with pytest.raises(ModelError, match=message):
        trainer.fit([(X[:32], Y[:32]), batch])
    assert trainer.steps == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "hinge"}, "loss: expected one of cross_entropy, .*, found 'hinge'"),
        ({"optimizer": "adamx"}, "optimizer: expected one of sgd, .*, found 'adamx'"),
        ({"trainable": "haed.*"}, r"found 'haed\.\*'; the weights are body.weight"),
        ({"trainable": ()}, "expected at least one name or pattern"),
        ({"metrics": ["recall"]}, "metrics: expected accuracy, found 'recall'"),
        ({"clip_norm": 0.0}, "clip_norm: expected a number above 0"),
        ({"output": "z"}, "output: expected one of y, found 'z'"),
        ({"precision": "auto"}, "precision: expected one of f32, bf16 to train, found 'auto'"),
        ({"pins": {"unroll": 1}}, "pins: training does not read it; leave it out"),
        ({"accumulate": 0}, "accumulate: expected 1 or more batches, found 0"),
        ({"lora": {"*.bias": 1}}, r"lora: '\*\.bias': expected weights with two or more axes"),
        ({"lora": {"head.weight": 5}}, "lora: 'head.weight': expected a rank from 1 to 4, found 5"),
    ],
)
def test_a_wrong_choice_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ts.Trainer(classifier(), **arguments)


@pytest.mark.parametrize("name", ["loss", "accuracy", "labels", "new_loss"])
def test_an_input_may_have_the_name_of_a_result_of_training(name: str) -> None:
    source = classifier()
    source.graph.input[0].name = source.graph.node[0].input[0] = name
    trainers = [ts.Trainer(m, optimizer=FAST, metrics=["accuracy"]) for m in (classifier(), source)]
    plain, renamed = ([e.measures for e in t.fit(BATCHES, epochs=2)] for t in trainers)
    assert renamed == plain
    labels = "_labels" if name == "labels" else "labels"
    wanted = trainers[0].evaluate([(X, Y)])
    assert trainers[1].evaluate([{name: X, labels: Y}]) == wanted


def test_a_model_with_the_name_of_a_state_is_refused() -> None:
    source = classifier()
    source.graph.input[0].name = source.graph.node[0].input[0] = "train.step"
    with pytest.raises(ModelError, match=r"found 'train\.step': rename them in the model"):
        ts.Trainer(source)


def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    ts.Trainer(classifier(), optimizer="adamw").save(path)
    with pytest.raises(ModelError, match=r"not a checkpoint of this training.*train\.mean"):
        ts.Trainer(classifier(), optimizer="sgd").restore(path)


def test_ignored_labels_do_not_count() -> None:
    trainer = ts.Trainer(classifier(), loss=CrossEntropy(ignored=9), metrics=["accuracy"])
    labels = np.where(np.arange(32) < 20, Y[:32], 9)
    found = trainer.evaluate([(X[:32], labels)])
    assert found == pytest.approx(trainer.evaluate([(X[:20], Y[:20])]), rel=1e-6)
