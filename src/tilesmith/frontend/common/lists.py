"""Lists of sizes that a run computes, as tensors of rank 1, and the formulas on them."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ops.functions import apply
from tilesmith.ops.gather import Gather
from tilesmith.ops.slicing import Concat


def listed(value: Value, dtype: DType = i64) -> Value:
    """A tensor of any shape as a list of `dtype`."""
    value = value.cast(dtype)
    return value if value.type.rank == 1 else value.reshape(-1)


def picked(numbers: Value, at: int | Sequence[int]) -> Value:
    """The elements of a list at these indices, as a list."""
    return apply(Gather(0), numbers, [at] if isinstance(at, int) else [*at], dtype=i64)


def joined(first: Value, *others: Value) -> Value:
    """The concatenation of lists."""
    return apply(Concat(0), first, *others) if others else first
