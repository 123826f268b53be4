"""Results that a loop collects, if the shape of an element is known only during the iterations.

The elements of all iterations are appended to one list, which is a carried value.  After the loop
the list is reshaped.  The elements of all iterations must have the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common.computed import viewed
from tilesmith.frontend.common.lists import joined
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import slicing
from tilesmith.ops.functions import maximum, where

WIDTH = 3
"""Number of carried values for each ragged result: the elements so far, the extents of the last
element, and the largest change of an extent between iterations.
"""


@dataclass(frozen=True, slots=True)
class Ragged:
    """A collected result whose elements have a shape that is known only during the iterations.

    number: its index among the results that the loop collects.
    element: the result of one iteration.
    """

    number: int
    element: Value

    def first(self, n: OnnxNode) -> list[Value]:
        """The carried values before the loop."""
        none = np.zeros(0, self.element.dtype.numpy)
        return [
            n.const(none),
            n.const(np.full(self.element.type.rank, -1)),
            n.const(np.zeros(1, int)),
        ]

    def following(self, n: OnnxNode, element: Value, carried: Sequence[Value]) -> list[Value]:
        """The carried values after an iteration."""
        elements, *numbers = carried
        flat = element.reshape(extents.product(element.shape))
        dims, differed = (v for v in numbers)
        now = n.of_dims(element.shape)
        change = where(dims < 0, 0, maximum(now - dims, dims - now))
        most = change.max((0,)).reshape(1)
        whole = n.add(slicing.Concat(0), elements, flat)
        return [whole, now, maximum(differed, most)]

    def stacked(self, n: OnnxNode, carried: Sequence[Value], count: Value) -> Value:
        """The collected result after `count` iterations, each of which added an element."""
        elements, dims, differed = carried
        rows = count.reshape(1)
        whole = joined(rows, maximum(dims, 0))
        return viewed(n, elements, n.measured(whole, zero=differed))
