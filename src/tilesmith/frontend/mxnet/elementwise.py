"""MXNet's elementwise operators.  Binary operators broadcast.  Comparisons give 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common.arithmetic import expm1, logarithm, rounded_away
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.mxnet.registry import dtype_of, mxnet_op, same_operator
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn

_SAME: dict[Any, tuple[str, ...]] = {
    ew.Abs: ("abs", "_npi_absolute", "_npi_abs"),
    ew.Acos: ("arccos", "_npi_arccos"),
    ew.Acosh: ("arccosh", "_npi_arccosh"),
    ew.Asin: ("arcsin", "_npi_arcsin"),
    ew.Asinh: ("arcsinh", "_npi_arcsinh"),
    ew.Atan: ("arctan", "_npi_arctan"),
    ew.Atanh: ("arctanh", "_npi_arctanh"),
    ew.Ceil: ("ceil", "_npi_ceil"),
    ew.Cos: ("cos", "_npi_cos"),
    ew.Cosh: ("cosh", "_npi_cosh"),
    ew.Erf: ("erf", "_npx_erf"),
    ew.Exp: ("exp", "_npi_exp"),
    ew.Floor: ("floor", "_npi_floor"),
    ew.Identity: (
        *("BlockGrad", "Dropout", "IdentityAttachKLSparseReg", "LinearRegressionOutput"),
        *("MAERegressionOutput", "MakeLoss", "SVMOutput", "_copy", "_np_copy", "_npx_dropout"),
        *("identity", "make_loss", "stop_gradient"),
    ),
    ew.Log: ("log", "_npi_log"),
    ew.Log1p: ("log1p", "_npi_log1p"),
    ew.Neg: ("negative", "_npi_negative"),
    ew.Reciprocal: ("reciprocal", "_npi_reciprocal"),
    ew.Rsqrt: ("rsqrt",),
    ew.Sign: ("sign", "_npi_sign"),
    ew.Sin: ("sin", "_npi_sin"),
    ew.Sinh: ("sinh", "_npi_sinh"),
    ew.Sqrt: ("sqrt", "_npi_sqrt"),
    ew.Tan: ("tan", "_npi_tan"),
    ew.Tanh: ("tanh", "_npi_tanh"),
    ew.Trunc: ("trunc", "fix", "_npi_trunc", "_npi_fix"),
    act.Relu: ("relu", "_npx_relu"),
    act.Sigmoid: ("sigmoid", "_npx_sigmoid", "LogisticRegressionOutput"),
    act.Softsign: ("softsign",),
}

for _make, _names in _SAME.items():
    same_operator(_make, *_names)


def _root(x: Value) -> Value:
    return fn.where(x < 0, -1.0, fn.where(x > 0, x * 0 + 1.0, x)) * abs(x) ** (1 / 3)


def _rounded_down(x: Value) -> Value:
    """Floats rounded to whole numbers; ties round down."""
    low, high = fn.floor(x), fn.ceil(x)
    return fn.where(x - low <= high - x, low, high)


_FORMULAS: dict[str, Callable[[Value], Value]] = {
    "cbrt": _root,
    "degrees": lambda x: x * (180 / math.pi),
    "expm1": expm1,
    "log10": partial(logarithm, base=10),
    "log2": partial(logarithm, base=2),
    "radians": lambda x: x * (math.pi / 180),
    "rcbrt": lambda x: fn.reciprocal(_root(x)),
    "rint": _rounded_down,
    "round": rounded_away,
    "square": lambda x: x * x,
}

for _name, _formula in _FORMULAS.items():
    mxnet_op(_name, f"_npi_{_name}")(lambda n, make=_formula: make(n.input()))


@mxnet_op("_npi_around")
def nearest(n: LayerNode) -> Result:
    if n.attr_int("decimals", 0):
        n.unsupported("decimals other than 0")
    return fn.rint(n.input())


def _remainder(a: Value, b: Value) -> Value:
    divisor = b.equals(0)
    return fn.where(divisor, 0, fn.apply(ew.Mod(), a, fn.where(divisor, 1, b)))


_PAIRS: dict[Callable[[Any, Any], Any], tuple[str, ...]] = {
    lambda a, b: a + b: ("add", "plus"),
    lambda a, b: a - b: ("sub", "minus", "subtract"),
    lambda a, b: a * b: ("mul", "multiply"),
    lambda a, b: a / b: ("div", "true_divide"),
    lambda a, b: a**b: ("power",),
    fn.maximum: ("maximum",),
    fn.minimum: ("minimum",),
    _remainder: ("mod",),
    lambda a, b: fn.sqrt(a * a + b * b): ("hypot",),
}
"""Functions of two numbers.  The names of operators are made from the names listed here."""

_TESTS: dict[Callable[[Any, Any], Any], tuple[str, ...]] = {
    lambda a, b: a.equals(b): ("equal",),
    lambda a, b: a.differs(b): ("not_equal",),
    lambda a, b: a > b: ("greater",),
    lambda a, b: a >= b: ("greater_equal",),
    lambda a, b: a < b: ("lesser", "less"),
    lambda a, b: a <= b: ("lesser_equal", "less_equal"),
    lambda a, b: a.differs(0) & b.differs(0): ("logical_and",),
    lambda a, b: a.differs(0) | b.differs(0): ("logical_or",),
    lambda a, b: a.differs(0) ^ b.differs(0): ("logical_xor",),
}


def _pair(n: LayerNode, make: Callable[[Any, Any], Any]) -> Result:
    y = make(n.input(0), n.input(1))
    return y.cast(n.input().dtype) if y.dtype is bool_ else y


def _scalar(n: LayerNode, make: Callable[[Any, Any], Any], swap: bool = False) -> Result:
    x = n.input()
    number = n.const(
        n.attr_float("scalar", 1.0) if x.dtype.is_float else n.attr_int("scalar", 1), x.dtype
    )
    y = make(number, x) if swap else make(x, number)
    return y.cast(x.dtype) if y.dtype is bool_ else y


def _test(n: LayerNode, make: Callable[..., Any], of: Any) -> Result:
    """A comparison of MXNet's NumPy interface, whose comparisons give bools."""
    return make(n, of).cast(bool_)


for _of, _names in (_PAIRS | _TESTS).items():
    for _name in _names:
        _old = "_".join(w.capitalize() for w in _name.split("_"))
        _joined = _old.replace("_", "")
        mxnet_op(f"elemwise_{_name}", f"broadcast_{_name}", f"_{_name}", f"_{_old}")(
            partial(_pair, make=_of)
        )
        mxnet_op(f"_{_name}_scalar", f"_{_joined}Scalar")(partial(_scalar, make=_of))
        mxnet_op(f"_r{_name}_scalar", f"_R{_joined}Scalar")(partial(_scalar, make=_of, swap=True))
        for _kind, _from in ((f"_npi_{_name}", _pair), (f"_npi_{_name}_scalar", _scalar)):
            _by = partial(_from, make=_of)
            mxnet_op(_kind)(partial(_test, make=_from, of=_of) if _of in _TESTS else _by)
        mxnet_op(f"_npi_r{_name}_scalar")(partial(_scalar, make=_of, swap=True))
mxnet_op("_grad_add")(partial(_pair, make=next(iter(_PAIRS))))


@mxnet_op("add_n", "ElementWiseSum")
def add_n(n: LayerNode) -> Result:
    total, *others = n.inputs
    for x in others:
        total = total + x
    return total


@mxnet_op("logical_not", "_npi_logical_not")
def logical_not(n: LayerNode) -> Result:
    x = n.input()
    return x.equals(n.const(0, x.dtype)).cast(x.dtype)


@mxnet_op("clip", "_npi_clip")
def clip(n: LayerNode) -> Result:
    low, high = (n.attr_float(a) if n.has(a) else None for a in ("a_min", "a_max"))
    return fn.clip(n.input(), low, high)


@mxnet_op("Cast", "cast", "amp_cast", "_npx_cast", "_npi_cast")
def cast(n: LayerNode) -> Result:
    return n.input().cast(dtype_of(n))


@mxnet_op("where", "_npi_where")
def where(n: LayerNode) -> Result:
    condition, x, y = (n.input(i) for i in range(3))
    if condition.type.rank == 1 and x.type.rank > 1 and n.layer.kind == "where":
        condition = n.reshape(condition, (*condition.type.shape, *[1] * (x.type.rank - 1)))
    return fn.where(condition.cast(bool_), x, y)


@mxnet_op("hard_sigmoid")
def hard_sigmoid(n: LayerNode) -> Result:
    return n.add(act.HardSigmoid(n.attr_float("alpha", 0.2), n.attr_float("beta", 0.5)), n.input())


@mxnet_op("smooth_l1", "_npx_smooth_l1")
def smooth_l1(n: LayerNode) -> Result:
    x, squared = n.input(), n.attr_float("scalar", 1.0) ** 2
    return fn.where(abs(x) < 1 / squared, x * x * (squared / 2), abs(x) - 0.5 / squared)
