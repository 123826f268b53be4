"""Ensembles of decision trees: numbered nodes, and the walk from their roots to their leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common import comparisons
from tilesmith.frontend.common.comparisons import Nodes
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ops.trees import TreeEnsemble


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees with weights at their leaves.

    nodes: nodes of all trees, including leaves.
    roots: i64[trees], the first node of each tree.
    place: i64[weights], the leaf of each weight.
    column: i64[weights], the output that each weight is added to.
    weight: float[weights], the weights.
    """

    nodes: Nodes
    roots: np.ndarray
    place: np.ndarray
    column: np.ndarray
    weight: np.ndarray

    def is_everywhere(self, column: int) -> bool | None:
        """Whether all leaves (True), no leaves (False) or some leaves (None) have a weight for an
        output.
        """
        is_leaf = self.nodes.mode == comparisons.LEAF
        has = np.zeros(len(is_leaf), bool)
        has[self.place[self.column == column]] = True
        has = has[is_leaf]
        return bool(has[0]) if len(np.unique(has)) == 1 else None


class Keys:
    """Lookup of node positions by tree and node number."""

    def __init__(self, n: NodeContext, trees: np.ndarray, ids: np.ndarray) -> None:
        self._n, self._trees, self._ids = n, np.unique(trees), np.unique(ids)
        keys = self._keys(trees, ids)[0]
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if len(np.unique(keys)) != len(keys):
            n.bad("expected nodes with numbers of their own, found two with the same")

    def _keys(self, trees: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A unique key for each pair of a tree and a node number, and whether the model has this
        tree and this number at all.
        """
        (t, has_tree), (i, has_id) = _searched(self._trees, trees), _searched(self._ids, ids)
        return t * len(self._ids) + i, has_tree & has_id

    def find(self, trees: np.ndarray, ids: np.ndarray, what: str) -> np.ndarray:
        """The positions of nodes.  Raises ModelError, which names `what`, if a node is missing."""
        keys, may_be = self._keys(trees, ids)
        positions, is_there = _searched(self._sorted, keys)
        if not (is_there & may_be).all():
            lost = int(np.flatnonzero(~(is_there & may_be))[0])
            self._n.bad(
                f"expected {what} among the nodes of its tree, found {ids[lost]} in tree "
                f"{trees[lost]}"
            )
        return self._order[positions]


def _searched(values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of `wanted` among ascending values, and whether each was found."""
    positions = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return positions, values[positions] == wanted


def combined(n: NodeContext, x: Value, forest: Forest, outputs: int, combine: str) -> Value:
    """Combine the weights of the leaves that each sample reaches, to T[samples, outputs].

    x: the samples, T[samples, features].

    An output for which no leaf has a weight gets the start value of the combination.
    """
    nodes, features = forest.nodes, n.extent(x, 1)
    inner = nodes.mode != comparisons.LEAF
    used, own = nodes.feature[inner], np.arange(len(inner))
    if len(used) and not 0 <= used.min() <= used.max() < features:
        n.bad(f"expected nodes that read features 0 to {features - 1}, found {used.max()}")
    if (inner & ((nodes.yes == own) | (nodes.no == own))).any():
        n.bad("expected trees, found nodes that lie below themselves")
    column = forest.column
    if len(column) and not 0 <= column.min() <= column.max() < outputs:
        n.bad(f"expected weights for outputs 0 to {outputs - 1}, found {column.max()}")
    ways = comparisons.ways_of(nodes)
    depth = comparisons.depth_of(ways, forest.roots)
    start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[combine]
    weights = np.full((len(ways.yes), outputs), start, x.dtype.numpy)
    join = {"sum": np.add, "min": np.minimum, "max": np.maximum}[combine]
    join.at(weights, (forest.place, column), forest.weight)
    table, node = ways.table(forest.roots)
    op = TreeEnsemble(depth, bool(ways.missing.any()), combine)
    roots = np.arange(len(forest.roots), dtype=np.int32)
    return n.add(op, x, *map(n.const, (roots, *table, weights[node])))
