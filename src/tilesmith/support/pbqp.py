"""Partitioned Boolean quadratic problems: one choice per node, a cost for each choice, and a cost
for each pair of choices of two neighbours.  The sum of all costs is minimised.

The problems are solved by reduction (Scholz and Eckstein, "Register allocation for irregular
architectures", 2002).  A node with at most two neighbours is eliminated without loss.  So chains,
trees, diamonds and all graphs that reduce to these are solved exactly.  In a denser remainder, a
heuristic decides for the node with the most neighbours: it takes the best choice for the node and
its neighbours, and ignores pair costs of these neighbours with other nodes.  Among equal choices
the first is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Problem:
    """A problem.  Its nodes are numbered from 0 in the order in which they are added."""

    def __init__(self) -> None:
        self._costs: list[np.ndarray] = []
        self._edges: list[dict[int, np.ndarray]] = []

    def node(self, costs: Sequence[float]) -> int:
        """Add a node with the cost of each of its choices.  Returns the node's number."""
        self._costs.append(np.array(costs, dtype=np.float64))
        self._edges.append({})
        return len(self._costs) - 1

    def edge(self, a: int, b: int, costs: np.ndarray) -> None:
        """Add `costs` [choices of a, choices of b] to the pair cost of the two nodes."""
        if a == b:
            self._costs[a] = self._costs[a] + np.diagonal(costs)
            return
        known = self._edges[a].get(b)
        total = costs if known is None else known + costs
        self._edges[a][b], self._edges[b][a] = total, total.T

    def cost(self, choices: Sequence[int]) -> float:
        """The total cost of one choice for each node."""
        alone = sum(float(c[i]) for c, i in zip(self._costs, choices, strict=True))
        pairs = sum(
            float(m[choices[a], choices[b]])
            for a, edges in enumerate(self._edges)
            for b, m in edges.items()
            if a < b
        )
        return alone + pairs

    def solve(self) -> list[int]:
        """The choice for each node, with the least total cost (see the module's text for cases in
        which a heuristic decides).
        """
        costs, edges = list(self._costs), [dict(e) for e in self._edges]
        removed: list[tuple[int, dict[int, np.ndarray]]] = []
        left = dict.fromkeys(range(len(costs)))
        ready = [n for n in left if len(edges[n]) <= 2]
        while left:
            if not ready:
                ready = [max(left, key=lambda n: len(edges[n]))]
            n = ready.pop()
            if n not in left:
                continue
            del left[n]
            around = edges[n]
            removed.append((n, around))
            for other in around:
                del edges[other][n]
            if len(around) == 1:
                ((a, m),) = around.items()
                costs[a] = costs[a] + (costs[n][:, None] + m).min(axis=0)
            elif len(around) == 2:
                (a, m), (b, k) = around.items()
                both = (costs[n][:, None, None] + m[:, :, None] + k[:, None, :]).min(axis=0)
                both = both + edges[a].get(b, 0.0)
                edges[a][b], edges[b][a] = both, both.T
            elif around:
                apart = sum((m + costs[o]).min(axis=1) for o, m in around.items())
                best = int(np.argmin(costs[n] + apart))
                fixed = np.full(len(costs[n]), np.inf)
                fixed[best] = costs[n][best]
                costs[n] = fixed
                for other, m in around.items():
                    costs[other] = costs[other] + m[best]
            ready += [o for o in around if len(edges[o]) <= 2]
        choices = [0] * len(costs)
        for n, around in reversed(removed):
            total = costs[n]
            for other, m in around.items():
                total = total + m[:, choices[other]]
            choices[n] = int(np.argmin(total))
        return choices
