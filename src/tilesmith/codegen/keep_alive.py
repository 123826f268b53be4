"""Loops that must keep a unit of the CPU from sleeping, as some tensor intrinsics require.

Such an intrinsic declares keep-alive code, and the most work that may pass between two runs of this
code.  A loop whose iterations together do more work runs the code every n iterations, with the
largest power of two n that is allowed.
"""

from __future__ import annotations

import math

from tilesmith.ir import expr as ir
from tilesmith.ir.cpu_model import CpuModel
from tilesmith.ir.expr import Expr
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic, called
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Stmt
from tilesmith.loop.visit import children

Breaks = dict[nodes.For, tuple[int, TensorIntrinsic]]
"""For each loop that needs keep-alive code: the iterations between two runs of the code, a power of
two, and the intrinsic.
"""


def breaks(s: Stmt, model: CpuModel) -> Breaks:
    """The loops in `s`, including `s` itself, that must run keep-alive code."""
    loops: Breaks = {}
    _stretch(s, model, loops)
    return loops


def _stretch(s: Stmt, model: CpuModel, found: Breaks) -> tuple[float, TensorIntrinsic | None]:
    """The work in `s` after the last keep-alive code, and the intrinsic that needs this code.  The
    work is a fraction of the amount that may pass between two runs of the code.
    """
    if isinstance(s, nodes.Store):
        return _of_call(s.value, model)
    if not isinstance(s, nodes.For):
        parts = [_stretch(part, model, found) for part in _parts(s)]
        return sum(share for share, _ in parts), next((i for _, i in parts if i is not None), None)
    each, intrinsic = _stretch(s.body, model, found)
    if intrinsic is None:
        return 0.0, None
    trips = int(s.extent.value) if isinstance(s.extent, ir.Const) else math.inf
    if each * trips <= 1.0 or s.kind == "parallel":
        return each * trips, intrinsic
    count = 1 << max(int(math.log2(1.0 / each)), 0) if each < 1.0 else 1
    found[s] = count, intrinsic
    return each * count, intrinsic


def _parts(stmt: Stmt) -> list[Stmt]:
    """The outermost loops in `stmt`, and the stores outside of loops."""
    parts: list[Stmt] = []
    waiting = [stmt]
    while waiting:
        s = waiting.pop()
        if isinstance(s, (nodes.Store, nodes.For)):
            parts.append(s)
        else:
            waiting += reversed(children(s))
    return parts


def _of_call(e: Expr, model: CpuModel) -> tuple[float, TensorIntrinsic | None]:
    intrinsic = called(e)
    if intrinsic is not None and intrinsic.keep_alive is not None:
        return intrinsic.time(model) / intrinsic.keep_alive.fmas, intrinsic
    return 0.0, None
