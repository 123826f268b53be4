"""Random networks, compiled for several targets, compute what the graph evaluator does."""

from __future__ import annotations

import random

import pytest
from random_networks import random_network

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.text import print_graph
from tilesmith.support.arrays import difference


@pytest.mark.parametrize("seed", range(80))
def test_random_network(seed: int) -> None:
    source = random.Random(seed)
    graph = random_network(lambda options: source.choice(list(options)), source.randint(1, 8))
    inputs = driver.random_inputs(graph)
    target = source.choice(["native", "native", "x86-64", "x86-64-v3"])
    exe = ts.compile(graph, target=target, threads=2, options=ts.Options(verify_each=True))
    found = exe.run(inputs)
    for name, want in evaluate(graph, inputs).items():
        assert found[name].shape == want.shape
        error = difference(found[name], want)
        assert error <= 1e-4, f"{target}, output {name!r}\n{print_graph(graph)}"
