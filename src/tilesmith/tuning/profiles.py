"""Two executables of one model, kernel by kernel.

If the executables' graphs differ, their kernels need not correspond.  So the times to compare are
the sums over all kernels that compute the same nodes of the source model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from tilesmith.runtime.executable import Executable

ROUNDS = (2, 12)
"""Least and largest number of turns of each executable."""
REPEATS = 2
"""Number of runs in a turn, of which the shortest time is used."""
TURNS_SECONDS = 0.5
"""Seconds after which no further round begins, by default."""

Times = Sequence[tuple[frozenset[str], float]]
"""For each kernel, the source nodes that it computes, and its seconds."""


def times(exe: Executable, inputs: Sequence[np.ndarray]) -> Times:
    """The least times of the kernels of one executable."""
    return _times(exe, exe.kernel_seconds(*inputs, repeats=ROUNDS[0] * REPEATS))


def in_turns(
    a: Executable, b: Executable, inputs: Sequence[np.ndarray], seconds: float = TURNS_SECONDS
) -> tuple[Times, Times]:
    """The shortest time of each kernel of `a` and of `b`.  The executables run alternately for
    about `seconds`.
    """
    both = (a, b)
    best = [np.full(len(e.program.calls), np.inf) for e in both]
    start = time.perf_counter()
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and time.perf_counter() - start > seconds:
            break
        for exe, least in zip(both, best, strict=True):
            np.minimum(least, exe.kernel_seconds(*inputs, repeats=REPEATS), out=least)
    return _times(a, best[0]), _times(b, best[1])


def _times(exe: Executable, seconds: np.ndarray) -> Times:
    return [
        (frozenset(c.sources), float(t)) for c, t in zip(exe.program.calls, seconds, strict=True)
    ]


def compared(names: Iterable[str], before: Times, after: Times = ()) -> tuple[float, float]:
    """The seconds of a set of kernels, before and after.  The set has the kernels that compute the
    source nodes `names`, and all kernels that share a source node with a kernel of the set.
    """
    connected = frozenset(names)
    reached: frozenset[str] = frozenset()
    while reached != connected:
        reached = connected
        connected = connected.union(*(s for s, _ in (*before, *after) if s & connected))
    old, new = (sum(t for s, t in times if s & connected) for times in (before, after))
    return old, new
