"""Which dimensions of an operator's inputs may change, and which of them only together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shapes = tuple[tuple[int, ...], ...]
Place = tuple[int, int]
"""An input's number, and its axis."""

STEPS: tuple[Callable[[int], int], ...] = (
    lambda n: n + 1, lambda n: n + 2, lambda n: 2 * n, lambda n: n + 3, lambda n: 3 * n,
)  # fmt: skip
"""How a dimension grows, tried in this order: some operators divide it."""


@dataclass(frozen=True)
class Freedom:
    """What an operator lets change.

    shapes: the first ones.
    classes: dimensions that have one size in all runs, by a number of the class; those that can't
        change are in none.
    others: the shapes at other sizes, with as many dimensions changed as fit together.
    """

    shapes: Shapes
    classes: dict[Place, int]
    others: Shapes

    def without(self, closed: Mapping[Place, Any]) -> Freedom:
        """The rest, where these dimensions are numbers."""
        others = tuple(
            tuple(self.shapes[i][a] if (i, a) in closed else n for a, n in enumerate(shape))
            for i, shape in enumerate(self.others)
        )
        kept = {p: c for p, c in self.classes.items() if p not in closed}
        return Freedom(self.shapes, kept, others)

    def name(self, place: Place) -> str | None:
        """The dimension's name, None for one that can't change."""
        number = self.classes.get(place)
        return None if number is None else f"d{number}"


def places(shapes: Shapes) -> Iterator[Place]:
    return ((i, a) for i, shape in enumerate(shapes) for a in range(len(shape)))


def freedom(shapes: Shapes, fits: Callable[[Shapes], bool]) -> Freedom:
    """What may change of `shapes`.

    fits: whether the operator takes inputs of these shapes.
    """
    classes: dict[Place, int] = {}
    others = shapes
    for place in places(shapes):
        if place in classes:
            continue
        together = _together(place, shapes, classes, fits)
        if together is None:
            continue
        classes |= dict.fromkeys(together, len(set(classes.values())))
        for step in STEPS:
            grown = _grown(others, together, step)
            if grown != others and fits(grown):
                others = grown
                break
    return Freedom(shapes, classes, others)


def _together(
    place: Place, shapes: Shapes, classes: dict[Place, int], fits: Callable[[Shapes], bool]
) -> list[Place] | None:
    """The fewest dimensions found that change with `place`, all of one extent; None for none."""
    size = shapes[place[0]][place[1]]
    rest = [
        p for p in places(shapes) if p != place and p not in classes and shapes[p[0]][p[1]] == size
    ]
    taken = {n for shape in shapes for n in shape}
    for step in STEPS:
        if step(size) in taken:
            continue  # an extent of 1 would fit another one
        if fits(_grown(shapes, [place], step)):
            return [place]
        if not rest or not fits(_grown(shapes, [place, *rest], step)):
            continue
        found = list(rest)
        for p in rest:
            fewer = [q for q in found if q != p]
            if fits(_grown(shapes, [place, *fewer], step)):
                found = fewer
        return [place, *found]
    return None


def _grown(shapes: Shapes, chosen: Sequence[Place], step: Callable[[int], int]) -> Shapes:
    return tuple(
        tuple(step(n) if (i, a) in chosen else n for a, n in enumerate(shape))
        for i, shape in enumerate(shapes)
    )


def remade(array: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array for other sizes: floats anew in the range of those given, others repeated, since
    their values may be places.  What is sorted stays sorted.
    """
    made = _remade(array, shape, rng)
    if array.ndim and array.size > 1 and array.dtype.kind in "iuf":
        is_sorted = bool(np.all(array[..., 1:] >= array[..., :-1]))
        return np.sort(made, axis=-1) if is_sorted and array.shape[-1] > 1 else made
    return made


def _remade(array: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f" or not array.size:
        return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    finite = array[np.isfinite(array)]
    if not finite.size or np.all(finite == np.floor(finite)):
        return np.resize(array, shape)
    return rng.uniform(finite.min(), finite.max(), shape).astype(array.dtype)
