"""Made-up spaces with costs that behave like those of schedules: what a search has to cope with."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilesmith.search_space.space import Candidate, Space
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config, split_factors
from tilesmith.tuning.search import search
from tilesmith.tuning.searches.guided import Guide

Landscape = tuple[Callable[[Config], float], str]


def tiles(cfg: Config) -> float:
    """A register tile and two blockings that share the caches; unrolling helps, in moderation."""
    rows = cfg.choice("rows", range(1, 17), 1)
    vectors = cfg.choice("vectors", range(1, 7), 1)
    if rows * vectors > 64:
        raise ScheduleError("too much code")
    block = cfg.choice("block", tuple(1 << n for n in range(12)), 64)
    unroll = cfg.choice("unroll", (1, 2, 4, 8, 16), 1)
    spill = max(rows * vectors + vectors + 1 - 32, 0)
    reuse = 1 / rows + 1 / (8 * vectors)
    cache = abs(math.log2(block * vectors / 256)) / 8
    return 0.4 + reuse + 0.05 * spill + cache + 0.04 * abs(math.log2(unroll) - 2)


def nest(cfg: Config) -> float:
    """Splits, an order that decides which split matters, and a knob that exists for one order."""
    i, j = (
        cfg.choice(n, lambda e=e: [f[0] for f in split_factors(e, 2)], 1)
        for n, e in (("i", 96), ("j", 240))
    )
    order = cfg.choice("order", ("ij", "ji", "tiled"), "ij")
    share = cfg.choice("share", (False, True), False)
    inner = j if order == "ij" else i
    cost = 1 + abs(math.log2(inner / 16)) / 3
    if order == "tiled":
        depth = cfg.choice("depth", range(1, 9), 1)
        cost = 0.7 + abs(math.log2(i * j / 512)) / 6 + abs(depth - 5) / 10
    return cost * (0.6 if share else 1.0)


def rough(cfg: Config) -> float:
    """Many knobs of which few matter, and little bumps everywhere."""
    values = [cfg.choice(f"k{n}", range(8), 0) for n in range(8)]
    cost = 1 + sum((v - 6) ** 2 for v in values[:3]) / 40
    return cost + 0.1 * sum(math.sin(2.5 * v) for v in values)


LANDSCAPES = (tiles, nest, rough)


def best_after(
    name: str,
    cost: Callable[[Config], float],
    trials: int,
    seed: int,
    guide: Guide | None = None,
    batch: int = 4,
) -> tuple[float, list[Candidate]]:
    """The best cost that a search finds, as a share of the start's, and what it tried."""
    space = Space(cost)
    first = cost(Config(space.start))
    s = search(name, space, seed, guide)
    s.observe(space.start, 1.0)
    tried: list[Candidate] = []
    while len(tried) < trials and (found := s.propose(min(batch, trials - len(tried)))):
        for c in found:
            s.observe(c, cost(Config(c)) / first)
            tried.append(c)
    return s.best_cost, tried
