"""The text of five small networks after every pass over graphs and over loops that changes it.

Target and threads are named, so that the texts are the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from common.pass_models import MODELS, invariant, rows, triangular
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
KERNEL_NAMES = [*KERNELS, *LOOP_NESTS]
TEXTS = Path(__file__).parents[1] / "golden" / "driver" / "test_golden_passes"

UNCHANGED = "unchanged"

IDLE = {"move-transposes", "dce", "packed-weights", "columns"}
"""Passes that these networks give nothing to do: their images are [N, C, H, W], each pass removes
what it makes dead, caches hold their weights as floats, and filters are constants.
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


def table(texts: dict[str, dict[str, str]]) -> str:
    """A row for each pass and a column for each of `texts`: whether the pass changes it."""
    names = [name for name in next(iter(texts.values())) if name != "lower"]
    marks = {False: "changed", True: "-"}
    rows = [
        ["", *texts],
        *([n, *(marks[t[n] == UNCHANGED] for t in texts.values())] for n in names),
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def compare(texts: dict[str, str], test: str, golden: Callable[..., None]) -> None:
    """Compares each text that a pass changed; no other text is kept."""
    changed = {name: text for name, text in texts.items() if text != UNCHANGED}
    for name, text in changed.items():
        golden(text, name)
    kept = {p.name for p in TEXTS.iterdir() if p.name.startswith(f"{test}.")}
    assert kept == {f"{test}.{name}.txt" for name in changed}, "remove what is kept and unchanged"


@pytest.mark.parametrize("model", MODELS)
def test_graph(model: str, golden: Callable[..., None]) -> None:
    compare(graph_texts(model)[0], f"test_graph[{model}]", golden)


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_loops(kernel: str, golden: Callable[..., None]) -> None:
    compare(loop_texts(kernel), f"test_loops[{kernel}]", golden)


def test_what_changes_which_network(golden: Callable[..., None]) -> None:
    golden(table({model: graph_texts(model)[0] for model in MODELS}))


def test_what_changes_which_kernel(golden: Callable[..., None]) -> None:
    golden(table({kernel: loop_texts(kernel) for kernel in KERNEL_NAMES}))


@pytest.mark.parametrize("name", GRAPH_NAMES)
def test_every_graph_pass_changes_a_network(name: str) -> None:
    changed = [m for m in MODELS if graph_texts(m)[0][name] != UNCHANGED]
    assert bool(changed) != (name in IDLE)


@pytest.mark.parametrize("name", LOOP_NAMES)
def test_every_loop_pass_changes_a_kernel(name: str) -> None:
    assert any(loop_texts(k)[name] != UNCHANGED for k in KERNEL_NAMES)
