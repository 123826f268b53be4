"""The body of a loop during import, for carried values whose shapes may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.carried import CarriedShapes
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.control import INDEX
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_

ENDLESS = (1 << 63) - 1
"""The number of iterations of a loop that only its condition ends."""

Iteration: TypeAlias = "Callable[[Body, Value, Sequence[Value]], Sequence[Value] | None]"
"""Adds an iteration to a body, for the iteration's number and the carried values.  Returns whether
another iteration follows, the carried values after the iteration, and further results.  None if the
iteration can't be in a body.
"""


def settled(
    n: NodeContext, state: Sequence[Value], iterate: Iteration
) -> tuple[CarriedShapes, Body, Value, Sequence[Value]] | None:
    """The body of a loop whose carried values begin as `state`.  Returns the carried values' types,
    the body, whether another iteration follows, and the iteration's results.

    None if an iteration can't be in a body, or changes the rank or element type of a carried value.
    """
    shapes = CarriedShapes(n.label, state)
    while True:
        n.builder.measured.update(shapes.symbols)
        body = Body(n.builder, "step")
        number, *inner = body.given([INDEX, *shapes.types])
        made = iterate(body, number, inner)
        if not made:
            return None
        again, *results = made
        carried = results[: len(state)]
        if again.dtype is not bool_ or not shapes.fit(carried):
            return None
        if shapes.settle(carried):
            return shapes, body, again, results
