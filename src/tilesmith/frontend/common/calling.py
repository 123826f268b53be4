"""The interface of an import function to one node that may hold graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.slots import Slot


@dataclass(slots=True, eq=False)
class CallingNode(NodeContext):
    """One node during import, of a format whose nodes may hold graphs or call functions.

    inline: adds the nodes of a graph for given inputs and returns its outputs; the last argument is
        its location, for messages.
    nest: does the same in a body, whose values the inputs are; returns None, and reports nothing,
        if a part can't be in one.
    """

    inline: Callable[[Any, Sequence[Slot], str], list[Slot]]
    nest: Callable[[Body, Any, Sequence[Slot], str], list[Slot] | None]
