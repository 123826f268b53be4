"""The description of a kernel (`KernelInfo`), written when the kernel is compiled."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Const
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import called
from tilesmith.loop.nodes import For, Func, Stmt, Store
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import children, walk
from tilesmith.perf.info import KernelInfo
from tilesmith.perf.kernel_work import work_of

from .group import STEP


def describe(body: Graph, nest: Func, final: Func, target: Target) -> KernelInfo:
    """Description of a fused body's kernel, lowered to `nest` and brought into final form as
    `final`.
    """
    inputs = ", ".join(str(v.type) for v in body.inputs)
    outputs = ", ".join(str(v.type) for v in body.outputs)
    others = tuple(a for a in nest.attrs if a[0] != STEP)
    return KernelInfo(
        tuple(n.op.name for n in body.nodes),
        f"{inputs} -> {outputs}",
        one_line(nest),
        tuple(value for key, value in nest.attrs if key == STEP),
        print_func(replace(nest, attrs=others)),
        work_of(final, target),
        _intrinsic(final),
    )


def _intrinsic(func: Func) -> str:
    """The name of the first tensor intrinsic in a function that accumulates; empty if there is
    none.
    """
    stores = (s for s in walk(func.body) if isinstance(s, Store))
    intrinsics = (called(s.value) for s in stores)
    return next((i.name for i in intrinsics if i is not None and i.accumulates), "")


def one_line(func: Func) -> str:
    """The loops around the statement that is executed most often: `parallel oh:56 > ow:10 > ic:64 >
    unroll ow:6 x oc:4 > vector 16`.
    """
    parts: list[str] = []
    unrolled: list[str] = []
    for loop in _busiest(func.body)[1]:
        size = f"{loop.var.name}:{_extent(loop):g}"
        if loop.kind == "unrolled":
            unrolled.append(size)
            continue
        if unrolled:
            parts.append(f"unroll {' x '.join(unrolled)}")
            unrolled = []
        if loop.kind == "vectorized":
            parts.append(f"vector {_extent(loop):g}")
        else:
            parts.append(size if loop.kind == "serial" else f"{loop.kind} {size}")
    if unrolled:
        parts.append(f"unroll {' x '.join(unrolled)}")
    return " > ".join(parts) or "no loops"


def _busiest(s: Stmt) -> tuple[float, tuple[For, ...]]:
    """Executions of the most frequent statement inside `s`, and the loops around it."""
    times, loops = max((_busiest(c) for c in children(s)), key=lambda f: f[0], default=(1.0, ()))
    if isinstance(s, For):
        return times * _extent(s), (s, *loops)
    return times, loops


def _extent(loop: For) -> float:
    return float(loop.extent.value) if isinstance(loop.extent, Const) else 1.0
