"""The loops of machine code."""

from __future__ import annotations

import re

_LABEL = re.compile(r"^(\.L\w+):")


_JUMP = re.compile(r"^\t(?:j\w+|b\.\w+|cbn?z\t\w+,|b\w+\t(?:\w+, ?)+)\s?(\.L\w+)")


def innermost_loops(text: str) -> list[str]:
    """The instructions from a label to a jump back to it, without another such jump between."""
    lines = text.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for n, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = n
        elif (jump := _JUMP.match(line)) and jump[1] in labels:
            loops.append((labels[jump[1]], n))
    inner = [x for x in loops if not any(y != x and x[0] <= y[0] <= y[1] <= x[1] for y in loops)]
    return ["\n".join(lines[a : b + 1]) for a, b in inner]
