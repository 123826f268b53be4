"""The solver of layout choices against trying everything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilesmith.support.pbqp import Problem


def random_problem(rng: np.random.Generator, nodes: int, pairs: list[tuple[int, int]]) -> Problem:
    problem = Problem()
    sizes = [int(rng.integers(1, 4)) for _ in range(nodes)]
    for size in sizes:
        problem.node(list(rng.integers(0, 20, size).astype(float)))
    for a, b in pairs:
        problem.edge(a, b, rng.integers(0, 20, (sizes[a], sizes[b])).astype(float))
    problem.sizes = sizes  # type: ignore[attr-defined]  # for the test alone
    return problem


def least(problem: Problem) -> float:
    sizes = problem.sizes  # type: ignore[attr-defined]  # see above
    return min(problem.cost(c) for c in itertools.product(*(range(n) for n in sizes)))


@pytest.mark.parametrize("seed", range(30))
def test_series_parallel_problems_are_solved_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(0, 1)]
    nodes = 2
    while nodes < 8:  # hang a node on one node, or on both ends of an edge
        a, b = pairs[int(rng.integers(len(pairs)))]
        pairs += [(a, nodes), (nodes, b)] if rng.integers(2) else [(a, nodes)]
        nodes += 1
    problem = random_problem(rng, nodes, pairs)
    assert problem.cost(problem.solve()) == least(problem)


@pytest.mark.parametrize("seed", range(10))
def test_dense_problems_are_solved_well(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 7, list(itertools.combinations(range(7), 2)))
    choices = problem.solve()
    sizes = problem.sizes  # type: ignore[attr-defined]  # see above
    every = [problem.cost(c) for c in itertools.product(*(range(n) for n in sizes))]
    assert problem.cost(choices) <= np.quantile(every, 0.25)


def test_an_edge_given_twice_counts_twice() -> None:
    problem = Problem()
    a, b = problem.node([0, 3]), problem.node([1, 0])
    differ = np.array([[0.0, 2.0], [2.0, 0.0]])
    assert problem.solve() == [0, 1]
    problem.edge(a, b, differ)
    problem.edge(b, a, differ)
    assert problem.cost([0, 1]) == 4
    assert problem.solve() == [0, 0]
