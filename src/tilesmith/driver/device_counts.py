"""Static counts of the launches of a program's kernels, from the loops that it keeps."""

from __future__ import annotations

from tilesmith.backend import backend_of
from tilesmith.ir.target import Target
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.perf.launch_counts import LaunchCounts, launch_counts


def counts_of(func: Func, target: Target) -> tuple[LaunchCounts, ...]:
    """Of each launch of a loop nest for a device, in order."""
    assert target.device is not None
    for p in backend_of(target).loop_passes:
        func = p.run(func)
    return tuple(launch_counts(x, target.device) for x in launches(func))


def counts_of_loops(text: str, target: Target) -> tuple[LaunchCounts, ...]:
    """The same from the text of the nest, as `KernelInfo.loops` has it."""
    return counts_of(parse_func(text), target)
