"""Operations of expressions by kind, and the instructions of each for a whole vector."""

from __future__ import annotations

from tilesmith.ir import expr as ir
from tilesmith.ir.cpu_model import CpuModel
from tilesmith.ir.expr import Expr

from .cycles import Instructions

KINDS = ("fma", "add", "mul", "div", "special", "integer", "select", "cast")
"""Fused multiply-adds; sums, minima and similar; products; divisions and roots; other functions;
integer arithmetic; comparisons and selects; conversions.
"""

POLYNOMIAL = 32
"""Vector instructions of a transcendental function: 21 for tanh, 24 for exp, 34 for log."""

_DIVIDING = ("sqrt", "rsqrt")
_CHEAP = ("abs", "floor", "ceil", "trunc", "round", "isnan", "isinf", "bitcast")


def kind_of(e: Expr) -> str | None:
    """The kind of one operation; a product is no part of a multiply-add yet.  None for expressions
    that are no operations: variables, constants, loads and their lanes.
    """
    if isinstance(e, ir.Call):
        if e.name == "fma":
            return "fma"
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


def instructions_of(kind: str, model: CpuModel) -> Instructions:
    """Instructions of an operation of a kind, for one vector of full width."""
    if kind in ("fma", "mul"):
        return Instructions(fma=1, issued=1)
    if kind == "div":
        return Instructions(slow=model.divide_cycles, issued=1)
    count = POLYNOMIAL if kind == "special" else 1
    return Instructions(alu=count, issued=count)
