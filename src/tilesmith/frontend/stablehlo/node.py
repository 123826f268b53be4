"""The interface of an import function to one operation, and the table of the operations that no
other format has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.hlo.node import HloNode
from tilesmith.frontend.common.hlo.registry import HLO, ImportFunction
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.ir.dtypes import DType

from .syntax import Operation, Tensor

_MOST = 1 << 10
"""Upper bound on the numbers of an attribute."""


@dataclass(slots=True, eq=False)
class StablehloNode(HloNode):
    """One operation during import.

    operation: the operation as the module states it.
    """

    operation: Operation

    # Declarations

    @property
    def kind(self) -> str:
        return self.operation.name

    @property
    def output_count(self) -> int:
        return len(self.operation.types)

    def output_type(self, index: int = 0) -> Tensor:
        """The declared type of output number `index`."""
        types = self.operation.types
        if index >= len(types):
            self.bad(f"expected output number {index + 1}, found none")
        type_ = types[index]
        if not isinstance(type_, Tensor):
            self.unsupported(f"an output of type {type_}")
        return type_

    def output_dtype(self, index: int = 0) -> DType:
        return self.output_type(index).dtype

    def output_dims(self, index: int = 0) -> tuple[int, ...] | None:
        return self.output_type(index).dims

    # Attributes

    def stated(self, name: str) -> Any:
        """An attribute; None if it is left out."""
        return self.operation.attributes.get(name)

    def option(self, name: str) -> int:
        value = self.operation.attributes.get(name, 0)
        if not isinstance(value, int):
            self.bad(f"attribute {name!r}: expected an integer, found {value!r}")
        return value

    def options(self, name: str) -> tuple[int, ...]:
        value = self.operation.attributes.get(name, ())
        if not isinstance(value, (list, tuple, np.ndarray)):
            return ()
        array = np.asarray(value)
        if array.size > _MOST or (array.size and array.dtype.kind not in "biu"):
            self.bad(f"attribute {name!r}: expected at most {_MOST} integers, found {value}")
        return tuple(int(v) for v in array.reshape(-1))

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        value = self.operation.attributes.get(name)
        if value not in among:
            self.bad(f"attribute {name!r}: expected one of {', '.join(among)}, found {value!r}")
        return str(value)

    def called(self, name: str) -> Any:
        regions = self.operation.regions
        if len(regions) != 1:
            self.bad(f"expected a region, found {len(regions)}")
        return regions[0]


OPERATORS: Registry[Callable[[StablehloNode], Result]] = Registry()
"""The operations that no other format has, by domain (always empty) and name."""

stablehlo_op = OPERATORS.register


def import_function(name: str) -> Callable[[StablehloNode], Result] | ImportFunction | None:
    """The function that imports an operation; None if it is not supported."""
    return OPERATORS.find("", name) or HLO.find("", name)
