"""Python's arithmetic on sizes, as it occurs between calls of operators.

Sizes are numbers or expressions.  Other numbers, such as quotients and numbers that only a run
knows, are computed with i64 and f64 tensors of rank 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.expr import Expr, as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.ops.functions import floor, sqrt


@aten_op("operator.getitem")
def getitem(n: AtenNode, of: Any, index: int) -> Any:
    if index >= len(of):
        n.unsupported(f"result {index} of this operator is not computed")
    return of[index]


@aten_op("aten.sym_size.int")
def sym_size(n: AtenNode, self: Value, dim: int) -> Any:
    return self.type.shape[n.axis(dim, self.type.rank)]


@aten_op("aten.sym_numel.default", "aten.numel.default")
def sym_numel(n: AtenNode, self: Value) -> Any:
    return extents.product(self.type.shape)


@aten_op("aten.sym_stride.int")
def sym_stride(n: AtenNode, self: Value, dim: int) -> Any:
    """The stride of a tensor whose elements are in row-major order, as all tensors are here."""
    return extents.product(self.type.shape[n.axis(dim, self.type.rank) + 1 :])


@aten_op("aten.sym_storage_offset.default")
def sym_storage_offset(n: AtenNode, self: Value) -> Any:
    return 0


@aten_op("aten._local_scalar_dense.default", "aten.item.default")
def item(n: AtenNode, self: Value) -> Any:
    known = n.known(self)
    if known is not None:
        return known.reshape(()).item()
    # The number is a node of its own, because its rules of promotion differ from the tensor's.
    number = n.add(ew.Identity(), n.cast(self, f64 if self.dtype.is_float else i64))
    return _size_or_value(n, n.reshape(number, ()))


def _size_or_value(n: AtenNode, x: Value) -> Any:
    """The element of `x` (of rank 0) if it is a known number or expression.  Else `x` itself, which
    calls then treat as a Python number.
    """
    held = n.builder.contents(x)
    if held is not None and isinstance(number := held.reshape(()).item(), (int, float, Expr)):
        return number
    n.builder.numbers.add(x)
    return x


def _values(n: AtenNode, *numbers: Any) -> tuple[Value, ...]:
    """Numbers as tensors of rank 0, either all integers or all floats."""
    is_float = any(
        isinstance(x, float) or (isinstance(x, Value) and x.dtype.is_float) for x in numbers
    )
    return tuple(n.tensor(x, f64 if is_float else i64) for x in numbers)


def _binary(
    n: AtenNode, a: Any, b: Any, python: Callable[[Any, Any], Any], make: Callable[[], Op]
) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return python(a, b)
    if isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)):
        return as_dim(python(as_expr(a), as_expr(b)))
    return _size_or_value(n, n.add(make(), *_values(n, a, b)))


def _least(a: Any, b: Any) -> Any:
    return extents.smaller(a, b)


def _most(a: Any, b: Any) -> Any:
    return extents.larger(a, b)


for _name, _python, _make in (
    ("operator.add", operator.add, ew.Add),
    ("operator.sub", operator.sub, ew.Sub),
    ("operator.mul", operator.mul, ew.Mul),
    ("operator.mod", operator.mod, ew.Mod),
    ("torch.sym_max", _most, ew.Max),
    ("torch.sym_min", _least, ew.Min),
):
    aten_op(_name)(partial(_binary, python=_python, make=_make))


@aten_op("torch.sym_sum")
def sym_sum(n: AtenNode, sizes: Sequence[Any]) -> Any:
    total: Any = 0
    for size in sizes:
        total = _binary(n, total, size, operator.add, ew.Add)
    return total


@aten_op("operator.floordiv")
def floordiv(n: AtenNode, a: Any, b: Any) -> Any:
    if all(isinstance(x, (int, Expr)) for x in (a, b)) or not any(
        isinstance(x, Value) for x in (a, b)
    ):
        return _binary(n, a, b, operator.floordiv, ew.Div)
    x, y = _values(n, a, b)
    if x.dtype.is_float:
        return _size_or_value(n, floor(x / y))
    exact = x - x % y
    return _size_or_value(n, exact / y)


@aten_op("operator.truediv", "torch.sym_float_truediv", "torch.sym_int_truediv")
def truediv(n: AtenNode, a: Any, b: Any) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a / b
    return _size_or_value(n, n.tensor(a, f64) / n.tensor(b, f64))


@aten_op("operator.neg")
def neg(n: AtenNode, a: Any) -> Any:
    return _binary(n, 0, a, operator.sub, ew.Sub)


@aten_op("operator.pow", "torch.sym_pow")
def power(n: AtenNode, a: Any, b: Any) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a**b
    if isinstance(a, Expr) and isinstance(b, int) and b >= 0:
        return extents.product([a] * b)
    return _size_or_value(n, n.tensor(a, f64) ** n.tensor(b, f64))


@aten_op("torch.sym_float")
def sym_float(n: AtenNode, a: Any) -> Any:
    return float(a) if isinstance(a, (int, float)) else _size_or_value(n, n.tensor(a, f64))


@aten_op("torch._sym_sqrt", "math.sqrt")
def sym_sqrt(n: AtenNode, a: Any) -> Any:
    if isinstance(a, (int, float)):
        return math.sqrt(a)
    return _size_or_value(n, sqrt(n.tensor(a, f64)))


def _rounded(n: AtenNode, a: Any, python: Callable[[float], int], make: Callable[[], Op]) -> Any:
    if isinstance(a, (int, float)):
        return python(a)
    if isinstance(a, Expr) or a.dtype.is_int:
        return a
    return _size_or_value(n, n.cast(n.add(make(), a), i64))


for _name, _floor, _op in (
    ("math.floor", math.floor, ew.Floor),
    ("math.ceil", math.ceil, ew.Ceil),
    ("math.trunc", math.trunc, ew.Trunc),
    ("torch.sym_int", int, ew.Trunc),
    ("builtins.round", round, ew.Round),
):
    aten_op(_name)(partial(_rounded, python=_floor, make=_op))


_SWAPPED = {"gt": "lt", "ge": "le"}
"""Comparisons that are written with their operands exchanged."""


def _comparison(
    n: AtenNode, a: Any, b: Any, python: Callable[[Any, Any], bool], name: str, make: Any
) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return python(a, b)
    if isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)):
        first, second = (b, a) if name in _SWAPPED else (a, b)
        decision = extents.decided(
            ir.compare(_SWAPPED.get(name, name), as_expr(first), as_expr(second))
        )
        if decision is not None:
            return decision
    return n.add(make(), *_values(n, a, b))


for _name, _compare, _short, _test in (
    ("operator.eq", operator.eq, "eq", ew.Equal),
    ("operator.ne", operator.ne, "ne", ew.NotEqual),
    ("operator.lt", operator.lt, "lt", ew.Less),
    ("operator.le", operator.le, "le", ew.LessEqual),
    ("operator.gt", operator.gt, "gt", ew.Greater),
    ("operator.ge", operator.ge, "ge", ew.GreaterEqual),
):
    aten_op(_name)(partial(_comparison, python=_compare, name=_short, make=_test))


@aten_op("torch.sym_not", "operator.not_")
def sym_not(n: AtenNode, a: Any) -> Any:
    return not a if isinstance(a, (int, float)) else ~n.truth(a)


@aten_op("operator.and_", "torch.sym_and")
def sym_and(n: AtenNode, a: Any, b: Any) -> Any:
    both = isinstance(a, int) and isinstance(b, int)
    return a & b if both else n.truth(a) & n.truth(b)


@aten_op("operator.or_", "torch.sym_or")
def sym_or(n: AtenNode, a: Any, b: Any) -> Any:
    both = isinstance(a, int) and isinstance(b, int)
    return a | b if both else n.truth(a) | n.truth(b)


@aten_op("torch.sym_ite")
def sym_ite(n: AtenNode, condition: Any, then: Any, otherwise: Any) -> Any:
    if isinstance(condition, int):
        return then if condition else otherwise
    return _size_or_value(n, n.add(ew.Where(), n.truth(condition), *_values(n, then, otherwise)))


@aten_op("aten._assert_scalar.default")
def assert_scalar(n: AtenNode, self: Any, assert_msg: str) -> None:
    """Make a run refuse inputs for which the condition `self` is false."""
    if isinstance(self, Value):
        wrong = n.cast(~n.truth(self), i64)
        n.builder.require_zero(n.reshape(wrong, (1,)))
    elif not self:
        n.bad(f"its condition never holds: {assert_msg}")


@aten_op("aten._assert_async.msg")
def assert_async(n: AtenNode, self: Value, assert_msg: str) -> None:
    assert_scalar(n, n.reshape(self, ()), assert_msg)


@aten_op("aten._assert_tensor_metadata.default")
def assert_tensor_metadata(
    n: AtenNode, a: Value, size: Any = None, stride: Any = None, dtype: Any = None
) -> None:
    """Check element type and fixed sizes.  Symbolic sizes follow from the types of inputs."""
    if dtype is not None and a.dtype is not dtype:
        n.bad(f"expected a tensor of {dtype}, found {a.type}")
    if size is not None and (len(size) != a.type.rank or not all(map(_fits, size, a.type.shape))):
        n.bad(f"expected a tensor of {size}, found {a.type}")


def _fits(size: Any, extent: Any) -> bool:
    return not isinstance(size, int) or not isinstance(extent, int) or size == extent


@aten_op("aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default")
def sym_constrain_range(n: AtenNode, size: Any, min: Any = None, max: Any = None) -> None:
    """Do nothing: a run checks the range of a size where it measures the size."""
