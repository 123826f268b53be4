"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.ml import scores as ml
from tilesmith.frontend.onnx.ml.scores import Labels, ml_op
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import activation as act
from tilesmith.ops import matmul as mm
from tilesmith.ops import reduce, shape
from tilesmith.ops.coupling import PairwiseCoupling
from tilesmith.ops.functions import clip, exp, tanh, where


def _numbers(n: OnnxNode, name: str, count: int | None = None) -> np.ndarray:
    """A list of floats, whose length must be `count` if that is given."""
    numbers = np.asarray(n.attr_floats(name) or (), np.float32)
    if count is not None and len(numbers) != count:
        n.bad(f"attribute {name!r}: expected {count} numbers, found {len(numbers)}")
    return numbers


def _rows(n: OnnxNode, name: str, count: int) -> np.ndarray:
    """A list of floats as f32[count, features]."""
    numbers = _numbers(n, name)
    if count < 1 or not len(numbers) or len(numbers) % count:
        n.bad(f"attribute {name!r}: expected {count} rows of numbers, found {len(numbers)}")
    return numbers.reshape(count, -1)


def _scores(n: OnnxNode, count: int) -> Value:
    """`count` linear functions of the features, f32[samples, count]."""
    x, weights = ml.samples(n, n.input(0)), _rows(n, "coefficients", count)
    product = n.add(mm.MatMul(False, True), x, n.const(weights))
    if not n.attr_floats("intercepts"):
        return product
    return product + _numbers(n, "intercepts", count)


@ml_op("LinearRegressor")
def linear_regressor(n: OnnxNode) -> Result:
    return ml.transformed(n, _scores(n, n.attr_int("targets", 1)), ml.post_transform(n))


@ml_op("LinearClassifier")
def linear_classifier(n: OnnxNode) -> Result:
    n.ignore("multi_class")  # only says how the model was trained
    names, transform = ml.labels(n, "classlabels_ints"), ml.post_transform(n)
    count = len(n.attr_floats("intercepts") or ()) or len(names)
    if count not in (1, len(names)):
        n.bad(f"expected 1 or {len(names)} intercepts, found {count}")
    scores = _scores(n, count)
    if count > 1:
        return names.of(n, ml.best(n, scores)), ml.transformed(n, scores, transform)
    above = ml.flat(n, (scores > 0.0).cast(i64))
    if len(names) == 2:
        return names.of(n, above), ml.of_two(n, scores, False, transform)
    return above, ml.transformed(n, scores, transform)


def _kernel(n: OnnxNode, x: Value, vectors: np.ndarray) -> Value:
    """The kernel function of each sample and each row of vectors[v, features], f32[samples, v]."""
    kind = n.attr_string("kernel_type", "LINEAR", ("LINEAR", "POLY", "RBF", "SIGMOID"))
    gamma, offset, degree = _numbers(n, "kernel_params", 3) if n.has("kernel_params") else (0,) * 3
    constant = partial(n.const, dtype=f32)
    # RBF computes x - v, since |x|^2 + |v|^2 - 2xv rounds away distances much smaller than |x|.
    if kind == "RBF":
        rows = n.add(shape.Unsqueeze((2,)), x)
        apart = rows - np.ascontiguousarray(vectors.T)
        distance = n.add(reduce.ReduceSumSquare((1,), False), apart)
        return exp(distance * constant(-gamma))
    product = n.add(mm.MatMul(False, True), x, n.const(vectors))
    if kind == "LINEAR":
        return product
    scaled = product * constant(gamma) + constant(offset)
    return tanh(scaled) if kind == "SIGMOID" else scaled ** constant(degree)


@ml_op("SVMRegressor")
def svm_regressor(n: OnnxNode) -> Result:
    n.ignore("post_transform")  # ONNX Runtime applies no transform here
    x, count = ml.samples(n, n.input(0)), n.attr_int("n_supports", 0)
    if count > 0:
        x = _kernel(n, x, _rows(n, "support_vectors", count))
        weights = _rows(n, "coefficients", 1)
    else:
        n.ignore("kernel_type", "kernel_params", "support_vectors")
        weights = _rows(n, "coefficients", 1)
    y = n.add(mm.MatMul(False, True), x, n.const(weights))
    y = y + _numbers(n, "rho")[:1]
    if not n.attr_flag("one_class"):
        return y
    is_inside = y > 0.0
    return where(is_inside, n.const(1.0, f32), n.const(-1.0, f32))


@ml_op("SVMClassifier")
def svm_classifier(n: OnnxNode) -> Result:
    names, transform = ml.labels(n, "classlabels_ints"), ml.post_transform(n)
    x, per_class = ml.samples(n, n.input(0)), n.attr_ints("vectors_per_class") or ()
    if sum(per_class) == 0:
        return _without_vectors(n, x, names, transform)
    count = len(names)
    if len(per_class) != count or min(per_class) < 0 or count < 2:
        n.bad(f"vectors_per_class: expected {count} numbers from 0, found {list(per_class)}")
    pairs = _Pairs(n, per_class)
    kernel = _kernel(n, x, _rows(n, "support_vectors", sum(per_class)))
    scores = n.add(mm.MatMul(), kernel, n.const(pairs.weights))
    scores = scores + _numbers(n, "rho", len(pairs))
    wins = (scores > 0.0).cast(f32)
    votes = n.add(mm.MatMul(), wins, n.const(pairs.first - pairs.second))
    votes = votes + pairs.second.sum(axis=0)
    label = names.of(n, ml.best(n, votes))
    if n.attr_floats("prob_a"):
        return label, ml.transformed(n, pairs.probabilities(n, scores), transform)
    if count > 2:
        return label, ml.transformed(n, scores, transform)
    return label, ml.of_two(n, scores, transform == "NONE", transform)


def _without_vectors(n: OnnxNode, x: Value, names: Labels, transform: str) -> Result:
    """A linear machine, with one function for each class."""
    n.ignore("kernel_type", "kernel_params", "support_vectors")
    weights = _rows(n, "coefficients", len(names))
    scores = n.add(mm.MatMul(False, True), x, n.const(weights))
    scores = scores + _numbers(n, "rho")[:1]
    place = ml.best(n, scores)
    has_probabilities = n.attr_floats("prob_a") is not None
    n.ignore("prob_b")
    if len(names) == 2 and not has_probabilities:
        top = ml.flat(n, scores.max((-1,), keepdims=True))
        if weights.min() >= 0:
            is_second = top >= 0.5
        else:
            is_second = top > 0.0
        place = where(is_second, 1, place)
    return names.of(n, place), ml.transformed(n, scores, transform)


class _Pairs:
    """The support vector machines of a classifier, one for each pair of classes i < j.

    weights: f32[vectors, pairs], the weights of the support vectors in each machine.
    first: f32[pairs, classes], 1 at class i of each pair.
    second: f32[pairs, classes], 1 at class j of each pair.
    """

    def __init__(self, n: OnnxNode, per_class: tuple[int, ...]) -> None:
        count, ends = len(per_class), np.cumsum(per_class)
        self._pairs = list(combinations(range(count), 2))
        coefficients = _rows(n, "coefficients", count - 1)
        if coefficients.shape[1] != ends[-1]:
            wanted = f"{count - 1} * {ends[-1]} numbers"
            n.bad(f"coefficients: expected {wanted}, found {coefficients.size}")
        of_class = [slice(e - c, e) for e, c in zip(ends, per_class, strict=True)]
        self.weights = np.zeros((ends[-1], len(self)), np.float32)
        for p, (i, j) in enumerate(self._pairs):
            self.weights[of_class[i], p] = coefficients[j - 1, of_class[i]]
            self.weights[of_class[j], p] = coefficients[i, of_class[j]]
        eye = np.eye(count, dtype=np.float32)
        self.first, self.second = (eye[[pair[k] for pair in self._pairs]] for k in (0, 1))

    def __len__(self) -> int:
        return len(self._pairs)

    def probabilities(self, n: OnnxNode, scores: Value) -> Value:
        """The probabilities of classes, f32[samples, classes], coupled from a probability for each
        pair of classes.  This is a sigmoid of the pair's score (J. Platt).
        """
        slope, offset = (n.const(_numbers(n, f"prob_{k}", len(self))) for k in "ab")
        fitted = scores * slope + offset
        one = n.const(1.0, f32)
        of_first = one - n.add(act.Sigmoid(), fitted)
        of_first = clip(of_first, 1e-7, 1 - 1e-7)
        return n.add(PairwiseCoupling(self.first.shape[1]), of_first)
