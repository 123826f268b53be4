"""Random scalar expressions of `te` as Python text, with what is known of their values.

The source of a program is its text, so that a failing one can be printed and run.  Of each value a
bound of its magnitude and of its rounding error is known.  Numbers are small whole numbers as long
as possible: their sums are exact in every order.  Where a value could grow beyond what its type
holds exactly, it is clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
EXACT = {"f16": 2**11, "bf16": 2**8, "f32": 2**24, "f64": 2**53}
"""Up to here a type holds every whole number."""
ULP = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-23}
"""Relative error of an operation, and of a function, whose results in f64 are those of f32 or
better.
"""
FUNCTION = 16.0
"""Error of an approximated function, in units in the last place."""


@dataclass(frozen=True)
class Value:
    """An expression.

    text: Python.
    largest: bound of its magnitude, for floats.
    error: bound of what rounding may change; 0 if it is a whole number.
    """

    text: str
    dtype: str
    largest: float = 0.0
    error: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.dtype in EXACT


def clamped(v: Value, limit: int) -> Value:
    """The value, not beyond `limit` on both sides; of an unsigned one on one side."""
    low, high = (f"{-limit}.0", f"{limit}.0") if v.is_float else (str(-limit), str(limit))
    text = f"te.minimum({v.text}, {high})"
    if not v.dtype.startswith("u"):
        text = f"te.maximum({text}, {low})"
    return replace(v, text=text, largest=min(v.largest, limit) if v.is_float else float(limit))


def fitting(v: Value, times: int = 1) -> Value:
    """The value, clamped if a sum of so many would not be held exactly."""
    if v.is_float and v.largest * max(times, 1) > EXACT[v.dtype] / 2:
        return clamped(v, max(1, EXACT[v.dtype] // (4 * max(times, 1))))
    return v


def converted(v: Value, dtype: str) -> Value:
    """The value in another element type.  No value with an error becomes an integer."""
    if v.dtype == dtype:
        return v
    if v.dtype == "bool":
        one, zero = ("1.0", "0.0") if dtype in EXACT else ("1", "0")
        text = f"te.select({v.text}, {one}, {zero}).astype({dtype!r})"
        return Value(text, dtype, 1.0)
    if dtype == "bool":
        assert not v.error
        return Value(f"({v.text} > {'0.0' if v.is_float else '0'})", "bool")
    if dtype in EXACT:
        limit = EXACT[dtype] // 8
        if not v.is_float or v.largest > limit:
            v = clamped(v, min(limit, 100))
        error = v.error + (ULP[dtype] * v.largest if v.error else 0.0)
        return Value(f"{v.text}.astype({dtype!r})", dtype, v.largest, error)
    assert not v.error
    if v.is_float:
        v = clamped(v, 100)
        if dtype.startswith("u"):
            v = replace(v, text=f"te.abs({v.text})")
    return Value(f"{v.text}.astype({dtype!r})", dtype)


def _rounded(v: Value) -> Value:
    """After an operation: rounded if it isn't exact."""
    return replace(v, error=v.error + ULP[v.dtype] * v.largest) if v.error else fitting(v)


def combined(r: Random, a: Value, b: Value) -> Value:
    """Two values of one type, by a random operation."""
    if a.dtype == "bool":
        return Value(r.choice([f"te.all({a.text}, {b.text})", f"te.any({a.text}, {b.text})",
                               f"({a.text} != {b.text})"]), "bool")  # fmt: skip
    if not a.is_float:
        return _of_integers(r, a, b)
    op = r.choice(["+", "+", "-", "-", "*", "minimum", "maximum", "select"])
    largest, error = max(a.largest, b.largest), max(a.error, b.error)
    if op in "+-":
        both = Value(f"({a.text} {op} {b.text})", a.dtype, a.largest + b.largest, a.error + b.error)
        return _rounded(both)
    if op == "*":
        side = math.isqrt(EXACT[a.dtype]) // 2
        a, b = (clamped(v, side) if v.largest > side else v for v in (a, b))
        error = a.error * b.largest + b.error * a.largest + a.error * b.error
        return _rounded(Value(f"({a.text} * {b.text})", a.dtype, a.largest * b.largest, error))
    if op == "select" and not error:
        sign = r.choice(["<", "<=", "==", ">"])
        text = f"te.select({a.text} {sign} {b.text}, {a.text}, {b.text} * 2.0)"
        return fitting(Value(text, a.dtype, 2 * largest))
    name = op if op != "select" else "minimum"
    return Value(f"te.{name}({a.text}, {b.text})", a.dtype, largest, error)


def _of_integers(r: Random, a: Value, b: Value) -> Value:
    t = a.dtype
    text = r.choice([
        f"({a.text} + {b.text})", f"({a.text} - {b.text})", f"({a.text} * {b.text})",
        f"te.minimum({a.text}, {b.text})", f"te.maximum({a.text}, {b.text})",
        f"({a.text} & {b.text})", f"({a.text} | {b.text})", f"({a.text} ^ {b.text})",
        f"te.select({a.text} < {b.text}, {a.text}, {b.text})",
        f"({a.text} // {r.choice([1, 2, 3, 7])} + {b.text})",
        f"({a.text} % {r.choice([1, 2, 4, 5])} * {b.text})",
        f"(({a.text} << {r.choice([1, 3])}) - ({b.text} >> {r.choice([1, 2])}))",
    ])  # fmt: skip
    return Value(text, t)


def changed(r: Random, v: Value) -> Value:
    """A random function of one value."""
    if v.dtype == "bool":
        return Value(f"({v.text} == False)", "bool")
    if not v.is_float:
        k = r.choice([1, 2, 3, 5])
        texts = [
            f"({v.text} + {k})",
            f"({v.text} * {k})",
            f"({v.text} // {k})",
            f"({v.text} % {k})",
        ]
        return Value(r.choice(texts), v.dtype)
    if v.dtype in ("f16", "bf16") or r.random() < 0.6:
        k = r.choice([1, 2, 3])
        if r.random() < 0.5:
            return _rounded(Value(f"({v.text} + {k}.0)", v.dtype, v.largest + k, v.error))
        v = clamped(v, 20) if v.largest > 20 else v
        return _rounded(Value(f"({v.text} * {k}.0)", v.dtype, v.largest * k, v.error * k))
    return _function(r, v)


def _function(r: Random, v: Value) -> Value:
    unit = FUNCTION * ULP[v.dtype]
    name = r.choice(["exp", "tanh", "sigmoid", "sqrt", "div", "log", "floor"])
    v = clamped(v, 4) if v.largest > 4 else v
    e = v.error
    if name == "exp":
        return Value(f"te.exp({v.text})", v.dtype, 55.0, 60.0 * (e + unit))
    if name in ("tanh", "sigmoid"):
        return Value(f"te.{name}({v.text})", v.dtype, 1.0, e + unit)
    if name == "sqrt":
        return Value(f"te.sqrt(te.abs({v.text}) + 1.0)", v.dtype, 3.0, e + 3 * unit)
    if name == "log":
        return Value(f"te.log(te.abs({v.text}) + 1.0)", v.dtype, 2.0, e + 2 * unit)
    if name == "floor" and not e:
        return Value(f"te.floor({v.text} * 0.5)", v.dtype, v.largest)
    return Value(f"({v.text} / (te.abs({v.text}) + 1.0))", v.dtype, 1.0, 2 * e + unit)
