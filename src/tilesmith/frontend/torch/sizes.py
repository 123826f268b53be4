"""Conversion of symbolic sizes in PyTorch's fake tensors to our symbols."""

from __future__ import annotations

import math
import sys
from typing import Any

from tilesmith.frontend.common.symbols import Symbols
from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.support.errors import UnsupportedError


class SymbolicSizes:
    """The sizes of one trace in our symbols.  A symbol of the trace that is an axis of an input
    becomes one of our symbols.  Other sizes are expressions of our symbols.  An axis whose size
    can't be expressed becomes a new symbol.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._places: dict[Any, tuple[str, int, int]] = {}

    def seen(self, name: str, shape: Any) -> None:
        """Record the shape of the input `name`, before the first call of `dim`."""
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                continue
            key = size.node.expr
            if key not in self._places:
                self._places[key] = (name, axis, len(shape))
                low, high = _range(size)
                hint = size.node.hint if size.node.has_hint() else None
                self._symbols.declare(str(key), low, high, hint)

    def dim(self, size: Any) -> Dim | None:
        """The extent for a size of the trace; None if no axis of an input determines it."""
        if isinstance(size, int):
            return size
        return self._dim(size.node.expr)

    def _dim(self, expr: Any) -> Dim | None:
        if expr.is_Integer:
            return int(expr)
        if not expr.is_Symbol and (formula := self._formula(expr)) is not None:
            return formula
        place = self._places.get(expr)
        return None if place is None else self._symbols.of(str(expr), place)

    def _formula(self, expr: Any) -> Dim | None:
        parts = [self._dim(a) for a in expr.args]
        if not parts or any(p is None for p in parts):
            return None
        dims = [p for p in parts if p is not None]
        name = expr.func.__name__
        if name == "Add":
            return extents.total(dims)
        if name == "Mul":
            return extents.product(dims)
        if name == "Pow" and isinstance(dims[1], int) and dims[1] >= 0:
            return extents.product([dims[0]] * dims[1])
        if name in ("FloorDiv", "CleanDiv"):
            return as_dim(as_expr(dims[0]) // dims[1])
        if name in ("Mod", "PythonMod"):
            return as_dim(as_expr(dims[0]) % dims[1])
        if name in ("Max", "Min"):
            join = extents.larger if name == "Max" else extents.smaller
            joint = dims[0]
            for d in dims[1:]:
                joint = join(joint, d)
            return joint
        return None


def _range(size: Any) -> tuple[int, int]:
    """The smallest and the largest possible value of a size, according to its trace."""
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    # Bounds may be infinite.
    low, high = (min(max(b, 0), LARGEST) for b in (bounds.lower, bounds.upper))
    return int(low), int(high)


def numbers(sizes: Any) -> tuple[int, ...]:
    """Sizes or strides as numbers; symbolic ones become their values in the traced example.

    Raises UnsupportedError if one depends on data.
    """
    numbers = []
    for s in sizes:
        if not isinstance(s, int) and not s.node.has_hint():
            raise UnsupportedError(f"a size depends on data: {s}")
        numbers.append(s if isinstance(s, int) else int(s.node.hint))
    return tuple(numbers)


def memory_order(tensor: Any) -> tuple[int, ...] | None:
    """The axes of a tensor by decreasing stride, so that permuting them gives row-major order.
    None for a tensor with gaps or overlapping elements.
    """
    shape, strides = numbers(tensor.shape), numbers(tensor.stride())
    rank = len(shape)
    if is_row_major(shape, strides):
        return tuple(range(rank))
    order = sorted(range(rank), key=lambda a: (-strides[a], a))
    moved = tuple(shape[a] for a in order)
    dense = is_row_major(moved, tuple(strides[a] for a in order))
    return tuple(order) if dense else None


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements of these strides follow each other in row-major order."""
    if 0 in shape:
        return True
    wanted = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    return all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


def is_symbolic(value: Any) -> bool:
    """Whether a traced value is a symbolic number of Python."""
    torch = sys.modules["torch"]
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
