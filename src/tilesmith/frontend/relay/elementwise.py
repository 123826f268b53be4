"""Relay's operators on elements, and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common.arithmetic import (
    floor_quotient,
    logarithm,
    rounded_away,
    shifted_right,
)
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.relay.node import RelayNode, relay_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32
from tilesmith.ops import activation as ac
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import norm, reduce, scan
from tilesmith.ops.base import Op


def same(name: str, make: Callable[..., Op], arity: int = 1, **attributes: Any) -> None:
    """Register an operator that equals an operator of Tilesmith, made by `make`.

    attributes: defaults by name; Relay and Tilesmith have the same names.
    """

    def convert(n: RelayNode) -> Result:
        settings = {a: n.get(a, default) for a, default in attributes.items()}
        return n.add(make(**settings), *(n.input(i) for i in range(arity)))

    relay_op(name)(convert)


UNARY: dict[str, Callable[..., Op]] = {
    "abs": ew.Abs, "ceil": ew.Ceil, "floor": ew.Floor, "trunc": ew.Trunc, "exp": ew.Exp,
    "fast_exp": ew.Exp, "log": ew.Log, "sqrt": ew.Sqrt, "rsqrt": ew.Rsqrt, "erf": ew.Erf,
    "fast_erf": ew.Erf, "sin": ew.Sin, "cos": ew.Cos, "tan": ew.Tan, "asin": ew.Asin,
    "acos": ew.Acos, "atan": ew.Atan, "sinh": ew.Sinh, "cosh": ew.Cosh, "tanh": ew.Tanh,
    "fast_tanh": ew.Tanh, "asinh": ew.Asinh, "acosh": ew.Acosh, "atanh": ew.Atanh,
    "negative": ew.Neg, "sign": ew.Sign, "logical_not": ew.LogicalNot,
    "bitwise_not": ew.BitwiseNot, "isnan": ew.IsNan, "isinf": ew.IsInf, "sigmoid": ac.Sigmoid,
    "nn.relu": ac.Relu, "copy": ew.Identity, "annotation.stop_fusion": ew.Identity,
}  # fmt: skip
"""Tilesmith's operators of one tensor, by the name of the equal Relay operator."""

BINARY: dict[str, Callable[..., Op]] = {
    "subtract": ew.Sub, "multiply": ew.Mul, "divide": ew.Div, "power": ew.Pow,
    "maximum": ew.Max, "minimum": ew.Min, "equal": ew.Equal, "not_equal": ew.NotEqual,
    "less": ew.Less, "less_equal": ew.LessEqual, "greater": ew.Greater,
    "greater_equal": ew.GreaterEqual, "logical_and": ew.LogicalAnd, "logical_or": ew.LogicalOr,
    "logical_xor": ew.LogicalXor, "bitwise_and": ew.BitwiseAnd, "bitwise_or": ew.BitwiseOr,
    "bitwise_xor": ew.BitwiseXor, "mod": partial(ew.Mod, True), "floor_mod": ew.Mod,
    "left_shift": partial(ew.BitShift, "left"), "add": ew.Add,
}  # fmt: skip
"""Tilesmith's operators of two tensors, by the name of the equal Relay operator."""

for _name, _make in UNARY.items():
    same(_name, _make)
for _name, _make in BINARY.items():
    same(_name, _make, 2)

same("where", ew.Where, 3)
same("nn.softmax", norm.Softmax, axis=-1)
same("nn.fast_softmax", norm.Softmax, axis=-1)
same("nn.log_softmax", norm.LogSoftmax, axis=-1)


def formula(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function computes the operators `names` from their operands."""

    def enter(make: Callable[..., Any]) -> Callable[..., Any]:
        relay_op(*names)(lambda n: make(*n.inputs))
        return make

    return enter


formula("log2")(partial(logarithm, base=2))
formula("log10")(partial(logarithm, base=10))
formula("isfinite")(lambda x: abs(x) < math.inf)
formula("round")(rounded_away)
formula("cast_like")(lambda x, like: x.cast(like.dtype))


@relay_op("floor_divide")
def floor_divide(n: RelayNode) -> Result:
    a, b = n.inputs
    return fn.floor(a / b) if a.dtype.is_float else floor_quotient(n, a, b)


@relay_op("trunc_divide")
def trunc_divide(n: RelayNode) -> Result:
    a, b = n.inputs
    return n.add(ew.Trunc(), a / b) if a.dtype.is_float else a / b


relay_op("right_shift")(lambda n: shifted_right(n, *n.inputs))
relay_op("cast")(lambda n: n.input(0).cast(n.dtype("dtype")))


@relay_op("clip")
def clip(n: RelayNode) -> Result:
    x, limits = n.input(0), [n.get("a_min", -math.inf), n.get("a_max", math.inf)]
    if not x.dtype.is_float:  # limits may be outside the range of an integer type
        limits = [min(max(v, x.dtype.min), x.dtype.max) for v in limits]
        limits = [math.ceil(limits[0]), math.floor(limits[1])]
    return fn.clip(x, *limits)


@relay_op("nn.leaky_relu")
def leaky_relu(n: RelayNode) -> Result:
    return n.add(ac.LeakyRelu(n.get("alpha", 0.01)), n.input(0))


@relay_op("nn.prelu")
def prelu(n: RelayNode) -> Result:
    x, slope = n.inputs
    return n.add(ac.PRelu(), x, along(n, slope, n.axis(n.int("axis", 1), x.type.rank), x.type.rank))


@relay_op("nn.dropout")
def dropout(n: RelayNode) -> Result:
    n.get("rate")
    return n.input(0), fn.apply(ew.Cast(n.input(0).dtype), n.input(0).equals(n.input(0)))


@relay_op("nn.bias_add")
def bias_add(n: RelayNode) -> Result:
    x, bias = n.inputs
    return x + along(n, bias, n.axis(n.int("axis", 1), x.type.rank), x.type.rank)


def along(n: RelayNode, numbers: Value, axis: int, rank: int) -> Value:
    """A list reshaped to `rank` axes: it lies along `axis`, and all other extents are 1."""
    count = extents.product(numbers.type.shape)
    return n.reshape(numbers, (*[1] * axis, count, *[1] * (rank - axis - 1)))


# Reductions


def axes_of(n: RelayNode, rank: int) -> tuple[int, ...]:
    """The axes of a reduction, in order."""
    axes = n.axes(n.ints("axis", tuple(range(rank))), rank)
    if n.get("exclude", False):
        axes = tuple(a for a in range(rank) if a not in axes)
    return tuple(sorted(axes))


def _reduction(n: RelayNode, make: Callable[..., Op]) -> Result:
    return n.add(make(axes_of(n, n.input(0).type.rank), n.get("keepdims", False)), n.input(0))


for _name, _make in {
    "sum": reduce.ReduceSum, "mean": reduce.ReduceMean, "max": reduce.ReduceMax,
    "min": reduce.ReduceMin, "prod": reduce.ReduceProd, "all": reduce.ReduceMin,
    "any": reduce.ReduceMax, "logsumexp": reduce.ReduceLogSumExp,
}.items():  # fmt: skip
    relay_op(_name)(partial(_reduction, make=_make))


def _place(n: RelayNode, make: Callable[..., Op]) -> Result:
    x, keep = n.input(0), n.get("keepdims", False)
    axes, shape = axes_of(n, x.type.rank), x.type.shape
    last = n.get("select_last_index", False)
    if len(axes) == 1:
        return n.add(make(axes[0], keep, last), x).cast(i32)
    if len(axes) != x.type.rank:
        n.unsupported(f"positions along {len(axes)} of {x.type.rank} axes")
    place = n.add(make(0, False, last), n.reshape(x, (extents.product(shape),))).cast(i32)
    return n.reshape(place, (1,) * len(shape)) if keep else place


relay_op("argmax")(partial(_place, make=reduce.ArgMax))
relay_op("argmin")(partial(_place, make=reduce.ArgMin))


@relay_op("variance")
def variance(n: RelayNode) -> Result:
    x, mean = n.inputs
    axes, keep = axes_of(n, x.type.rank), n.get("keepdims", False)
    if not n.get("unbiased", False):
        return ((x - mean) * (x - mean)).mean(axes, keep)
    count = extents.difference(extents.product([x.type.shape[a] for a in axes]), 1)
    return ((x - mean) * (x - mean)).sum(axes, keep) / n.of_dims((count,), ()).cast(x.dtype)


def _running(n: RelayNode, make: Callable[..., Op]) -> Result:
    x, axis = n.input(0), n.get("axis")
    if axis is None:
        x = n.reshape(x, (extents.product(x.type.shape),))
    x = x.cast(n.dtype("dtype", x.dtype if not x.dtype.is_bool else i32))
    return n.add(make(n.axis(axis or 0, x.type.rank), n.get("exclusive", False)), x)


relay_op("cumsum")(partial(_running, make=scan.CumSum))
relay_op("cumprod")(partial(_running, make=scan.CumProd))


# Normalisations


def _channel_second(n: RelayNode, x: Value, axis: int) -> tuple[Value, tuple[int, ...]]:
    """`x` with `axis` moved to position 1, and the permutation that moves it back."""
    order = [a for a in range(x.type.rank) if a != axis]
    order.insert(1, axis)
    back = tuple(order.index(a) for a in range(len(order)))
    return (x if order == sorted(order) else x.transpose(*order)), back


def _back(x: Value, order: tuple[int, ...]) -> Value:
    return x if order == tuple(sorted(order)) else x.transpose(*order)


@relay_op("nn.batch_norm")
def batch_norm(n: RelayNode) -> Result:
    """The normalised tensor, and the mean and variance, which inference does not change."""
    x, scale, offset, mean, deviation = n.inputs
    x, back = _channel_second(n, x, n.axis(n.int("axis", 1), x.type.rank))
    scale, offset = _parameters(n, scale, offset)
    op = norm.BatchNorm(n.get("epsilon", 1e-5))
    y = n.add(op, x, scale, offset, mean, deviation)
    return _back(y, back), mean, deviation


def _parameters(n: RelayNode, scale: Value, offset: Value) -> tuple[Value, Value]:
    """The scale and the offset of a normalisation; 1 and 0 where attributes switch them off."""
    is_scaled, is_centred = n.get("scale", True), n.get("center", True)
    n.get("momentum")
    return (scale if is_scaled else scale * 0 + 1), (offset if is_centred else offset * 0)


@relay_op("nn.layer_norm")
def layer_norm(n: RelayNode) -> Result:
    x, scale, offset = n.inputs
    axis, rank, epsilon = (
        n.axis(n.int("axis", -1), x.type.rank),
        x.type.rank,
        n.get("epsilon", 1e-5),
    )
    scale, offset = _parameters(n, scale, offset)
    if axis == rank - 1:
        return n.add(norm.LayerNorm(-1, epsilon), x, scale, offset)
    centred = x - x.mean((axis,), True)
    y = centred * fn.rsqrt((centred * centred).mean((axis,), True) + epsilon)
    return y * along(n, scale, axis, rank) + along(n, offset, axis, rank)


@relay_op("nn.instance_norm")
def instance_norm(n: RelayNode) -> Result:
    return _grouped(n, lambda epsilon: norm.InstanceNorm(epsilon))


@relay_op("nn.group_norm")
def group_norm(n: RelayNode) -> Result:
    return _grouped(n, lambda epsilon: norm.GroupNorm(n.int("num_groups"), epsilon))


def _grouped(n: RelayNode, make: Callable[[float], Op]) -> Value:
    x, scale, offset = n.inputs
    x, back = _channel_second(n, x, n.axis(n.int("axis", 1), x.type.rank))
    op = make(n.get("epsilon", 1e-5))
    return _back(n.add(op, x, *_parameters(n, scale, offset)), back)


@relay_op("nn.lrn")
def lrn(n: RelayNode) -> Result:
    x, back = _channel_second(n, n.input(0), n.axis(n.int("axis", 1), n.input(0).type.rank))
    size, settings = n.int("size", 5), (n.get("alpha", 1e-4), n.get("beta", 0.75))
    return _back(n.add(norm.Lrn(size, *settings, n.get("bias", 2.0)), x), back)


@relay_op("nn.l2_normalize")
def l2_normalize(n: RelayNode) -> Result:
    x = n.input(0)
    squares = (x * x).sum(axes_of(n, x.type.rank), True)
    return x / fn.sqrt(fn.maximum(squares, n.get("eps", 1e-12)))
