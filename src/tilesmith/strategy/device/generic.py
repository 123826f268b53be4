"""Schedules for any expression on a device: a thread for each element of a result.

A stage without a reduction is inlined, unless it is costly and read more than once.  Each other
stage is a launch of its own, whose result the next one reads from memory.  Recurrences and loops
that a user wrote are run by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import stages
from tilesmith.strategy.sketch.structure import is_costly
from tilesmith.support.errors import UsageError
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.stage import Stage
from tilesmith.te.tensor import Compute, Extern, Placeholder, Tensor

WAVES = 8
"""Waves in a block of independent threads: enough that they hide each other's latency."""


def default_schedule(args: Sequence[Tensor], target: Target, bound: float) -> Schedule:
    """The schedule of an expression that the rules choose by default.

    Raises UsageError if nothing is computed.
    """
    outputs = tuple(a for a in args if not isinstance(a.op, Placeholder))
    if not outputs:
        raise UsageError("none of the arguments is an output: give the computed tensors, too")
    s = create_schedule([t.op for t in outputs])
    if not any(
        same_dim(a.extent, 0) for op in stages(outputs) for a in (*op.axis, *op.reduce_axis)
    ):
        schedule_generic(s, target)
    return s


def schedule_generic(s: Schedule, target: Target) -> None:
    """Give a schedule without steps a thread for each element of each stage that is kept."""
    alone = {
        name
        for stage in s.stages
        if not stage.state.is_placeholder and stage.state.recurrence is not None
        for name in (stage.name, *s.state.inside_scan(stage.name))
    }
    readers = s.state.consumers()
    for stage in s.stages:
        if stage.state.is_placeholder or stage.name in alone or isinstance(stage.op, Extern):
            continue
        by_others = any(r in alone or isinstance(s[r].op, Extern) for r in readers[stage.name])
        if not by_others and _is_inlined(stage, [s[r] for r in readers[stage.name]]):
            stage.compute_inline()
        else:
            bind_elements(stage, target)


def _is_inlined(stage: Stage, readers: Sequence[Stage]) -> bool:
    op = stage.state.compute
    if stage.state.is_output or op.reduce_axis:
        return False
    if not is_costly(op.body):
        return True
    return len(readers) == 1 and not _rereads(readers[0].state.compute, op)


def _rereads(reader: Compute, op: Compute) -> bool:
    """True if `reader` needs more values of `op` than there are elements."""
    needed = expected_size(a.extent for a in (*reader.axis, *reader.reduce_axis))
    return needed > expected_size(a.extent for a in op.axis)


def bind_elements(stage: Stage, target: Target) -> None:
    """A thread for each element of a stage's result, neighbours in the last axis side by side."""
    first, *rest = stage.axis or (None,)
    if first is None:
        return  # one element: one thread
    last = stage.fuse(first, *rest) if rest else first
    block, thread = stage.split(last, factor=block_size(target), tail="guard")
    stage.bind(block, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")


def block_size(target: Target) -> int:
    """Threads of a block of independent elements."""
    assert target.device is not None
    most = min(target.device.block_threads, target.device.block_x)
    return min(max(WAVES * target.device.wave, 64), most)
