"""ncnn's layers on elements, and the activations that other layers have built in."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.arithmetic import logarithm
from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import Result
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops.base import Op

LAYERS: Layers = Layers()
"""ncnn's layers by type."""

ncnn_layer = LAYERS.register


def _hard_swish(x: Value, alpha: float, beta: float) -> Value:
    return x * fn.clip(x * alpha + beta, 0, 1)


def activate(n: LayerNode, x: Value, kind: str = "9", numbers: str = "10") -> Value:
    """`x` after an activation.  Parameter `kind` has its number, and `numbers` its factors."""
    which, factors = n.attr_int(kind, 0), n.attr_floats(numbers, ())
    if which == 0:
        return x
    if len(factors) < {2: 1, 3: 2, 6: 2}.get(which, 0):
        n.bad(f"parameter {numbers}: expected the numbers of activation {which}, found {factors}")
    if which == 6:
        return _hard_swish(x, factors[0], factors[1])
    ops: dict[int, Callable[[], Op]] = {
        1: act.Relu,
        2: lambda: act.LeakyRelu(factors[0]),
        3: lambda: ew.Clip(factors[0], factors[1]),
        4: act.Sigmoid,
        5: act.Mish,
    }
    return n.add(ops[which](), x) if which in ops else n.unsupported(f"activation {which}")


def _same(kind: str, make: Callable[[LayerNode], Op]) -> None:
    ncnn_layer(kind)(lambda n: n.add(make(n), n.input()))


_same("AbsVal", lambda n: ew.Abs())
_same("BNLL", lambda n: act.Softplus())
_same("CELU", lambda n: act.Celu(n.attr_float("0", 1)))
_same("Clip", lambda n: ew.Clip(n.attr_float("0", f32.min), n.attr_float("1", f32.max)))
_same("ELU", lambda n: act.Elu(n.attr_float("0", 0.1)))
_same("Erf", lambda n: ew.Erf())
_same("GELU", lambda n: act.Gelu("tanh" if n.attr_int("0", 0) else "none"))
_same("HardSigmoid", lambda n: act.HardSigmoid(n.attr_float("0", 0.2), n.attr_float("1", 0.5)))
_same("Mish", lambda n: act.Mish())
_same("SELU", lambda n: act.Selu(n.attr_float("0", 1.67326324), n.attr_float("1", 1.050700987)))
_same("Shrink", lambda n: act.Shrink(n.attr_float("0", 0), n.attr_float("1", 0.5)))
_same("Sigmoid", lambda n: act.Sigmoid())
_same("Softplus", lambda n: act.Softplus())
_same("Swish", lambda n: act.Silu())
_same("TanH", lambda n: ew.Tanh())


@ncnn_layer("Split", "Noop", "DeepCopy", "Packing", "Cast")
def copies(n: LayerNode) -> Result:
    """The input, once for each output."""
    return (n.input(),) * len(n.layer.outputs)


@ncnn_layer("Dropout")
def dropout(n: LayerNode) -> Result:
    scale = n.attr_float("0", 1)
    return n.input() * scale if scale != 1 else n.input()


@ncnn_layer("HardSwish")
def hard_swish(n: LayerNode) -> Result:
    return _hard_swish(n.input(), n.attr_float("0", 0.2), n.attr_float("1", 0.5))


@ncnn_layer("ReLU")
def relu(n: LayerNode) -> Result:
    slope = n.attr_float("0", 0)
    return n.add(act.LeakyRelu(slope) if slope else act.Relu(), n.input())


@ncnn_layer("Threshold")
def threshold(n: LayerNode) -> Result:
    return (n.input() > n.attr_float("0", 0)).cast(f32)


def _line(n: LayerNode) -> Value:
    return n.input() * n.attr_float("1", 1) + n.attr_float("2", 0)


@ncnn_layer("Power")
def power(n: LayerNode) -> Result:
    return _line(n) ** n.attr_float("0", 1)


@ncnn_layer("Exp")
def exp(n: LayerNode) -> Result:
    base = n.attr_float("0", -1)
    return fn.exp(_line(n) * (math.log(base) if base > 0 else 1.0))


@ncnn_layer("Log")
def log(n: LayerNode) -> Result:
    base = n.attr_float("0", -1)
    return fn.log(_line(n)) / (math.log(base) if base > 0 else 1.0)


_UNARY: tuple[Callable[[Value], Value] | type[Op], ...] = (
    ew.Abs, ew.Neg, ew.Floor, ew.Ceil, lambda x: x * x, ew.Sqrt, ew.Rsqrt, ew.Exp, ew.Log, ew.Sin,
    ew.Cos, ew.Tan, ew.Asin, ew.Acos, ew.Atan, ew.Reciprocal, ew.Tanh,
    partial(logarithm, base=10), ew.Round, ew.Trunc,
)  # fmt: skip
"""The functions of UnaryOp, by number."""


@ncnn_layer("UnaryOp")
def unary(n: LayerNode) -> Result:
    number = n.attr_int("0", 0)
    if not 0 <= number < len(_UNARY):
        n.unsupported(f"function {number}")
    function = _UNARY[number]
    return n.add(function(), n.input()) if isinstance(function, type) else function(n.input())


_BINARY: tuple[Callable[[Value, Value], Value], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, fn.maximum,
    fn.minimum, lambda a, b: a**b, lambda a, b: b - a, lambda a, b: b / a, lambda a, b: b**a,
)  # fmt: skip
"""The functions of BinaryOp, by number."""


def _spread(n: LayerNode, x: Value, like: Value) -> Value:
    """`x` with axes of extent 1 added until it has as many axes as `like`.

    The new axes are innermost.  If `x` is a list whose length differs from the outermost axis of
    `like`, they are outermost.
    """
    missing = like.type.rank - x.type.rank
    if missing <= 0:
        return x
    dims = x.type.shape
    is_inner = len(dims) == 1 and not same_dim(dims[0], like.type.shape[0])
    ones = (1,) * missing
    return n.reshape(x, (*ones, *dims) if is_inner else (*dims, *ones))


@ncnn_layer("BinaryOp")
def binary(n: LayerNode) -> Result:
    number, a = n.attr_int("0", 0), n.input(0)
    if not 0 <= number < len(_BINARY):
        n.unsupported(f"function {number}")
    if n.attr_int("1", 0):
        return _BINARY[number](a, n.const(n.attr_float("2", 0), f32))
    b = n.input(1)
    return _BINARY[number](_spread(n, a, b), _spread(n, b, a))


@ncnn_layer("Eltwise")
def eltwise(n: LayerNode) -> Result:
    number, factors = n.attr_int("0", 0), n.attr_floats("1", ())
    if number not in (0, 1, 2) or (factors and len(factors) != len(n.slots)):
        n.bad(f"expected 0, 1 or 2 and a factor for each input, found {number}, {factors}")
    join = (lambda a, b: a * b, lambda a, b: a + b, fn.maximum)[number]
    inputs = [x * f for x, f in zip(n.inputs, factors)] if factors and number == 1 else n.inputs
    y = inputs[0]
    for x in inputs[1:]:
        y = join(y, x)
    return y
