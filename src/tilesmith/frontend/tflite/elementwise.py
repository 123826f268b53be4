"""TFLite's elementwise operators of numbers and bools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import OPERATORS, same_operator
from tilesmith.ops import elementwise as ew
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

_ARITHMETIC: dict[str, Callable[[], Op]] = {
    "ADD": ew.Add,
    "DIV": ew.Div,
    "MUL": ew.Mul,
    "SUB": ew.Sub,
}
"""Operators with a fused activation function."""

for _name, _make in _UNARY.items():
    same_operator(_name, _make)


def _arithmetic(n: TfliteNode, make: Callable[[], Op]) -> Result:
    return activate(n, n.add(make(), n.input(0), n.input(1)))


for _name, _make in _ARITHMETIC.items():
    OPERATORS.register(_name)(partial(_arithmetic, make=_make))
