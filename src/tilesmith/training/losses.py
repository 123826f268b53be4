"""Losses: formulas of a model's predictions and of labels, each with PyTorch's definition.

A loss is a mean: over the labels that count for cross entropy, over the batch for the
Kullback-Leibler divergence and for CTC, over triplets for the triplet loss, over all elements
otherwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.functions import apply, exp, log, log1p, maximum, sqrt, where
from tilesmith.ops.gather import GatherElements
from tilesmith.ops.norm import LogSoftmax
from tilesmith.ops.reduce import ArgMax
from tilesmith.ops.sizes import Iota
from tilesmith.ops.slicing import Concat, Slice
from tilesmith.support.arguments import check_fields
from tilesmith.support.errors import ModelError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(ABC):
    """Base of the losses."""

    def __post_init__(self) -> None:
        check_fields(self, UsageError)

    def labels(self, predictions: TensorType, given: tuple[int, ...]) -> TensorType:
        """The type of the labels for predictions of a type: the predictions' own.

        given: the shape of a batch's labels, for losses that take several.

        Raises ModelError for predictions without such a loss.
        """
        return predictions

    @abstractmethod
    def value(self, predictions: Any, labels: Any) -> Any:
        """The loss, a scalar."""

    def check(self, predictions: TensorType, labels: np.ndarray, where: str) -> None:  # noqa: B027
        """Raises ModelError for contents of `labels` that the loss does not take.

        where: the batch, for the message.
        """

    def accuracy(self, predictions: Any, labels: Any) -> Any:
        """The fraction of right predictions, a scalar.

        Raises UsageError for a loss without classes.
        """
        raise UsageError(
            f"metric 'accuracy': expected a loss with classes ({', '.join(_CLASSIFYING)}), found "
            f"{type(self).__name__}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Loss):
    """-log softmax(predictions)[label], averaged over the labels that are not ignored.

    Predictions are [N, C, ...], labels are classes, i64[N, ...].

    label_smoothing: from 0 to 1, the share of the target that all C classes have alike.
    ignored: the label of elements that do not count.
    """

    label_smoothing: float = 0.0
    ignored: int = -100

    def __post_init__(self) -> None:
        Loss.__post_init__(self)
        if not 0 <= self.label_smoothing <= 1:
            raise UsageError(f"label_smoothing: expected 0 to 1, found {self.label_smoothing}")
        if not -(1 << 63) <= self.ignored < 1 << 63:
            raise UsageError(f"ignored: expected an integer of 64 bits, found {self.ignored}")

    def labels(self, predictions: TensorType, given: tuple[int, ...]) -> TensorType:
        if predictions.rank < 2:
            raise ModelError(f"cross entropy: expected scores [N, C, ...], found {predictions}")
        return TensorType(i64, (predictions.shape[0], *predictions.shape[2:]))

    def value(self, predictions: Any, labels: Any) -> Any:
        logs = apply(LogSoftmax(1), predictions)
        classes = logs.type.shape[1]
        hit = _hits(logs, labels)
        terms = where(hit, logs, 0.0) * (1 - self.label_smoothing)
        if self.label_smoothing:
            terms = terms + logs * (self.label_smoothing / _number(classes))
        kept = labels.differs(self.ignored)
        losses = where(kept, -terms.sum((1,)), 0.0)
        return losses.sum() / kept.cast(logs.dtype).sum()

    def check(self, predictions: TensorType, labels: np.ndarray, where: str) -> None:
        classes = _number(predictions.shape[1])
        wrong = (labels != self.ignored) & ((labels < 0) | (labels >= classes))
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ModelError(
                f"{where}: expected labels from 0 to {classes - 1}, or {self.ignored} for an "
                f"element that does not count, found {labels[place]} at {list(place)}"
            )

    def accuracy(self, predictions: Any, labels: Any) -> Any:
        kept = labels.differs(self.ignored).cast(predictions.dtype)
        found = apply(ArgMax(1, keepdims=False), predictions).cast(labels.dtype)
        return (found.equals(labels).cast(kept.dtype) * kept).sum() / kept.sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryCrossEntropy(Loss):
    """The cross entropy of sigmoid(predictions) and labels from 0 to 1, averaged over all elements:
    max(x, 0) - x * label + log(1 + exp(-|x|)).
    """

    def value(self, predictions: Any, labels: Any) -> Any:
        x = predictions
        return (maximum(x, 0.0) - x * labels + log1p(exp(-abs(x)))).mean()

    def check(self, predictions: TensorType, labels: np.ndarray, where: str) -> None:
        if not ((labels >= 0) & (labels <= 1)).all():
            raise ModelError(
                f"{where}: expected labels from 0 to 1, found {labels.min()} to {labels.max()}"
            )

    def accuracy(self, predictions: Any, labels: Any) -> Any:
        right = (predictions > 0.0).cast(labels.dtype).equals((labels > 0.5).cast(labels.dtype))
        return right.cast(predictions.dtype).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSquared(Loss):
    """The mean of (predictions - labels)^2."""

    def value(self, predictions: Any, labels: Any) -> Any:
        error = predictions - labels
        return (error * error).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class Huber(Loss):
    """The mean of e^2 / 2 where e = |predictions - labels| is at most `delta`, else of
    delta * (e - delta / 2).
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        Loss.__post_init__(self)
        if not (math.isfinite(self.delta) and self.delta > 0):
            raise UsageError(f"delta: expected a number above 0, found {self.delta}")

    def value(self, predictions: Any, labels: Any) -> Any:
        error = abs(predictions - labels)
        is_small = error <= self.delta
        return where(is_small, error * error * 0.5, (error - 0.5 * self.delta) * self.delta).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class KullbackLeibler(Loss):
    """The sum of label * (log(label) - prediction) over all elements, divided by the batch size.

    Predictions are logarithms of probabilities [N, ...], labels are probabilities; a label of 0
    counts for nothing.  It is `reduction="batchmean"` of PyTorch.
    """

    def labels(self, predictions: TensorType, given: tuple[int, ...]) -> TensorType:
        if predictions.rank < 1:
            raise ModelError(f"kl: expected logarithms [N, ...], found {predictions}")
        return predictions

    def value(self, predictions: Any, labels: Any) -> Any:
        counts = labels > 0.0
        own = where(counts, labels * log(where(counts, labels, 1.0)), 0.0)
        return (own - labels * predictions).sum() / _number(predictions.type.shape[0])

    def check(self, predictions: TensorType, labels: np.ndarray, where: str) -> None:
        if not (labels >= 0).all():
            raise ModelError(f"{where}: expected probabilities, found {labels.min()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Triplet(Loss):
    """The mean of max(|a - p| - |a - n| + margin, 0) over the triplets of a batch whose a and p are
    two samples of one class and whose n is a sample of another (Schroff and others, "FaceNet",
    2015).

    Predictions are embeddings [N, D], labels are classes, i64[N].  Each term is that of
    `torch.nn.functional.triplet_margin_loss`.  A batch without triplets has the loss 0.
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        Loss.__post_init__(self)
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UsageError(f"margin: expected a number of at least 0, found {self.margin}")

    def labels(self, predictions: TensorType, given: tuple[int, ...]) -> TensorType:
        if predictions.rank != 2:
            raise ModelError(f"triplet: expected embeddings [N, D], found {predictions}")
        return TensorType(i64, predictions.shape[:1])

    def value(self, predictions: Any, labels: Any) -> Any:
        x, (count, width) = predictions, predictions.type.shape
        steps = x.reshape(count, 1, width) - x.reshape(1, count, width) + _APART
        apart = sqrt((steps * steps).sum((2,)))
        same = labels.reshape(count, 1).equals(labels.reshape(1, count)).cast(x.dtype)
        eye = np.eye(_number(count))
        triples = (same * (1 - eye)).reshape(count, count, 1) * (1 - same).reshape(count, 1, count)
        terms = apart.reshape(count, count, 1) - apart.reshape(count, 1, count) + self.margin
        return (maximum(terms, 0.0) * triples).sum() / maximum(triples.sum(), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CTC(Loss):
    """Connectionist temporal classification (Graves and others, 2006): -log of the probability
    that a sequence of classes becomes the label when repetitions, then blanks are left out.  Each
    is divided by the label's length; their mean is taken, as in PyTorch.

    Predictions are scores [N, T, C], of which the log softmax is taken.  Labels are classes
    i64[N, S]; -1 stands for none after the end of a shorter label.

    blank: the class that stands for no class.
    """

    blank: int = 0

    def labels(self, predictions: TensorType, given: tuple[int, ...]) -> TensorType:
        if predictions.rank != 3:
            raise ModelError(f"ctc: expected scores [N, T, C], found {predictions}")
        longest = max(given[1], 1) if len(given) == 2 else 1
        return TensorType(i64, (predictions.shape[0], longest))

    def value(self, predictions: Any, labels: Any) -> Any:
        logs = apply(LogSoftmax(2), predictions)
        count, steps, _ = map(_number, logs.type.shape)
        longest = _number(labels.type.shape[1])
        width = 2 * longest + 1
        classes = where(labels >= 0, labels, self.blank)
        pairs = (v.reshape(count, longest, 1) for v in (classes * 0 + self.blank, classes))
        pairs = apply(Concat(2), *pairs).reshape(count, 2 * longest)
        states = apply(Concat(1), pairs, np.full((count, 1), self.blank))
        # A class may follow the class before without a blank between them, if they differ.
        is_skip = states.differs(self.blank) & states.differs(_delayed(states, 2, self.blank))
        by_state = states.reshape(count, 1, width).expand(count, steps, width)
        scores = apply(GatherElements(2), logs, by_state)
        start = np.where(np.arange(width) < 2, 0.0, _NEVER)
        total = _part(scores, 1, 0).reshape(count, width) + start
        for step in range(1, steps):
            skip = where(is_skip, _delayed(total, 2, _NEVER), _NEVER)
            total = _log_sum(total, _delayed(total, 1, _NEVER), skip)
            total = total + _part(scores, 1, step).reshape(count, width)
        length = (labels >= 0).cast(i64).sum((1,), keepdims=True)
        blank = apply(GatherElements(1), total, length * 2)
        last = apply(GatherElements(1), total, maximum(length * 2 - 1, 0))
        found = _log_sum(blank, where(length > 0, last, _NEVER))
        return -(found / maximum(length, 1).cast(found.dtype)).mean()

    def check(self, predictions: TensorType, labels: np.ndarray, where: str) -> None:
        _, steps, classes = map(_number, predictions.shape)
        if not 0 <= self.blank < classes:
            raise ModelError(f"ctc: expected a blank from 0 to {classes - 1}, found {self.blank}")
        for number, row in enumerate(labels):
            label = row[: int((row >= 0).sum())]
            if (
                not ((label >= 0) & (label < classes) & (label != self.blank)).all()
                or (row[len(label) :] != -1).any()
            ):
                raise ModelError(
                    f"{where}: sample {number}: expected classes from 0 to {classes - 1} without "
                    f"the blank {self.blank}, then -1 for none, found {row.tolist()}"
                )
            needed = len(label) + int((label[1:] == label[:-1]).sum())
            if needed > steps:
                raise ModelError(
                    f"{where}: sample {number}: expected a label that fits {steps} steps, found "
                    f"one that needs {needed}"
                )


LOSSES: Mapping[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "bce": BinaryCrossEntropy,
    "mse": MeanSquared,
    "huber": Huber,
    "kl": KullbackLeibler,
    "triplet": Triplet,
    "ctc": CTC,
}
"""The losses by name."""
_CLASSIFYING = ("cross_entropy", "bce")
_APART = 1e-6
"""PyTorch adds this to differences whose norm it takes, so that the norm has a gradient."""
_NEVER = -1e30
"""The logarithm of a probability of almost 0."""


def _hits(logs: Value, labels: Any) -> Any:
    """Whether a class is the label: bools of the shape of `logs` [N, C, ...]."""
    shape = logs.type.shape
    assert logs.builder is not None
    classes = logs.builder.add(Iota(shape[1])).reshape(shape[1], *[1] * (len(shape) - 2))
    return labels.reshape(shape[0], 1, *shape[2:]).equals(classes)


def _part(x: Any, axis: int, at: int) -> Any:
    return apply(Slice((at,), (at + 1,), (axis,), (1,)), x)


def _delayed(x: Any, by: int, first: float) -> Any:
    """x [N, L], moved to the right by `by` columns; those that come in are `first`."""
    count, width = map(_number, x.type.shape)
    kept = apply(Slice((0,), (width - by,), (1,), (1,)), x)
    return apply(Concat(1), np.full((count, by), first), kept)


def _log_sum(*terms: Any) -> Any:
    """log(exp(a) + exp(b) + ...) without overflow."""
    top = reduce(maximum, terms)
    return log(reduce(add, (exp(t - top) for t in terms))) + top


def _number(extent: Dim) -> int:
    """An extent of a graph whose sizes are known."""
    assert isinstance(extent, int)
    return extent
