"""Core ML's models of rows of numbers: linear models, trees, support vectors, preparations.

A row is the last axis of an array; other axes are samples.  A classifier computes the probabilities
of the classes in the order of its labels.  It also gives the best class: its label if labels are
integers, else its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilesmith.frontend.common import comparisons
from tilesmith.frontend.common.comparisons import Nodes
from tilesmith.frontend.common.forests import Forest, Keys, combined
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.protobuf import Message
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, reduce, shape, slicing
from tilesmith.ops import matmul as mm


def _flat(n: NodeContext, x: Value) -> Value:
    return n.reshape(x.cast(f32), (extents.product(x.type.shape),))


def _single(n: NodeContext, xs: Sequence[Value]) -> Value:
    """The only input, with at least one axis."""
    if len(xs) != 1:
        n.bad(f"expected one input, found {len(xs)}")
    return xs[0] if xs[0].type.rank else n.reshape(xs[0], (1,))


def labels_of(p: Message) -> Sequence[str] | Sequence[int]:
    """The labels of a classifier's classes; empty if it has none."""
    if p.stringClassLabels is not None:
        return p.stringClassLabels.vector
    return () if p.int64ClassLabels is None else p.int64ClassLabels.vector.tolist()


def chosen(n: NodeContext, p: Message, probabilities: Value) -> Value:
    """The best class: its label if labels are integers, else its number."""
    place = n.add(reduce.ArgMax(-1, False), probabilities)
    if p.int64ClassLabels is None:
        return place
    return n.add(gather.Gather(0), n.const(p.int64ClassLabels.vector), place)


# Preparations


def scaler(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    x = _single(n, xs).cast(f32)
    x = x + p.shiftValue.astype(np.float32) if p.shiftValue.size else x
    return x * p.scaleValue.astype(np.float32) if p.scaleValue.size else x


def imputer(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    x = _single(n, xs)
    kinds = ("imputedDoubleValue", "imputedInt64Value", "imputedDoubleArray", "imputedInt64Array")
    kind = p.which(*kinds) or n.unsupported("an imputer of strings or dictionaries")
    new = getattr(p, kind)
    new = new.vector if kind.endswith("Array") else new
    replaced = p.replaceInt64Value if p.has("replaceInt64Value") else p.replaceDoubleValue
    is_missing = fn.is_nan(x) if replaced != replaced else x.equals(replaced)
    return fn.where(is_missing, np.asarray(new, x.dtype.numpy), x)


def normalizer(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    """Rows divided by their norms; rows of zeros stay zeros."""
    x = _single(n, xs).cast(f32)
    sizes = {"LMax": reduce.ReduceMax, "L1": reduce.ReduceL1, "L2": reduce.ReduceL2}
    size = n.add(sizes[p.normType]((-1,), True), abs(x))
    return x / fn.where(size.equals(0.0), 1.0, size)


def feature_vectorizer(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    parts = [_flat(n, x) for x in xs]
    return parts[0] if len(parts) == 1 else n.add(slicing.Concat(0), *parts)


def array_feature_extractor(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    places = n.const(p.extractIndex.astype(np.int64))
    return n.add(gather.Gather(0), _flat(n, _single(n, xs)), places)


def one_hot_encoder(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    """A one-hot vector over the categories; all zeros for a value that is no category."""
    if p.int64Categories is None:
        n.unsupported("categories that are strings")
    x = n.reshape(_single(n, xs), (1,))
    return x.equals(p.int64Categories.vector.astype(x.dtype.numpy)).cast(f32)


def identity(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    return _single(n, xs)


# Linear models


def _normal(n: NodeContext, x: Value) -> Value:
    """The probability that a standard normal number is below x."""
    return (fn.erf(x * math.sqrt(0.5)) + 1.0) * 0.5


def _sigmoid(n: NodeContext, x: Value) -> Value:
    return n.add(act.Sigmoid(), x)


_TRANSFORMS: dict[str, Callable[[NodeContext, Value], Value]] = {
    "NoTransform": lambda n, x: x,
    "Logit": _sigmoid,
    "Probit": _normal,
}


def _scores(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    """The linear functions of a row, [..., functions]."""
    x = _single(n, xs).cast(f32)
    rows = [w.value for w in p.weights]
    if not rows or len({len(r) for r in rows}) > 1 or len(p.offset) not in (0, len(rows)):
        n.bad(f"expected weights and an offset for each output, found {len(rows)} rows")
    weights = np.array(rows, np.float32)
    y = n.add(mm.MatMul(), x, n.const(np.ascontiguousarray(weights.T)))
    return y + p.offset.astype(np.float32) if len(p.offset) else y


def glm_regressor(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    return _TRANSFORMS[p.postEvaluationTransform](n, _scores(n, p, xs))


def _with_first(n: NodeContext, scores: Value) -> Value:
    """The scores of all classes.  The first class is the reference, and its score is 0."""
    return n.add(slicing.Concat(-1 % scores.type.rank), _column(n, scores, 0.0), scores)


def _column(n: NodeContext, scores: Value, number: float) -> Value:
    dims = (*scores.type.shape[:-1], 1)
    return n.expand(n.const(number, f32), dims)


def _complemented(n: NodeContext, probability: Value) -> Value:
    """The probabilities of both classes, from the probability of the second class."""
    return n.add(slicing.Concat(-1 % probability.type.rank), 1.0 - probability, probability)


def glm_classifier(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    scores = _scores(n, p, xs)
    count = n.extent(scores, -1)
    if p.classEncoding == "OneVsRest" and count > 1:
        each = _TRANSFORMS[p.postEvaluationTransform](n, scores)
        return each / each.sum((-1,), keepdims=True)
    if count == 1:
        return _complemented(n, _TRANSFORMS[p.postEvaluationTransform](n, scores))
    if p.postEvaluationTransform != "Logit":
        n.unsupported("a probit of several classes with a reference")
    return n.add(norm.Softmax(-1), _with_first(n, scores))


# Trees

_BRANCHES = {
    "BranchOnValueLessThanEqual": comparisons.LEQ,
    "BranchOnValueLessThan": comparisons.LT,
    "BranchOnValueGreaterThanEqual": comparisons.GTE,
    "BranchOnValueGreaterThan": comparisons.GT,
    "BranchOnValueEqual": comparisons.EQ,
    "BranchOnValueNotEqual": comparisons.NEQ,
    "LeafNode": comparisons.LEAF,
}


def _forest(n: NodeContext, p: Message) -> Forest:
    stored = p.nodes
    if not stored:
        n.bad("expected nodes of trees, found none")

    def column(name: str, dtype: type = np.int64) -> np.ndarray:
        return np.array([getattr(node, name) for node in stored], dtype)

    trees, ids = column("treeId"), column("nodeId")
    keys, own = Keys(n, trees, ids), np.arange(len(stored))
    mode = np.array([_BRANCHES.get(node.nodeBehavior, -1) for node in stored])
    if (mode < 0).any():
        n.bad(f"expected comparisons of nodes, found {stored[int(mode.argmin())].nodeBehavior}")
    inner = mode != comparisons.LEAF

    def way(name: str) -> np.ndarray:
        to = own.copy()
        to[inner] = keys.find(trees[inner], column(name)[inner], "a child")
        return to

    yes, no = way("trueChildNodeId"), way("falseChildNodeId")
    is_root = np.ones(len(stored), bool)
    is_root[yes[inner]] = is_root[no[inner]] = False
    roots = np.flatnonzero(is_root)
    if len(roots) != len(np.unique(trees)):
        n.bad(f"expected one root in each of {len(np.unique(trees))} trees, found {len(roots)}")
    infos = [(i, info) for i, node in enumerate(stored) for info in node.evaluationInfo]
    nodes = Nodes(
        mode, column("branchFeatureIndex"), column("branchFeatureValue", np.float32),
        column("missingValueTracksTrueChild", bool), yes, no, {},
    )  # fmt: skip
    place, outputs = (np.array(v, np.int64) for v in (
        [i for i, _ in infos], [info.evaluationIndex for _, info in infos]))  # fmt: skip
    weight = np.array([info.evaluationValue for _, info in infos], np.float32)
    return Forest(nodes, roots, place, outputs, weight)


def _tree_scores(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    """The sums of the values of the leaves that rows reach, [..., outputs]."""
    x, trees = _single(n, xs).cast(f32), p.treeEnsemble
    outputs = max(int(trees.numPredictionDimensions), 1)
    lead = x.type.shape[:-1]
    rows = n.reshape(x, (extents.product(lead), x.type.shape[-1]))
    y = combined(n, rows, _forest(n, trees), outputs, "sum")
    y = n.reshape(y, (*lead, outputs))
    base = trees.basePredictionValue.astype(np.float32)
    return y + base if base.size else y


def tree_regressor(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    return _transformed(n, _tree_scores(n, p, xs), p.postEvaluationTransform)


def _transformed(n: NodeContext, y: Value, name: str) -> Value:
    if name == "Regression_Logistic":
        return _sigmoid(n, y)
    if name == "Classification_SoftMax":
        return n.add(norm.Softmax(-1), y)
    if name == "Classification_SoftMaxWithZeroClassReference":
        return n.add(norm.Softmax(-1), _with_first(n, y))
    return y


def tree_classifier(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    y = _transformed(n, _tree_scores(n, p, xs), p.postEvaluationTransform)
    return _complemented(n, y) if n.extent(y, -1) == 1 else y


# Support vectors


def _vectors(n: NodeContext, p: Message, features: int) -> np.ndarray:
    """The support vectors, f32[vectors, features]."""
    if p.denseSupportVectors is not None:
        rows = [v.values for v in p.denseSupportVectors.vectors]
        if any(len(r) != features for r in rows):
            n.bad(f"expected support vectors of {features} numbers")
        return np.array(rows, np.float32).reshape(-1, features)
    stored = p.sparseSupportVectors.vectors
    dense = np.zeros((len(stored), features), np.float32)
    for i, vector in enumerate(stored):
        for node in vector.nodes:
            if not 1 <= node.index <= features:
                n.bad(f"expected an index from 1 to {features}, found {node.index}")
            dense[i, node.index - 1] = node.value
    return dense


def svm_regressor(n: NodeContext, p: Message, xs: Sequence[Value]) -> Value:
    """The sum of kernels with support vectors, minus rho, as libsvm computes it."""
    x = _single(n, xs).cast(f32)
    vectors = _vectors(n, p, n.extent(x, -1))
    alpha, kernel = p.coefficients.alpha.astype(np.float32), p.kernel
    if len(alpha) != len(vectors):
        n.bad(f"expected {len(vectors)} coefficients, found {len(alpha)}")
    if kernel.rbfKernel is not None:
        apart = n.add(shape.Unsqueeze((-1 % (x.type.rank + 1),)), x)
        distance = ((apart - np.ascontiguousarray(vectors.T)) ** 2.0).sum((-2,))
        similar = fn.exp(distance * -kernel.rbfKernel.gamma)
    else:
        similar = n.add(mm.MatMul(), x, n.const(np.ascontiguousarray(vectors.T)))
        if kernel.polyKernel is not None:
            own = kernel.polyKernel
            similar = (similar * own.gamma + own.c) ** float(own.degree)
        elif kernel.sigmoidKernel is not None:
            own = kernel.sigmoidKernel
            similar = fn.tanh(similar * own.gamma + own.c)
    total = (similar * alpha).sum((-1,), keepdims=True)
    return total - p.rho


Table = Callable[[NodeContext, Message, Sequence[Value]], Value]

TABLES: Mapping[str, Table] = {
    "arrayFeatureExtractor": array_feature_extractor,
    "featureVectorizer": feature_vectorizer,
    "glmClassifier": glm_classifier,
    "glmRegressor": glm_regressor,
    "identity": identity,
    "imputer": imputer,
    "normalizer": normalizer,
    "oneHotEncoder": one_hot_encoder,
    "scaler": scaler,
    "supportVectorRegressor": svm_regressor,
    "treeEnsembleClassifier": tree_classifier,
    "treeEnsembleRegressor": tree_regressor,
}
"""The functions that compute models, by the names of the models' parameters.  The function of a
classifier computes probabilities."""
