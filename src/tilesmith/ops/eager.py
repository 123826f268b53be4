"""Application of one operator without a graph: `evaluate` for arrays, `infer` for types.

Primitive and irregular operators compute their own results.  For a composite operator, `decompose`
gets a builder that evaluates each node at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType

from .base import Op
from .formula import Formula


@dataclass(frozen=True, eq=False)
class Array(Formula):
    """A value of the eager builder.

    array: its contents.
    """

    array: np.ndarray = field(repr=False)

    @property
    def builder(self) -> _Eager:
        return _Eager()

    @cached_property
    def type(self) -> TensorType:
        return TensorType(to_dtype(self.array.dtype), self.array.shape)


class _Eager:
    """A GraphBuilder whose values are arrays."""

    def constant(self, array: np.ndarray) -> Array:
        return Array(array)

    def add(self, op: Op, *inputs: Array) -> Any:
        result = _apply(op, inputs, self)
        values = tuple(v if isinstance(v, Array) else Array(v) for v in result)
        return values[0] if len(values) == 1 else values


def _apply(op: Op, inputs: Sequence[Array], builder: _Eager) -> tuple[Any, ...]:
    result: Any
    if op.is_composite():
        result = op.decompose(builder, *inputs)
    else:
        op.infer(*(x.type for x in inputs))  # rejects inputs that don't fit
        result = op.reference(*(x.array for x in inputs))
    return result if isinstance(result, tuple) else (result,)


def evaluate(op: Op, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The outputs of `op` on `arrays`.  Raises ModelError if they do not fit the operator."""
    result = _apply(op, [Array(np.asarray(a)) for a in arrays], _Eager())
    return tuple(v.array if isinstance(v, Array) else v for v in result)


@dataclass(frozen=True, eq=False)
class Typed(Formula):
    """A value of the typing builder.

    type: its type.
    """

    type: TensorType

    @property
    def builder(self) -> _Typing:
        return _Typing()


class _Typing:
    """A GraphBuilder whose values are only types."""

    def constant(self, array: np.ndarray) -> Typed:
        return Typed(TensorType(to_dtype(array.dtype), array.shape))

    def add(self, op: Op, *inputs: Typed) -> Any:
        values = tuple(Typed(t) for t in infer(op, *(x.type for x in inputs)))
        return values[0] if len(values) == 1 else values


@lru_cache(maxsize=4096)
def infer(op: Op, *types: TensorType) -> tuple[TensorType, ...]:
    """Result types of an operator of any kind.  Raises ModelError for wrong `types`."""
    if not op.is_composite():
        return op.infer(*types)
    result: Any = op.decompose(_Typing(), *(Typed(t) for t in types))
    values: tuple[Typed, ...] = result if isinstance(result, tuple) else (result,)
    return tuple(v.type for v in values)
