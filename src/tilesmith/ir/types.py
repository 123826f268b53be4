"""Types of values at the graph level.

A dimension is an `int`, or a scalar expression (`ir.expr.Expr`) over symbolic `Var`s if it is only
known at run time.  Types are compared with `==`, extents with `same_dim` and shapes with
`same_shape`: `==` of an expression makes a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilesmith.support.errors import OpenDimensionError

from .dtypes import DType
from .expr import Expr

Dim: TypeAlias = int | Expr


def same_dim(a: Dim, b: Dim) -> bool:
    """True if both are the same number or the same expression (which is interned)."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if both have the same extents."""
    return len(a) == len(b) and all(map(same_dim, a, b))


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor; as text `f32[1,64,56,56]`, a scalar `f32[]`.

    dtype: element type.
    shape: logical extents.
    """

    dtype: DType
    shape: tuple[Dim, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.dtype is other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """True if every dimension is a number."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def is_empty(self) -> bool:
        """True if a dimension is known to be 0."""
        return any(same_dim(d, 0) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers.  Raises OpenDimensionError if a dimension is symbolic."""
        dims: list[int] = []
        for d in self.shape:
            if not isinstance(d, int):
                raise OpenDimensionError(
                    f"{self} has the symbolic dimension {d}; give the inputs their sizes with "
                    "shapes=",
                    self.shape,
                )
            dims.append(d)
        return tuple(dims)

    @property
    def size(self) -> int:
        """Number of elements (static shapes only)."""
        n = 1
        for d in self.static_shape:
            n *= d
        return n

    @property
    def bytes(self) -> int:
        """Bytes of a dense buffer of this type (static shapes only)."""
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(str(d) for d in self.shape)}]"
