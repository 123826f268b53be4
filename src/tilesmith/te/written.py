"""Checks of extents and reducers in users' tensor expressions, and their source lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from numbers import Integral

from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import Const, Expr, Var, type_text
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.support import arguments
from tilesmith.support.arguments import shown
from tilesmith.support.errors import ExpressionError

Values = tuple[Expr, ...]


def extents(shape: Sequence[Dim], what: str) -> tuple[Dim, ...]:
    """The checked extents of `shape`.  Raises ExpressionError, naming `what`, for another shape."""
    if isinstance(shape, (str, bytes, bytearray, memoryview)) or not isinstance(shape, Sequence):
        one = isinstance(shape, (int, Expr))
        cure = f"; write ({shown(shape)},) for one dimension" if one else ""
        raise ExpressionError(f"{what}: a shape is a tuple of extents, found {shown(shape)}{cure}")
    return tuple([n if type(n) is int and n >= 0 else extent(n, what) for n in shape])


def extent(n: Dim, what: str) -> Dim:
    """`n` as an int of at least 0, or as a simplified scalar i64 expression.  Raises
    ExpressionError if it is neither.
    """
    if type(n) is Const and n.dtype is i64:
        n = int(n.value)
    if isinstance(n, Expr):
        if n.dtype is i64 and n.lanes == 1:
            simple = as_dim(n)  # equal extents become one object
            return simple if isinstance(simple, Expr) else extent(simple, what)
        raise ExpressionError(f"{what}: a symbolic extent is an i64, found {n}, {type_text(n)}")
    if isinstance(n, float):
        cure = "; write // for a whole quotient" if n.is_integer() else ""
        raise ExpressionError(f"{what}: an extent is a whole number, found {n}{cure}")
    if isinstance(n, bool) or not isinstance(n, Integral):  # NumPy's integers count too
        raise ExpressionError(f"{what}: an extent is a whole number, found {shown(n)}")
    if n < 0:
        raise ExpressionError(f"{what}: an extent is at least 0, found {shown(int(n))}")
    return int(n)


def check_reducer(
    name: str,
    combine: Callable[[Values, Values], Values],
    identity: Callable[[tuple[DType, ...]], Values],
    dtypes: tuple[DType, ...],
) -> None:
    """Raises ExpressionError if a reducer of values of types `dtypes` gives other types."""
    a, b = (tuple(Var(f"{side}{i}", d) for i, d in enumerate(dtypes)) for side in "ab")
    for what, values in (("combines", combine(a, b)), ("starts with", identity(dtypes))):
        types = ", ".join(type_text(v) for v in values)
        if tuple(v.dtype for v in values) != dtypes:
            wanted = ", ".join(d.name for d in dtypes)
            raise ExpressionError(
                f"reducer {name} {what} values of type {types or 'none'}; it reduces {wanted}, and "
                "must give as many values of the same types"
            )


def line_of_caller(depth: int) -> str:
    """The place "file:line" in the frame `depth` levels above the caller.  Empty for a frame in
    Tilesmith itself, because the compiler's own expressions need no place.
    """
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == arguments.__name__:
        frame = frame.f_back  # skip the function that checks arguments
    if frame.f_globals.get("__name__", "").startswith("tilesmith."):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
