"""Scopes of names, for formats in which a graph inside a node reads the values around the node."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.slots import Slot
from tilesmith.support.errors import ModelError


@dataclass(slots=True, eq=False)
class Scope:
    """Names of values.

    parent: the enclosing scope; None in a function.
    body: the graph in which the names are used; None if it is the parent's.
    names: the slot of each name so far.
    """

    parent: Scope | None = None
    body: Body | None = None
    names: dict[str, Slot] = field(default_factory=dict)

    def find(self, name: str) -> Slot:
        """The meaning of a name.  Raises ModelError if it has none here."""
        if name not in self.names:
            if self.parent is None:
                raise ModelError(f"{name!r} is used, which nothing before defines")
            slot = self.parent.find(name)
            self.names[name] = slot if self.body is None else self.body.slot(slot)
        return self.names[name]

    def seen(self, slot: Slot) -> Slot:
        """The value here that stands for a value of the outermost scope."""
        slot = slot if self.parent is None else self.parent.seen(slot)
        return slot if self.body is None else self.body.slot(slot)
