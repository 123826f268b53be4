"""Division of the processors between measuring and building, so that neither disturbs the other."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.runtime.threads import cores, physical_cores


@dataclass(frozen=True, slots=True)
class Shares:
    """Processors by number.

    runner: processors of the cores that measure; empty if a process can't be bound.
    builders: processors of other cores.  Empty if measuring needs all cores; then nothing may be
        built during a measurement.
    """

    runner: frozenset[int] = frozenset()
    builders: frozenset[int] = frozenset()


def shares(threads: int) -> Shares:
    """Division of the processors that this process may use, for kernels with `threads` threads."""
    return divided(cores(), physical_cores(), threads)


def divided(cores: list[list[int]], granted: int, threads: int) -> Shares:
    """The division of the processors of `cores`, of which `granted` may be busy at once.

    The last cores measure, since the operating system prefers the first ones for itself.
    """
    if not cores or len(cores) < threads:
        return Shares()
    first = len(cores) - threads
    spare = cores[max(first - max(granted - threads, 0), 0) : first]
    return Shares(frozenset(c[0] for c in cores[first:]), frozenset(p for c in spare for p in c))
