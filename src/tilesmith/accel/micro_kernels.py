"""Micro-operations of a program: each sequence is stored once, and copied into the machine when it
isn't there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .instructions import Load, MicroOp, layout
from .machine import Machine, Memory
from .tokens import Ordered


class MicroKernels:
    """The sequences of micro-operations of a program, and which of them are on the chip."""

    def __init__(self, machine: Machine, ordered: Ordered) -> None:
        self.micro_ops: list[MicroOp] = []
        self._ordered = ordered
        self._depth = machine.depth(Memory.UOP)
        columns = next(s for s in layout(Load, machine) if s.name == "columns")
        self._most = min(self._depth, columns.range[1])
        self._places: dict[bytes, int] = {}
        """Each sequence -> where it begins in memory."""
        self._present: dict[bytes, int] = {}
        """Each sequence on the chip -> where it begins there."""
        self._top = 0

    def parts(self, steps: np.ndarray) -> Iterator[np.ndarray]:
        """The steps in sequences that fit the buffer, and a copy."""
        for n in range(0, len(steps), self._most):
            yield steps[n : n + self._most]

    def loaded(self, steps: np.ndarray) -> tuple[int, int]:
        """Begin and end of a sequence in the buffer.  A copy is added to the program if the
        sequence isn't there; if it has no room, it replaces all that are there.

        steps: addresses of result, source and weights, int[steps, 3].
        """
        key, count = steps.tobytes(), len(steps)
        if key not in self._places:
            self._places[key] = len(self.micro_ops)
            self.micro_ops += [
                MicroOp(dst=int(d), src=int(s), wgt=int(w)) for d, s, w in steps.tolist()
            ]
        if key not in self._present:
            if self._top + count > self._depth:
                self._present.clear()
                self._top = 0
            self._present[key] = self._top
            x = Load(
                memory=Memory.UOP, sram=self._top, dram=self._places[key], columns=count
            )  # fmt: skip
            self._ordered.add(x, {}, {Memory.UOP: np.arange(self._top, self._top + count)})
            self._top += count
        begin = self._present[key]
        return begin, begin + count
