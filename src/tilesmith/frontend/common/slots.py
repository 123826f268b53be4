"""The meanings of a source model's names during import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError


@dataclass(frozen=True, slots=True)
class Failed:
    """A value that could not be made.  Its node is reported at the end, and its users are
    skipped.
    """


@dataclass(frozen=True, slots=True, eq=False)
class TensorList:
    """A sequence of tensors of one element type, whose length is known during import.

    items: the tensors.
    dtype: their element type.
    """

    items: tuple[Value, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional value that is missing."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A variable of the model, which keeps its value from run to run.

    name: the variable's name.
    """

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A tensor of complex numbers.

    real: the real parts.
    imaginary: the imaginary parts, of the same type.
    """

    real: Value
    imaginary: Value


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """A list of tensors of one shape, of which none is known yet.

    count: the number of tensors, i64 of rank 0.
    dtype: their element type.
    """

    count: Value
    dtype: DType


FAILED, ABSENT = Failed(), Absent()
Slot: TypeAlias = "Value | TensorList | Absent | Resource | Complex | Reserved | Failed | None"
"""The meaning of a name.  None stands for an optional input that is left out."""

Result: TypeAlias = "Slot | tuple[Slot, ...]"
"""The result of an import function: the node's output, or a tuple of several outputs."""


def kind_of(slot: Slot) -> str:
    """The kind of a slot, in words."""
    if isinstance(slot, TensorList):
        return f"a sequence of {len(slot.items)} tensors"
    if isinstance(slot, Complex):
        return "a tensor of complex numbers"
    if isinstance(slot, Resource):
        return f"variable {slot.name!r}"
    return "a tensor" if isinstance(slot, Value) else "nothing"


@dataclass(slots=True)
class Scope:
    """The names of one body.

    parent: the enclosing body.  Its names are visible, too.
    prefix: prefix of the names of nodes, for messages.
    depth: number of enclosing bodies.
    """

    parent: Scope | None = None
    prefix: str = ""
    depth: int = 0
    names: dict[str, Slot] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.parent is not None and name in self.parent)

    def find(self, name: str) -> Slot:
        """The meaning of `name`.  Raises ModelError when nothing defines it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise ModelError(f"{name!r} is used, which nothing defines")
