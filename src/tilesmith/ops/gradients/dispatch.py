"""The choice of the rule by which an operator's gradient is computed."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from tilesmith.ops.base import Op
from tilesmith.ops.elementwise.base import Elementwise
from tilesmith.support.errors import ExpressionError, InternalError, UnsupportedError

from .call import RULES, Call
from .scalars import scalar_gradient

Origin: TypeAlias = Literal["written", "scalar", "expansion", "tensor", "none"]
"""The source of a gradient, as the package explains; "none" if it can't be computed."""


def origin_of(op: type[Op]) -> Origin:
    """The source of the gradient of an operator."""
    if op in RULES or op.vjp is not Op.vjp:
        return "written"
    if issubclass(op, Elementwise):
        return "scalar"
    if op.is_composite():
        return "expansion"
    return "tensor" if op.is_primitive() else "none"


def gradients_of(call: Call) -> tuple[Any, ...]:
    """The gradient of each operand of a call; None for zero, or where it is not wanted.

    Raises UnsupportedError for an operator without a gradient.
    """
    op, origin = call.op, origin_of(type(call.op))
    try:
        if type(op) in RULES:
            gradients = tuple(RULES[type(op)](call))
        elif origin == "written":
            result = op.vjp(call.builder, call.cotangents, call.outputs, *call.inputs)
            gradients = result if isinstance(result, tuple) else (result,)
        elif origin == "expansion":
            raise InternalError(f"{op.name} is expanded before its gradient is computed")
        elif origin == "none":
            raise UnsupportedError(f"{op.name} has no gradient: it is written in loops")
        else:
            one = scalar_gradient if origin == "scalar" else Call.derived
            gradients = tuple(one(call, n) if w else None for n, w in enumerate(call.wanted))
    except ExpressionError as e:
        raise UnsupportedError(f"{op.name} has no gradient: {e}") from None
    if len(gradients) != len(call.inputs):
        raise UnsupportedError(
            f"{op.name}: vjp gives {len(gradients)} gradients; expected one for each of "
            f"{len(call.inputs)} operands"
        )
    return gradients
