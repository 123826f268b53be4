"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.ir.target import Target
from tilesmith.search_space.space import Space
from tilesmith.support.errors import UsageError

from .cost_model import CostModel, Learner, check_model, default_model
from .features import FEATURES, features_of
from .features.kernel import SECONDS
from .searches.base import Search
from .searches.guided import Guide, Guided, KnobFeatures
from .searches.plain import Annealing, Coordinate, Evolution, Grid, Random
from .searches.policy import Policy

MODEL = "model"
"""The search that uses a cost model."""
DEFAULT = "coordinate"
"""The search that is best in benchmarks/searches.py."""


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
    MODEL: _guided,
    "policy": _plain(Policy),
    "random": _plain(Random),
    "grid": _plain(Grid),
}


def check_search(name: str, model: CostModel | None = None) -> None:
    """Raises UsageError for an unknown search, for a model that is not a cost model, and for a
    model given to a search that uses none.
    """
    if name not in SEARCHES:
        raise UsageError(f"there is no search {name!r}; there are {', '.join(SEARCHES)}")
    if model is not None:
        check_model(model)
        if name != MODEL:
            raise UsageError(f"search {name!r} asks no cost model: use search={MODEL!r} with it")


def search(name: str, space: Space, seed: int = 0, guide: Guide | None = None) -> Search:
    """A search by name, one of `SEARCHES`.

    guide: for searches that use a cost model; without one they make a model of the space's knobs.
    """
    check_search(name)
    return SEARCHES[name](space, seed, guide)


class Searches:
    """Makes the searches of one run; those that use a cost model share it.

    model: the user's model; default: the one in the package, which continues to learn.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        threads: int,
        seed: int = 0,
        model: CostModel | None = None,
    ) -> None:
        self._name, self._target, self._threads, self._seed = name, target, threads, seed
        self._learner: Learner | None = None
        self._count = 0
        if name == MODEL:
            self._learner = Learner(model or default_model(FEATURES, SECONDS, seed))

    def of(self, space: Space) -> Search:
        """A search of one more space."""
        guide = None
        if self._learner is not None:
            features = features_of(space, self._target, self._threads)
            guide = Guide(self._learner, self._count, features)
            self._count += 1
        return search(self._name, space, self._seed, guide)
