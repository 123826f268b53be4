"""TensorFlow's elementwise operators."""

from __future__ import annotations

from tilesmith.frontend.common.arithmetic import angle, expm1, floor_quotient
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import same_operator, tf_op
from tilesmith.frontend.tflite import elementwise as shared
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import norm
from tilesmith.ops.gather import Gather

for _names, _make in {
    "Abs": ew.Abs, "Acos": ew.Acos, "Acosh": ew.Acosh, "Asin": ew.Asin, "Asinh": ew.Asinh,
    "Atan": ew.Atan, "Atanh": ew.Atanh, "Ceil": ew.Ceil, "Cos": ew.Cos, "Cosh": ew.Cosh,
    "Elu": act.Elu, "Erf": ew.Erf, "Exp": ew.Exp, "Floor": ew.Floor,
    "Inv Reciprocal": ew.Reciprocal,
    "Invert": ew.BitwiseNot, "IsInf": ew.IsInf, "IsNan": ew.IsNan, "Log": ew.Log, "Log1p": ew.Log1p,
    "LogicalNot": ew.LogicalNot, "LogSoftmax": lambda: norm.LogSoftmax(-1), "Neg": ew.Neg,
    "Relu": act.Relu, "Relu6": lambda: ew.Clip(0, 6), "Rint Round": ew.Round, "Rsqrt": ew.Rsqrt,
    "Selu": lambda: act.Selu(1.6732632423543772, 1.0507009873554805), "Sigmoid": act.Sigmoid,
    "Sign": ew.Sign, "Sin": ew.Sin, "Sinh": ew.Sinh, "Softmax": lambda: norm.Softmax(-1),
    "Softplus": act.Softplus, "Softsign": act.Softsign, "Sqrt": ew.Sqrt, "Tan": ew.Tan,
    "Tanh": ew.Tanh,
}.items():  # fmt: skip
    same_operator(_make, *_names.split())

for _names, _make in {
    "Add AddV2": ew.Add, "BitwiseAnd": ew.BitwiseAnd, "BitwiseOr": ew.BitwiseOr,
    "BitwiseXor": ew.BitwiseXor, "Equal": ew.Equal, "FloorMod": ew.Mod, "Greater": ew.Greater,
    "GreaterEqual": ew.GreaterEqual, "LeftShift": lambda: ew.BitShift("left"), "Less": ew.Less,
    "LessEqual": ew.LessEqual, "LogicalAnd": ew.LogicalAnd, "LogicalOr": ew.LogicalOr,
    "Maximum": ew.Max, "Minimum": ew.Min, "Mod TruncateMod": lambda: ew.Mod(True), "Mul": ew.Mul,
    "NotEqual": ew.NotEqual, "Pow": ew.Pow, "RealDiv TruncateDiv": ew.Div, "Sub": ew.Sub,
}.items():  # fmt: skip
    same_operator(_make, *_names.split(), arity=2)

tf_op("AddN", "AccumulateNV2")(shared.add_n)
tf_op("Bitcast")(shared.bitcast)
tf_op("Select")(shared.select)
tf_op("SelectV2")(shared.select_broadcast)
tf_op("Square")(shared.square)
tf_op("SquaredDifference")(shared.squared_difference)


@tf_op("Cast")
def cast(n: TfNode) -> Result:
    x, to = n.input(0), n.output_dtype()
    if to.is_bool and not x.dtype.is_bool:
        return x.differs(0)
    return shared.cast(n)


@tf_op("FloorDiv")
def floor_div(n: TfNode) -> Result:
    x, y = n.input(0), n.input(1)
    return floor_quotient(n, x, y) if x.dtype.is_int else fn.floor(x / y)


@tf_op("Div")
def div(n: TfNode) -> Result:
    return n.input(0) / n.input(1)


@tf_op("RightShift")
def right_shift(n: TfNode) -> Result:
    return shared.right_shift(n)


@tf_op("Atan2")
def atan2(n: TfNode) -> Result:
    return angle(n, n.input(0), n.input(1))


tf_op("Expm1")(lambda n: expm1(n.input(0)))


@tf_op("Erfc")
def erfc(n: TfNode) -> Result:
    return 1 - fn.erf(n.input(0))


@tf_op("IsFinite")
def is_finite(n: TfNode) -> Result:
    x = n.input(0)
    return ~(n.add(ew.IsInf(), x) | fn.is_nan(x))


def _unless_zero(n: TfNode, zero: Value, result: Value) -> Value:
    return fn.where(zero.equals(0), 0, result)


@tf_op("DivNoNan")
def div_no_nan(n: TfNode) -> Result:
    x, y = n.input(0), n.input(1)
    return _unless_zero(n, y, x / y)


@tf_op("MulNoNan")
def mul_no_nan(n: TfNode) -> Result:
    return _unless_zero(n, n.input(1), n.input(0) * n.input(1))


@tf_op("Xdivy")
def xdivy(n: TfNode) -> Result:
    return _unless_zero(n, n.input(0), n.input(0) / n.input(1))


@tf_op("Xlogy")
def xlogy(n: TfNode) -> Result:
    return _unless_zero(n, n.input(0), n.input(0) * fn.log(n.input(1)))


@tf_op("Xlog1py")
def xlog1py(n: TfNode) -> Result:
    return _unless_zero(n, n.input(0), n.input(0) * fn.log1p(n.input(1)))


@tf_op("LeakyRelu")
def leaky_relu(n: TfNode) -> Result:
    return n.add(act.LeakyRelu(n.float("alpha", 0.2)), n.input(0))


@tf_op("ClipByValue")
def clip_by_value(n: TfNode) -> Result:
    return fn.clamp(n.input(0), n.input(1), n.input(2))


@tf_op("ApproximateEqual")
def approximate_equal(n: TfNode) -> Result:
    distance = n.add(ew.Abs(), n.input(0) - n.input(1))
    return distance < n.float("tolerance", 1e-5)


@tf_op("Cross")
def cross(n: TfNode) -> Result:
    """The product of vectors of three elements along the last axis."""
    x, y = n.input(0), n.input(1)

    def turned(v: Value, by: int) -> Value:
        order = n.const([(i + by) % 3 for i in range(3)])
        return n.add(Gather(v.type.rank - 1), v, order)

    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)
