"""Expressions of the ALU as combinational logic."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from amaranth.hdl import Const as Bits
from amaranth.hdl import Module, Mux, Value

from tilesmith.ir.dtypes import f32, f64, i32
from tilesmith.ir.expr import Binary, Call, Cast, Const, Expr, Var
from tilesmith.support.errors import UnsupportedError

from .floats import Floats


def logic(m: Module, e: Expr, values: Mapping[Var, Value]) -> Value:
    """The value of an expression of i32, f32 and f64, unsigned; its logic goes to `m`.

    Raises UnsupportedError for a kind of expression that the ALU doesn't have.
    """
    floats, wide = Floats(m), Floats(m, fraction=52, exponent=11)
    of_f32 = {
        "add": floats.add, "mul": floats.multiply, "max": floats.maximum, "min": floats.minimum,
    }  # fmt: skip
    of_f64 = {"add": wide.add, "mul": wide.multiply}

    def value(e: Expr) -> Value:
        match e:
            case Var():
                return values[e]
            case Const() if e.dtype in (i32, f32):
                return Bits(int(np.array(e.value, e.dtype.numpy).view(np.uint32)), 32)
            case Cast(a=a) if (a.dtype, e.dtype) == (i32, f32):
                return floats.of_i32(value(a))
            case Cast(a=a) if (a.dtype, e.dtype) == (f32, i32):
                return floats.to_i32(value(a))
            case Cast(a=a) if (a.dtype, e.dtype) == (f32, f64):
                return floats.converted(value(a), wide)
            case Cast(a=a) if (a.dtype, e.dtype) == (f64, f32):
                return wide.converted(value(a), floats)
            case Call(name="bitcast", args=(a,)):
                return value(a)
            case Call(name="round", args=(a,)) if e.dtype is f32:
                return floats.rounded(value(a))
            case Binary(op=op, a=a, b=b) if e.dtype is f32 and op in of_f32:
                return of_f32[op](value(a), value(b))
            case Binary(op=op, a=a, b=b) if e.dtype is f64 and op in of_f64:
                return of_f64[op](value(a), value(b))
            case Binary(op=op, a=a, b=b) if e.dtype is i32 and op in _OF_I32:
                return floats.wire(_OF_I32[op](value(a), value(b))[:32])
        raise UnsupportedError(f"the ALU has no logic for `{e}`")

    return value(e)


_OF_I32 = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: Mux(a.as_signed() < b.as_signed(), a, b),
    "max": lambda a, b: Mux(a.as_signed() > b.as_signed(), a, b),
    "and": lambda a, b: a & b,
    "shl": lambda a, b: a << b[:5],
    "shr": lambda a, b: (a.as_signed() >> b[:5]).as_unsigned(),
}
"""The amounts of shifts are below 32."""
