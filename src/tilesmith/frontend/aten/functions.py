"""Functions of single elements that are composed of several operators."""

from __future__ import annotations

from functools import partial

from tilesmith.frontend.aten.elementwise import isnan, maximum, minimum
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.arithmetic import BITS
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn


@aten_op("aten.exp2.default", "aten.special_exp2.default")
def exp2(n: AtenNode, self: Value) -> Value:
    x = n.floating(self)
    return 2**x


def _shift(n: AtenNode, self: Operand, other: Operand, direction: str) -> Value:
    a, b = n.common(self, other)
    # A shift by the width or more leaves the sign in every bit.
    if direction == "right" and a.dtype.kind == "int":
        bits = n.tensor(a.dtype.bits, b.dtype)
        inside = (b >= 0) & (b < bits)
        b = fn.where(inside, b, a.dtype.bits - 1)
    return n.add(ew.BitShift(direction), a, b)


for _direction, _short in (("left", "lshift"), ("right", "rshift")):
    aten_op(
        *(f"aten.bitwise_{_direction}_shift.{k}" for k in ("Tensor", "Tensor_Scalar")),
        f"aten.bitwise_{_direction}_shift.Scalar_Tensor",
        *(f"aten.__{_short}__.{k}" for k in ("Tensor", "Scalar")),
    )(partial(_shift, direction=_direction))


@aten_op("aten.signbit.default")
def signbit(n: AtenNode, self: Value) -> Value:
    """Whether the sign bit is set, as it is for -0."""
    if self.dtype.is_bool:
        return n.full(False, self.type.shape, bool_)
    x = n.add(ew.Bitcast(BITS[self.dtype]), self) if self.dtype.is_float else self
    return x < 0


@aten_op("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(n: AtenNode, self: Value, other: Operand) -> Value:
    x, y = n.common(self, other, floating=True)
    size = abs(x)
    return fn.where(signbit(n, y), -size, size)


def _extreme_of_numbers(n: AtenNode, self: Value, other: Value, *, is_max: bool) -> Value:
    """The maximum or minimum of two numbers.  If one of them is NaN, the result is the other."""
    x, y = n.common(self, other)
    result = (maximum if is_max else minimum)(n, x, y)
    if not x.dtype.is_float:
        return result
    second = fn.where(isnan(n, y), x, result)
    return fn.where(isnan(n, x), y, second)


aten_op("aten.fmax.default")(partial(_extreme_of_numbers, is_max=True))
aten_op("aten.fmin.default")(partial(_extreme_of_numbers, is_max=False))


@aten_op("aten.hypot.default")
def hypot(n: AtenNode, self: Value, other: Value) -> Value:
    """sqrt(x^2 + y^2), without squares that overflow."""
    x, y = (abs(v) for v in n.common(self, other, floating=True))
    zero, one = (n.tensor(v, x.dtype) for v in (0, 1))
    large, small = fn.maximum(x, y), fn.minimum(x, y)
    ratio = small / fn.where(large.equals(zero), one, large)
    root = fn.sqrt(one + ratio * ratio)
    infinite = n.add(ew.IsInf(), x) | n.add(ew.IsInf(), y)
    return fn.where(infinite, float("inf"), large * root)
