"""Operations of expressions by kind, and the instructions of each for a whole vector."""

from __future__ import annotations

import math

from tilesmith.ir import expr as ir
from tilesmith.ir.cpu_model import CpuModel
from tilesmith.ir.expr import Expr

from .cycles import Instructions

KINDS = ("fma", "add", "mul", "div", "special", "integer", "select", "cast")
"""Fused multiply-adds; sums, minima and similar; products; divisions and roots; other functions;
integer arithmetic; comparisons and selects; conversions.
"""

POLYNOMIAL = 32
"""Assumed number of vector instructions of a transcendental function.  The actual numbers are 21
for tanh, 24 for exp and 34 for log.
"""

_DIVIDING = ("sqrt", "rsqrt")
_CHEAP = (
    "abs", "floor", "ceil", "trunc", "round", "isnan", "isinf", "scalef", "prefetch", "check_index",
)  # fmt: skip


def kind_of(e: Expr) -> str | None:
    """The kind of one operation, before products are merged into multiply-adds.  None for
    expressions without an operation: variables, constants, loads and their lanes, and bitcasts.
    """
    if isinstance(e, ir.Call):
        if e.name in ("fma", "bitcast"):
            return "fma" if e.name == "fma" else None
        return "div" if e.name in _DIVIDING else "add" if e.name in _CHEAP else "special"
    if isinstance(e, (ir.Select, ir.Compare)) or (isinstance(e, ir.Binary) and e.dtype.is_bool):
        return "select"
    if isinstance(e, ir.Cast):
        return "cast"
    if isinstance(e, (ir.Binary, ir.Unary, ir.VectorReduce)):
        if not e.dtype.is_float:
            return "integer"
        return {"mul": "mul", "div": "div"}.get(getattr(e, "op", ""), "add")
    return None


def is_integer_division(e: Expr) -> bool:
    """Whether `e` is a quotient or remainder that rounds down."""
    return isinstance(e, ir.Binary) and e.op in ("floordiv", "floormod")


def instructions_of(kind: str, model: CpuModel, vectors: float = 1.0) -> Instructions:
    """Number of instructions for an operation of the given kind on `vectors` vectors of full width.
    A partial vector counts as a whole vector.  But dividers take half the time for half a vector or
    less.
    """
    count = max(math.ceil(vectors), 1)
    if kind in ("fma", "mul"):
        return Instructions(fma=count, issued=count)
    if kind == "div":
        return Instructions(slow=model.divide_cycles * max(vectors, 0.5), issued=count)
    if kind == "special":
        count *= POLYNOMIAL
    return Instructions(alu=count, issued=count)
