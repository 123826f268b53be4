"""Ranges of numbers.  The ends of a range are numbers, extents, or values that the model computes.
One formula serves all three; if its operands are known, it is computed during import.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops.functions import ceil, maximum, where

from .lists import listed
from .node import NodeContext

_MOST = 1 << 40
"""A number above every extent."""


def integers(n: NodeContext, start: Dim, limit: Dim, step: int) -> Value:
    """start, start + step and so on, up to but not including limit, as i64."""
    span = extents.difference(limit, start) if step > 0 else extents.difference(start, limit)
    rounded = extents.total((span, abs(step) - 1))
    count = extents.larger(as_dim(as_expr(rounded) // abs(step)), 0)
    numbers = n.positions(count)
    if step != 1:
        numbers = numbers * step
    return numbers if same_dim(start, 0) else numbers + start


def ranged(n: NodeContext, operands: Sequence[Value]) -> Value:
    """The range from a start to a limit with a step.  All three have one type."""
    start, limit, delta = operands
    if len({v.dtype for v in operands}) > 1 or any(
        v.type.is_static and v.type.size != 1 for v in operands
    ):
        n.bad(f"expected three numbers of one type, found {start.type}, {limit.type}, {delta.type}")
    for v in operands:
        number = n.known(v)
        if number is not None and not (np.isfinite(number).all() and (v is not delta or number)):
            n.bad(f"expected finite numbers and a step other than 0, found {number.reshape(())}")
    dtype = start.dtype
    if dtype.is_int and all(n.builder.contents(v) is not None for v in operands):
        by = int(n.scalar(delta, "the step"))
        return integers(n, n.dim(start, "the start"), n.dim(limit, "the limit"), by).cast(dtype)
    wide = i64 if dtype.is_int else f64
    first, end, step = (listed(v, wide) for v in operands)
    if wide is i64:
        up = where(step < 0, step + 1, step - 1)
        count = (end - first + up) / step
        wrong = step.equals(0)
    else:
        steps = ceil((end - first) / step)
        count = steps.cast(i64)
        wrong = ~(steps < _MOST)  # the range is too long, or its length is NaN
    (length,) = n.measured(maximum(count, 0), zero=wrong.cast(i64))
    return (n.positions(length).cast(wide) * step + first).cast(dtype)
