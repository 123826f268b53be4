"""ONNX's elementwise operators: arithmetic, comparisons, logic, bits, casts."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.frontend.common.arithmetic import shifted_right
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op, same_operator
from tilesmith.frontend.onnx.strings import text_cast
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f8e8m0, f32, string
from tilesmith.ir.types import same_shape
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops.base import Op
from tilesmith.ops.quantize import saturated

_UNARY: dict[str, Callable[[], Op]] = {
    "Abs": ew.Abs,
    "Acos": ew.Acos,
    "Acosh": ew.Acosh,
    "Asin": ew.Asin,
    "Asinh": ew.Asinh,
    "Atan": ew.Atan,
    "Atanh": ew.Atanh,
    "BitwiseNot": ew.BitwiseNot,
    "Ceil": ew.Ceil,
    "Cos": ew.Cos,
    "Cosh": ew.Cosh,
    "Erf": ew.Erf,
    "Exp": ew.Exp,
    "Floor": ew.Floor,
    "IsNaN": ew.IsNan,
    "Log": ew.Log,
    "Neg": ew.Neg,
    "Not": ew.LogicalNot,
    "Reciprocal": ew.Reciprocal,
    "Round": ew.Round,
    "Sign": ew.Sign,
    "Sin": ew.Sin,
    "Sinh": ew.Sinh,
    "Sqrt": ew.Sqrt,
    "Tan": ew.Tan,
    "Tanh": ew.Tanh,
}

BROADCAST_SINCE_7: dict[str, Callable[[], Op]] = {
    "Add": ew.Add,
    "And": ew.LogicalAnd,
    "Div": ew.Div,
    "Equal": ew.Equal,
    "Greater": ew.Greater,
    "Less": ew.Less,
    "Mul": ew.Mul,
    "Or": ew.LogicalOr,
    "Pow": ew.Pow,
    "Sub": ew.Sub,
    "Xor": ew.LogicalXor,
}
"""Operators of two operands that broadcast by today's rules since opset 7."""

_BINARY: dict[str, Callable[[], Op]] = {
    **BROADCAST_SINCE_7,
    "BitwiseAnd": ew.BitwiseAnd,
    "BitwiseOr": ew.BitwiseOr,
    "BitwiseXor": ew.BitwiseXor,
    "GreaterOrEqual": ew.GreaterEqual,
    "LessOrEqual": ew.LessEqual,
}

_SINCE = {
    **dict.fromkeys((*BROADCAST_SINCE_7, "Acos", "Asin", "Atan", "Cos", "Sin", "Tan"), 7),
    "Acosh": 9,
    "Asinh": 9,
    "Atanh": 9,
    "BitwiseNot": 18,
    "BitwiseAnd": 18,
    "BitwiseOr": 18,
    "BitwiseXor": 18,
    "Cosh": 9,
    "Sinh": 9,
    "Erf": 9,
    "IsNaN": 9,
    "Sign": 9,
    "Round": 11,
    "GreaterOrEqual": 12,
    "LessOrEqual": 12,
}


for _table, _arity in ((_UNARY, 1), (_BINARY, 2)):
    for _name, _make in _table.items():
        same_operator(_make, _name, arity=_arity, since=_SINCE.get(_name, 1))


@onnx_op("Max", since=1)
def max_of(n: OnnxNode) -> Result:
    return _fold(n, ew.Max())


@onnx_op("Min", since=1)
def min_of(n: OnnxNode) -> Result:
    return _fold(n, ew.Min())


@onnx_op("Sum", since=1)
def sum_of(n: OnnxNode) -> Result:
    return _fold(n, ew.Add())


@onnx_op("Mean", since=1)
def mean_of(n: OnnxNode) -> Result:
    total = _fold(n, ew.Add())
    return total / len(n.inputs)


def _fold(n: OnnxNode, op: Op) -> Value:
    """A chain of a binary operator over any number of inputs."""
    if not n.inputs:
        n.bad("expected at least one input, found none")
    result = n.inputs[0]
    if len(n.inputs) == 1:
        return n.add(ew.Identity(), result)
    for x in n.inputs[1:]:
        result = n.add(op, result, x)
    return result


@onnx_op("Mod", since=10)
def mod(n: OnnxNode) -> Result:
    return n.add(ew.Mod(fmod=n.attr_flag("fmod")), n.input(0), n.input(1))


@onnx_op("BitShift", since=11)
def bit_shift(n: OnnxNode) -> Result:
    direction = n.attr_string("direction", among=("LEFT", "RIGHT"))
    x, by = n.input(0), n.input(1)
    if direction == "RIGHT":
        return shifted_right(n, x, by)
    return n.add(ew.BitShift("left"), x, by)


@onnx_op("Where", since=9)
def where(n: OnnxNode) -> Result:
    return fn.where(n.input(0), n.input(1), n.input(2))


@onnx_op("IsInf", since=10)
def is_inf(n: OnnxNode) -> Result:
    negative, positive = n.attr_flag("detect_negative", True), n.attr_flag("detect_positive", True)
    x = n.input(0)
    if not (negative or positive):
        x = fn.is_nan(x)  # no infinity is to be detected, so the result is false for every x
        return x & False
    return n.add(ew.IsInf(negative, positive), x)


@onnx_op("Cast", since=6)
def cast(n: OnnxNode) -> Result:
    to = element_type(n.attr_int("to"), "attribute 'to'", strings=True)
    return text_cast(n) if to is string else _cast(n, to)


@onnx_op("CastLike", since=15)
def cast_like(n: OnnxNode) -> Result:
    return _cast(n, n.input(1).dtype)


def _cast(n: OnnxNode, to: DType) -> Value:
    x, saturate = n.input(0), bool(n.attr_int("saturate", 1))
    mode = n.attr_string("round_mode", "up", ew.CastE8M0.modes)
    if to is not f8e8m0:
        return saturated(x, to) if saturate else x.cast(to)
    return n.add(ew.CastE8M0(mode, saturate), x.cast(f32))


@onnx_op("BitCast", since=26)
def bit_cast(n: OnnxNode) -> Result:
    to = element_type(n.attr_int("to"), "attribute 'to'")
    x = n.input(0)
    if to.bytes != x.dtype.bytes or (
        (to.is_storage or x.dtype.is_storage) and to.bits != x.dtype.bits
    ):
        n.bad(f"expected a type as wide as {x.dtype} to reinterpret it as, found {to}")
    if to.is_bool or x.dtype.is_bool or to is x.dtype:
        return x.cast(to)  # a bool is stored as a byte that is 0 or 1
    return n.add(ew.Bitcast(to), x)


@onnx_op("Clip", since=1, until=10)
def clip_attributes(n: OnnxNode) -> Result:
    low = n.attr_float("min") if n.has("min") else None
    high = n.attr_float("max") if n.has("max") else None
    return fn.clip(n.input(0), low, high)


@onnx_op("Clip", since=11)
def clip_inputs(n: OnnxNode) -> Result:
    x, low, high = n.input(0), n.optional(1), n.optional(2)
    for limit, name in ((low, "min"), (high, "max")):
        if limit is not None and limit.type.rank and not same_shape(limit.type.shape, (1,)):
            n.bad(f"{name}: expected one number, found {limit.type}")
        if limit is not None and limit.dtype is not x.dtype:
            n.bad(f"{name}: expected {x.dtype} as the input, found {limit.dtype}")
    known = [v is None or n.known(v) is not None for v in (low, high)]
    if all(known):
        numbers = [None if v is None else n.scalar(v, "limit") for v in (low, high)]
        return n.add(ew.Clip(*numbers), x)
    if low is not None:
        x = fn.maximum(x, low)
    return x if high is None else fn.minimum(x, high)
