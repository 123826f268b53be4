"""Functions of single elements that are composed of several operators."""

from __future__ import annotations

from functools import partial

from tilesmith.frontend.aten.elementwise import BITS, isnan, maximum, minimum
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_
from tilesmith.ops import elementwise as ew


@aten_op("aten.exp2.default", "aten.special_exp2.default")
def exp2(n: AtenNode, self: Value) -> Value:
    x = n.floating(self)
    return n.add(ew.Pow(), n.tensor(2, x.dtype), x)


def _shift(n: AtenNode, self: Operand, other: Operand, direction: str) -> Value:
    a, b = n.common(self, other)
    if direction == "right" and a.dtype.kind == "int":  # by too much: the sign in every bit
        bits = n.tensor(a.dtype.bits, b.dtype)
        inside = n.add(
            ew.LogicalAnd(),
            n.add(ew.GreaterEqual(), b, n.tensor(0, b.dtype)),
            n.add(ew.Less(), b, bits),
        )
        b = n.add(ew.Where(), inside, b, n.tensor(a.dtype.bits - 1, b.dtype))
    return n.add(ew.BitShift(direction), a, b)


for _direction, _short in (("left", "lshift"), ("right", "rshift")):
    aten_op(
        *(f"aten.bitwise_{_direction}_shift.{k}" for k in ("Tensor", "Tensor_Scalar")),
        f"aten.bitwise_{_direction}_shift.Scalar_Tensor",
        *(f"aten.__{_short}__.{k}" for k in ("Tensor", "Scalar")),
    )(partial(_shift, direction=_direction))


@aten_op("aten.signbit.default")
def signbit(n: AtenNode, self: Value) -> Value:
    """Whether the sign is negative, which that of -0 is."""
    if self.dtype.is_bool:
        return n.full(False, self.type.shape, bool_)
    x = n.add(ew.Bitcast(BITS[self.dtype]), self) if self.dtype.is_float else self
    return n.add(ew.Less(), x, n.tensor(0, x.dtype))


@aten_op("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(n: AtenNode, self: Value, other: Operand) -> Value:
    x, y = n.common(self, other, floating=True)
    size = n.add(ew.Abs(), x)
    return n.add(ew.Where(), signbit(n, y), n.add(ew.Neg(), size), size)


def _extreme_of_numbers(n: AtenNode, self: Value, other: Value, *, is_max: bool) -> Value:
    """The larger or smaller one; where one is NaN, the other one."""
    x, y = n.common(self, other)
    found = (maximum if is_max else minimum)(n, x, y)
    if not x.dtype.is_float:
        return found
    second = n.add(ew.Where(), isnan(n, y), x, found)
    return n.add(ew.Where(), isnan(n, x), y, second)


aten_op("aten.fmax.default")(partial(_extreme_of_numbers, is_max=True))
aten_op("aten.fmin.default")(partial(_extreme_of_numbers, is_max=False))


@aten_op("aten.hypot.default")
def hypot(n: AtenNode, self: Value, other: Value) -> Value:
    """sqrt(x^2 + y^2), without squares that overflow."""
    x, y = (n.add(ew.Abs(), v) for v in n.common(self, other, floating=True))
    zero, one = (n.tensor(v, x.dtype) for v in (0, 1))
    large, small = n.add(ew.Max(), x, y), n.add(ew.Min(), x, y)
    ratio = n.add(ew.Div(), small, n.add(ew.Where(), n.add(ew.Equal(), large, zero), one, large))
    root = n.add(ew.Sqrt(), n.add(ew.Add(), one, n.add(ew.Mul(), ratio, ratio)))
    infinite = n.add(ew.LogicalOr(), n.add(ew.IsInf(), x), n.add(ew.IsInf(), y))
    return n.add(
        ew.Where(), infinite, n.tensor(float("inf"), x.dtype), n.add(ew.Mul(), large, root)
    )
