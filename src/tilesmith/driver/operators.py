"""Operators by name as tensor expressions, for the operator generator (`tuning.operators`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import ARITHMETIC, DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import const
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import OPS, Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise.binary import Add
from tilesmith.ops.formula import Formula
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm, Softmax
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.shape import Reshape
from tilesmith.support.errors import UsageError
from tilesmith.te import tensor as te


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator known by name.

    op: the class whose fields are its attributes.
    operands: names of the operands in order.  The last `optional` ones may be missing.
    optional: number of operands that may be missing.
    rank: dimensions of the first operand; None for any.
    has_bias: whether the last operand is added to each channel, axis 1, of the result.
    fixed: attributes that follow from the name or the operands' shapes.
    """

    op: type[Op]
    operands: tuple[str, ...]
    optional: int = 0
    rank: int | None = None
    has_bias: bool = False
    fixed: Callable[[Sequence[Sequence[int]]], dict[str, Any]] = lambda shapes: {}


def _channels(shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    return {"groups": shapes[0][1]}


def _transposed(shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    return {"transpose_b": True}


_CONV = Operator(Conv, ("input", "weight", "bias"), 1, 4, has_bias=True)
_PER_CHANNEL = ("input", "scale", "bias")

OPERATORS: dict[str, Operator] = {
    "conv2d": _CONV,
    "depthwise_conv2d": replace(_CONV, fixed=_channels),
    "max_pool2d": Operator(MaxPool, ("input",), rank=4),
    "avg_pool2d": Operator(AvgPool, ("input",), rank=4),
    "fully_connected": Operator(
        MatMul, ("input", "weight", "bias"), 1, 2, has_bias=True, fixed=_transposed
    ),
    "matmul": Operator(MatMul, ("a", "b")),
    "softmax": Operator(Softmax, ("input",)),
    "layer_norm": Operator(LayerNorm, _PER_CHANNEL, 1),
    "rms_norm": Operator(RmsNorm, ("input", "scale")),
    "batch_norm": Operator(BatchNorm, (*_PER_CHANNEL, "mean", "variance")),
    "instance_norm": Operator(InstanceNorm, _PER_CHANNEL),
    "group_norm": Operator(GroupNorm, _PER_CHANNEL),
}
"""The operators by name.  Images are NCHW, kernels OIHW, as in ONNX; `fully_connected` takes
weights [N, K].
"""


@dataclass(frozen=True, eq=False)
class _Value(Formula):
    """A value of the builder.

    tensor: its tensor expression.
    """

    tensor: te.Tensor

    @property
    def builder(self) -> _Builder:
        return _Builder()

    @property
    def type(self) -> TensorType:
        return TensorType(self.tensor.dtype, self.tensor.shape)


class _Builder:
    """A GraphBuilder whose values are tensor expressions."""

    def constant(self, array: np.ndarray) -> _Value:
        if array.size != 1:
            raise UsageError(
                f"an operator with a constant of {array.size} elements inside: expected one; "
                "export a model with `tilesmith export`"
            )
        literal = const(array.reshape(()).item(), to_dtype(array.dtype))
        return _Value(te.compute(array.shape, lambda *_: literal, "literal"))

    def add(self, op: Op, *inputs: _Value) -> Any:
        if op.is_irregular():
            raise UsageError(
                f"{op.name} has loops of its own and no tensor expression: expected an operator "
                "that computes or decomposes; export a model of one node with `tilesmith export`"
            )
        if op.is_composite():
            return op.decompose(self, *inputs)
        results = op.compute(*(v.tensor for v in inputs))
        values = tuple(map(_Value, results if isinstance(results, tuple) else (results,)))
        return values[0] if len(values) == 1 else values


def arguments_of(
    op: Op, operands: Sequence[str], types: Sequence[TensorType], bias: bool = False
) -> tuple[te.Tensor, ...]:
    """Placeholders for the operands of `op`, then its results.

    bias: whether the last operand is a bias, which is added to each channel of the result of `op`.
    """
    inputs = [te.placeholder(t.shape, t.dtype, n) for n, t in zip(operands, types, strict=True)]
    builder = _Builder()
    values = [_Value(t) for t in inputs]
    last = values.pop() if bias else None
    made = builder.add(op, *values)
    results = made if isinstance(made, tuple) else (made,)
    if last is not None:
        (result,) = results
        channels = result.type.shape[1]
        if last.type.shape != (channels,):
            raise UsageError(
                f"bias: expected [{channels}], one number per channel, found "
                f"[{', '.join(map(str, last.type.shape))}]"
            )
        around = (channels, *[1] * (result.type.rank - 2))
        results = (builder.add(Add(), result, builder.add(Reshape(around), last)),)
    return (*inputs, *(r.tensor for r in results))


def operator_arguments(
    name: str,
    shapes: Sequence[Sequence[int]],
    dtype: str | Sequence[str],
    attributes: Mapping[str, Any],
) -> tuple[te.Tensor, ...]:
    """Placeholders for the operands of an operator, then its results.

    name: one of `OPERATORS`, or an operator's own name (`tilesmith ops`).
    shapes: shapes of the operands.
    dtype: the element type of all operands, or one for each.

    Raises UsageError and ModelError for arguments that do not fit.
    """
    known = OPERATORS.get(name)
    if known is None:
        if name not in OPS:
            raise UsageError(
                f"unknown operator {name!r}: expected one of {', '.join(OPERATORS)}, or a name "
                "that `tilesmith ops` lists"
            )
        known = Operator(OPS[name], tuple(f"x{i}" for i in range(len(shapes))))
    least, most = len(known.operands) - known.optional, len(known.operands)
    if not least <= len(shapes) <= most:
        count = str(most) if least == most else f"{least} to {most}"
        raise UsageError(
            f"{name}: expected {count} shapes, of {', '.join(known.operands)}; found {len(shapes)}"
        )
    for operand, shape in zip(known.operands, shapes, strict=False):
        if not all(isinstance(n, int) and n > 0 for n in shape):
            raise UsageError(
                f"{name}: expected positive extents for {operand}, found "
                f"[{', '.join(map(str, shape))}]"
            )
    if shapes and known.rank not in (None, len(shapes[0])):
        raise UsageError(
            f"{name}: expected {known.rank} dimensions for {known.operands[0]}, found "
            f"[{', '.join(map(str, shapes[0]))}]"
        )
    types = [
        TensorType(t, tuple(s))
        for t, s in zip(_dtypes(name, dtype, len(shapes)), shapes, strict=True)
    ]
    op = _made(name, known.op, {**known.fixed(shapes), **attributes})
    bias = known.has_bias and len(shapes) == most
    return arguments_of(op, known.operands[: len(shapes)], types, bias)


def _dtypes(name: str, given: str | Sequence[str], count: int) -> list[DType]:
    names = [given] * count if isinstance(given, str) else [*given]
    if len(names) == 1:
        names *= count
    if len(names) != count:
        raise UsageError(f"{name}: expected 1 or {count} element types, found {len(names)}")
    known = {t.name: t for t in ARITHMETIC}
    for n in names:
        if n not in known:
            raise UsageError(
                f"{name}: unknown element type {n!r}; expected one of {', '.join(known)}"
            )
    return [known[n] for n in names]


def _made(name: str, op: type[Op], attributes: Mapping[str, Any]) -> Op:
    """The operator with these attributes.  A number may stand for a list of one number."""
    known = {f.name: f for f in fields(op)}
    for key in attributes:
        if key not in known:
            raise UsageError(f"{name}: no attribute {key!r}; expected {', '.join(known) or 'none'}")
    missing = [
        k for k, f in known.items()
        if f.default is MISSING and f.default_factory is MISSING and k not in attributes
    ]  # fmt: skip
    if missing:
        raise UsageError(f"{name}: expected attribute {', '.join(missing)} (--set NAME=VALUE)")
    return op(**{k: _fitting(v, str(known[k].type)) for k, v in attributes.items()})


def _fitting(value: Any, type_: str) -> Any:
    if type_.startswith("tuple") and not isinstance(value, str):
        return tuple(value) if isinstance(value, Sequence) else (value,)
    return to_dtype(value) if type_.startswith("DType") and isinstance(value, str) else value
