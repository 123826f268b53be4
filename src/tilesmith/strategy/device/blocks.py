"""Sizes of blocks, and steps that several rules take."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.target import Target
from tilesmith.te.stage import Axis, Stage

WAVES = 8
"""Waves in a block of independent threads: enough that they hide each other's latency."""


def block_size(target: Target) -> int:
    """Threads of a block of independent elements."""
    assert target.device is not None
    most = min(target.device.block_threads, target.device.block_x)
    return min(max(WAVES * target.device.wave, 64), most)


def fused(stage: Stage, axes: Sequence[Axis]) -> Axis:
    """One loop of one or more neighbours."""
    return stage.fuse(*axes) if len(axes) > 1 else axes[0]


def bind_elements(stage: Stage, target: Target) -> Axis | None:
    """A thread for each element of a stage's result, neighbours in the last axis side by side.  The
    loop over threads; None if there is one element, and one thread.
    """
    if not stage.axis:
        return None
    outer, inner = stage.split(fused(stage, stage.axis), factor=block_size(target), tail="guard")
    stage.bind(outer, "blockIdx.x")
    stage.bind(inner, "threadIdx.x")
    return inner
