"""One program for all sizes, and faster programs for some sizes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.support.errors import TilesmithError
from tilesmith.support.forks import renew_in_children
from tilesmith.support.logs import logger

from .given import as_array
from .host_runner import HostRunner
from .program import Program
from .runner import Runner, Sizes, Times, Variants

_log = logger("sizes")

HOT = 32
"""Number of calls with the same sizes after which a program is made for these sizes."""

MOST = 8
"""Upper bound on the number of programs for some sizes.  At this number, no more are made."""


class SizedRunner(Runner):
    """A program for all sizes, and programs for particular sizes.

    A program for particular sizes fixes all symbols or some of them.  If several programs match a
    call, the one that fixes most symbols runs.
    """

    def __init__(
        self,
        program: Program,
        threads: int | None,
        fixed: Sequence[tuple[Sizes, Program]],
        make: Callable[[Sizes], Program] | None = None,
    ) -> None:
        """program: the program for all sizes.

        fixed: pairs of fixed sizes and the program for them.
        make: makes the program for some sizes.  It is called in the background for sizes that occur
            often (see `HOT`).
        """
        self.general = HostRunner(program, threads)
        self.program, self.threads = program, self.general.threads
        runners = [(sizes, HostRunner(p, threads)) for sizes, p in fixed]
        self.fixed = sorted(runners, key=lambda f: -len(f[0]))
        self._make = make
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()
        renew_in_children(self)
        self.making: threading.Thread | None = None

    def again(self) -> SizedRunner:
        fixed = [(sizes, runner.program) for sizes, runner in self.fixed]
        return SizedRunner(self.program, self.threads, fixed, self._make)

    def variants(self) -> Variants:
        return [({}, self.general), *self.fixed]

    def become(self, program: Program) -> None:
        self.program = program
        self.general.become(program)

    def trim(self) -> int:
        return sum(runner.trim() for _, runner in self.variants())

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        return self.general.timed(arrays, repeats, both)

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        return self._chosen(arrays).call(arrays, out)

    def _chosen(self, arrays: Sequence[Any]) -> HostRunner:
        """The runner for the sizes of these inputs."""
        specs = self.program.inputs
        if self.general.sizes is None or len(arrays) != len(specs):
            return self.general
        inputs = [as_array(a, s) for a, s in zip(arrays, specs, strict=True)]
        if any(a.ndim != len(s.shape) for a, s in zip(inputs, specs, strict=True)):
            return self.general  # the call reports the error
        extents = self.general.sizes.extents([a.shape for a in inputs])
        sizes_of_call = self._by_name(extents)
        for sizes, runner in self.fixed:
            if all(sizes_of_call[name] == n for name, n in sizes.items()):
                return runner
        if self._make is not None:
            self._count(extents)
        return self.general

    def _by_name(self, extents: tuple[int, ...]) -> Sizes:
        return {s.name: n for s, n in zip(self.program.symbols, extents, strict=True)}

    def _count(self, extents: tuple[int, ...]) -> None:
        with self._lock:
            self._counts[extents] += 1
            busy = self.making is not None and self.making.is_alive()
            if self._counts[extents] < HOT or busy or len(self.fixed) >= MOST:
                return
            del self._counts[extents]
            self.making = threading.Thread(target=self._add, args=(extents,), daemon=True)
            self.making.start()

    def _add(self, extents: tuple[int, ...]) -> None:
        assert self._make is not None
        sizes = self._by_name(extents)
        try:
            made = HostRunner(self._make(sizes), self.threads)
        except TilesmithError as e:  # the program for all sizes accepts these sizes too
            _log.warning("no executable is made for %s: %s", sizes, e)
            return
        self.fixed = [(sizes, made), *self.fixed]
