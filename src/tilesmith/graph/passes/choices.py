"""The interface for choices of passes that measurements and users may decide.

Estimated costs cannot decide some choices reliably.  For these a pass calls a `Choose` with the
name of a *knob*, the nodes concerned, the options and its own preference.  `preferred` returns the
preference.  The driver's function returns the value that tuning found for equal nodes, within the
user's constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tilesmith.graph.nodes import Node

V = TypeVar("V", int, str, bool)


class Choose(Protocol):
    """The value of `knob` for `nodes`, one of `options`.  The pass itself prefers `default`."""

    def __call__(
        self, knob: str, nodes: Sequence[Node], options: tuple[V, ...], default: V
    ) -> V: ...


class Allow(Protocol):
    """The `options` that the user's constraints allow for `knob`; at least one."""

    def __call__(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]: ...


def preferred(knob: str, nodes: Sequence[Node], options: tuple[V, ...], default: V) -> V:
    """The pass's own choice."""
    del knob, nodes, options
    return default


def anything(knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
    """All options."""
    del knob
    return options
