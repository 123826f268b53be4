"""The interface between an import function and the call that it imports.

It has the methods of `NodeContext` to add to the graph, and ATen's conversions between element
types, numbers and shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.frontend.aten.promotion import Number, Operand, number_type, result_type
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bool_, f8e4m3fn, f32, i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import shape
from tilesmith.ops.gather import FromFront


@dataclass(slots=True, eq=False)
class AtenNode(NodeContext):
    """One call during import.

    target: the operator's overload.
    count: length of the list that the call returns, at the sizes of the example inputs; None if the
        call returns no list.
    """

    target: str
    count: int | None = None

    # Element types

    def cast(self, x: Value, dtype: DType | None) -> Value:
        """`x` converted to `dtype`; `x` itself if it has that type, or if `dtype` is None."""
        if dtype is None or x.dtype is dtype:
            return x
        if dtype is f8e4m3fn:  # the only 8-bit type in which PyTorch saturates
            if not x.dtype.is_float or x.dtype.is_storage:
                x = self.cast(x, f32)
            x = self.add(ew.Clip(-dtype.largest, dtype.largest), x)
        return self.add(ew.Cast(dtype), x)

    def tensor(self, x: Operand, dtype: DType | None = None) -> Value:
        """A tensor or a number as a value of type `dtype`.  The default is the type of `x`."""
        if isinstance(x, Value):
            return self.cast(x, dtype)
        if isinstance(x, Expr):
            return self.cast(self.of_dims((x,), ()), dtype)
        dtype = dtype or number_type(x)
        if dtype.is_int and isinstance(x, float):
            x = int(x)
        if dtype.is_bool:
            x = bool(x)
        return self.const(x, dtype)

    def result_type(self, *operands: Operand) -> DType:
        """The common element type of operands."""
        return result_type(operands, self.builder.numbers)

    def common(self, *operands: Operand, floating: bool = False) -> tuple[Value, ...]:
        """Operands in their common type.  With `floating`, integers become f32."""
        dtype = self.result_type(*operands)
        if floating and not dtype.is_float:
            dtype = f32
        return tuple(self.tensor(x, dtype) for x in operands)

    def floating(self, x: Value) -> Value:
        """`x` itself if its type is a float type, else `x` as f32."""
        return x if x.dtype.is_float else self.cast(x, f32)

    def truth(self, x: Operand) -> Value:
        """A mask of the elements that are not 0."""
        return self.tensor(x, bool_)

    def number(self, x: Number | Value, what: str) -> int | float | bool:
        """`x` as a number.  Refuses numbers that are not known at compile time.

        what: the name of `x` in messages.
        """
        if isinstance(x, Value):
            return self.scalar(x, what)
        if isinstance(x, Expr):
            self.unsupported(f"{what} is the symbolic {x}; give the inputs fixed sizes")
        return x

    # Shapes

    def from_front(self, index: Value, extent: Dim) -> Value:
        """Indices into an axis of size `extent`, as i64.  As in ATen, runs refuse negative ones."""
        if same_dim(extent, 0):
            return self.cast(index, i64)
        return self.add(FromFront(extent), index)

    def permute(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with its axes in another order."""
        perm = tuple(perm)
        return x if perm == tuple(range(len(perm))) else self.add(shape.Transpose(perm), x)

    def full(self, value: Operand, dims: Sequence[Dim], dtype: DType) -> Value:
        """A tensor that is filled with `value`."""
        return self.expand(self.tensor(value, dtype), dims)

    def dims_of(self, sizes: Sequence[Dim | Value]) -> tuple[Dim, ...]:
        """Sizes from a call's argument as extents.  The number in a `Value` becomes an extent; it
        is symbolic if only a run can compute the number.
        """
        return tuple(
            d if not isinstance(d, Value) else self.extents(self.cast(d, i64), "a size")[0]
            for d in sizes
        )
