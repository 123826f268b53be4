"""The interface between an import function and a node that may hold graphs."""

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

    inline: adds the nodes of a graph for given inputs and returns the graph's outputs.  The last
        argument is the graph's location, for messages.
    nest: does the same in a body, and its inputs are values of the body.  Returns None, and reports
        nothing, if a part can't be in a body.
    """

    inline: Callable[[Any, Sequence[Slot], str], list[Slot]]
    nest: Callable[[Body, Any, Sequence[Slot], str], list[Slot] | None]
