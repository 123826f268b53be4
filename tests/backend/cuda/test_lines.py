"""PTX of scans, sorts and scatters of few long lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembled import check_assembled

from tilesmith import driver
from tilesmith.driver.kernels import canonical
from tilesmith.driver.partitioned import parts_of
from tilesmith.driver.passes import optimise
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, InPlace
from tilesmith.ir.dtypes import f16, f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.scan import CumMax, CumSum
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.sort import TopK

CASES: dict[str, tuple[Op, tuple[TensorType, ...], set[str]]] = {
    "sort": (TopK(3000, 0), (TensorType(f32, (3000,)),), {"top_k", "merge_sorted"}),
    "smallest": (
        TopK(5, 1, False), (TensorType(f16, (2, 50257)),), {"top_k", "merge_sorted"},
    ),
    "sum": (CumSum(1, True), (TensorType(f32, (1, 1 << 20)),), {"cum_sum", "add"}),
    "columns": (CumMax(0, False, True), (TensorType(i64, (2000, 3)),), {"cum_max", "max"}),
    "elements": (
        ScatterElements(0, "add"),
        (TensorType(f32, (100,)), TensorType(i64, (5000,)), TensorType(f32, (5000,))),
        {"element_places", "top_k", "merge_sorted", "scatter_sorted"},
    ),
    "slices": (
        ScatterNd(),
        (TensorType(f32, (9, 8, 4)), TensorType(i64, (700, 2)), TensorType(f32, (700, 4))),
        {"slice_places", "top_k", "merge_sorted", "scatter_sorted"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_assembled(name: str, tmp_path: Path):
    """No register is spilled, and nothing lies in memory of a thread."""
    op, types, wanted = CASES[name]
    b = Builder("g")
    made = b.add(op, *(b.input(f"x{n}", t) for n, t in enumerate(types)))
    graph = b.finish(made if isinstance(made, tuple) else (made,))
    session = driver.Session.of(None, target="cuda-sm_80")
    assert parts_of(graph, session) == (None, {})
    fused = optimise(graph, session)
    groups = [n.op for n in fused.nodes if isinstance(n.op, Fused)]
    bodies = [g.body for g in groups if not isinstance(g, InPlace)]
    assert wanted <= {n.op.name for body in bodies for n in body.nodes}
    texts: dict[str, None] = {}
    for body in bodies:
        func = session.group(canonical(body)).lower("k")
        final = driver.lower_loops(func, session)
        texts[session.backend.emit(final, session.target).text] = None
    for n, text in enumerate(texts):
        folder = tmp_path / str(n)
        folder.mkdir()
        check_assembled(text, "sm_80", folder)
