"""Each training step draws other random numbers: equal for any threads, and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.ops.random import RandomUniform
from tilesmith.training import SGD

X, Y = samples(32)
RATE, STEPS = 0.25, 6


def _with_dropout() -> onnx.ModelProto:
    """The classifier with dropout between its layers, in training mode."""
    model = classifier()
    model.graph.initializer.append(numpy_helper.from_array(np.float32(RATE), "rate"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "mode"))
    model.graph.node[2].input[0] = "dropped"
    model.graph.node.insert(2, helper.make_node("Dropout", ["r", "rate", "mode"], ["dropped"]))
    return model


def _losses(model: Any, threads: int = 1, **source: Any) -> list[float]:
    trainer = ts.Trainer(model, optimizer=SGD(0.1), threads=threads, **source)
    history = trainer.fit([(X, Y)], epochs=STEPS)
    return [e.measures["loss"] for e in history]


def _mask(step: int) -> np.ndarray:
    """The elements that the first dropout of a model keeps, times 1 / (1 - rate)."""
    numbers = RandomUniform((32, 16), (1, 1)).reference(np.array(step, np.uint32))
    return (numbers >= np.float32(RATE)).astype(np.float32) / np.float32(1 - RATE)


def test_dropout_agrees_with_pytorch_for_equal_masks() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)
    module = nn.Sequential(first, nn.ReLU(), nn.Dropout(RATE), last).train()
    found = _losses(module, example_inputs=(torch.tensor(X),))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step, loss in enumerate(found):
        hidden = first(torch.tensor(X)).relu() * torch.tensor(_mask(step))
        wanted = nn.functional.cross_entropy(last(hidden), torch.tensor(Y))
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert not np.array_equal(_mask(0), _mask(1))


def test_dropout_of_onnx_files_and_of_modules_draws_alike_on_any_number_of_threads() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    source = _with_dropout()
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(RATE), nn.Linear(16, 4)).train()
    weights = [numpy_helper.to_array(t) for t in source.graph.initializer[:4]]
    with torch.no_grad():
        for parameter, w in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor(w))
    one = _losses(source)
    assert one == _losses(source, threads=2)
    assert one == pytest.approx(_losses(module, example_inputs=(torch.tensor(X),)), rel=1e-5)


def test_a_resumed_training_with_dropout_has_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    whole = ts.Trainer(_with_dropout(), optimizer=SGD(0.1))
    whole.fit([(X, Y)], epochs=3, checkpoint=path)
    whole.fit([(X, Y)], epochs=STEPS)
    resumed = ts.Trainer(_with_dropout(), optimizer=SGD(0.1))
    resumed.restore(path)
    resumed.fit([(X, Y)], epochs=STEPS)
    for name, w in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], w)


def test_evaluation_of_a_module_in_training_mode_drops_nothing() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5)).train()
    trainer = ts.Trainer(module, example_inputs=(torch.tensor(X),))
    scores = module.eval()(torch.tensor(X))
    wanted = torch.nn.functional.cross_entropy(scores, torch.tensor(Y)).item()
    assert trainer.evaluate([(X, Y)])["loss"] == pytest.approx(wanted, rel=1e-5)


def test_evaluation_of_an_onnx_file_in_training_mode_drops_nothing() -> None:
    trainer = ts.Trainer(_with_dropout(), optimizer=SGD(0.1))
    plain = ts.Trainer(classifier(), optimizer=SGD(0.1))
    assert trainer.evaluate([(X, Y)]) == plain.evaluate([(X, Y)])
    trainer.fit([(X, Y)])
    for name, w in plain.weights.items():
        w[...] = trainer.weights[name]
    assert trainer.evaluate([(X, Y)]) == plain.evaluate([(X, Y)])
    np.testing.assert_array_equal(ts.compile(trainer.model())(X), ts.compile(plain.model())(X))


@pytest.mark.parametrize("kind", ["lstm", "gru", "attention", "channels", "noise"])
def test_every_random_operator_of_modules_trains(kind: str) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)
            cell = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind)
            self.cell = None if cell is None else cell(8, 8, 2, dropout=0.5)
            self.channels = nn.Dropout1d(0.5)

        def forward(self, x: Any) -> Any:
            if self.cell is not None:
                x = self.cell(x[None])[0][0]
            if kind == "attention":
                x = nn.functional.scaled_dot_product_attention(
                    x, x, x, dropout_p=0.5 if self.training else 0.0
                )
            if kind == "channels":
                x = self.channels(x[:, :, None])[:, :, 0]
            if kind == "noise" and self.training:
                x = x + torch.randn_like(x) + torch.rand_like(x) + torch.bernoulli(x.sigmoid())
            return self.layer(x)

    module = Module().train()
    trainer = ts.Trainer(module, optimizer=SGD(0.0), example_inputs=(torch.tensor(X),))
    losses = [e.measures["loss"] for e in trainer.fit([(X, Y)], epochs=3)]
    assert len({*losses}) == 3, "each step draws other numbers"
    assert trainer.evaluate([(X, Y)]) == trainer.evaluate([(X, Y)])


@pytest.mark.parametrize("kind", ["Loop", "If"])
def test_random_numbers_in_branches_and_loops_are_refused(kind: str) -> None:
    body = {
        "Loop": "r = Loop (many, , x) <body = g (int64 i, bool c, float[N, 8] a) => "
        "(bool d, float[N, 8] b) {d = Identity (c) u = RandomUniformLike (a) b = Add (a, u)}>",
        "If": "s = ReduceSum <keepdims = 0> (x) c = Greater (s, zero) r = If (c) "
        "<then_branch = g () => (float[N, 8] b) {b = RandomUniformLike (x)}, "
        "else_branch = g () => (float[N, 8] b) {b = Identity (x)}>",
    }[kind]
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 4] y) '
        f"<int64 many = {{1000}}, float zero = {{0}}> {{ {body} y = MatMul (r, w) }}"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    trainer = ts.Trainer(model, optimizer=SGD(0.1))
    with pytest.raises(ts.UnsupportedError, match=r"random_uniform.*outside of branches and loops"):
        trainer.fit([(X, Y)])
    assert trainer.steps == 0
