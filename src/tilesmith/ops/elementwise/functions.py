"""Intrinsic functions of one float: exponentials, logarithms, trigonometry, rounding."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilesmith.ir.expr import Expr
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.intrinsics import call

from .base import Elementwise


class _Function(Elementwise, abstract=True):
    """An intrinsic function of floats."""

    function: ClassVar[str]

    def element(self, x: Expr) -> Expr:
        return call(self.function, x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.asarray(INTRINSICS[self.function].evaluate(x)).astype(x.dtype, copy=False)


class Exp(_Function):
    """e to the power x."""

    function: ClassVar[str] = "exp"


class Log(_Function):
    """Natural logarithm."""

    function: ClassVar[str] = "log"


class Log1p(_Function):
    """log(1 + x), exact for small x."""

    function: ClassVar[str] = "log1p"


class Sqrt(_Function):
    """Square root; NaN below 0."""

    function: ClassVar[str] = "sqrt"


class Rsqrt(_Function):
    """1 / sqrt(x)."""

    function: ClassVar[str] = "rsqrt"


class Erf(_Function):
    """The error function."""

    function: ClassVar[str] = "erf"


class Sin(_Function):
    """Sine of x in radians."""

    function: ClassVar[str] = "sin"


class Cos(_Function):
    """Cosine of x in radians."""

    function: ClassVar[str] = "cos"


class Tan(_Function):
    """Tangent of x in radians."""

    function: ClassVar[str] = "tan"


class Asin(_Function):
    """Inverse sine, in radians."""

    function: ClassVar[str] = "asin"


class Acos(_Function):
    """Inverse cosine, in radians."""

    function: ClassVar[str] = "acos"


class Atan(_Function):
    """Inverse tangent, in radians."""

    function: ClassVar[str] = "atan"


class Sinh(_Function):
    """Hyperbolic sine."""

    function: ClassVar[str] = "sinh"


class Cosh(_Function):
    """Hyperbolic cosine."""

    function: ClassVar[str] = "cosh"


class Tanh(_Function):
    """Hyperbolic tangent."""

    function: ClassVar[str] = "tanh"


class Asinh(_Function):
    """Inverse hyperbolic sine."""

    function: ClassVar[str] = "asinh"


class Acosh(_Function):
    """Inverse hyperbolic cosine."""

    function: ClassVar[str] = "acosh"


class Atanh(_Function):
    """Inverse hyperbolic tangent."""

    function: ClassVar[str] = "atanh"


class Floor(_Function):
    """The largest integer not above x, as a float."""

    has_steps: ClassVar[bool] = True
    function: ClassVar[str] = "floor"


class Ceil(_Function):
    """The smallest integer not below x, as a float."""

    has_steps: ClassVar[bool] = True
    function: ClassVar[str] = "ceil"


class Trunc(_Function):
    """x rounded toward zero."""

    has_steps: ClassVar[bool] = True
    function: ClassVar[str] = "trunc"


class Round(_Function):
    """x rounded to the nearest integer; ties to even."""

    has_steps: ClassVar[bool] = True
    function: ClassVar[str] = "round"
