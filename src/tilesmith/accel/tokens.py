"""Tokens: orders the accesses of units that run in parallel, as data require it.

A unit runs its instructions in their order.  So a token is needed only where an instruction must
wait for one of a neighbouring unit: to read what that one writes, or to write what that one reads
or writes.  Of all instructions of a unit that an instruction must wait for, the last one is enough,
and no token is needed if an earlier instruction of the waiting unit has waited for that one or a
later one.  What remains is strictly increasing on both sides: the k-th push of a queue belongs to
the k-th pop.

No stream so ordered can deadlock while queues have room: each token goes from an instruction to a
later one of the program, so the first instruction that hasn't run never waits for one after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilesmith.support.errors import ScheduleError

from .instructions import Finish, Instruction
from .machine import Machine, Memory, Unit

Tiles = Mapping[Memory, np.ndarray]
"""Addresses of tiles in each buffer."""

_SIDES = {-1: "prev", 1: "next"}


class Ordered:
    """A list of instructions to which tokens are added as it grows."""

    def __init__(self, machine: Machine) -> None:
        self.instructions: list[Instruction] = []
        self._room = machine.token_depth
        depths = {memory: machine.depth(memory) for memory in Memory}
        self._written = {u: {m: np.full(n, -1) for m, n in depths.items()} for u in Unit}
        self._accessed = {u: {m: np.full(n, -1) for m, n in depths.items()} for u in Unit}
        """For each unit and tile, the number of the last instruction that wrote or accessed it."""
        self._waited: dict[tuple[Unit, Unit], int] = {}
        """For two units, the last instruction of the first one that the second one waited for."""
        self._popped: dict[tuple[Unit, Unit], deque[int]] = {}
        """For two units, the numbers of the last instructions that took a token."""

    def finish(self) -> None:
        """Append the end of the program, which waits for the last store."""
        last = (n for n, x in enumerate(self.instructions) if x.unit is Unit.STORE)
        self._append(Finish(), {Unit.STORE: max(last, default=-1)}, {}, {})

    def add(self, x: Instruction, reads: Tiles, writes: Tiles) -> None:
        """Append an instruction that accesses tiles of buffers.

        Raises ScheduleError if more tokens would wait in a queue than it holds.
        """
        before = {
            unit: max(_last(self._written[unit], reads), _last(self._accessed[unit], writes))
            for unit in Unit
        }
        self._append(x, before, reads, writes)

    def _append(
        self, x: Instruction, earlier: Mapping[Unit, int], reads: Tiles, writes: Tiles
    ) -> None:
        """Append an instruction that waits for one instruction of each unit; -1 for none."""
        number, unit = len(self.instructions), x.unit
        for step, side in _SIDES.items():
            other = unit.neighbour(step)
            if other is None:
                continue
            before = earlier.get(other, -1)
            if before > self._waited.get((other, unit), -1):
                self._waited[other, unit] = before
                x = replace(x, **{f"pop_{side}": True})
                giver = self.instructions[before]
                self.instructions[before] = replace(giver, **{f"push_{_SIDES[-step]}": True})
                self._check_room((other, unit), before, number)
        self.instructions.append(x)
        for memory, tiles in writes.items():
            self._written[unit][memory][tiles] = number
            self._accessed[unit][memory][tiles] = number
        for memory, tiles in reads.items():
            self._accessed[unit][memory][tiles] = number

    def _check_room(self, queue: tuple[Unit, Unit], pushed: int, popped: int) -> None:
        """A push needs the room that an earlier pop makes; that pop must come before it."""
        pops = self._popped.setdefault(queue, deque(maxlen=self._room))
        if len(pops) == self._room and pops[0] > pushed:
            giver, taker = queue
            raise ScheduleError(
                f"more than {self._room} tokens wait between {giver.value} and {taker.value}, "
                "which is the depth of the queue: compute in larger tiles"
            )
        pops.append(popped)


def _last(numbers: Mapping[Memory, np.ndarray], tiles: Tiles) -> int:
    """The last of the instructions that accessed some tiles; -1 if none did."""
    return max((int(numbers[m][t].max()) for m, t in tiles.items() if t.size), default=-1)
