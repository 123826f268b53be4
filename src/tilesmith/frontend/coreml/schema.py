"""The messages of Core ML's files that Tilesmith reads."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tilesmith.frontend.common.protobuf import Schema


@cache
def schema() -> Schema:
    """The messages and enums that `schema.txt` declares."""
    text = files("tilesmith.frontend.coreml").joinpath("schema.txt").read_text("utf-8")
    messages, enums = text.replace("\n  ", " ").split("[enums]\n")
    return Schema(
        dict(_entries(messages)), {name: _enum(values) for name, values in _entries(enums)}
    )


def _entries(text: str) -> list[tuple[str, str]]:
    """The first word and the rest of each line."""
    lines = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return [(name, rest) for name, _, rest in lines]


def _enum(text: str) -> dict[int, str]:
    entries = (entry.rpartition(":") for entry in text.split())
    return {int(number or i): name for i, (number, _, name) in enumerate(entries)}
