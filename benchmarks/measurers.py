"""Measurers for workloads with different numbers of threads."""

from __future__ import annotations

from contextlib import ExitStack

from tilesmith.tuning.measure import LocalMeasurer
from tilesmith.tuning.tasks import BUILDER


class Measurers(ExitStack):
    """One measurer for each number of threads: the process that runs kernels is bound to as many
    cores.  A context manager.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, LocalMeasurer] = {}

    def of(self, threads: int) -> LocalMeasurer:
        if threads not in self._made:
            self._made[threads] = self.enter_context(LocalMeasurer(BUILDER, threads, 1))
        return self._made[threads]
