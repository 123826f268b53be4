"""Bodies: sub-graphs of control flow, which become separate graphs during import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.shape import Expand
from tilesmith.ops.sizes import Extents

from .folding import FoldingBuilder, is_weight
from .slots import Reserved, Slot, TensorList

_KNOWN_ELEMENTS = 1 << 14
"""Upper bound on the elements of a known value that becomes a constant in a body.  Shapes that are
computed from the constant are then known in the body.
"""


class Body(FoldingBuilder):
    """The builder of a body.

    Values of the enclosing graph are captured: constants are shared, and other values become
    inputs of the body, after the inputs that its operator declares (see `given`).  Of a graph that
    will be trained, weights become inputs, too.
    """

    def __init__(self, outer: FoldingBuilder, name: str, is_branch: bool = False) -> None:
        """Begin a body.

        is_branch: whether a run may skip the body.
        """
        super().__init__(name, outer.for_training)
        self.without_dropout = outer.without_dropout
        self.always_runs = outer.always_runs and not is_branch
        self.misfit = ""
        """The reason why no sizes satisfy the body's nodes, so that the body can't be a graph."""
        self._outer = outer
        self.measured = outer.measured
        # Errors inside the body name the node that holds the body.
        self._loc, self._label = outer._loc, outer._label
        self._inside: dict[Value, Value] = {}
        self.captured: list[Value] = []
        """The values of the enclosing graph that are inputs of the body, in order."""

    def given(self, types: Sequence[TensorType]) -> list[Value]:
        """New inputs of the given types, for values that the operator passes to the body."""
        return [self.input(f"in{len(self._inputs)}", t) for t in types]

    def capture(self, value: Value) -> Value:
        """The value in this body that stands for a value of the enclosing graph."""
        if value not in self._inside:
            self._inside[value] = self._captured(value)
            if value in self._outer.numbers:
                self.numbers.add(self._inside[value])
        return self._inside[value]

    def _captured(self, value: Value) -> Value:
        outer = self._outer
        is_kept = outer.for_training and is_weight(value)
        if outer.is_constant(value) and not is_kept:
            return self.lazy_constant(value.type, outer.data(value), value.name)
        if not is_kept and value.type.is_static and value.type.size <= _KNOWN_ELEMENTS:
            known = outer.known(value)
            if known is not None:
                return self.constant(known, value.name)
        self.captured.append(value)
        return self.input(f"in{len(self._inputs)}", value.type)

    def refuse(self, why: str, types: Sequence[TensorType], loc: str) -> tuple[Value, ...]:
        """Zeros with the given types, as the results of a body that refuses every run that reaches
        it.

        why: the reason, for the run's error.
        loc: the node that the error names.
        """
        zero = symbol("misfits", 0, 0)
        self.add(Measure((zero,), (0,), f"misfits ({why})"), self.add(Extents((1,), (1,))), loc=loc)
        return tuple(
            self.add(Expand(t.shape), self.constant(np.zeros((), t.dtype.numpy))) for t in types
        )

    def slot(self, slot: Slot) -> Slot:
        """The slot in this body that stands for a slot of the enclosing graph."""
        if isinstance(slot, Value):
            return self.capture(slot)
        if isinstance(slot, TensorList):
            return replace(slot, items=tuple(map(self.capture, slot.items)))
        if isinstance(slot, Reserved):
            return replace(slot, count=self.capture(slot.count))
        return slot

    def count(self) -> None:
        self._outer.count()

    def next_stream(self) -> int:
        return self._outer.next_stream()

    def inputs_behind(self, value: Value) -> tuple[str, ...]:
        outside = {inner: outer for outer, inner in self._inside.items()}
        behind = (outside[v] for v in self._behind(value) if v in outside)
        return tuple(dict.fromkeys(n for v in behind for n in self._outer.inputs_behind(v)))


def alternatives(
    bodies: Sequence[Body], results: Sequence[Sequence[Value]]
) -> tuple[list[Graph], tuple[Value, ...]]:
    """The graphs of the bodies, and the captured values that they all have as inputs, in the same
    order.
    """
    captured = tuple(dict.fromkeys(v for b in bodies for v in b.captured))
    graphs = []
    for body, values in zip(bodies, results, strict=True):
        inputs = tuple(body.capture(v) for v in captured)
        graph = body.finish(values, [f"out{i}" for i in range(len(values))])
        graphs.append(replace(graph, inputs=inputs))
    return graphs, captured
