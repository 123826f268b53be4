"""The interface of an import function to an operator of StableHLO, for every format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.options import OptionNode


@dataclass(slots=True, eq=False)
class HloNode(OptionNode, ABC):
    """One operator during import.  Its options have the names of StableHLO's attributes."""

    @abstractmethod
    def output_dims(self, index: int = 0) -> tuple[int, ...] | None:
        """The declared extents of output number `index`, -1 for an open one; None if its rank is
        open.
        """

    @abstractmethod
    def called(self, name: str) -> Any:
        """The function that the operator calls in its role `name`, as `inline` takes it."""
