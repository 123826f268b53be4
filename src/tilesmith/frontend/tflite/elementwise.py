"""TFLite's elementwise operators of numbers and bools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.arithmetic import angle, floor_quotient, shifted_right
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import OPERATORS, same_operators, stored_op, tflite_op
from tilesmith.ir.dtypes import f64, i16, i32, u8
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops.base import Op

_UNARY: dict[str, Callable[[], Op]] = {
    "ABS": ew.Abs,
    "CEIL": ew.Ceil,
    "COS": ew.Cos,
    "EXP": ew.Exp,
    "FLOOR": ew.Floor,
    "LOG": ew.Log,
    "LOGICAL_NOT": ew.LogicalNot,
    "NEG": ew.Neg,
    "ROUND": ew.Round,
    "RSQRT": ew.Rsqrt,
    "SIGN": ew.Sign,
    "SIN": ew.Sin,
    "SQRT": ew.Sqrt,
}

_BINARY: dict[str, Callable[[], Op]] = {
    "BITWISE_XOR": ew.BitwiseXor,
    "EQUAL": ew.Equal,
    "FLOOR_MOD": ew.Mod,
    "GREATER": ew.Greater,
    "GREATER_EQUAL": ew.GreaterEqual,
    "LESS": ew.Less,
    "LESS_EQUAL": ew.LessEqual,
    "LOGICAL_AND": ew.LogicalAnd,
    "LOGICAL_OR": ew.LogicalOr,
    "NOT_EQUAL": ew.NotEqual,
    "POW": ew.Pow,
}

_ARITHMETIC: dict[str, Callable[[], Op]] = {
    "ADD": ew.Add,
    "DIV": ew.Div,
    "MUL": ew.Mul,
    "SUB": ew.Sub,
}
"""Operators with a fused activation function."""

same_operators(_UNARY, stored=("NEG",))
same_operators(_BINARY, 2, stored=("BITWISE_XOR", "FLOOR_MOD"))


def _arithmetic(n: TfliteNode, make: Callable[[], Op]) -> Result:
    return activate(n, n.add(make(), n.input(0), n.input(1)))


for _name, _make in _ARITHMETIC.items():
    OPERATORS.register(_name)(partial(_arithmetic, make=_make))


@stored_op("MAXIMUM")
def maximum(n: OptionNode) -> Result:
    return n.add(ew.Max(), n.input(0), n.input(1))


@stored_op("MINIMUM")
def minimum(n: OptionNode) -> Result:
    return n.add(ew.Min(), n.input(0), n.input(1))


@tflite_op("SQUARE")
def square(n: OptionNode) -> Result:
    return n.input(0) * n.input(0)


@tflite_op("SQUARED_DIFFERENCE")
def squared_difference(n: OptionNode) -> Result:
    difference = n.input(0) - n.input(1)
    return difference * difference


@tflite_op("ADD_N")
def add_n(n: OptionNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    total, *others = n.inputs
    for x in others:
        total = total + x
    return total


@stored_op("FLOOR_DIV")
def floor_div(n: OptionNode) -> Result:
    x, y = n.input(0), n.input(1)
    if x.dtype.is_int:
        return floor_quotient(n, x, y)
    return fn.floor(x.cast(f64) / y.cast(f64)).cast(x.dtype)


@tflite_op("ATAN2")
def atan2(n: OptionNode) -> Result:
    return angle(n, n.input(0), n.input(1))


@stored_op("RIGHT_SHIFT")
def right_shift(n: OptionNode) -> Result:
    x, by = n.input(0), n.input(1)
    if by.dtype.kind == "int":
        by = fn.maximum(by, 0)
    return shifted_right(n, x, fn.minimum(by, by.dtype.bits - 1))


@stored_op("SELECT")
def select(n: OptionNode) -> Result:
    condition, x, y = n.input(0), n.input(1), n.input(2)
    if condition.type.rank == 1:  # each condition selects a whole row
        condition = n.reshape(condition, (*condition.type.shape, *[1] * (x.type.rank - 1)))
    return fn.where(condition, x, y)


@stored_op("SELECT_V2")
def select_broadcast(n: OptionNode) -> Result:
    return fn.where(n.input(0), n.input(1), n.input(2))


@stored_op("CAST")
def cast(n: OptionNode) -> Result:
    x, to = n.input(0), n.output_dtype()
    if not x.dtype.is_float or to not in _SATURATED:
        return x.cast(to)
    if to is not i32:
        return fn.clip(x, to.min, to.max).cast(to)
    return fn.where(x < 2.0**31, fn.clip(x, to.min, None).cast(to), to.max)


_SATURATED = (i32, i16, u8)
"""Integer types for which a cast of a float out of range saturates."""


@stored_op("BITCAST")
def bitcast(n: OptionNode) -> Result:
    x, to = n.input(0), n.output_dtype()
    if x.dtype.is_bool or to.is_bool or x.dtype.bits != to.bits:
        n.unsupported(f"the bits of {x.type} as {to}, which is of another width")
    return x if x.dtype is to else n.add(ew.Bitcast(to), x)
