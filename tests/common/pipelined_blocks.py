"""Products in blocks of threads whose tiles are copied ahead."""

from __future__ import annotations

from common.blocks_of_threads import blocked_schedule
from tilesmith import te
from tilesmith.loop.nodes import Func


def pipelined_schedule(depth: int, *given) -> tuple[te.Schedule, list[te.Tensor]]:
    s, args = blocked_schedule(*given)
    for name in s.state.stages:
        if s.state.stages[name].scope == "shared":
            s[name].pipeline(depth)
    return s, args


def pipelined(depth: int, *given) -> Func:
    return te.lower(*pipelined_schedule(depth, *given), "product")
