"""Rule *pack*: an operand that would be gathered is copied, contiguous along the lanes."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.cpu.injective import schedule_injective
from tilesmith.strategy.group import Group
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute

from .structure import Read, StageBody

PACK_REUSE = 4
"""Fewest reads per element for which a reordered copy is made."""


def packable(s: Schedule, body: StageBody, blocked: Sequence[str]) -> dict[int, frozenset[int]]:
    """For each lane axis, the numbers of the reads that would be gathered and are worth a copy.

    blocked: stages that exist one block at a time, so that they can't be copied as a whole.
    """
    by_lane: dict[int, frozenset[int]] = {}
    whole = [(number, r) for number, r in enumerate(body.reads) if r.source not in blocked]
    for i, a in enumerate(body.op.axis):
        reads = [(number, r) for number, r in whole if r.stride(a.var) not in (0, 1)]
        if chosen := [number for number, r in reads if _can_pack(s, body, r, a.var)]:
            by_lane[i] = frozenset(chosen)
    return by_lane


def _can_pack(s: Schedule, body: StageBody, read: Read, v: Var) -> bool:
    size = expected_size(read.load.buffer.shape)
    plain = any(index is v for index in read.load.indices)
    return plain and body.work >= PACK_REUSE * size and _direct(s, body, read)


def _direct(s: Schedule, body: StageBody, read: Read) -> bool:
    """Whether the stage itself reads the tensor, and reads it only once.  Reads of inlined stages
    don't count.
    """
    state = s.state
    mine = [r for r in body.reads if r.source == read.source]
    return len(mine) == 1 and any(n == read.source for n, _ in state.stages[body.name].reads)


def pack(s: Schedule, group: Group, read: Read, v: Var, target: Target) -> None:
    """Rule *pack*: copy an operand so that it is contiguous along the lanes."""
    dim = next(d for d, index in enumerate(read.load.indices) if index is v)
    tensor = read.load.buffer
    readers = [st.name for st in s.stages if any(n == read.source for n, _ in st.state.reads)]
    copy = s.cache_read(tensor, "heap", readers)  # type: ignore[arg-type]  # a tensor
    layout = Layout.permuted((*(d for d in range(copy.rank) if d != dim), dim))
    s.transform_layout(copy, layout)
    op = s[copy].op
    assert isinstance(op, Compute)
    alone = Group((tensor,), (copy,), (op,), {**group.layouts, copy: layout})  # type: ignore[arg-type]
    source = tensor.op  # type: ignore[union-attr]
    kept = [source] if isinstance(source, Compute) else []
    schedule_injective(s, alone, op, target, keep=kept)
