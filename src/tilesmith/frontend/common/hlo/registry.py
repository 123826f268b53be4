"""The table of StableHLO's operators: which Python function imports which operator, by its name in
StableHLO.

A function gets an `HloNode`, whose options have the names of StableHLO's attributes, and returns
the node's output (a tuple if there are several).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.ops.base import Op

from .node import HloNode

ImportFunction: TypeAlias = Callable[[HloNode], Result]

HLO: Registry[ImportFunction] = Registry()
"""The operators by domain (always empty) and name."""

MOVES: set[str] = set()
"""The operators that only move or compare elements, or compute with stored integers as with other
numbers."""


def hlo_op(name: str, moves: bool = False) -> Callable[[ImportFunction], ImportFunction]:
    """A decorator that registers a function.

    moves: whether the operator also accepts stored integers.
    """
    if moves:
        MOVES.add(name)
    return HLO.register(name)


def same_operators(
    table: Mapping[str, Callable[[], Op]], arity: int = 1, moving: Collection[str] = ()
) -> None:
    """Register operators without options, each equal to an operator of Tilesmith.

    moving: names of operators that also accept stored integers.
    """
    MOVES.update(moving)
    for name, make in table.items():
        HLO.register_same(make, name, arity=arity)
