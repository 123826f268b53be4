"""The operands of the arithmetic operations (`ir.operations`)."""

from __future__ import annotations

from tilesmith.ir.operations import DEFINED
from tilesmith.support.errors import ExpressionError

from .interned import Typed


def type_text(e: Typed) -> str:
    """`f32` or `f32x16`."""
    return e.dtype.name if e.lanes == 1 else f"{e.dtype.name}x{e.lanes}"


def check_operands(op: str, *operands: Typed) -> None:
    """Raises ExpressionError unless `op` is defined on the operands' type."""
    a = operands[0]
    if a.dtype.kind in DEFINED[op] and not a.dtype.is_storage:
        return
    if op == "div":
        raise ExpressionError(
            f"{' / '.join(map(str, operands))}: / divides floats, found {type_text(a)}; write // "
            "for a whole quotient, or cast to a float first"
        )
    cure = "; in Python & and | bind more tightly than < and ==" if op in ("and", "or") else ""
    raise ExpressionError(
        f"{op}({', '.join(map(str, operands))}) is not defined on {type_text(a)}; cast first{cure}"
    )
