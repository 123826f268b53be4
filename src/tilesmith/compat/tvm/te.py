"""TVM's `te`: expressions and schedules, with TVM's arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith import te
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, Var, as_expr, const
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.support.errors import UsageError
from tilesmith.te.tensor import MAX, MIN, PROD, SUM

from ..names import refusing
from . import tir
from .ir_builder import extern
from .schedule import Schedule, Stage, create_schedule, no_code
from .tir import *  # noqa: F403

__all__ = [
    "Schedule", "Stage", "Tensor", "comm_reducer", "compute", "create_schedule",
    "decl_tensor_intrin", "extern", "gradient", "max", "max_value", "min", "min_value",
    "placeholder", "prod", "reduce_axis", "scan", "size_var", "sum", "thread_axis", "var",
]  # fmt: skip
__all__ += tir.__all__

Tensor = te.Tensor

_NUMBERS = itertools.count()


def placeholder(
    shape: Any, dtype: str | DType | None = None, name: str = "placeholder"
) -> te.Tensor:
    """An argument of the program; its elements are "float32" by default."""
    return te.placeholder(_shape(shape), dtype or "float32", name)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`.  Tags and attributes, which
    TVM only hands on, are not kept.
    """
    return te.compute(_shape(shape), fcompute, name, varargs_names)


def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def var(name: str = "tindex", dtype: str | DType = "int32") -> Var:
    """An extent that is known at run time.  All such variables have 64 bits here."""
    if not to_dtype(dtype).is_int:
        raise UsageError(
            f"te.var {name!r}: expected an integer type, found {dtype}; give a scalar of another "
            "type as te.placeholder((1,), dtype)"
        )
    return te.var(name)


def size_var(name: str = "size", dtype: str | DType = "int32") -> Var:
    """As `var`: every extent here is at least 0."""
    return var(name, dtype)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> te.IterVar:
    """A reduction axis over `(start, stop)`; start must be 0."""
    if thread_tag:
        raise UsageError(
            f"reduce_axis {name!r}: bind the axis in the schedule, by s[tensor].bind(axis, "
            f"{thread_tag!r})"
        )
    return te.reduce_axis(tuple(dom) if isinstance(dom, (tuple, list)) else dom, name)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> str:
    """The name of an index of blocks or threads, for `bind`.  Extents come from the bound loop."""
    return dom if isinstance(dom, str) else tag


def _reduction(over: Callable[..., Any], identity: Callable[..., Any], name: str) -> Any:
    """The function of a reduction with TVM's arguments.

    over: ours.
    identity: maps element types to the neutral element, or to a tuple of them.
    """

    def reduce(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Any:
        if init is not None:
            raise UsageError(
                f"te.{name}(init=): a reduction starts from its neutral element here; add the "
                "start in a compute of its own"
            )
        if where is not None:
            values = [as_expr(e) for e in (expr if isinstance(expr, (tuple, list)) else (expr,))]
            start = identity(*(v.dtype for v in values))
            starts = start if isinstance(start, (tuple, list)) else (start,)
            chosen = tuple(te.select(where, v, s) for v, s in zip(values, starts, strict=True))
            expr = chosen if isinstance(expr, (tuple, list)) else chosen[0]
        return over(expr, axis)

    reduce.__name__ = name
    reduce.__doc__ = f"The {name} of `expr` over reduction axes, where `where` holds."
    return reduce


def _known(reducer: te.Reducer) -> Any:
    over = getattr(te, reducer.name)
    return _reduction(over, lambda *dtypes: reducer.identity(dtypes), reducer.name)


sum, prod, min, max = map(_known, (SUM, PROD, MIN, MAX))  # named as in TVM


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reduction by a user's function of two values, or of two tuples of values."""
    return _reduction(te.comm_reducer(fcombine, fidentity, name), fidentity, name)


def min_value(dtype: str | DType) -> Expr:
    """The least finite value of an element type."""
    d = to_dtype(dtype)
    return const(-d.largest if d.is_float else d.min, d)


def max_value(dtype: str | DType) -> Expr:
    """The largest finite value of an element type."""
    d = to_dtype(dtype)
    return const(d.largest if d.is_float else d.max, d)


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """The tensor of all steps of a recurrence.  `inputs` has no effect."""
    return te.scan(init, update, state_placeholder, name)


def gradient(output: te.Tensor, inputs: Any, head: te.Tensor | None = None) -> list[te.Tensor]:
    """The derivatives of `output` with respect to each input, weighted by `head`.

    head: a tensor of the output's shape.  None: the output has no dimensions, and its derivative is
        wanted.

    Raises UsageError for the Jacobian matrix of an output with dimensions.
    """
    if head is None and output.rank:
        raise UsageError(
            f"te.gradient of {output!r}: expected head=, a tensor of its shape, found None; a row "
            "of the Jacobian matrix is the gradient with a head that has a single one"
        )
    return list(te.gradient(output, inputs, head))


def decl_tensor_intrin(
    op: te.Compute,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Any = None,
    scalar_params: Any = None,
    default_buffer_params: Any = None,
) -> TensorIntrinsic:
    """The behaviour of an instruction, which is the expression of `op`, for `Stage.tensorize`.

    fcompute, binds, default_buffer_params: TVM's code, and its buffers.  They are not used, since
        the compiler makes the code of the expression; `tilesmith.te.decl_tensor_intrin` declares
        an instruction with code of its own.

    Raises ExpressionError for an expression that does not describe an instruction.
    """
    if scalar_params:
        raise UsageError(f"{name}: expected operands that are tensors, found scalar_params")
    return te.decl_tensor_intrin(f"{name}_{next(_NUMBERS)}", op.outputs[0], no_code)


ELSEWHERE = {
    "SpecializedCondition": "a schedule for each size, or te.var",
    "nearbyint": "te.round",
    "hybrid": "tilesmith.te.extern with a LoopBuilder",
    "create_prim_func": "tvm.lower(s, args)",
}
"""What to use for names of TVM."""

__getattr__ = refusing("te", ELSEWHERE)
