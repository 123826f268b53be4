"""How passes leave decisions to whoever measured them.

A pass that has a choice which costs cannot settle for sure asks for it: a *knob*, the nodes that it
is about, the values it may have and the one that the pass itself prefers.  `preferred` answers with
that; the driver answers with what tuning found for nodes like these, within what a user wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tilesmith.graph.nodes import Node

V = TypeVar("V", int, str, bool)


class Choose(Protocol):
    """The value of `knob` for `nodes`, one of `options`."""

    def __call__(
        self, knob: str, nodes: Sequence[Node], options: tuple[V, ...], default: V
    ) -> V: ...


class Allow(Protocol):
    """Those of `options` that a user leaves to the choice `knob`; at least one."""

    def __call__(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]: ...


def preferred(knob: str, nodes: Sequence[Node], options: tuple[V, ...], default: V) -> V:
    """The pass's own choice."""
    del knob, nodes, options
    return default


def anything(knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
    """All options."""
    del knob
    return options
