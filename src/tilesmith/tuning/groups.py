"""Fused groups as search spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.repack import with_packing
from tilesmith.ir.target import Target
from tilesmith.strategy.cpu import schedule
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.knobs import Config, Knob, Value

from .space import Space


@dataclass(frozen=True, slots=True, eq=False)
class GroupSpace:
    """The schedules of a fused `body` (see `driver.canonical`); how its `constants`, inputs by
    number, are packed is one of the decisions.
    """

    body: Graph
    constants: Sequence[int]
    target: Target

    def packed(self, cfg: Config) -> Graph:
        """The body with constants packed as decided."""
        return with_packing(self.body, packed_layouts(self.body, self.constants, self.target, cfg))

    def schedule(self, cfg: Config) -> object:
        """Raises ScheduleError for impossible decisions."""
        return schedule(self.packed(cfg), self.target, cfg)

    def space(self, pins: Mapping[str, Value] | None = None) -> Space:
        """The search space, with those of `pins` that are knobs of it."""
        knobs: dict[str, Knob] = {}
        if pins:
            self.schedule(Config(seen=knobs))
        return Space(self.schedule, {k: v for k, v in (pins or {}).items() if k in knobs})
