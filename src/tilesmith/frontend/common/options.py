"""The interface of an import function to one node, for operators that TFLite took over from
TensorFlow.  In both formats these operators have the same inputs and the same names of options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.slots import Slot, kind_of
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError


@dataclass(slots=True, eq=False)
class OptionNode(CallingNode):
    """One operator during import.

    slots: its inputs; None for an input that is left out.
    """

    slots: tuple[Slot, ...]

    # Inputs

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs, for operators with any number of inputs.  None of them may be left out."""
        return tuple(self.input(i) for i in range(len(self.slots)))

    def input(self, index: int) -> Value:
        """Required input number `index`."""
        value = self.optional(index)
        if value is None:
            raise ModelError(f"expected input number {index + 1}, which is required; found none")
        return value

    def optional(self, index: int) -> Value | None:
        """Input number `index`; None if it is left out."""
        slot = self.slots[index] if index < len(self.slots) else None
        if slot is None or isinstance(slot, Value):
            return slot
        raise ModelError(f"expected a tensor as input number {index + 1}, found {kind_of(slot)}")

    # Declarations

    @property
    def kind(self) -> str:
        """The operator's name."""
        raise NotImplementedError

    @property
    def output_count(self) -> int:
        """The number of outputs."""
        raise NotImplementedError

    def output_dtype(self, index: int = 0) -> DType:
        """The declared element type of output number `index`."""
        raise NotImplementedError

    @property
    def stored_zero(self) -> int:
        """The integer that represents 0 in the first output (its zero point)."""
        return 0

    # Options

    def option(self, name: str) -> Any:
        """An option; 0 if it is left out."""
        raise NotImplementedError

    def options(self, name: str) -> tuple[int, ...]:
        """An option that is a list of integers; empty if it is left out."""
        raise NotImplementedError

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """An option that is one of the names in `among`."""
        raise NotImplementedError
