"""Loops that must keep a unit of the CPU awake, as some tensor intrinsics require.

Such an intrinsic declares after how much work the unit needs the code again.  If the iterations of
a loop together do more work, the code runs after every few iterations, as rarely as allowed.
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
"""The loops that need keep-alive code: iterations between uses, a power of two; the intrinsic."""


def breaks(s: Stmt, model: CpuModel) -> Breaks:
    """The loops in `s`, including `s` itself, that must keep a unit awake."""
    loops: Breaks = {}
    _stretch(s, model, loops)
    return loops


def _stretch(s: Stmt, model: CpuModel, found: Breaks) -> tuple[float, TensorIntrinsic | None]:
    """The work at the end of `s` after the last keep-alive code, and the intrinsic that needs the
    code. The work is a fraction of the amount that is allowed without the code.
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
    """The stores and outermost loops in `stmt`."""
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
