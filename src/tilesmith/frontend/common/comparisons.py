"""The table of nodes that a walk through decision trees reads.

All comparisons become `x <= limit`.  `x < v` becomes `x <= u`, where u is the largest number below
v.  The opposite comparisons `>` and `>=` exchange the branches.  A test for membership in a set
becomes a binary search over the numbers at which the answer changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tilesmith.support.errors import ModelError

MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER",
)  # fmt: skip
"""Comparisons of a feature with a node's value, in the order of ONNX's numbers for them (see the
attribute `nodes_modes` of TreeEnsemble).
"""

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
LEAF = 7


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of all trees, as the model stores them.

    mode: i64[n], the comparison, or LEAF.
    feature: i64[n], the feature that is compared.
    value: float[n], the other operand of the comparison.
    tracks: bool[n], whether NaN goes to `yes`; with NEQ it always does.
    yes: i64[n], the next node if the comparison holds; for a leaf, the leaf itself.
    no: i64[n], the next node if the comparison does not hold.
    members: for each node of mode MEMBER, the set with which it compares.
    """

    mode: np.ndarray
    feature: np.ndarray
    value: np.ndarray
    tracks: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    members: Mapping[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class Ways:
    """The nodes with all comparisons as `x <= limit`.

    feature: i32[n], the feature that a node compares.
    limit: float[n], the other operand of the comparison.
    missing: u8[n], whether NaN goes to `yes`.
    yes: i32[n], the next node if the feature is at most the limit; for a leaf, the leaf itself.
    no: i32[n], the next node otherwise.
    """

    feature: np.ndarray
    limit: np.ndarray
    missing: np.ndarray
    yes: np.ndarray
    no: np.ndarray

    def table(self, roots: np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """The table that `TreeEnsemble` walks, and the node of each row of the table.

        The columns are (feature, limit, missing, next).  The first rows are `roots`.  A node's two
        successors are in adjacent rows, so that one number, `next`, refers to both.
        """
        own = np.arange(len(self.yes))
        is_leaf = self.yes == own
        ways = np.stack([self.no, self.yes], 1)[~is_leaf]
        pairs, place = np.unique(ways, axis=0, return_inverse=True)
        node = np.concatenate([roots, pairs.reshape(-1)])
        first = np.zeros(len(own), np.int64)
        first[~is_leaf] = len(roots) + 2 * place.reshape(-1)
        ends = is_leaf[node]
        to = np.where(ends, np.arange(len(node)), first[node])
        limit = np.where(ends, self.limit.dtype.type(np.nan), self.limit[node])
        return (self.feature[node], limit, self.missing[node], to.astype(np.int32)), node


def ways_of(nodes: Nodes) -> Ways:
    """Rewrite all comparisons as `x <= limit`.  Searches in sets add nodes at the end."""
    mode = nodes.mode
    is_leaf, is_swapped = mode == LEAF, (mode == GTE) | (mode == GT)
    limit = np.where((mode == LT) | (mode == GTE), _before(nodes.value), nodes.value)
    search = _Search(nodes, len(mode))
    for i in np.flatnonzero((mode >= EQ) & ~is_leaf):
        search.add(int(i))
    added = search.added
    rows = np.fromiter(added, np.int64, len(added))
    size = int(max(rows.max(initial=-1) + 1, len(mode)))

    def column(plain: np.ndarray, searched: Iterable[float]) -> np.ndarray:
        out = np.zeros(size, plain.dtype)
        out[: len(mode)] = plain
        out[rows] = np.fromiter(searched, plain.dtype, len(added))
        return out

    steps = added.values()
    return Ways(
        column(np.where(is_leaf, 0, nodes.feature).astype(np.int32), (s.feature for s in steps)),
        column(np.where(is_leaf, 0, limit).astype(nodes.value.dtype), (s.limit for s in steps)),
        column(
            ((nodes.tracks ^ is_swapped) & ~is_leaf).astype(np.uint8), (s.missing for s in steps)
        ),
        column(np.where(is_swapped, nodes.no, nodes.yes).astype(np.int32), (s.yes for s in steps)),
        column(np.where(is_swapped, nodes.yes, nodes.no).astype(np.int32), (s.no for s in steps)),
    )


def _before(value: np.ndarray) -> np.ndarray:
    """The largest number below each number; NaN for -inf."""
    below = np.nextafter(value, value.dtype.type(-np.inf))
    return np.where(value == -np.inf, value.dtype.type(np.nan), below)


@dataclass(frozen=True, slots=True)
class _Step:
    """One node of a binary search."""

    feature: int
    limit: float
    missing: bool
    yes: int
    no: int


class _Search:
    """Search trees for nodes that test whether a feature is in a set."""

    def __init__(self, nodes: Nodes, end: int) -> None:
        self._nodes, self._end = nodes, end
        self.added: dict[int, _Step] = {}
        """New nodes, and nodes that replace others, by their position in the table."""

    def add(self, node: int) -> None:
        """Replace a node by a search tree."""
        forest, mode = self._nodes, int(self._nodes.mode[node])
        members = forest.members[node] if mode == MEMBER else forest.value[node : node + 1]
        inside, outside = int(forest.yes[node]), int(forest.no[node])
        if mode == NEQ:
            inside, outside = outside, inside
        tracked = forest.yes[node] if forest.tracks[node] or mode == NEQ else forest.no[node]
        ends: list[float] = []  # ends of the intervals on which the answer is constant
        targets: list[int] = []
        members = np.unique(members[~np.isnan(members)])
        for low, member in zip(_before(members), members, strict=True):
            if not np.isnan(low) and (not ends or low > ends[-1]):
                ends.append(float(low))
                targets.append(outside)
            ends.append(float(member))
            targets.append(inside)
        if not ends:
            ends, targets = [np.nan], [inside]  # `x <= NaN` never holds
        targets.append(outside)
        nan_at = targets.index(int(tracked)) if int(tracked) in targets else len(targets) - 1
        feature = int(forest.feature[node])

        def build(low: int, high: int, place: int | None = None) -> int:
            """Build the search among intervals low to high - 1; returns its root.

            place: the position of the root; None for a new node.
            """
            if high - low == 1:
                return targets[low]
            if place is None:
                place, self._end = self._end, self._end + 1
            middle = (low + high) // 2
            yes, no = build(low, middle), build(middle, high)
            self.added[place] = _Step(feature, ends[middle - 1], nan_at < middle, yes, no)
            return place

        build(0, len(targets), node)


def depth_of(ways: Ways, roots: np.ndarray) -> int:
    """The length of the longest path from a root to a leaf, at least 1.  Raises ModelError if a
    path never ends.
    """
    front, depth = np.unique(roots), 0
    while True:
        front = front[ways.yes[front] != front]
        if not len(front):
            return max(depth, 1)
        front, depth = np.unique(np.concatenate([ways.yes[front], ways.no[front]])), depth + 1
        if depth > len(ways.yes):
            raise ModelError("expected trees, found nodes that lie below themselves")
