"""Which node of the model demands that a dimension has fewer sizes than the model says, for
messages: `metadata["narrowed"]` of a program lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .program import Program


def demands(program: Program, places: Sequence[tuple[str, int]]) -> str:
    """Text to append to a message about axes of inputs: the last demand on each dimension there.

    places: names of inputs, and axes.
    """
    found = {
        told["dimension"]: f"; dimension {told['dimension']!r} is {told['now']}: {told['demand']}"
        for told in _told(program)
        if not {tuple(p) for p in told["places"]}.isdisjoint(places)
    }
    return "".join(found.values())


def _told(program: Program) -> Iterator[dict[str, Any]]:
    """The dimensions in the metadata, which may be a file's and hold anything."""
    told = program.metadata.get("narrowed")
    for found in told if isinstance(told, list) else ():
        if isinstance(found, dict) and isinstance(found.get("places"), list):
            places = found["places"]
            is_text = all(isinstance(found.get(k), str) for k in ("dimension", "now", "demand"))
            if is_text and all(_is_place(p) for p in places):
                yield found


def _is_place(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
