"""The dimensions that stay open when a model is imported: one symbol for each.

If two extents that must be equal are equal only for some sizes (`UnequalDims`), the model is
imported again, and a symbol is replaced by a value that makes the extents equal.  If there is no
such value, symbols get expected sizes at which the extents are equal.  A run then checks the actual
sizes (`FoldingBuilder.add`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilesmith.ir.expr import Var, substitute
from tilesmith.ir.sizes import LARGEST, ExpectedSizes, Ranges
from tilesmith.ir.symbols import as_dim, symbol, symbols_of
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops.rules import UnequalDims
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ModelError, OpenDimensionError
from tilesmith.support.logs import logger

from .equations import replacement

_log = logger("sizes")

Place: TypeAlias = "tuple[str, int, int]"
"""An input's name, one of its axes, and its rank."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A dimension that allows fewer sizes than the model declares, since a node requires it.

    dimension: its name.
    places: the axes with this dimension, each as an input's name and the axis.
    now: the new dimension: a number, a range, or a formula of other dimensions.
    demand: the node, and its requirement.
    """

    dimension: str
    places: tuple[tuple[str, int], ...]
    now: str
    demand: str

    def __str__(self) -> str:
        axes = ", ".join(f"axis {axis} of {name!r}" for name, axis in self.places)
        return f"dimension {self.dimension!r} ({axes}) is {self.now}: {self.demand}"

    def to_json(self) -> dict[str, object]:
        return {
            "dimension": self.dimension,
            "places": [list(place) for place in self.places],
            "now": self.now,
            "demand": self.demand,
        }


class Symbols:
    """The open dimensions of a model.  They are symbols, until nodes restrict them.

    dynamic: the ranges that the caller gives.  Others come from the model, or are 1 to 2^31 - 1.
    expected: the sizes that the caller expects.  Other sizes are 1 for an input's first axis, 224
        for the last two of four axes, and 128 for the rest, or the nearest size in the range.
    """

    @checked(ModelError)
    def __init__(
        self, dynamic: Ranges | None = None, expected: ExpectedSizes | None = None
    ) -> None:
        self._ranges, self._expected = dynamic or {}, expected or {}
        self._declared: dict[str, tuple[int, int, int | None]] = {}
        self._dims: dict[str, Dim] = {}
        self._places: dict[str, dict[tuple[str, int], None]] = {}
        self.narrowed: list[Narrowing] = []
        """The dimensions that nodes have restricted, in order."""

    def declare(self, name: str, low: int, high: int, expected: int | None = None) -> None:
        """Record sizes that the model declares for an open dimension.  The caller's sizes take
        precedence.

        name: the dimension's name or, if it has none, "NAME.AXIS": its input and its axis.
        expected: the size for which the program is made fast; by default the usual one.
        """
        self._declared[name] = (low, high, expected)

    @property
    def given(self) -> dict[str, str]:
        """The names that the caller used, and for each the argument that contains it."""
        return {
            **dict.fromkeys(self._expected, "expected"),
            **dict.fromkeys(self._ranges, "dynamic"),
        }

    def opens(self, name: str, axis: int) -> bool:
        """Whether the caller's `dynamic` gives sizes for an input's axis."""
        axes = self._ranges.get(name)
        return isinstance(axes, Mapping) and axis in axes

    def check(self, name: str, dims: Sequence[int | str] | None) -> None:
        """Raises ModelError if the caller's ranges for the input `name` are neither a shape nor a
        mapping from axes, or if the model fixes one of the axes.

        dims: the declared dimensions, with names for the open ones; None if the rank is open.
        """
        if name in self._ranges and not isinstance(self._ranges[name], Mapping):
            raise ModelError(
                f"dynamic[{name!r}]: {name!r} is an input; expected ranges of its axes, as in "
                f"{{{name!r}: {{0: (1, 64)}}}}, found {self._ranges[name]!r}"
            )
        ranges = self._ranges.get(name)
        for axis, range_ in ranges.items() if isinstance(ranges, Mapping) else ():
            size = dims[axis] if dims is not None and 0 <= axis < len(dims) else ""
            if isinstance(size, int) and range_ not in (size, (size, size), [size, size]):
                raise ModelError(
                    f"dynamic[{name!r}]: the model fixes axis {axis} to {size}, found the range "
                    f"{range_!r}; export the model with an open dimension there"
                )
        sizes = self._expected.get(name, {})
        if isinstance(sizes, Mapping):
            return
        fits = isinstance(sizes, Sequence) and (
            dims is None
            or (
                len(sizes) == len(dims)
                and all(isinstance(d, str) or d == n for d, n in zip(dims, sizes, strict=True))
            )
        )
        if not fits:
            shape = "open" if dims is None else f"({', '.join(str(d or '?') for d in dims)})"
            raise ModelError(
                f"expected[{name!r}]: {name!r} is an input, its shape is {shape}; expected such a "
                f"shape in numbers, or sizes by axis, as in {{{name!r}: {{0: 8}}}}, found {sizes!r}"
            )

    def of(self, name: str, place: Place) -> Dim:
        """The dimension of an input's axis.  `name` is "" if the dimension has no name."""
        key = name or f"{place[0]}.{place[1]}"
        self._places.setdefault(key, {})[place[0], place[1]] = None
        if key not in self._dims:
            self._dims[key] = self._new(key, name, place)
        return self._dims[key]

    def _new(self, key: str, name: str, place: Place) -> Var:
        least, most, usual = self._declared.get(key, (1, LARGEST, None))
        low, high = _range(key, _of(self._ranges, name, place), least, most)
        expected = _of(self._expected, name, place)
        if expected is None:
            usual = _usual(place) if usual is None else usual
            return symbol(key, low, high, min(max(usual, low), high))
        if not isinstance(expected, int) or not low <= expected <= high:
            raise ModelError(
                f"expected: the size of dimension {key!r} is from {low} to {high}, found {expected}"
            )
        return symbol(key, low, high, expected)

    def restrict(self, error: UnequalDims) -> None:
        """Replace a symbol so that two extents are equal for all sizes.  If that is impossible,
        change the expected sizes so that the extents are equal at the expected sizes.  Raises
        OpenDimensionError if both are impossible.
        """
        replaced = replacement(error.first, error.second)
        if replaced is None:
            raise OpenDimensionError(str(error)) from None
        if set(replaced).isdisjoint(symbols_of(self._dims.values())):
            raise OpenDimensionError(str(error)) from None
        before = self._dims
        self._dims = {
            key: d if isinstance(d, int) else as_dim(substitute(d, replaced))
            for key, d in before.items()
        }
        demand = str(error).partition("; give ")[0]
        for key, dim in self._dims.items():
            now = _narrower(before[key], dim)
            if now is not None:
                narrowing = Narrowing(key, tuple(self._places.get(key, ())), now, demand)
                self.narrowed.append(narrowing)
                _log.info("%s", narrowing)


def _narrower(before: Dim, now: Dim) -> str | None:
    """The restricted form of a dimension; None if all sizes are still allowed."""
    if same_dim(before, now):
        return None
    if not (isinstance(now, Var) and isinstance(before, Var)):
        return str(now)
    if now.name != before.name:
        return f"that of {now.name!r}"
    old, new = before.sizes, now.sizes
    if old is None or new is None or (old.low, old.high) == (new.low, new.high):
        return None  # only the expected size changed
    return f"from {new.low} to {new.high}"


def _of(given: Mapping[str, object], name: str, place: Place) -> object:
    """The entry of `given` for a dimension, by its name or its position."""
    axes = given.get(place[0])
    if name in given and not isinstance(given[name], Mapping):
        return given[name]
    if isinstance(axes, Sequence):
        return axes[place[1]] if place[1] < len(axes) else None
    return axes.get(place[1]) if isinstance(axes, Mapping) else None


def _range(key: str, given: object, least: int, most: int) -> tuple[int, int]:
    """The range that the caller gives, by default from `least` to `most`."""
    low, high = given if isinstance(given, tuple) and len(given) == 2 else (least, given)
    high = most if high is None else high
    if not (isinstance(low, int) and isinstance(high, int)) or not 0 <= low <= high <= most:
        raise ModelError(
            f"dynamic: expected the smallest and the largest size of dimension {key!r}, from 0 to "
            f"{most}, found {given!r}"
        )
    return low, high


def _usual(place: Place) -> int:
    _, axis, rank = place
    if axis == 0:
        return 1
    return 224 if rank == 4 and axis >= 2 else 128
