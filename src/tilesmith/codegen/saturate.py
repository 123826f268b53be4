"""Conversion of rounded and clipped floats to narrow integers, by an instruction that also rounds.

    i8(min(max(round(x), -128), 127))
    u8(min(max(round(x) + 3, 0), 255))

x86 converts a float to the nearest i32 in one instruction; rounding and then converting takes two.
x86 also narrows integers with saturation, which does the clipping.  Machines differ in the results
for NaN and for numbers beyond i32, so x is clipped before the conversion.  The result is the same,
since the limits are whole.  NaN becomes 0, as `ir.storage.truncated` defines.  The offset, such as
3 above, is added after the conversion.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, i32
from tilesmith.ir.expr import Const, Expr

from .arithmetic import Arithmetic
from .llvm_text import literal, value_type, vector

MOST_ADDED = 1 << 15
"""Upper bound on the offset.  Sums of 16-bit limits and such an offset are exact in f32 and fit in
i32.
"""


@dataclass(frozen=True, slots=True)
class Rounded:
    """A float that is rounded and clipped.

    x: the float, f32.
    low, high: the limits, whole numbers that the type of the result holds.
    offset: the whole number that is added before clipping.
    """

    x: Expr
    low: int
    high: int
    offset: int = 0


def rounded(e: ir.Cast) -> Rounded | None:
    """The rounding and clipping in `e`, a cast to at most 16 bits; None for other forms."""
    to = e.type
    if not to.is_int or to.bits > 16:
        return None
    above = _with_constant(e.a, "min")
    below = None if above is None else _with_constant(above[0], "max")
    if above is None or below is None:
        return None
    call, low, high = below[0], below[1], above[1]
    offset = 0.0
    shifted = _with_constant(call, "add")
    if shifted is not None:
        call, offset = shifted
    if not isinstance(call, ir.Call) or call.name != "round" or call.args[0].dtype is not f32:
        return None
    inside = to.min <= low <= high <= to.max and abs(offset) <= MOST_ADDED
    if not inside or any(n != int(n) for n in (low, high, offset)):
        return None
    return Rounded(call.args[0], int(low), int(high), int(offset))


def write(code: Arithmetic, found: Rounded, to: DType, lanes: int, x: str) -> str:
    """The integer of type `to`, given the operand text of the float."""
    high, low = (literal(float(n - found.offset), f32, lanes) for n in (found.high, found.low))
    floats, wide, narrow = value_type(f32, lanes), value_type(i32, lanes), value_type(to, lanes)
    bools = vector("i1", lanes)
    below = code.binary("min", f32, lanes, x, high, number=high)
    # comparisons with NaN are false, so NaN becomes the limit
    above = code.emit(f"fcmp ogt {floats} {below}, {low}")
    inside = code.emit(f"select {bools} {above}, {floats} {below}, {floats} {low}")
    made = code.emit(f"call {wide} @llvm.lrint({floats} {inside})")
    is_number = code.emit(f"fcmp ord {floats} {x}, {x}")
    nan = literal(-found.offset, i32, lanes)
    made = code.emit(f"select {bools} {is_number}, {wide} {made}, {wide} {nan}")
    if found.offset:
        made = code.binary("add", i32, lanes, made, literal(found.offset, i32, lanes))
    # clip to the limits of the type, which selects saturating instructions
    for op, limit in (("max", to.min), ("min", to.max)):
        made = code.binary(op, i32, lanes, made, literal(int(limit), i32, lanes))
    return code.emit(f"trunc {wide} {made} to {narrow}")


def as_floats(code: Arithmetic, lanes: int, x: str, clipped: str) -> str:
    """`clipped`, the rounded and clipped float, or 0 where the original `x` is NaN."""
    floats = value_type(f32, lanes)
    is_number = code.emit(f"fcmp ord {floats} {x}, {x}")
    zero = literal(0.0, f32, lanes)
    bools = vector("i1", lanes)
    return code.emit(f"select {bools} {is_number}, {floats} {clipped}, {floats} {zero}")


def _with_constant(e: Expr, op: str) -> tuple[Expr, float] | None:
    """The variable operand and the constant of an f32 operation `op`; None for others."""
    if not isinstance(e, ir.Binary) or e.op != op or e.dtype is not f32:
        return None
    for x, constant in ((e.a, e.b), (e.b, e.a)):
        inner = constant.value if isinstance(constant, ir.Broadcast) else constant
        if isinstance(inner, Const) and isinstance(inner.value, (int, float)):
            return x, inner.value
    return None
