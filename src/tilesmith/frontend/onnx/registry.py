"""The table of ONNX operators: which Python function imports which operator at which opset
versions.

A function is registered with `@onnx_op("Conv", since=1)`; it gets a `NodeContext` and returns the
node's output value (a tuple of values if there are several). An operator whose meaning changed has
one function per range of versions. Looking up never imports anything: the operator modules are
imported by `frontend.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tilesmith.frontend.onnx.slots import Slot

if TYPE_CHECKING:
    from tilesmith.frontend.onnx.node import NodeContext

Result: TypeAlias = "Slot | tuple[Slot, ...]"
ImportFunction: TypeAlias = "Callable[[NodeContext], Result]"

OLDEST_OPSET = 7
"""Models of older opsets are refused: operators of before broadcast by rules of their own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`function` imports the operator for opset versions `since` to `until` inclusive (None:

    the newest).
    """

    since: int
    until: int | None
    function: ImportFunction

    def covers(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


TABLE: dict[tuple[str, str], list[Entry]] = {}
"""(domain, operator) -> entries; the default domain is the empty string."""


def onnx_op(
    *names: str, since: int = 1, until: int | None = None, domain: str = ""
) -> Callable[[ImportFunction], ImportFunction]:
    """Registers a function for operators `names` at versions `since` to `until` inclusive."""

    def register(function: ImportFunction) -> ImportFunction:
        for name in names:
            TABLE.setdefault((domain, name), []).append(Entry(since, until, function))
        return function

    return register


def find(domain: str, name: str, version: int) -> ImportFunction | None:
    """The function for an operator at an opset version, or None."""
    for entry in TABLE.get((domain, name), ()):
        if entry.covers(version):
            return entry.function
    return None


def versions(domain: str, name: str) -> str:
    """The opset versions at which an operator is known, for messages; empty if it never is."""
    ranges = sorted((e.since, e.until) for e in TABLE.get((domain, name), ()))
    return ", ".join(f"{a}+" if b is None else f"{a}-{b}" for a, b in ranges)
