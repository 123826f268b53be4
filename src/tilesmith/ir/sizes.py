"""The sizes of an extent that only a run knows."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = (1 << 31) - 1
"""The default upper bound of an extent."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a symbolic extent, at least `low` and at most `high`.

    low, high: the range; a run with another size is refused.
    expected: the size for which decisions are made.  No answer depends on it.
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
