"""The arithmetic operations, and the element types on which each is defined."""

from __future__ import annotations

from tilesmith.support.errors import ExpressionError

from .interned import Typed

_NUMBERS = ("int", "uint", "float")
_BITS = ("int", "uint", "bool")

UNARY_OPS: dict[str, tuple[str, ...]] = {"neg": _NUMBERS, "not": _BITS}
"""With the kinds of element types on which each is defined.  `not` is logical on bools and bitwise
on integers.
"""

BINARY_OPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod"), _NUMBERS
    ),
    "div": ("float",),
    **dict.fromkeys(("min", "max"), (*_NUMBERS, "bool")),
    **dict.fromkeys(("and", "or", "xor"), _BITS),
    **dict.fromkeys(("shl", "shr"), ("int", "uint")),
}
"""As `UNARY_OPS`.  Both operands have one dtype and lane count, which are the result's."""

COMPARE_OPS = ("eq", "ne", "lt", "le")

_DEFINED = {
    **UNARY_OPS,
    **BINARY_OPS,
    **dict.fromkeys(COMPARE_OPS, (*_NUMBERS, "bool")),
}


def type_text(e: Typed) -> str:
    """`f32` or `f32x16`."""
    return e.dtype.name if e.lanes == 1 else f"{e.dtype.name}x{e.lanes}"


def check_operands(op: str, *operands: Typed) -> None:
    """Raises ExpressionError unless `op` is defined on the operands' type."""
    a = operands[0]
    if a.dtype.kind in _DEFINED[op] and not a.dtype.is_storage:
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
