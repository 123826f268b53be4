"""Ensembles of decision trees of ai.onnx.ml.

All comparisons become `x <= limit`: `x < v` is `x <= u` for the number u before v, and the others
exchange the branches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.ml import ml_op, samples, transformed
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.shapes import reshape_to
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, reduce, slicing
from tilesmith.ops.trees import TreeEnsemble

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "LEAF")


@dataclass(frozen=True, slots=True)
class _Forest:
    """The table of nodes that `TreeEnsemble` walks, but for the weights.

    place: where a node lies, by tree and number in the tree.
    tables: root, feature, limit, missing, yes and no.
    depth: the longest way from a root to a leaf.
    """

    place: dict[tuple[int, int], int]
    tables: tuple[np.ndarray, ...]
    depth: int


def _column(n: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    found = n.attr_ints(f"nodes_{name}")
    if found is None or len(found) != count:
        n.bad(f"attribute 'nodes_{name}': expected {count} numbers, found {len(found or ())}")
    return found


def _forest(n: OnnxNode, features: int) -> _Forest:
    n.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees = n.attr_ints("nodes_treeids") or ()
    count = len(trees)
    ids, feature = _column(n, "nodeids", count), _column(n, "featureids", count)
    yes, no = _column(n, "truenodeids", count), _column(n, "falsenodeids", count)
    modes, limits = n.attr_strings("nodes_modes") or (), n.attr_floats("nodes_values") or ()
    tracks = n.attr_ints("nodes_missing_value_tracks_true") or (0,) * count
    if not count or {len(modes), len(limits), len(tracks)} != {count}:
        n.bad(f"expected as many modes and values as {count} nodes, found {len(modes)}")
    place = {key: i for i, key in enumerate(zip(trees, ids, strict=True))}
    strange = sorted(set(modes) - set(_MODES))
    if strange:
        n.unsupported(f"branches of mode {strange[0]}; supported are {', '.join(_MODES)}")
    is_leaf = np.array([m == "LEAF" for m in modes])
    own = np.arange(count)
    try:
        ways = [
            np.array([own[i] if is_leaf[i] else place[t, w[i]] for i, t in enumerate(trees)])
            for w in (yes, no)
        ]
    except KeyError as e:
        n.bad(f"expected a child among the nodes of its tree, found {e.args[0][1]}")
    limit = np.array(limits, np.float32)
    before = np.array([m in ("BRANCH_LT", "BRANCH_GTE") for m in modes])
    limit = np.where(before, np.nextafter(limit, np.float32(-np.inf)), limit)
    swapped = np.array([m in ("BRANCH_GTE", "BRANCH_GT") for m in modes])
    missing = (np.array(tracks) != 0) ^ swapped
    places = np.where(is_leaf, 0, feature)
    if count != len(place) or places.min() < 0 or places.max() >= features:
        n.bad(f"expected nodes of their own that read features 0 to {features - 1}")
    is_root = np.ones(count, bool)
    is_root[ways[0][~is_leaf]] = is_root[ways[1][~is_leaf]] = False
    front, depth = np.flatnonzero(is_root), 0
    root = front
    while not is_leaf[front].all():
        inner, depth = front[~is_leaf[front]], depth + 1
        front = np.unique(np.concatenate([w[inner] for w in ways]))
        if depth > count:
            n.bad("expected trees, found nodes that lie below themselves")
    if len(root) != len(set(trees)):
        n.bad(f"expected one root in each of {len(set(trees))} trees, found {len(root)} roots")
    chosen = (np.where(swapped, *reversed(ways)), np.where(swapped, *ways))
    limit, missing = np.where(is_leaf, np.float32(0), limit), missing & ~is_leaf
    return _Forest(
        place,
        (
            root.astype(np.int32), places.astype(np.int32), limit, missing.astype(np.uint8),
            chosen[0].astype(np.int32), chosen[1].astype(np.int32),
        ),
        max(depth, 1),
    )  # fmt: skip


def _sums(n: OnnxNode, prefix: str, group: str, outputs: int) -> Value:
    """The sums of the leaves' weights, f32[samples, outputs]; `group` is what weights go to."""
    x = samples(n, n.input(0))
    forest = _forest(n, n.shape(x)[1])
    trees, nodes = n.attr_ints(f"{prefix}_treeids") or (), n.attr_ints(f"{prefix}_nodeids") or ()
    to, weights = n.attr_ints(group) or (), n.attr_floats(f"{prefix}_weights") or ()
    if not len(trees) == len(nodes) == len(to) == len(weights):
        n.bad(f"expected as many {group} as weights, found {len(to)} and {len(weights)}")
    table = np.zeros((len(forest.place), outputs), np.float32)
    for key, column, weight in zip(zip(trees, nodes, strict=True), to, weights, strict=True):
        if key not in forest.place or not 0 <= column < outputs:
            n.bad(f"expected weights for outputs 0 to {outputs - 1}, found {key} for {column}")
        table[forest.place[key], column] += weight
    op = TreeEnsemble(forest.depth, bool(forest.tables[3].any()))
    return n.add(op, x, *map(n.const, forest.tables), n.const(table))


def _with_base(n: OnnxNode, y: Value, outputs: int) -> Value:
    base = n.attr_floats("base_values")
    if not base:
        return y
    if len(base) != outputs:
        n.bad(f"expected {outputs} base values, found {len(base)}")
    return n.add(ew.Add(), y, n.const(np.asarray(base, np.float32)))


@ml_op("TreeEnsembleRegressor")
def tree_ensemble_regressor(n: OnnxNode) -> Result:
    outputs = n.attr_int("n_targets", 1)
    aggregate = n.attr_string("aggregate_function", "SUM")
    if aggregate not in ("SUM", "AVERAGE"):
        n.unsupported(f"aggregate_function {aggregate}; supported are SUM, AVERAGE")
    y = _sums(n, "target", "target_ids", outputs)
    if aggregate == "AVERAGE":
        trees = len(set(n.attr_ints("nodes_treeids") or ()))
        y = n.add(ew.Div(), y, n.const(float(trees), f32))
    return transformed(n, _with_base(n, y, outputs))


@ml_op("TreeEnsembleClassifier")
def tree_ensemble_classifier(n: OnnxNode) -> Result:
    """The class with the best score.  If class 0 of two has all the weights, they are those of the
    second class, chosen above 0, or above 0.5 where no weight is negative, as scores are
    probabilities then; the first one's score follows.
    """
    labels = n.attr_ints("classlabels_int64s")
    if labels is None:
        n.unsupported("class labels that are strings")
    names, ids = n.const(np.asarray(labels, np.int64)), set(n.attr_ints("class_ids") or ())
    is_single = len(labels) == 2 and len(ids) == 1
    if is_single and (ids != {0} or n.attr_string("post_transform", "NONE") == "SOFTMAX"):
        n.unsupported("weights of one of two classes that is not class 0, or SOFTMAX of them")
    count = 1 if is_single else len(labels)
    scores = _with_base(n, _sums(n, "class", "class_ids", count), count)
    is_probability = min(n.attr_floats("class_weights") or (0.0,)) >= 0
    if len(labels) == 2 and not is_single:
        n.unsupported("weights of both of two classes")
    if not is_single:
        best = n.add(reduce.ArgMax(-1, False), scores)
        return n.add(gather.Gather(0), names, best), transformed(n, scores)
    is_second = n.add(ew.Greater(), scores, n.const(0.5 if is_probability else 0.0, f32))
    one = reshape_to(n, n.add(ew.Cast(i64), is_second), (n.shape(scores)[0],))
    scores = transformed(n, scores)
    is_mirrored = not is_probability and n.attr_string("post_transform", "NONE") == "NONE"
    if is_mirrored:
        first = n.add(ew.Neg(), scores)
    else:
        first = n.add(ew.Sub(), n.const(1.0, f32), scores)
    scores = n.add(slicing.Concat(1), first, scores)
    return n.add(gather.Gather(0), names, one), scores
