"""One executable for all sizes, with faster ones beside it for some."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilesmith.support.errors import TilesmithError
from tilesmith.support.forks import renew_in_children
from tilesmith.support.logs import logger

from .executable import Executable
from .given import as_array
from .program import Program

_log = logger("sizes")

Sizes = Mapping[str, int]
"""Extents by the name of their symbol."""

HOT = 32
"""Calls with the same sizes after which an executable of their own is made."""

MOST = 8
"""Executables that are made because their sizes are hot."""


class Specialised(Executable):
    """The executable for all sizes; calls with some sizes run on executables made for these.

    Such an executable may fix all symbols or some of them.  The one that fixes most is taken.
    """

    def __init__(
        self,
        program: Program,
        threads: int | None,
        fixed: Sequence[tuple[Sizes, Executable]],
        make: Callable[[Sizes], Executable] | None = None,
    ) -> None:
        """program: for all sizes.

        fixed: executables with the sizes that they are for.
        make: makes one; called in the background for sizes that are hot (see `HOT`).
        """
        super().__init__(program, threads)
        self._names = [s.name for s in program.symbols]
        self._fixed = sorted(fixed, key=lambda f: -len(f[0]))
        self._make = make
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()
        renew_in_children(self)
        self._making: threading.Thread | None = None

    @property
    def specialised(self) -> tuple[Sizes, ...]:
        """The sizes that have executables of their own."""
        return tuple(sizes for sizes, _ in self._fixed)

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self), (self.program, self.threads, self._fixed, None), {"recipe": self.recipe},
        )  # fmt: skip

    def _parts(self) -> list[tuple[Sizes, Executable]]:
        return [({}, self), *self._fixed]

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        if named or (self._defaults and len(arrays) < self._input_count):
            arrays = self._in_places(arrays, named)
        chosen = self._chosen(arrays)
        return super().__call__(*arrays, out=out) if chosen is None else chosen(*arrays, out=out)

    def _chosen(self, arrays: Sequence[Any]) -> Executable | None:
        """The executable for the sizes of these inputs, if they have one of their own."""
        if self._sizes is None or len(arrays) != len(self.inputs):
            return None
        given = [as_array(a, s) for a, s in zip(arrays, self.inputs, strict=True)]
        if any(a.ndim != len(s.shape) for a, s in zip(given, self.inputs, strict=True)):
            return None  # the executable for all sizes says what is wrong
        extents = self._sizes.extents([a.shape for a in given])
        found = dict(zip(self._names, extents, strict=True))
        for sizes, exe in self._fixed:
            if all(found[name] == n for name, n in sizes.items()):
                return exe
        if self._make is not None:
            self._count(extents)
        return None

    def _count(self, extents: tuple[int, ...]) -> None:
        with self._lock:
            self._counts[extents] += 1
            busy = self._making is not None and self._making.is_alive()
            if self._counts[extents] < HOT or busy or len(self._fixed) >= MOST:
                return
            del self._counts[extents]
            self._making = threading.Thread(target=self._add, args=(extents,), daemon=True)
            self._making.start()

    def _add(self, extents: tuple[int, ...]) -> None:
        assert self._make is not None
        sizes = dict(zip(self._names, extents, strict=True))
        try:
            made = self._make(sizes)
        except TilesmithError as e:  # the executable for all sizes serves these, too
            _log.warning("no executable is made for %s: %s", sizes, e)
            return
        self._fixed = [(sizes, made), *self._fixed]
