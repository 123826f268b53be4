"""TVM's `topi`: operators on tensors, made from Tilesmith's operators.

Each function makes the tensor expressions of one operator (`tilesmith ops`).  Composite operators,
such as softmax, become several tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilesmith import te
from tilesmith.driver import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Value
from tilesmith.graph.passes.decompose import decompose
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.ops.base import OPS, Op
from tilesmith.strategy.sketch import generated
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import ANALYTIC
from tilesmith.te.tensor import Placeholder, producers_first

from .target import Target


def apply(op: Op, *inputs: te.Tensor) -> Any:
    """The tensors of an operator; one tensor if it has one result.  Raises UsageError for an
    operator that no tensor expression describes, ModelError for inputs that do not fit.
    """
    b = Builder()
    values = [b.input(f"x{n}", TensorType(t.dtype, t.shape)) for n, t in enumerate(inputs)]
    results = b.add(op, *values)
    graph = decompose(b.finish(*(results if isinstance(results, tuple) else (results,))))
    known: dict[Value, te.Tensor] = dict(zip(graph.inputs, inputs, strict=True))
    known |= {c.value: _constant(c.data.array) for c in graph.constants}
    for node in graph.nodes:
        if type(node.op).compute is Op.compute:
            raise UsageError(f"topi: no tensor expression describes the operator {node.op.name}")
        made = node.op.compute(*(known[v] for v in node.inputs))
        tensors = made if isinstance(made, tuple) else (made,)
        known |= dict(zip(node.outputs, tensors, strict=True))
    found = tuple(known[v] for v in graph.outputs)
    return found[0] if len(found) == 1 else found


def _constant(array: np.ndarray) -> te.Tensor:
    if array.size != 1:
        raise UsageError(f"topi: expected constants of one element, found shape {array.shape}")
    value = te.const(array.item(), to_dtype(array.dtype))
    return te.compute(array.shape, lambda *i: value, name="constant")


def _op(name: str, *attributes: Any) -> Op:
    """The operator of this name, with its attributes in order (`tilesmith ops`)."""
    return OPS[name](*attributes)


def _unary(name: str) -> Callable[..., te.Tensor]:
    return lambda x: apply(_op(name), x)


def _binary(name: str) -> Callable[..., te.Tensor]:
    """A function of two tensors, or of a tensor and a number, with broadcasting."""

    def function(lhs: Any, rhs: Any) -> te.Tensor:
        of = lhs if isinstance(lhs, te.Tensor) else rhs
        a, b = (x if isinstance(x, te.Tensor) else full((), of.dtype, x) for x in (lhs, rhs))
        return apply(_op(name), a, b)

    return function


def _reduction(name: str) -> Callable[..., te.Tensor]:
    def function(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
        axes = range(data.rank) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
        return apply(_op(name, tuple(axes), keepdims), data)

    return function


abs, acos, acosh, asin, asinh, atan, atanh, ceil, cos, cosh, erf, exp, floor, identity = map(
    _unary, ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf",
             "exp", "floor", "identity"),
)  # fmt: skip
log, logical_not, negative, round, rsqrt, sigmoid, sign, sin, sinh, sqrt, tan, tanh, trunc = map(
    _unary, ("log", "logical_not", "neg", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
             "sqrt", "tan", "tanh", "trunc"),
)  # fmt: skip
add, subtract, multiply, divide, maximum, minimum, power, mod = map(
    _binary, ("add", "sub", "mul", "div", "max", "min", "pow", "mod")
)
equal, not_equal, less, less_equal, greater, greater_equal, logical_and, logical_or = map(
    _binary, ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
              "logical_and", "logical_or"),
)  # fmt: skip
broadcast_add, broadcast_sub, broadcast_mul, broadcast_div = add, subtract, multiply, divide
broadcast_maximum, broadcast_minimum = maximum, minimum
sum, prod, min, max, mean = map(
    _reduction, ("reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_mean")
)


def _index(name: str, data: te.Tensor, axis: int, keepdims: bool) -> te.Tensor:
    return cast(apply(_op(name, axis, keepdims), data), "int32")


def argmax(data: te.Tensor, axis: int = -1, keepdims: bool = False) -> te.Tensor:
    """The first index of the maximum along `axis`, of type "int32"."""
    return _index("arg_max", data, axis, keepdims)


def argmin(data: te.Tensor, axis: int = -1, keepdims: bool = False) -> te.Tensor:
    """The first index of the minimum along `axis`, of type "int32"."""
    return _index("arg_min", data, axis, keepdims)


def cast(x: te.Tensor, dtype: str | DType) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x[i].astype(to_dtype(dtype)), name="cast")


def clip(x: te.Tensor, a_min: float, a_max: float) -> te.Tensor:
    return apply(_op("clip", a_min, a_max), x)


def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """The sum of tensors of one shape."""
    total = xs[0]
    for x in xs[1:]:
        total = add(total, x)
    return total


def full(shape: Sequence[Any], dtype: str | DType, fill_value: float) -> te.Tensor:
    value = te.const(fill_value, to_dtype(dtype))
    return te.compute(tuple(shape), lambda *i: value, name="full")


def full_like(x: te.Tensor, fill_value: float) -> te.Tensor:
    return full(x.shape, x.dtype, fill_value)


def transpose(a: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    return apply(_op("transpose", tuple(reversed(range(a.rank)) if axes is None else axes)), a)


def reshape(a: te.Tensor, newshape: Sequence[Any]) -> te.Tensor:
    return apply(_op("reshape", tuple(newshape)), a)


def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    return apply(_op("unsqueeze", tuple(range(axis, axis + num_newaxis))), a)


def squeeze(a: te.Tensor, axis: Any = None) -> te.Tensor:
    axes = [n for n, d in enumerate(a.shape) if same_dim(d, 1)] if axis is None else axis
    return apply(_op("squeeze", tuple(axes) if isinstance(axes, Sequence) else (axes,)), a)


def concatenate(a_tuple: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    return apply(_op("concat", axis), *a_tuple)


def flip(a: te.Tensor, axis: int = 0) -> te.Tensor:
    return apply(_op("flip", (axis,)), a)


def tile(a: te.Tensor, reps: Sequence[int]) -> te.Tensor:
    return apply(_op("tile", tuple(reps)), a)


def take(a: te.Tensor, indices: te.Tensor, axis: int = 0) -> te.Tensor:
    return apply(_op("gather", axis), a, indices)


def strided_slice(
    a: te.Tensor, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> te.Tensor:
    axes = tuple(range(len(begin)))
    steps = tuple(strides) if strides else (1,) * len(begin)
    return apply(_op("slice", tuple(begin), tuple(end), axes, steps), a)


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    return apply(_op("matmul", transp_a, transp_b), a, b)


def einsum(subscripts: str, *operand: te.Tensor) -> te.Tensor:
    return apply(_op("einsum", subscripts), *operand)


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value, value)


def _pads(padding: Any) -> tuple[int, ...]:
    """Zeros before both axes, then after both, from TVM's one, two or four numbers."""
    pads = _pair(padding)
    return pads if len(pads) == 4 else (*pads, *pads)


def _conv2d_nchw(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: Any = None,
    groups: int = 1,
) -> te.Tensor:
    """Convolution of [N, C, H, W] with [OC, C, KH, KW]."""
    to = None if out_dtype is None else to_dtype(out_dtype)
    op = _op("conv", _pair(stride), _pads(padding), _pair(dilation), groups, to)
    return apply(op, Input, Filter)


def _conv2d(
    inp: te.Tensor,
    filt: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any = 1,
    layout: str = "NCHW",
    out_dtype: Any = None,
) -> te.Tensor:
    """Convolution, of [N, H, W, C] with [KH, KW, C, OC] for the layout "NHWC"."""
    if layout == "NCHW":
        return _conv2d_nchw(inp, filt, strides, padding, dilation, out_dtype)
    if layout != "NHWC":
        raise UsageError(f"conv2d: expected the layout NCHW or NHWC, found {layout!r}")
    first, weights = transpose(inp, (0, 3, 1, 2)), transpose(filt, (3, 2, 0, 1))
    made = _conv2d_nchw(first, weights, strides, padding, dilation, out_dtype)
    return transpose(made, (0, 2, 3, 1))


def _depthwise(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: Any = None,
) -> te.Tensor:
    """Convolution of each channel of [N, C, H, W] with its own filters [C, M, KH, KW]."""
    channels, several, *kernel = Filter.shape
    filters = reshape(Filter, (channels * several, 1, *kernel))
    return _conv2d_nchw(Input, filters, stride, padding, dilation, out_dtype, int(channels))  # type: ignore[arg-type]


def _pool2d(
    data: te.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """Maxima ("max") or means ("avg") of windows.  `padding` is (top, left, bottom, right)."""
    if layout != "NCHW" or pool_type not in ("max", "avg"):
        raise UsageError(f"pool2d: expected NCHW and max or avg, found {layout!r}, {pool_type!r}")
    window = (tuple(kernel), tuple(stride), _pads(padding), tuple(dilation), ceil_mode)
    op = (
        _op("max_pool", *window)
        if pool_type == "max"
        else _op("avg_pool", *window, count_include_pad)
    )
    return apply(op, data)


def _dense(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: Any = None
) -> te.Tensor:
    """The product of [M, K] and the transpose of [N, K], plus a bias [N]."""
    to = None if out_dtype is None else to_dtype(out_dtype)
    made = apply(_op("matmul", False, True, to), data, weight)
    return made if bias is None else add(made, bias)


def _batch_matmul(x: te.Tensor, y: te.Tensor, *_: Any, **__: Any) -> te.Tensor:
    """The product of [B, M, K] and the transposes of [B, N, K]."""
    return matmul(x, y, transp_b=True)


def _pad(
    data: te.Tensor, pad_before: Sequence[int], pad_after: Any = None, pad_value: float = 0.0
) -> te.Tensor:
    return apply(_op("pad", (*pad_before, *(pad_after or pad_before)), "constant", pad_value), data)


nn = SimpleNamespace(
    batch_flatten=lambda data: apply(_op("flatten", 1), data),
    batch_matmul=_batch_matmul,
    conv2d=_conv2d,
    conv2d_nchw=_conv2d_nchw,
    dense=_dense,
    depthwise_conv2d_nchw=_depthwise,
    leaky_relu=lambda t, alpha: apply(_op("leaky_relu", alpha), t),
    log_softmax=lambda x: apply(_op("log_softmax"), x),
    pad=_pad,
    pool2d=_pool2d,
    relu=_unary("relu"),
    softmax=lambda x, axis=-1: apply(_op("softmax", axis), x),
)
"""Operators of networks."""


def _schedule(outs: Any, *_: Any, **__: Any) -> te.Schedule:
    """The schedule that rules choose, whatever the operator."""
    results = tuple(outs) if isinstance(outs, (tuple, list)) else (outs,)
    stages = producers_first(t.op for t in results)
    inputs = {t: None for read in stages.values() for t in read if isinstance(t.op, Placeholder)}
    current = Target.current()
    session = Session.of(None, target=None if current is None else current.native)
    made = generated((*inputs, *results), session.target, session.options.algorithm_bound)
    return made(ANALYTIC)[0]


class _Schedules:
    """A namespace of schedules, such as `topi.x86`.  Each function gives the rules' schedule."""

    def __getattr__(self, name: str) -> Callable[..., te.Schedule]:
        if not name.startswith("schedule_"):
            raise UsageError(f"topi has no schedule {name!r}: expected schedule_...")
        return _schedule


generic = x86 = arm_cpu = cuda = _Schedules()
