"""Operators that make tensors of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number, Operand, number_type
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.ranges import integers
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim
from tilesmith.ops.gather import Trilu


@aten_op("aten.scalar_tensor.default")
def scalar_tensor(n: AtenNode, s: Operand, dtype: DType | None = None) -> Value:
    return n.tensor(s, dtype or f32)


@aten_op("aten.full.default")
def full(
    n: AtenNode, size: Sequence[Dim], fill_value: Operand, dtype: DType | None = None
) -> Value:
    return n.full(fill_value, size, dtype or number_type(fill_value))


@aten_op("aten.full_like.default")
def full_like(n: AtenNode, self: Value, fill_value: Operand, dtype: DType | None = None) -> Value:
    return n.full(fill_value, self.type.shape, dtype or self.dtype)


@aten_op("aten.fill.Scalar", "aten.fill.Tensor")
def fill(n: AtenNode, self: Value, value: Operand) -> Value:
    return n.full(value, self.type.shape, self.dtype)


def _constant(
    n: AtenNode, size: Sequence[Dim], dtype: DType | None = None, *, number: int
) -> Value:
    return n.full(number, size, dtype or f32)


def _constant_like(n: AtenNode, self: Value, dtype: DType | None = None, *, number: int) -> Value:
    return n.full(number, self.type.shape, dtype or self.dtype)


# The contents of an empty tensor are undefined; zeros will do.
for _name, _overload, _number in (
    ("empty", "memory_format", 0), ("zeros", "default", 0), ("ones", "default", 1),
):  # fmt: skip
    aten_op(f"aten.{_name}.{_overload}")(partial(_constant, number=_number))
    aten_op(f"aten.{_name}_like.default")(partial(_constant_like, number=_number))


@aten_op("aten.empty_strided.default", "aten.empty_permuted.default")
def empty_strided(
    n: AtenNode, size: Sequence[Dim], stride: object, dtype: DType | None = None
) -> Value:
    return n.full(0, size, dtype or f32)


def _new(
    n: AtenNode, self: Value, size: Sequence[Dim], dtype: DType | None = None, *, number: int
) -> Value:
    return n.full(number, size, dtype or self.dtype)


for _name, _number in (("empty", 0), ("zeros", 0), ("ones", 1)):
    aten_op(f"aten.new_{_name}.default")(partial(_new, number=_number))


@aten_op("aten.new_empty_strided.default")
def new_empty_strided(
    n: AtenNode, self: Value, size: Sequence[Dim], stride: object,
    dtype: DType | None = None,
) -> Value:  # fmt: skip
    return _new(n, self, size, dtype, number=0)


@aten_op("aten.new_full.default")
def new_full(
    n: AtenNode, self: Value, size: Sequence[Dim], fill_value: Operand, dtype: DType | None = None
) -> Value:
    return n.full(fill_value, size, dtype or self.dtype)


@aten_op("aten.arange.start_step")
def arange(
    n: AtenNode,
    start: Number | Value,
    end: Number | Value,
    step: Number = 1,
    dtype: DType | None = None,
) -> Value:
    by = n.number(step, "step")
    is_float = any(isinstance(x, float) for x in (start, end, by))
    dtype = dtype or (f32 if is_float else i64)
    if not any(isinstance(x, (Expr, Value)) for x in (start, end)):
        first, last = n.number(start, "start"), n.number(end, "end")
        whole = (int(first), int(last), int(by))
        if dtype is i64:  # for i64 only, ATen rounds both ends before it counts elements
            first, last, by = whole
        count = max(math.ceil((last - first) / by), 0)
        if dtype.is_int:
            first, by = whole[0], whole[2]
        return n.const((first + by * np.arange(count)).astype(dtype.numpy))
    if isinstance(start, float) or isinstance(end, float) or not isinstance(by, int):
        n.unsupported("a range of floats whose ends only a run knows")
    first, last = n.dims_of((start, end))
    return n.cast(integers(n, first, last, by), dtype)


@aten_op("aten.arange.default")
def arange_end(n: AtenNode, end: Number | Value, dtype: DType | None = None) -> Value:
    return arange(n, 0, end, 1, dtype)


@aten_op("aten.arange.start")
def arange_start(
    n: AtenNode, start: Number | Value, end: Number | Value, dtype: DType | None = None
) -> Value:
    return arange(n, start, end, 1, dtype)


@aten_op("aten.tril.default")
def tril(n: AtenNode, self: Value, diagonal: int = 0) -> Value:
    return n.add(Trilu(False, diagonal), self)


@aten_op("aten.triu.default")
def triu(n: AtenNode, self: Value, diagonal: int = 0) -> Value:
    return n.add(Trilu(True, diagonal), self)


@aten_op("aten.linspace.default")
def linspace(
    n: AtenNode, start: Number, end: Number, steps: int, dtype: DType | None = None
) -> Value:
    first, last = n.number(start, "start"), n.number(end, "end")
    dtype = dtype or f32
    if dtype.is_int:  # as in ATen: round both ends, then count from the nearer end
        first, last = int(first), int(last)
        step, i = (last - first) / max(steps - 1, 1), np.arange(steps)
        near = np.where(i < steps // 2, first + step * i, last - step * (steps - 1 - i))
        return n.const((near if steps != 1 else np.array([first])).astype(dtype.numpy))
    return n.const(np.linspace(first, last, steps).astype(dtype.numpy))


def _triangle(
    n: AtenNode, row: int, col: int, offset: int = 0, dtype: DType | None = None, *, is_upper: bool
) -> Value:
    """The rows and the columns of the elements in a triangle of a matrix, as [2, count]."""
    places = np.triu_indices(row, offset, col) if is_upper else np.tril_indices(row, offset, col)
    return n.const(np.stack(places).astype((dtype or i64).numpy))


aten_op("aten.triu_indices.default")(partial(_triangle, is_upper=True))
aten_op("aten.tril_indices.default")(partial(_triangle, is_upper=False))
