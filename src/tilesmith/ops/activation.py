"""Activation functions.  Each is elementwise if it is one expression of x, else composite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, const, select
from tilesmith.ir.intrinsics import call

from . import rules
from .base import GraphBuilder, Op
from .elementwise import Elementwise
from .functions import erf, tanh, where


def scalar(b: GraphBuilder, like: Any, value: float) -> Any:
    """`value` as a constant of the element type of `like`."""
    return b.constant(np.asarray(value, like.type.dtype.numpy))


class Relu(Elementwise):
    """max(x, 0); NaN stays NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        return ir.maximum(x, 0)

    def numpy(self, x: np.ndarray) -> Any:
        return np.maximum(x, x.dtype.type(0))


@dataclass(frozen=True)
class LeakyRelu(Elementwise):
    """x, or `alpha` * x where x is negative."""

    alpha: float = 0.01

    def element(self, x: Expr) -> Expr:
        return select(x < 0.0, x * self.alpha, x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.where(x < 0, x * x.dtype.type(self.alpha), x)


@dataclass(frozen=True)
class ThresholdedRelu(Elementwise):
    """x where it is above `alpha`, else 0."""

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return select(x > self.alpha, x, 0.0)

    def numpy(self, x: np.ndarray) -> Any:
        return np.where(x > x.dtype.type(self.alpha), x, x.dtype.type(0))


NEAR = 0.25
"""Magnitude of x below which the expression exp(x) - 1 would lose more than two bits."""


def expm1(x: Expr) -> Expr:
    """exp(x) - 1 with the full precision of the type of x; near zero the Taylor series is used."""
    terms = 12 if x.dtype.bits == 64 else 7
    series = const(1 / math.factorial(terms), x.dtype)
    for k in range(terms - 1, 0, -1):
        series = series * x + 1 / math.factorial(k)
    return select(call("abs", x) < NEAR, series * x, call("exp", x) - 1.0)


@dataclass(frozen=True)
class Elu(Elementwise):
    """x, or `alpha` * (exp(x) - 1) where x is negative."""

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return select(x < 0.0, expm1(x) * self.alpha, x)

    def numpy(self, x: np.ndarray) -> Any:
        t = x.dtype.type
        return np.where(x < 0, np.expm1(x) * t(self.alpha), x)


@dataclass(frozen=True)
class Celu(Elementwise):
    """x, or `alpha` * (exp(x / alpha) - 1) where x is negative."""

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return select(x < 0.0, expm1(x / self.alpha) * self.alpha, x)

    def numpy(self, x: np.ndarray) -> Any:
        t = x.dtype.type
        return np.where(x < 0, np.expm1(x / t(self.alpha)) * t(self.alpha), x)


@dataclass(frozen=True)
class Selu(Elementwise):
    """`gamma` * x, or `gamma` * `alpha` * (exp(x) - 1) where x is negative (arXiv:1706.02515)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def element(self, x: Expr) -> Expr:
        negative = expm1(x) * (self.alpha * self.gamma)
        return select(x < 0.0, negative, x * self.gamma)

    def numpy(self, x: np.ndarray) -> Any:
        t = x.dtype.type
        return np.where(x < 0, np.expm1(x) * t(self.alpha * self.gamma), x * t(self.gamma))


class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    def element(self, x: Expr) -> Expr:
        return 1.0 / (1.0 + call("exp", -x))

    def numpy(self, x: np.ndarray) -> Any:
        one = x.dtype.type(1)
        return one / (one + np.exp(-x))


@dataclass(frozen=True)
class HardSigmoid(Elementwise):
    """`alpha` * x + `beta`, limited to 0..1."""

    alpha: float = 0.2
    beta: float = 0.5

    def element(self, x: Expr) -> Expr:
        return ir.minimum(ir.maximum(x * self.alpha + self.beta, 0.0), 1.0)

    def numpy(self, x: np.ndarray) -> Any:
        t = x.dtype.type
        return np.minimum(np.maximum(x * t(self.alpha) + t(self.beta), t(0)), t(1))


class Softplus(Elementwise):
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)) so that it does not overflow."""

    def element(self, x: Expr) -> Expr:
        return ir.maximum(x, 0.0) + call("log1p", call("exp", -call("abs", x)))

    def numpy(self, x: np.ndarray) -> Any:
        return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


class Softsign(Elementwise):
    """x / (1 + |x|)."""

    def element(self, x: Expr) -> Expr:
        return x / (1.0 + call("abs", x))

    def numpy(self, x: np.ndarray) -> Any:
        return x / (x.dtype.type(1) + np.abs(x))


@dataclass(frozen=True)
class Shrink(Elementwise):
    """x + `bias` below -`lambd`, x - `bias` above `lambd`, 0 between."""

    bias: float = 0.0
    lambd: float = 0.5
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        low, high = const(-self.lambd, x.dtype), const(self.lambd, x.dtype)
        by = const(self.bias, x.dtype)
        return select(x < low, x + by, select(x > high, x - by, const(0, x.dtype)))

    def numpy(self, x: np.ndarray) -> Any:
        t = x.dtype.type
        low, high, by = t(-self.lambd), t(self.lambd), t(self.bias)
        return np.where(x < low, x + by, np.where(x > high, x - by, t(0)))


class PRelu(Op):
    """x, or `slope` * x where x is negative; the second input `slope` broadcasts to x."""

    name: ClassVar[str] = "prelu"

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2)
        x, slope = inputs
        return where(x < 0, x * slope, x)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, slope = map(rules.exact, inputs)
        return (np.maximum(x, 0) + slope * np.minimum(x, 0)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class Gelu(Op):
    """x * P(X <= x) for standard normal X (arXiv:1606.08415); `approximate`: "none" or "tanh"."""

    approximate: str = "none"

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        half_x = x * 0.5
        if self.approximate == "none":
            inner = erf(x * math.sqrt(0.5))
        elif self.approximate == "tanh":
            cube = x * x * x
            inner = x + cube * 0.044715
            inner = tanh(inner * math.sqrt(2 / math.pi))
        else:
            rules.reject(self.name, 'approximate "none" or "tanh"', repr(self.approximate))
        return half_x * (inner + 1.0)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        if self.approximate == "tanh":
            share = 0.5 + 0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            share = 0.5 + 0.5 * np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))
        return (x * share).astype(inputs[0].dtype)


@dataclass(frozen=True)
class Silu(Op):
    """x * sigmoid(`alpha` * x), also called swish."""

    alpha: float = 1.0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        inner = x if self.alpha == 1.0 else x * self.alpha
        return x * b.add(Sigmoid(), inner)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        return (x / (1 + np.exp(-self.alpha * x))).astype(inputs[0].dtype)


class HardSwish(Op):
    """x * hard_sigmoid(x) with slope 1/6."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        return inputs[0] * b.add(HardSigmoid(1 / 6, 0.5), inputs[0])

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        return (x * np.clip(x + 3, 0, 6) / 6).astype(inputs[0].dtype)


class Mish(Op):
    """x * tanh(softplus(x)) (arXiv:1908.08681)."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        return inputs[0] * tanh(b.add(Softplus(), inputs[0]))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        return (x * np.tanh(np.logaddexp(0, x))).astype(inputs[0].dtype)
