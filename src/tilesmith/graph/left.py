"""Layers that a pass which gives layers to another machine leaves to the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class LeftLayer(NamedTuple):
    """A layer that the CPU computes.

    name: its node in the source model, or "".
    operator: the name of its operator.
    why: why the other machine doesn't compute it.
    """

    name: str
    operator: str
    why: str


def counted(layers: Iterable[LeftLayer]) -> str:
    """Operators with their numbers and reasons, for a message: `Conv x2 (its operands are f32)`."""
    counts = Counter((x.operator, x.why) for x in layers)
    return ", ".join(
        f"{operator}{f' x{count}' if count > 1 else ''} ({why})"
        for (operator, why), count in counts.most_common()
    )
