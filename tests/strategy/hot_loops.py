"""Innermost loops in assembly text, and their traffic of vectors with the stack."""

from __future__ import annotations

import re

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\tj\w+\t(\.L\w+)")
_STACK = re.compile(r"\(%r[sb]p(,|\))")


def innermost_loops(assembly: str) -> list[list[str]]:
    """The instructions between a label and a jump back to it, without other such jumps inside."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for n, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = n
        elif (jump := _JUMP.match(line)) and jump[1] in labels:
            loops.append((labels[jump[1]], n))
    return [
        lines[a : b + 1]
        for a, b in loops
        if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)
    ]


def spills(loop: list[str]) -> list[str]:
    """Instructions of a loop that move vectors to or from the stack pointer's frame."""
    return [x.strip() for x in loop if re.search(r"%[xyz]mm", x) and _STACK.search(x)]


def multiplies(loop: list[str]) -> bool:
    return any("\tvfmadd" in x or "\tvfnmadd" in x for x in loop)
