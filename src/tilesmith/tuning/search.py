"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.support.errors import UsageError

from .cost_model import Learner, default_model
from .searches.base import Search
from .searches.guided import Guide, Guided, KnobFeatures
from .searches.plain import Annealing, Coordinate, Evolution, Grid, Random
from .searches.policy import Policy
from .space import Space

DEFAULT = "coordinate"
"""The best of those measured by benchmarks/searches.py."""


def _guided(space: Space, seed: int, guide: Guide | None) -> Search:
    if guide is None:
        features = KnobFeatures(space)
        names = [f"knob_{i}" for i in range(features.count)]
        guide = Guide(Learner(default_model(names, prior=None, seed=seed)), 0, features)
    return Guided(space, seed, guide)


def _plain(kind: type[Search]) -> Callable[[Space, int, Guide | None], Search]:
    return lambda space, seed, _: kind(space, seed)


SEARCHES: dict[str, Callable[[Space, int, Guide | None], Search]] = {
    "coordinate": _plain(Coordinate),
    "evolution": _plain(Evolution),
    "annealing": _plain(Annealing),
    "model": _guided,
    "policy": _plain(Policy),
    "random": _plain(Random),
    "grid": _plain(Grid),
}


def search(name: str, space: Space, seed: int = 0, guide: Guide | None = None) -> Search:
    """A search by name.  `guide`: for those that ask a cost model; without one they make a model of
    the space's knobs.  Raises UsageError for others than `SEARCHES`.
    """
    if name not in SEARCHES:
        raise UsageError(f"there is no search {name!r}; there are {', '.join(SEARCHES)}")
    return SEARCHES[name](space, seed, guide)
