"""Sizes of blocks, and schedule steps that several rules use."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.stage import Axis, Stage

WAVES = 8
"""Waves in a block of independent threads: enough to hide each other's latency."""


def block_size(target: Target) -> int:
    """Threads per block for independent elements."""
    assert target.device is not None
    most = min(target.device.block_threads, target.device.block_x)
    return min(max(WAVES * target.device.wave, 64), most)


def block_sizes(target: Target) -> list[int]:
    """Candidate numbers of threads per block for independent elements: powers of two, from one wave
    to the device's limit.
    """
    assert target.device is not None
    most = min(target.device.block_threads, target.device.block_x)
    sizes = (1 << n for n in range(most.bit_length()))
    return [n for n in sizes if min(target.device.wave, most) <= n <= most]


def fused(stage: Stage, axes: Sequence[Axis]) -> Axis:
    """One loop for one or more neighbouring axes."""
    return stage.fuse(*axes) if len(axes) > 1 else axes[0]


def in_memory(stage: Stage) -> list[int]:
    """Axis numbers of a stage's result: first axes of one element, then the others, outermost in
    memory first.
    """
    layout, shape = stage.state.layout, stage.op.outputs[0].shape
    dims = range(len(shape)) if layout is None else (d.axis for d in layout.dims)
    return sorted(dict.fromkeys(dims), key=lambda n: not same_dim(shape[n], 1))


def bind_elements(stage: Stage, target: Target, cfg: Config = ANALYTIC) -> Axis | None:
    """Bind a thread to each element of a stage's result, neighbouring threads to neighbours in
    memory.  Returns the loop over threads; None for a single element, which one thread computes.
    """
    if not stage.axis:
        return None
    axes = [stage.axis[n] for n in in_memory(stage)]
    stage.reorder(*axes)
    threads = cfg.choice("threads", lambda: block_sizes(target), block_size(target))
    return bind_loop(stage, fused(stage, axes), threads)


def bind_loop(stage: Stage, axis: Axis, threads: int) -> Axis:
    """Bind a loop to blocks of threads.  Returns the loop over threads."""
    block, thread = stage.split(axis, factor=threads, tail="guard")
    stage.bind(block, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")
    return thread
