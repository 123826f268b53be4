"""The meanings of a source model's names during import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Failed:
    """A value that could not be made: its node is reported at the end, its users are skipped."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorList:
    """A sequence of tensors of one element type; resolved while the model is imported.

    items: the tensors.
    dtype: their element type.
    """

    items: tuple[Value, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional value that is not there."""


FAILED, ABSENT = Failed(), Absent()
Slot: TypeAlias = "Value | TensorList | Absent | Failed | None"
"""None: an optional input that is left out."""

Result: TypeAlias = "Slot | tuple[Slot, ...]"
"""The result of an import function: the node's output, or all of them if there are several."""


def kind_of(slot: Slot) -> str:
    """The kind of a slot, in words."""
    if isinstance(slot, TensorList):
        return f"a sequence of {len(slot.items)} tensors"
    return "a tensor" if isinstance(slot, Value) else "nothing"
