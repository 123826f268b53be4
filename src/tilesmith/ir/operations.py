"""The arithmetic operations: the element types on which each is defined, and how it is written."""

from __future__ import annotations

_NUMBERS = ("int", "uint", "float")
_BITS = ("int", "uint", "bool")

UNARY_OPS: dict[str, tuple[str, ...]] = {"neg": _NUMBERS, "not": _BITS}
"""The operations on one operand, with the kinds of element types on which each is defined.  `not`
is logical on bools and bitwise on integers.
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
"""Like `UNARY_OPS`, for two operands.  Both have the dtype and number of lanes of the result."""

INFIX: dict[str, tuple[str, int]] = {
    "or": ("|", 5), "xor": ("^", 6), "and": ("&", 7), "shl": ("<<", 8), "shr": (">>", 8),
    "add": ("+", 9), "sub": ("-", 9), "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10),
    "floormod": ("%", 10),
}  # fmt: skip
"""Symbol and precedence; all are left-associative.  Other operations are written as calls."""
LOGICAL = {"or": ("or", 1), "and": ("and", 2)}
"""Words and precedence of operations on bools."""
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
COMPARE_OPS = tuple(COMPARISONS)
SYMBOLS = {**{op: symbol for op, (symbol, _) in INFIX.items()}, **COMPARISONS}
NOT, COMPARE, UNARY, ATOM = 3, 4, 11, 12
"""The precedences of `not`, of comparisons, of signs, and of text that needs no parentheses."""

PREFIX_CALLS = tuple(op for op in BINARY_OPS if op not in INFIX)
REDUCTIONS = ("add", "mul", "min", "max", "and", "or")
"""Operations of `VectorReduce`."""

DEFINED = {
    **UNARY_OPS,
    **BINARY_OPS,
    **dict.fromkeys(COMPARE_OPS, (*_NUMBERS, "bool")),
}
"""For each operation, the kinds of element types on which it is defined."""
