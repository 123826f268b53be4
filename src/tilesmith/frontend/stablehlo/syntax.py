"""A StableHLO module, as text and bytecode both state it.

Operations have the attributes of StableHLO's portable form (VHLO): a gather has its `offset_dims`
itself, not a structure that holds them.  Attributes are numbers, bools, texts, lists and mappings
of attributes, arrays, types, and symbols (texts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.ir.dtypes import DType

OPEN = -1
"""An extent that only a run knows."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The type of a tensor.

    dtype: its element type.
    dims: its extents; OPEN for one that only a run knows.  None if its rank is open.
    """

    dtype: DType
    dims: tuple[int, ...] | None

    def __str__(self) -> str:
        dims = "of unknown rank" if self.dims is None else [d if d >= 0 else "?" for d in self.dims]
        return f"{self.dtype} {dims}"


Type: TypeAlias = "Tensor | str"
"""The type of a value: the type of a tensor, or another type as text."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Operations with arguments; the last one returns the results.

    arguments: names and types.
    operations: its operations, in order.
    """

    arguments: tuple[tuple[str, Type], ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation.

    name: its operator, without the dialect if that is StableHLO.
    operands: names of values.
    results: names of its results.
    types: types of its results.
    attributes: its attributes by name.
    regions: the regions that it holds.
    place: where it stands in the file, for messages.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...]
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function.

    name: its name, without the "@".
    body: its arguments and operations.
    types: types of its results.
    """

    name: str
    body: Region
    types: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A module.

    format: the format of the file, in words.
    functions: its functions by name.
    producer: the program that wrote the file; empty if the file does not say.
    """

    format: str
    functions: Mapping[str, Function] = field(default_factory=dict)
    producer: str = ""


RETURNS = frozenset({"return", "func.return"})
CALLS = frozenset({"call", "func.call"})


def operations(region: Region) -> Iterator[Operation]:
    """The operations of a region and of the regions inside it, in order."""
    for o in region.operations:
        yield o
        for inner in o.regions:
            yield from operations(inner)
