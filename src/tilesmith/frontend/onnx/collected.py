"""Results that a loop collects although only its iterations find their shapes.

The elements of all iterations are appended to one list, which is a carried value.  Behind the loop
it gets the shape that all iterations must agree about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common.numbers import Numbers
from tilesmith.frontend.onnx.computed import of_dims, viewed
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import reduce, slicing

WIDTH = 3
"""Carried values for each such result: elements, extents, and by how much they ever differed."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Such a result.

    number: among the results that the loop collects.
    element: what an iteration gives.
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
        dims, differed = (Numbers(n, v) for v in numbers)
        now = of_dims(n, element.shape)
        change = dims.below(0).chooses(0, (now - dims).most(dims - now))
        most = change.summed(0, reduce.ReduceMax).shaped(1)
        whole = n.add(slicing.Concat(0), elements, flat)
        return [whole, now.value, differed.most(most).value]

    def stacked(self, n: OnnxNode, carried: Sequence[Value], count: Value) -> Value:
        """The result, of which `count` iterations gave an element."""
        elements, dims, differed = carried
        rows = Numbers(n, count.reshape(1))
        whole = rows.joined(Numbers(n, dims).most(0))
        return viewed(n, elements, n.measured(whole.value, zero=differed))
