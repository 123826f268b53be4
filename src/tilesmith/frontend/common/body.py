"""Sub-graphs of control flow while they are imported: graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.types import TensorType

from .folding import FoldingBuilder
from .slots import Slot, TensorList

_KNOWN_ELEMENTS = 1 << 14
"""Known values of up to this many elements are constants in a body too, so that shapes computed
from them are known there.
"""


class Body(FoldingBuilder):
    """The builder of a body.

    Values of the graph around it are captured: constants are shared, others become inputs after
    those that the body's operator gives it.
    """

    always_runs: ClassVar[bool] = False

    def __init__(self, outer: FoldingBuilder, name: str) -> None:
        super().__init__(name)
        self._outer = outer
        self.measured = outer.measured
        self._inside: dict[Value, Value] = {}
        self.captured: list[Value] = []
        """The values of the graph around that are inputs, in order."""

    def given(self, types: Sequence[TensorType]) -> list[Value]:
        """New inputs that the operator gives the body."""
        return [self.input(f"in{len(self._inputs)}", t) for t in types]

    def capture(self, value: Value) -> Value:
        """What a value of the graph around is in here."""
        if value not in self._inside:
            self._inside[value] = self._captured(value)
        return self._inside[value]

    def _captured(self, value: Value) -> Value:
        outer = self._outer
        if outer.is_constant(value):
            return self.lazy_constant(value.type, outer.data(value), value.name)
        if value.type.is_static and value.type.size <= _KNOWN_ELEMENTS:
            known = outer.known(value)
            if known is not None:
                return self.constant(known, value.name)
        self.captured.append(value)
        return self.input(f"in{len(self._inputs)}", value.type)

    def slot(self, slot: Slot) -> Slot:
        """What a slot of the graph around is in here."""
        if isinstance(slot, Value):
            return self.capture(slot)
        if isinstance(slot, TensorList):
            return replace(slot, items=tuple(map(self.capture, slot.items)))
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
    """Graphs with the same inputs, which are captured values, and those values."""
    captured = tuple(dict.fromkeys(v for b in bodies for v in b.captured))
    graphs = []
    for body, values in zip(bodies, results, strict=True):
        inputs = tuple(body.capture(v) for v in captured)
        graph = body.finish(values, [f"out{i}" for i in range(len(values))])
        graphs.append(replace(graph, inputs=inputs))
    return graphs, captured
