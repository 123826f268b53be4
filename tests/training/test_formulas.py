"""Losses, optimisers and schedules have PyTorch's definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.differentiate import differentiate
from tilesmith.ir.dtypes import f64
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import UsageError
from tilesmith.training.losses import (
    CTC,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    KullbackLeibler,
    Loss,
    MeanSquared,
    Triplet,
)
from tilesmith.training.optimizers import (
    LAMB,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    clipped,
)
from tilesmith.training.schedules import Cosine, Schedule, StepDecay, WarmUp

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((6, 5, 3)).astype(np.float32) * 3
CLASSES = RNG.integers(0, 5, (6, 3))
SOME = np.where(RNG.random((6, 3)) < 0.3, -100, CLASSES)
SHARES = RNG.random((6, 5, 3)).astype(np.float32) * (RNG.random((6, 5, 3)) < 0.7)
LOGS = F.log_softmax(torch.tensor(SCORES), 1).numpy()

WORDS = np.array(
    [[0, 2, 2, 3], [4, 0, -1, -1], [3, 3, -1, -1], [2, 3, 4, 0], [0, 0, 0, -1], [-1] * 4]
)


def _all_triplets(x: Any, labels: Any) -> Any:
    """PyTorch's loss of all triplets of a batch."""
    numbers = range(len(labels))
    a, p, n = zip(
        *(
            (a, p, n)
            for a in numbers
            for p in numbers
            for n in numbers
            if a != p and labels[a] == labels[p] != labels[n]
        ),
        strict=True,
    )
    return F.triplet_margin_loss(x[list(a)], x[list(p)], x[list(n)], margin=0.5)


def _ctc(x: Any, labels: Any) -> Any:
    lengths = (labels >= 0).sum(1)
    steps = torch.full((len(x),), x.shape[1])
    logs = x.log_softmax(2).transpose(0, 1)
    return F.ctc_loss(logs, labels.clamp(min=0), steps, lengths, blank=1)


@pytest.mark.parametrize(
    ("loss", "x", "labels", "of_torch"),
    [
        (CrossEntropy(), SCORES, CLASSES, F.cross_entropy),
        (CrossEntropy(), SCORES, SOME, F.cross_entropy),
        (
            CrossEntropy(label_smoothing=0.2),
            SCORES,
            SOME,
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.2),
        ),
        (BinaryCrossEntropy(), SCORES * 20, SHARES, F.binary_cross_entropy_with_logits),
        (MeanSquared(), SCORES, SHARES, F.mse_loss),
        (Huber(delta=0.7), SCORES, SHARES, lambda x, y: F.huber_loss(x, y, delta=0.7)),
        (KullbackLeibler(), LOGS, SHARES, lambda x, y: F.kl_div(x, y, reduction="batchmean")),
        (Triplet(margin=0.5), SCORES[:, :, 0], np.array([0, 0, 1, 1, 2, 0]), _all_triplets),
        (CTC(blank=1), np.tile(SCORES.transpose(0, 2, 1), (1, 3, 1)), WORDS, _ctc),
    ],
    ids=["classes", "ignored", "smooth", "bce", "mse", "huber", "kl", "triplet", "ctc"],
)
def test_losses_and_their_gradients(
    loss: Loss, x: np.ndarray, labels: np.ndarray, of_torch: Callable[..., Any]
) -> None:
    b = Builder()
    scores = b.input("x", array_type(x))
    given = b.input("labels", loss.labels(scores.type, labels.shape))
    graph = b.finish(loss.value(scores, given), ["loss"])
    both = differentiate(graph, [0], [graph.inputs[0]])
    value, gradient = evaluate(both, [x, labels]).values()
    leaf = torch.tensor(x, requires_grad=True)
    expected = of_torch(leaf, torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-4, atol=1e-6)


def _step(optimizer: Optimizer, like: np.ndarray) -> Graph:
    """The graph of one update: weight, gradient, number of the step, moments."""
    b = Builder()
    w, g = (b.input(name, array_type(like)) for name in "wg")
    count = b.input("count", TensorType(f64, ()))
    moments = tuple(b.input(name, array_type(like)) for name in optimizer.moments)
    assert isinstance(optimizer.rate, float)
    rate = count * 0.0 + optimizer.rate
    new, kept = optimizer.update(w, g, moments, rate, count)
    return b.finish([new, *kept], [f"o{i}" for i in range(1 + len(kept))])


def _updates(optimizer: Optimizer, w: np.ndarray, gradients: Sequence[np.ndarray]) -> np.ndarray:
    graph, moments = _step(optimizer, w), [np.zeros_like(w) for _ in optimizer.moments]
    for i, g in enumerate(gradients):
        w, *moments = evaluate(graph, [w, g, np.array(i + 1.0), *moments]).values()
    return w


OPTIM = torch.optim


@pytest.mark.parametrize(
    ("optimizer", "of_torch"),
    [
        (SGD(0.1), lambda w: OPTIM.SGD(w, 0.1)),
        (SGD(0.1, momentum=0.9, weight_decay=0.1), lambda w: OPTIM.SGD(w, 0.1, 0.9, 0, 0.1)),
        (
            SGD(0.1, momentum=0.9, nesterov=True),
            lambda w: OPTIM.SGD(w, 0.1, momentum=0.9, nesterov=True),
        ),
        (Adam(0.1), lambda w: OPTIM.Adam(w, 0.1)),
        (Adam(0.1, weight_decay=0.1), lambda w: OPTIM.Adam(w, 0.1, weight_decay=0.1)),
        (AdamW(0.1, weight_decay=0.1), lambda w: OPTIM.AdamW(w, 0.1, weight_decay=0.1)),
        (Adagrad(0.1, rate_decay=0.1), lambda w: OPTIM.Adagrad(w, 0.1, lr_decay=0.1)),
        (RMSprop(0.1, weight_decay=0.1), lambda w: OPTIM.RMSprop(w, 0.1, weight_decay=0.1)),
        (
            RMSprop(0.1, momentum=0.9, centered=True),
            lambda w: OPTIM.RMSprop(w, 0.1, momentum=0.9, centered=True),
        ),
    ],
    ids=lambda v: "" if callable(v) and not isinstance(v, Optimizer) else str(v)[:40],
)
def test_optimisers(optimizer: Optimizer, of_torch: Callable[..., Any]) -> None:
    gradients = [RNG.standard_normal((4, 3)).astype(np.float32) for _ in range(20)]
    first = RNG.standard_normal((4, 3)).astype(np.float32)
    leaf = torch.tensor(first.copy(), requires_grad=True)
    reference = of_torch([leaf])
    for g in gradients:
        leaf.grad = torch.tensor(g)
        reference.step()
    found = _updates(optimizer, first, gradients)
    np.testing.assert_allclose(found, leaf.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_lamb_scales_adams_step_to_the_norm_of_the_weight() -> None:
    w, g = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    found = _updates(LAMB(0.1, weight_decay=0.2), w, [g])
    step = g / (np.abs(g) + 1e-6) + 0.2 * w  # the first step of Adam is the gradient's sign
    expected = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(step) * step
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    zero = np.zeros_like(w)
    step = g / (np.abs(g) + 1e-6)
    np.testing.assert_allclose(_updates(LAMB(0.1), zero, [g]), -0.1 * step, rtol=1e-4)


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_gradients_are_scaled_to_a_common_norm(limit: float) -> None:
    arrays = [RNG.standard_normal(n).astype(np.float32) for n in (5, 7)]
    b = Builder()
    values = [b.input(f"g{i}", array_type(a)) for i, a in enumerate(arrays)]
    found = evaluate(b.finish(clipped(values, limit), ["a", "b"]), arrays).values()
    leaves = [torch.zeros(n, requires_grad=True) for n in (5, 7)]
    for leaf, a in zip(leaves, arrays, strict=True):
        leaf.grad = torch.tensor(a)
    torch.nn.utils.clip_grad_norm_(leaves, limit)
    for a, leaf in zip(found, leaves, strict=True):
        np.testing.assert_allclose(a, leaf.grad.numpy(), rtol=1e-5)


RATES = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("schedule", "of_torch"),
    [
        (StepDecay(0.4, 3, 0.5), lambda o: RATES.StepLR(o, 3, 0.5)),
        (Cosine(0.4, 12, 0.1), lambda o: RATES.CosineAnnealingLR(o, 12, 0.1)),
        (
            WarmUp(4, Cosine(0.4, 8), start=0.25),
            lambda o: RATES.SequentialLR(
                o, [RATES.LinearLR(o, 0.25, 1.0, 4), RATES.CosineAnnealingLR(o, 8)], [4]
            ),
        ),
        (WarmUp(4, 0.4, start=0.25), lambda o: RATES.LinearLR(o, 0.25, 1.0, 4)),
    ],
    ids=["step", "cosine", "warm-up-cosine", "warm-up"],
)
def test_schedules(schedule: Schedule, of_torch: Callable[..., Any]) -> None:
    b = Builder()
    graph = b.finish(schedule.at(b.input("step", TensorType(f64, ()))))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.4)
    reference = of_torch(optimizer)
    for step in range(13):
        (rate,) = evaluate(graph, [np.array(float(step))]).values()
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6, abs=1e-12)
        optimizer.step()
        reference.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-1.0), "rate: expected a number of at least 0"),
        (lambda: SGD(0.1, nesterov=True), "nesterov: expected a momentum above 0"),
        (lambda: Adam(beta1=1.0), "beta1: expected a number below 1"),
        (lambda: Cosine(0.1, 0), "steps: expected at least 1 step"),
        (lambda: WarmUp(2, float("nan")), "rate: expected a number of at least 0, found nan"),
        (lambda: CrossEntropy(label_smoothing=1.5), "label_smoothing: expected 0 to 1"),
        (lambda: Huber(delta=0.0), "delta: expected a number above 0"),
    ],
)
def test_impossible_numbers_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
