"""The sizes of an extent that is known only at run time, and the forms in which a caller gives
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

LARGEST = (1 << 31) - 1
"""The default upper bound of an extent."""

Range: TypeAlias = int | tuple[int, int]
"""The largest size, or the smallest and the largest."""

Ranges: TypeAlias = Mapping[str, Range | Mapping[int, Range]]
"""Ranges of open dimensions by name (`{"batch": (1, 64)}`), or by axis (`{"x": {0: (1, 64)}}`)."""

ExpectedSizes: TypeAlias = Mapping[str, int | Mapping[int, int] | Sequence[int]]
"""Sizes for which speed is optimised: by the dimension's name (`{"batch": 8}`), by an input's axes
(`{"x": {0: 8}}`), or the shape of an input (`{"x": (8, 3, 224, 224)}`).
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a symbolic extent, at least `low` and at most `high`.

    low, high: the range; a run with another size is refused.
    expected: the size for which speed is optimised.  No result depends on it.
    """

    low: int
    high: int
    expected: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.expected <= self.high <= LARGEST:
            raise ValueError(
                f"expected 0 <= low <= expected <= high <= {LARGEST}, found low {self.low}, "
                f"expected {self.expected}, high {self.high}"
            )

    def __str__(self) -> str:
        return f"{self.low}..{self.high}~{self.expected}"
