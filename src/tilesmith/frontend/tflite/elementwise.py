"""TFLite's elementwise operators of floats."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.frontend.tflite.registry import same_operator
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
    "TANH": ew.Tanh,
}

for _name, _make in _UNARY.items():
    same_operator(_name, _make)
