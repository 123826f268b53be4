"""The interface of an import function to one node, for operators that TFLite took over from
TensorFlow.  In both formats these operators have the same inputs and the same names of options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.operands import Operands
from tilesmith.frontend.common.slots import Slot
from tilesmith.ir.dtypes import DType


@dataclass(slots=True, eq=False)
class OptionNode(Operands, CallingNode, ABC):
    """One operator during import.

    slots: its inputs; None for an input that is left out.
    """

    slots: tuple[Slot, ...]

    # Declarations

    @property
    @abstractmethod
    def kind(self) -> str:
        """The operator's name."""

    @property
    @abstractmethod
    def output_count(self) -> int:
        """The number of outputs."""

    @abstractmethod
    def output_dtype(self, index: int = 0) -> DType:
        """The declared element type of output number `index`."""

    @property
    def stored_zero(self) -> int:
        """The integer that represents 0 in the first output (its zero point)."""
        return 0

    # Options

    @abstractmethod
    def option(self, name: str) -> Any:
        """An option; 0 if it is left out."""

    @abstractmethod
    def options(self, name: str) -> tuple[int, ...]:
        """An option that is a list of integers; empty if it is left out."""

    @abstractmethod
    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """An option that is one of the names in `among`."""
