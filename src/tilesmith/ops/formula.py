"""Python operators for the values of a graph under construction, to write formulas with.

`mean * m + now * (1 - m)` adds nodes to the graph in which `mean` and `now` were made.  Operands
broadcast.  Numbers and arrays become constants with the element type of the other operand.  `==`
stays identity, as everywhere in a graph: `equals` compares elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.ir.dtypes import DType
from tilesmith.ir.types import Dim

from . import elementwise as ew
from . import reduce, shape
from .base import Op
from .functions import apply


def _operator(make: Callable[[], Op], *, swap: bool = False) -> Callable[[Any, Any], Any]:
    """A method that applies an operator to self and an operand; with `swap`, to the operand and
    self.
    """

    def method(self: Any, other: Any) -> Any:
        return apply(make(), *((other, self) if swap else (self, other)))

    return method


def _logical(of_bools: type[Op], of_integers: type[Op]) -> Callable[[Any, Any], Any]:
    """A method that applies `of_bools` to bools and `of_integers` to integers."""

    def method(self: Any, other: Any) -> Any:
        return apply((of_bools if self.type.dtype.is_bool else of_integers)(), self, other)

    return method


class Formula:
    """Base of the values that a builder makes.  They have a `type` and the `builder`, which is None
    once the graph is finished.
    """

    __slots__ = ()

    __array_ufunc__ = None  # lets this class handle operators whose left operand is a NumPy array

    __add__, __radd__ = _operator(ew.Add), _operator(ew.Add, swap=True)
    __sub__, __rsub__ = _operator(ew.Sub), _operator(ew.Sub, swap=True)
    __mul__, __rmul__ = _operator(ew.Mul), _operator(ew.Mul, swap=True)
    __truediv__, __rtruediv__ = _operator(ew.Div), _operator(ew.Div, swap=True)
    """The quotient.  Quotients of integers are rounded toward zero."""
    __mod__ = _operator(ew.Mod)
    """The remainder, with the sign of the divisor."""
    __pow__, __rpow__ = _operator(ew.Pow), _operator(ew.Pow, swap=True)
    __lt__, __le__ = _operator(ew.Less), _operator(ew.LessEqual)
    __gt__, __ge__ = _operator(ew.Greater), _operator(ew.GreaterEqual)
    __and__ = _logical(ew.LogicalAnd, ew.BitwiseAnd)
    __or__ = _logical(ew.LogicalOr, ew.BitwiseOr)
    __xor__ = _logical(ew.LogicalXor, ew.BitwiseXor)
    equals, differs = _operator(ew.Equal), _operator(ew.NotEqual)

    def __neg__(self) -> Any:
        return apply(ew.Neg(), self)

    def __abs__(self) -> Any:
        return apply(ew.Abs(), self)

    def __invert__(self: Any) -> Any:
        return apply(ew.LogicalNot() if self.type.dtype.is_bool else ew.BitwiseNot(), self)

    def cast(self: Any, dtype: DType) -> Any:
        """The tensor as `dtype`; the tensor itself if it has that type."""
        return self if self.type.dtype is dtype else apply(ew.Cast(dtype), self)

    def reshape(self, *dims: Dim) -> Any:
        return apply(shape.Reshape(dims), self)

    def transpose(self, *axes: int) -> Any:
        return apply(shape.Transpose(axes), self)

    def expand(self, *dims: Dim) -> Any:
        """Broadcast to a shape."""
        return apply(shape.Expand(dims), self)

    # Reductions over `axes` (None: all axes).  With `keepdims` reduced axes stay, with extent 1.

    def sum(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return self._reduced(reduce.ReduceSum, axes, keepdims)

    def mean(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return self._reduced(reduce.ReduceMean, axes, keepdims)

    def max(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return self._reduced(reduce.ReduceMax, axes, keepdims)

    def min(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return self._reduced(reduce.ReduceMin, axes, keepdims)

    def prod(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return self._reduced(reduce.ReduceProd, axes, keepdims)

    def _reduced(
        self, make: type[reduce.Reduction], axes: Sequence[int] | None, keepdims: bool
    ) -> Any:
        return apply(make(None if axes is None else tuple(axes), keepdims), self)
