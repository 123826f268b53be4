"""OpenVINO's operators on elements, and its reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.openvino.model import TYPES
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bool_, f32
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import reduce
from tilesmith.ops.base import Op

LAYERS: Layers = Layers()
"""OpenVINO's operators by type."""

openvino_layer = LAYERS.register

_UNARY: dict[str, Callable[[LayerNode], Op]] = {
    "Abs": lambda n: ew.Abs(), "Acos": lambda n: ew.Acos(), "Acosh": lambda n: ew.Acosh(),
    "Asin": lambda n: ew.Asin(), "Asinh": lambda n: ew.Asinh(), "Atan": lambda n: ew.Atan(),
    "Atanh": lambda n: ew.Atanh(), "BitwiseNot": lambda n: ew.BitwiseNot(),
    "Ceiling": lambda n: ew.Ceil(), "Cos": lambda n: ew.Cos(), "Cosh": lambda n: ew.Cosh(),
    "Elu": lambda n: act.Elu(n.attr_float("alpha", 1)), "Erf": lambda n: ew.Erf(),
    "Exp": lambda n: ew.Exp(), "Floor": lambda n: ew.Floor(), "HSwish": lambda n: act.HardSwish(),
    "HSigmoid": lambda n: act.HardSigmoid(1 / 6, 0.5), "IsInf": lambda n: ew.IsInf(),
    "IsNaN": lambda n: ew.IsNan(), "Log": lambda n: ew.Log(),
    "LogicalNot": lambda n: ew.LogicalNot(), "Mish": lambda n: act.Mish(),
    "Negative": lambda n: ew.Neg(), "ReLU": lambda n: act.Relu(),
    "Sigmoid": lambda n: act.Sigmoid(), "Sign": lambda n: ew.Sign(), "Sin": lambda n: ew.Sin(),
    "Sinh": lambda n: ew.Sinh(), "SoftPlus": lambda n: act.Softplus(),
    "SoftSign": lambda n: act.Softsign(), "Sqrt": lambda n: ew.Sqrt(), "Tan": lambda n: ew.Tan(),
    "Tanh": lambda n: ew.Tanh(),
}  # fmt: skip

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b, "Subtract": lambda a, b: a - b, "Multiply": lambda a, b: a * b,
    "Maximum": fn.maximum, "Minimum": fn.minimum, "Power": lambda a, b: a**b,
    "FloorMod": lambda a, b: a % b, "Equal": lambda a, b: a.equals(b),
    "SquaredDifference": lambda a, b: (a - b) * (a - b), "NotEqual": lambda a, b: a.differs(b),
    "Less": lambda a, b: a < b, "LessEqual": lambda a, b: a <= b, "Greater": lambda a, b: a > b,
    "GreaterEqual": lambda a, b: a >= b, "LogicalAnd": lambda a, b: a & b,
    "LogicalOr": lambda a, b: a | b, "LogicalXor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b, "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b, "BitwiseLeftShift": partial(fn.apply, ew.BitShift("left")),
    "BitwiseRightShift": partial(fn.apply, ew.BitShift("right")),
}  # fmt: skip

_REDUCTIONS: dict[str, Callable[..., Op]] = {
    "ReduceL1": reduce.ReduceL1, "ReduceL2": reduce.ReduceL2, "ReduceMax": reduce.ReduceMax,
    "ReduceMean": reduce.ReduceMean, "ReduceMin": reduce.ReduceMin,
    "ReduceProd": reduce.ReduceProd, "ReduceSum": reduce.ReduceSum,
    "ReduceLogicalAnd": reduce.ReduceMin, "ReduceLogicalOr": reduce.ReduceMax,
}  # fmt: skip


def element_type(n: LayerNode, name: str, default: str | None = None) -> DType:
    """The element type that an attribute names."""
    text = n.attr_string(name, default)
    return TYPES.get(text) or n.unsupported(f"element type {text!r}")


def _unary(n: LayerNode, make: Callable[[LayerNode], Op]) -> Result:
    return n.add(make(n), n.input())


def _operands(n: LayerNode) -> tuple[Value, Value]:
    if n.attr_string("auto_broadcast", "numpy") == "pdpd":
        n.unsupported("PaddlePaddle's broadcasting")
    return n.input(0), n.input(1)


def _binary(n: LayerNode, join: Callable[[Any, Any], Any]) -> Result:
    return join(*_operands(n))


def _reduction(n: LayerNode, make: Callable[..., Op]) -> Result:
    x, axes, keep = n.input(0), n.input(1), n.attr_flag("keep_dims", False)
    if not n.is_known(axes):
        return computed.reduced(n, x, axes, make, keep)
    numbers = n.axes(n.int_list(axes, "axes"), x.type.rank)
    return n.add(make(tuple(sorted(numbers)), keep), x) if numbers else x


for _name, _make in _UNARY.items():
    openvino_layer(_name)(partial(_unary, make=_make))
for _name, _join in _BINARY.items():
    openvino_layer(_name)(partial(_binary, join=_join))
for _name, _op in _REDUCTIONS.items():
    openvino_layer(_name)(partial(_reduction, make=_op))


@openvino_layer("Divide")
def divide(n: LayerNode) -> Result:
    a, b = _operands(n)
    if a.dtype.is_int and n.attr_flag("m_pythondiv", True):  # rounded down
        remainder = a % b
        return (a - remainder) / b
    return a / b


@openvino_layer("Mod")
def mod(n: LayerNode) -> Result:
    """The remainder, with the sign of the dividend."""
    a, b = _operands(n)
    return a - (a / b if a.dtype.is_int else n.add(ew.Trunc(), a / b)) * b


@openvino_layer("Clamp")
def clamp(n: LayerNode) -> Result:
    x, low, high = n.input(), n.attr_float("min"), n.attr_float("max")
    return (
        fn.clip(x, int(np.ceil(low)), int(np.floor(high)))
        if x.dtype.is_int
        else fn.clip(x, low, high)
    )


@openvino_layer("IsFinite")
def is_finite(n: LayerNode) -> Result:
    return abs(n.input()) < np.inf


@openvino_layer("Gelu")
def gelu(n: LayerNode) -> Result:
    exact = n.attr_string("approximation_mode", "ERF").upper() == "ERF"
    return n.add(act.Gelu("none" if exact else "tanh"), n.input())


@openvino_layer("PReLU")
def prelu(n: LayerNode) -> Result:
    x, slope = n.input(0), n.input(1)
    if slope.type.rank == 1 and x.type.rank > 1 and n.extent(slope, 0) > 1:
        slope = n.reshape(slope, (*slope.type.shape, *[1] * (x.type.rank - 2)))
    return n.add(act.PRelu(), x, slope)


@openvino_layer("Selu")
def selu(n: LayerNode) -> Result:
    alpha, factor = (n.scalar(n.input(i), "a factor") for i in (1, 2))
    return n.add(act.Selu(alpha, factor), n.input())


@openvino_layer("HardSigmoid")
def hard_sigmoid(n: LayerNode) -> Result:
    alpha, beta = (n.scalar(n.input(i), "a factor") for i in (1, 2))
    return n.add(act.HardSigmoid(alpha, beta), n.input())


@openvino_layer("Swish")
def swish(n: LayerNode) -> Result:
    beta = n.optional(1)
    return n.add(act.Silu(1.0 if beta is None else n.scalar(beta, "beta")), n.input())


@openvino_layer("Round")
def rounded(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_string("mode", "half_to_even").lower() == "half_to_even":
        return n.add(ew.Round(), x)
    return rounded_away(x)


@openvino_layer("Convert")
def convert(n: LayerNode) -> Result:
    return n.input().cast(element_type(n, "destination_type"))


@openvino_layer("ConvertLike")
def convert_like(n: LayerNode) -> Result:
    return n.input(0).cast(n.input(1).dtype)


def promoted(a: DType, b: DType, of_u64: DType) -> DType | None:
    """The type that holds numbers of two types; None if they aren't all numbers.

    of_u64: the type for u64 with signed integers.
    """
    if a is b:
        return a
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float and b.is_float:
        return max(a, b, key=lambda d: d.bits) if a.bits != b.bits else f32
    if a.is_float or b.is_float:
        return a if a.is_float else b
    kind = np.result_type(a.numpy, b.numpy)
    return of_u64 if kind.kind == "f" else TYPES.get(f"{kind.kind}{8 * kind.itemsize}")


@openvino_layer("ConvertPromoteTypes")
def convert_promote_types(n: LayerNode) -> Result:
    a, b = n.input(0), n.input(1)
    if n.attr_flag("pytorch_scalar_promotion", False) and a.type.rank * b.type.rank == 0:
        n.unsupported("PyTorch's promotion of scalars")
    target = element_type(n, "u64_integer_promotion_target", "f32")
    dtype = promoted(a.dtype, b.dtype, target) or n.unsupported(f"{a.dtype} with {b.dtype}")
    return a.cast(dtype), b.cast(dtype)


@openvino_layer("Select")
def select(n: LayerNode) -> Result:
    return fn.where(n.input(0).cast(bool_), n.input(1), n.input(2))


@openvino_layer("FakeQuantize")
def fake_quantize(n: LayerNode) -> Result:
    """x rounded to `levels` equidistant numbers from low to high, mapped to out_low to out_high."""
    x, low, high, out_low, out_high = n.inputs
    steps = n.attr_int("levels", low=2) - 1
    place = n.add(ew.Round(), (fn.minimum(fn.maximum(x, low), high) - low) / (high - low) * steps)
    y = place / steps * (out_high - out_low) + out_low
    y = fn.where(x <= fn.minimum(low, high), out_low, y)
    return fn.where(x > fn.maximum(low, high), out_high, y)
