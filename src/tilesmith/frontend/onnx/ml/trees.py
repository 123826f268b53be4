"""Ensembles of decision trees of ai.onnx.ml."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilesmith.frontend.common import comparisons
from tilesmith.frontend.common.comparisons import Nodes
from tilesmith.frontend.common.forests import Forest, Keys, combined
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.ml import scores as ml
from tilesmith.frontend.onnx.ml.scores import ml_op
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.tensors import decode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, f64, i64
from tilesmith.ops import slicing
from tilesmith.ops.functions import where

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""Combinations of the leaves of the trees, in the order of TreeEnsemble's numbers."""

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Functions applied to the scores, in the order of TreeEnsemble's numbers."""


def _dtype(x: Value) -> DType:
    """The element type in which trees compute."""
    return f64 if x.dtype is f64 else f32


def _ints(n: OnnxNode, name: str, count: int | None = None) -> np.ndarray:
    """A list of integers, whose length must be `count` if that is given."""
    numbers = np.asarray(n.attr_ints(name) or (), np.int64)
    if count is not None and len(numbers) != count:
        n.bad(f"attribute {name!r}: expected {count} numbers, found {len(numbers)}")
    return numbers


def _tensor(n: OnnxNode, name: str) -> np.ndarray | None:
    """A tensor in an attribute, as a vector."""
    stored = n.attributes.get(name, at.TENSOR)
    return (
        None
        if stored is None
        else decode(stored, n.files, f"attribute {name!r}").data.read().reshape(-1)
    )


def _floats(n: OnnxNode, name: str, dtype: DType) -> np.ndarray:
    """A list of floats, which may be a tensor since version 3."""
    stored = _tensor(n, f"{name}_as_tensor")
    return np.asarray((n.attr_floats(name) or ()) if stored is None else stored, dtype.numpy)


def _forest(n: OnnxNode, dtype: DType, prefix: str, group: str) -> Forest:
    """The trees of an operator of a version before 5.

    prefix: the start of the names of the attributes for weights.
    """
    n.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees = _ints(n, "nodes_treeids")
    count = len(trees)
    ids, feature = _ints(n, "nodes_nodeids", count), _ints(n, "nodes_featureids", count)
    modes, value = n.attr_strings("nodes_modes") or (), _floats(n, "nodes_values", dtype)
    tracks = n.attr_ints("nodes_missing_value_tracks_true") or (0,) * count
    if not count or {len(modes), len(value), len(tracks)} != {count}:
        n.bad(f"expected as many modes and values as {count} nodes, found {len(modes)}")
    numbers = {mode: i for i, mode in enumerate(comparisons.MODES[: comparisons.MEMBER])}
    numbers["LEAF"] = comparisons.LEAF
    if strange := set(modes) - set(numbers):
        n.bad(f"nodes_modes: expected {', '.join(numbers)}, found {min(strange)!r}")
    mode = np.array([numbers[m] for m in modes])
    keys, own, inner = Keys(n, trees, ids), np.arange(count), mode != comparisons.LEAF

    def way(name: str) -> np.ndarray:
        to = own.copy()
        to[inner] = keys.find(trees[inner], _ints(n, name, count)[inner], "a child")
        return to

    yes, no = way("nodes_truenodeids"), way("nodes_falsenodeids")
    is_root = np.ones(count, bool)
    is_root[yes[inner]] = is_root[no[inner]] = False
    roots = np.flatnonzero(is_root)
    if len(roots) != len(np.unique(trees)):
        n.bad(f"expected one root in each of {len(np.unique(trees))} trees, found {len(roots)}")
    column = _ints(n, group)
    at_tree, at_node = (_ints(n, f"{prefix}_{k}ids", len(column)) for k in ("tree", "node"))
    weight = _floats(n, f"{prefix}_weights", dtype)
    if len(weight) != len(column):
        n.bad(f"expected as many {group} as weights, found {len(column)} and {len(weight)}")
    nodes = Nodes(mode, feature, value, np.asarray(tracks, bool), yes, no, {})
    return Forest(nodes, roots, keys.find(at_tree, at_node, "a leaf"), column, weight)


def _regression(
    n: OnnxNode, forest: Forest, outputs: int, aggregate: str, transform: str, base: np.ndarray
) -> Value:
    """The result of a regressor, T[samples, outputs]; `base` is added to the aggregate."""
    if len(base) not in (0, outputs):
        n.bad(f"expected {outputs} base values, found {len(base)}")
    x = ml.samples(n, n.input(0), _dtype(n.input(0)))
    combine = aggregate.lower() if aggregate in ("MIN", "MAX") else "sum"
    y = combined(n, x, forest, outputs, combine)
    if combine != "sum":  # an output that no leaf has a weight for is 0
        is_start = y.equals(np.inf if combine == "min" else -np.inf)
        y = where(is_start, 0.0, y)
    if aggregate == "AVERAGE":
        y = y / float(len(forest.roots))
    return ml.transformed(n, y + base if len(base) else y, transform)


@ml_op("TreeEnsembleRegressor")
def tree_ensemble_regressor(n: OnnxNode) -> Result:
    dtype = _dtype(n.input(0))
    forest = _forest(n, dtype, "target", "target_ids")
    aggregate = n.attr_string("aggregate_function", "SUM", _AGGREGATES)
    base = _floats(n, "base_values", dtype)
    outputs = n.attr_int("n_targets", 1)
    return _regression(n, forest, outputs, aggregate, ml.post_transform(n), base).cast(f32)


@ml_op("TreeEnsemble", since=5)
def tree_ensemble(n: OnnxNode) -> Result:
    source = n.input(0).dtype
    aggregate, transform = n.attr_int("aggregate_function", 1), n.attr_int("post_transform", 0)
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        n.bad(
            f"expected aggregate_function 0 to 3 and post_transform 0 to 4, found {aggregate} and "
            f"{transform}"
        )
    y = _regression(
        n,
        _forest_of_inner_nodes(n, _dtype(n.input(0))),
        n.attr_int("n_targets", 1),
        _AGGREGATES[aggregate],
        _TRANSFORMS[transform],
        np.zeros(0),
    )
    return y.cast(source)


def _forest_of_inner_nodes(n: OnnxNode, dtype: DType) -> Forest:
    """The trees of TreeEnsemble, whose leaves are stored separately; here they follow the other
    nodes.
    """
    n.ignore("nodes_hitrates")
    feature = _ints(n, "nodes_featureids")
    count = len(feature)
    column = _ints(n, "leaf_targetids")
    floats = {}
    for name in ("nodes_splits", "leaf_weights", "nodes_modes", "membership_values"):
        stored = _tensor(n, name)
        floats[name] = np.zeros(0) if stored is None else stored
    mode = floats["nodes_modes"].astype(np.int64)
    value, weight = (floats[k].astype(dtype.numpy) for k in ("nodes_splits", "leaf_weights"))
    tracks = n.attr_ints("nodes_missing_value_tracks_true") or (0,) * count
    if {len(mode), len(value), len(tracks)} != {count} or len(weight) != len(column):
        n.bad(
            f"expected as many modes and splits as {count} nodes, and weights as {len(column)} "
            f"leaves, found {len(mode)}, {len(value)} and {len(weight)}"
        )
    if not len(column) or (count and not 0 <= mode.min() <= mode.max() <= comparisons.MEMBER):
        n.bad("expected leaves, and nodes of modes 0 to 6")
    leaves = count + np.arange(len(column))

    def way(name: str) -> np.ndarray:
        to, is_leaf = _ints(n, f"nodes_{name}nodeids", count), _ints(n, f"nodes_{name}leafs", count)
        if ((to < 0) | (to >= np.where(is_leaf, len(column), count))).any():
            n.bad(f"nodes_{name}nodeids: expected {count} nodes and {len(column)} leaves")
        return np.concatenate([np.where(is_leaf, to + count, to), leaves])

    yes, no = way("true"), way("false")
    roots = _ints(n, "tree_roots")
    if len(roots) and not 0 <= roots.min() <= roots.max() < count:
        n.bad(f"tree_roots: expected nodes 0 to {count - 1}, found {roots.tolist()}")

    def padded(inner: np.ndarray, filler: float = 0) -> np.ndarray:
        return np.concatenate([inner, np.full(len(leaves), filler, inner.dtype)])

    members = _members(n, mode, floats["membership_values"].astype(dtype.numpy))
    nodes = Nodes(
        padded(mode, comparisons.LEAF), padded(feature), padded(value),
        padded(np.asarray(tracks, bool)), yes, no, members,
    )  # fmt: skip
    return Forest(nodes, roots, leaves, column, weight)


def _members(n: OnnxNode, mode: np.ndarray, values: np.ndarray) -> dict[int, np.ndarray]:
    """The sets of nodes of mode MEMBER.  In `values`, a NaN ends each set."""
    asking = np.flatnonzero(mode == comparisons.MEMBER)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    if len(values) == 0 or (len(ends) and ends[-1] == len(values) - 1):
        sets = sets[:-1]
    if len(sets) != len(asking):
        n.bad(f"membership_values: expected {len(asking)} sets, found {len(sets)}")
    return dict(zip(asking.tolist(), sets, strict=True))


@ml_op("TreeEnsembleClassifier")
def tree_ensemble_classifier(n: OnnxNode) -> Result:
    """The class with the best score.

    With two classes, the second is chosen if its score is above a limit.  The limit is 0.5 if all
    weights belong to one class and none is negative, since they are probabilities then.  Otherwise
    it is 0.
    """
    names, transform = ml.labels(n, "classlabels_int64s"), ml.post_transform(n)
    count, dtype = len(names), _dtype(n.input(0))
    forest = _forest(n, dtype, "class", "class_ids")
    base = _floats(n, "base_values", dtype)
    if len(base) not in ((0, 1, 2) if count == 2 else (0, count)):
        n.bad(f"expected {count} base values, found {len(base)}")
    x = ml.samples(n, n.input(0), dtype)
    if count == 2:
        return _of_two_classes(n, x, forest, base, transform)
    scores = combined(n, x, forest, count, "sum")
    scores = scores + base if len(base) else scores
    if count == 1:
        above = scores > 0.0
        if names.names:
            n.unsupported("a single class whose label is a string")
        label = ml.flat(n, above.cast(i64))
    else:
        label = names.of(n, ml.best(n, _counted(n, x, forest, scores, len(base) > 0)))
    return label, ml.transformed(n, scores, transform).cast(f32)


def _counted(n: OnnxNode, x: Value, forest: Forest, scores: Value, has_base: bool) -> Value:
    """The scores, with -infinity for classes without weights in any reached leaf, so that these are
    not chosen.
    """
    count = n.extent(scores, 1)
    everywhere = [forest.is_everywhere(k) for k in range(count)]
    if has_base or all(everywhere) or (None in everywhere and forest.weight.min(initial=0) >= 0):
        return scores
    if None in everywhere:
        has = _presence(n, x, forest, count) > 0.0
    else:
        has = n.const(np.array([everywhere], bool))
    return where(has, scores, -np.inf)


def _presence(n: OnnxNode, x: Value, forest: Forest, count: int) -> Value:
    """The number of reached leaves that have a weight for each output, T[samples, outputs]."""
    ones = replace(forest, weight=np.ones_like(forest.weight))
    return combined(n, x, ones, count, "sum")


def _of_two_classes(
    n: OnnxNode, x: Value, forest: Forest, base: np.ndarray, transform: str
) -> Result:
    names = ml.labels(n, "classlabels_int64s")
    sums = combined(n, x, forest, 2, "sum")
    s0, s1 = n.add(slicing.Split(1, (1, 1)), sums)
    is_single = len(np.unique(forest.column)) == 1
    is_probability = is_single and forest.weight.min(initial=0) >= 0

    has_first = not is_single or forest.column[0] == 0

    def scored(has_second: bool) -> tuple[Value, Value]:
        """The score that chooses the class, and the scores of both classes."""
        if len(base) == 2 and has_second:
            second = s0 + base[1:] if len(base) > 1 else s0
            first = -second if has_first else s0
            return second, n.add(slicing.Concat(1), first, second)
        first = s0 + base[:1] if has_first and len(base) else s0
        if has_second:
            return s1, n.add(slicing.Concat(1), first, s1)
        if len(base) == 2:
            return first, n.add(slicing.Concat(1), first, s1)
        return first, ml.of_two(n, first, not is_probability, transform)

    def final(has_second: bool) -> tuple[Value, Value]:
        decides, both = scored(has_second)
        is_two = has_second or len(base) == 2
        return decides, ml.transformed(n, both, transform) if is_two else both

    everywhere = forest.is_everywhere(1)
    if everywhere is None:
        _, has1 = n.add(slicing.Split(1, (1, 1)), _presence(n, x, forest, 2))
        has = has1 > 0.0
        pairs = zip(final(True), final(False), strict=True)
        decides, both = (where(has, a, b) for a, b in pairs)
    else:
        decides, both = final(everywhere)
    limit = n.const(0.5 if is_probability else 0.0, x.dtype)
    second = ml.flat(n, (decides > limit).cast(i64))
    label = names.of(n, second) if is_single else names.chosen(n, second)
    return label, both.cast(f32)
