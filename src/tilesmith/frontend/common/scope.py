"""The lookup of names during the walk over a graph or function body."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.support.errors import ModelError

from .slots import Slot


@dataclass(slots=True)
class Scope:
    """The names of one body.

    parent: the body around it, whose names are seen too.
    prefix: put in front of the names of nodes, for messages.
    depth: bodies around it.
    """

    parent: Scope | None = None
    prefix: str = ""
    depth: int = 0
    names: dict[str, Slot] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.parent is not None and name in self.parent)

    def find(self, name: str) -> Slot:
        """The meaning of `name`.  Raises ModelError when nothing defines it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise ModelError(f"{name!r} is used, which nothing defines")
