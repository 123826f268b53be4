"""The inputs of a node by their numbers, for formats whose nodes list their inputs."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Slot, kind_of
from tilesmith.graph.nodes import Value
from tilesmith.support.errors import ModelError


class Operands:
    """Part of a format's interface to a node.

    slots: the node's inputs; None for an input that is left out.
    """

    __slots__ = ()
    slots: tuple[Slot, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs, for operators with any number of inputs.  None of them may be left out."""
        return tuple(self.input(i) for i in range(len(self.slots)))

    def input(self, index: int = 0) -> Value:
        """Required input number `index`."""
        value = self.optional(index)
        if value is None:
            raise ModelError(f"expected input number {index + 1}, which is required; found none")
        return value

    def optional(self, index: int) -> Value | None:
        """Input number `index`; None if it is left out."""
        slot = self.slot(index)
        if slot is None or isinstance(slot, Value):
            return slot
        raise ModelError(f"expected a tensor as input number {index + 1}, found {kind_of(slot)}")

    def slot(self, index: int) -> Slot:
        """Input number `index`, of any kind; None if it is left out."""
        return self.slots[index] if index < len(self.slots) else None
