"""Column reductions: neighbours in memory belong to different results, as in images with channels
last.

    for i, jo in block_x:
        for ji in thread_x, part in thread_y:
            s_rf[part, ji] = sum over every n-th term      # shared memory, as all that follows
        for ji in thread_x, thread_y(1):
            s[ji] = sum over parts
            y[i, jo, ji] = f(s[ji])

The threads of a wave read neighbours, and the waves of a block share the terms.
"""

from __future__ import annotations

from tilesmith.ir.target import Target
from tilesmith.strategy.group import accumulator
from tilesmith.strategy.sketch.structure import StageBody
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Stage

from .blocks import WAVES, fused, in_memory
from .rows import shares_terms


def is_by_columns(r: StageBody, out: Stage, target: Target) -> bool:
    """Whether threads should share the terms of a reduction whose reads are mostly contiguous along
    the innermost axis of the result, not along the terms.

    out: the stage that stores the result.
    """
    if not r.op.axis or not shares_terms(r, target):
        return False
    across = r.op.axis[in_memory(out)[-1]].var
    along = r.op.reduce_axis[-1].var
    by_columns, by_rows = (sum(x.stride(v) in (0, 1) for x in r.reads) for v in (across, along))
    return by_columns > by_rows


def schedule_columns(s: Schedule, name: str, out: str, target: Target) -> None:
    """Compute the reduction `name` for a wave of neighbouring elements of `out`.  `out` is `name`
    or its elementwise reader.
    """
    assert target.device is not None
    wave, stage, own = target.device.wave, s[out], accumulator(s, name, out, "shared")
    *others, last = (stage.axis[n] for n in in_memory(stage))
    block, thread = stage.split(last, factor=wave, tail="guard")
    stage.reorder(*others, block, thread)
    block, first = stage.split(fused(stage, [*others, block]), factor=1)
    stage.bind(block, "blockIdx.x")
    stage.bind(first, "threadIdx.y")
    stage.bind(thread, "threadIdx.x")
    _, part = own.split(fused(own, own.reduce_axis), factor=WAVES, tail="guard")
    partial = s[s.rfactor(own.op.outputs[0], part)]
    for made in (own, partial):
        made.compute_at(stage, block)
    partial.set_scope("shared")
    for made, number in ((partial, 1), (own, 0)):
        rest, thread = made.split(fused(made, made.axis[number:]), factor=wave, tail="guard")
        made.bind(thread, "threadIdx.x")
        made.bind(partial.axis[0] if number else made.split(rest, factor=1)[1], "threadIdx.y")
