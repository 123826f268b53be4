"""Layouts on devices: row-major, in which neighbouring threads read neighbouring elements."""

from __future__ import annotations

from tilesmith.graph.nodes import Node, Value
from tilesmith.graph.passes.layout import Choice, LayoutPolicy, NodeLayouts
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target


class _RowMajor:
    def fixed(self, node: Node, known: frozenset[int]) -> NodeLayouts | None:
        return None

    def is_free(self, node: Node) -> bool:
        return False

    def reading(self, node: Node, number: int, layout: Choice, result: Choice) -> float:
        return 0.0

    def relayout(self, value: Value) -> float:
        return 2.0 * expected_size(value.shape) * value.dtype.bytes


def row_major(target: Target) -> LayoutPolicy:
    """The policy that keeps all values row-major."""
    return _RowMajor()
