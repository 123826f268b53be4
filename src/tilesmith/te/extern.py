"""Parts of a program that are written as loops, such as sorting and counting, because no tensor
expression describes them.

    def count(b, x, bins):
        with b.loop(10) as k:
            bins[k] = 0
        with b.loop(n) as i:
            bins[x[i]] = bins[x[i]] + 1

    H = te.extern(10, [X], count, dtype="i64", name="H")

The loops are written with a `LoopBuilder`, like those of operators (`ops.Op.loops`).  For schedules
the loops together are one stage without axes.  The stage is computed as a whole, at the root or
inside a reader's loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, free_vars
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.verify import verify
from tilesmith.support.arguments import checked
from tilesmith.support.depth import at_depth
from tilesmith.support.errors import ExpressionError, VerifyError

from .tensor import Extern, Tensor
from .written import extents, line_of_caller

Shape = int | Expr | Sequence[Dim]


@checked(ExpressionError, besides=["shape"])
def extern(
    shape: Shape | Sequence[Sequence[Dim]],
    inputs: Sequence[Tensor],
    body: Callable[..., None],
    dtype: DType | str | Sequence[DType | str] | None = None,
    name: str = "extern",
) -> Any:
    """The tensor that loops compute; a tuple of tensors for a list of shapes.

    shape: shape of the result; a list of tuples for several results.
    inputs: the tensors that the loops read.
    body: writes the loops.  It is called with a `LoopBuilder` and an `Array` for each input and
        each result.
    dtype: element type of the result, or one for each; by default the type of the first input.

    Machine code does not check the indices of the loops.  Raises ExpressionError for loops that are
    not well formed, such as stores into an input.
    """
    several = isinstance(shape, (list, tuple)) and any(isinstance(n, (list, tuple)) for n in shape)
    shapes: Any = shape if several else [shape]
    dims = [extents(s if isinstance(s, (list, tuple)) else (s,), name) for s in shapes]
    if dtype is None and not inputs:
        raise ExpressionError(f"{name}: without inputs the dtype of the result must be given")
    dtypes = inputs[0].dtype if dtype is None else dtype
    dtypes = (
        list(dtypes)
        if isinstance(dtypes, Sequence) and not isinstance(dtypes, str)
        else [dtypes] * len(dims)
    )
    if len(dtypes) != len(dims):
        raise ExpressionError(f"{name}: {len(dims)} shapes, but {len(dtypes)} element types")
    b = LoopBuilder(name)
    arrays = [b.input(t.name, TensorType(t.dtype, t.shape)) for t in inputs]
    for n, (s, d) in enumerate(zip(dims, dtypes, strict=True)):
        label = name if len(dims) == 1 else f"{name}.{n}"
        arrays.append(b.output(label, TensorType(to_dtype(d), s)))
    try:
        inspect.signature(body).bind(b, *arrays)
    except TypeError as e:
        raise ExpressionError(
            f"{name}: the body gets a LoopBuilder and {len(arrays)} arrays: {e}"
        ) from None
    except ValueError:  # the parameters of this callable are unknown
        pass
    body(b, *arrays)
    func = b.finish()
    symbols = {v: None for a in func.buffers for n in a.shape if isinstance(n, Expr)
               for v in sorted(free_vars(n), key=lambda v: v.name)}  # fmt: skip
    func = replace(func, params=(*func.params, *symbols))
    place = line_of_caller(1)
    try:
        deep = at_depth(ExpressionError, f"{name}: the body", "write it as several stages")
        deep(verify)(func, "nest", is_users=True)
    except VerifyError as e:
        raise ExpressionError(f"{name} ({place}): {e}" if place else f"{name}: {e}") from None
    op = Extern(name, (), (), source=place, func=func, sources=tuple(inputs))
    return op.outputs if several else op.outputs[0]
