"""The text of four small networks after every pass over graphs and over loops.

Target and threads are named, so that the texts are the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from pass_models import MODELS, invariant, rows, triangular

from tilesmith.driver.kernels import canonical
from tilesmith.driver.passes import graph_passes
from tilesmith.driver.session import Session
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.text import print_graph
from tilesmith.loop.nodes import Func
from tilesmith.loop.text import print_func
from tilesmith.support.options import Options

SESSION = Session.of(Options(target="x86-64-v3", threads=1))
GRAPH_NAMES = [name for name, _ in graph_passes(SESSION)]
LOOP_NAMES = [p.name for p in SESSION.backend.loop_passes]

KERNELS = {
    "winograd": ("residual", "winograd_conv+add+add+relu"),
    "softmax": ("attention", "matmul+mul+reduce_max+sub+exp+reduce_sum+reciprocal+mul+matmul"),
    "depthwise": ("mobile", "conv+add+clip"),
    "pool": ("mobile", "max_pool"),
    "dots": ("quantised", "matmul+cast+mul+relu+round+clip+cast"),
}
"""Name -> a model, and the operators of one of its kernels."""

LOOP_NESTS = {"triangular": triangular, "invariant": invariant, "rows": rows}

UNCHANGED = "unchanged"

IDLE = {"dce", "packed-weights", "columns"}
"""Passes that these networks give nothing to do: each pass removes what it makes dead, caches hold
their weights as floats, and filters are constants.
"""


def with_numbers(text: str) -> str:
    """The text with numbers in place of the hashes of constants: what passes compute, such as
    weights of Winograd, differs in its last bits between machines.
    """
    found: dict[str, str] = {}
    return re.sub("@[0-9a-f]{16}", lambda m: found.setdefault(m[0], f"@{len(found)}"), text)


@cache
def graph_texts(model: str) -> tuple[dict[str, str], Graph]:
    """The graph after each pass that changes it, and at the end."""
    texts: dict[str, str] = {}
    graph = MODELS[model]()
    for name, run in graph_passes(SESSION):
        before, graph = graph, run(graph)
        texts[name] = UNCHANGED if graph is before else with_numbers(print_graph(graph))
    return texts, graph


def lowered(kernel: str) -> Func:
    model, operators = KERNELS[kernel]
    bodies = (n.op.body for n in graph_texts(model)[1].nodes if isinstance(n.op, Fused))
    body = next(b for b in bodies if "+".join(n.op.name for n in b.nodes) == operators)
    return SESSION.group(canonical(body)).lower(kernel)


@cache
def loop_texts(kernel: str) -> dict[str, str]:
    """The kernel after lowering and after each pass that changes it."""
    func = LOOP_NESTS[kernel]() if kernel in LOOP_NESTS else lowered(kernel)
    texts = {"lower": print_func(func)}
    for p in SESSION.backend.loop_passes:
        before, func = func, p.run(func)
        texts[p.name] = UNCHANGED if func is before else print_func(func)
    return texts


@pytest.mark.parametrize("name", GRAPH_NAMES)
@pytest.mark.parametrize("model", MODELS)
def test_graph(model: str, name: str, golden: Callable[[str], None]) -> None:
    golden(graph_texts(model)[0][name])


@pytest.mark.parametrize("name", ["lower", *LOOP_NAMES])
@pytest.mark.parametrize("kernel", [*KERNELS, *LOOP_NESTS])
def test_loops(kernel: str, name: str, golden: Callable[[str], None]) -> None:
    golden(loop_texts(kernel)[name])


@pytest.mark.parametrize("name", GRAPH_NAMES)
def test_every_graph_pass_changes_a_network(name: str) -> None:
    changed = [m for m in MODELS if graph_texts(m)[0][name] != UNCHANGED]
    assert bool(changed) != (name in IDLE)


@pytest.mark.parametrize("name", LOOP_NAMES)
def test_every_loop_pass_changes_a_kernel(name: str) -> None:
    assert any(loop_texts(k)[name] != UNCHANGED for k in (*KERNELS, *LOOP_NESTS))
