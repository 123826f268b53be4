"""Random numbers: pure functions of a key and of the position in the result.

They come from Threefry-2x32 with 20 rounds (`ir.threefry`).  The counter of an element is its
row-major number.  So the numbers depend on neither layout, threads, vectors nor fusion, and a
second run repeats them.  An optional operand, a u32 scalar, numbers the draws: each draw gives
other random numbers.  The number counts modulo 2^31.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import f32, i32, u32
from tilesmith.ir.expr import Binary, Cast, Expr, const
from tilesmith.ir.intrinsics import call
from tilesmith.ir.threefry import threefry_word
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op

_STEPS = 24
"""Random bits of a number in [0, 1), as many as an f32 has in its significand."""
_LARGEST = 1 << 32
"""Number of values of a 32-bit counter.  A known shape must have fewer elements.  A symbolic shape
may have more.  So the second word of the counter contains the number of wraps, besides the number
of the element's draw.
"""


@dataclass(frozen=True)
class _Random(Op, abstract=True):
    """Base of the random operators: they have a `shape`, and a `key` of two 32-bit words."""

    shape: tuple[Dim, ...]
    key: tuple[int, int] = (0, 0)

    def _check(self, inputs: tuple[te.Tensor, ...]) -> tuple[Dim, ...]:
        rules.check_count(self.name, inputs, 0, 1)
        for x in inputs:
            if x.dtype is not u32 or x.shape:
                rules.reject(self.name, "the number of a drawing, a u32 scalar", x.dtype)
        count = rules.product(self.shape)
        if isinstance(count, int) and count >= _LARGEST:
            rules.reject(self.name, "fewer than 2^32 elements", self.shape)
        if not all(0 <= k < _LARGEST for k in self.key):
            rules.reject(self.name, "a key of two 32-bit words", self.key)
        return self.shape

    def _steps(self, i: tuple[Expr, ...], draw: int, drawing: tuple[te.Tensor, ...]) -> Expr:
        """24 random bits for the element at `i`, as a whole number in f32."""
        shape = self._check(drawing)
        position: Expr = const(0)
        for index, stride in zip(i, rules.strides_of(shape), strict=True):
            position = position + index * stride
        number: Expr = const(draw, u32)
        for x in drawing:
            number = number + x[()] * 2
        # With a symbolic shape the counter may wrap, so count the wraps.
        if not isinstance(rules.product(shape), int):
            number = number + Cast(position // _LARGEST * 2, u32)
        words = (Cast(position, u32), number, *(const(w, u32) for w in self.key))
        steps = Binary("shr", call("threefry", *words), const(32 - _STEPS, u32))
        return Cast(Cast(steps, i32), f32)  # all targets have instructions to convert i32 to f32

    def _static(self) -> tuple[int, ...]:
        """The shape as numbers."""
        return tuple(rules.static(self.name, d, "a dimension") for d in self._check(()))

    def _numpy_steps(self, draw: int, drawing: tuple[np.ndarray, ...]) -> np.ndarray:
        shape = self._static()
        position = np.arange(math.prod(shape), dtype=np.uint32)
        number = (draw + 2 * sum(map(int, drawing))) % _LARGEST
        words = threefry_word(position, *(np.uint32(w) for w in (number, *self.key)))
        return (words >> np.uint32(32 - _STEPS)).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class RandomUniform(_Random):
    """Numbers of the uniform distribution over [0, 1): multiples of 2^-24, as f32."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        shape = self._check(inputs)
        return te.compute(shape, lambda *i: self._steps(i, 0, inputs) * 2.0**-_STEPS, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return self._numpy_steps(0, inputs) * np.float32(2.0**-_STEPS)


@dataclass(frozen=True)
class RandomNormal(_Random):
    """Numbers of the standard normal distribution, as f32 from -5.77 to 5.77, by Box and Muller."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            radius = (self._steps(i, 0, inputs) + 1.0) * 2.0**-_STEPS  # in (0, 1]
            angle = self._steps(i, 1, inputs) * (2.0 * math.pi * 2.0**-_STEPS)
            return call("sqrt", call("log", radius) * -2.0) * call("cos", angle)

        return te.compute(self._check(inputs), element, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        radius = (self._numpy_steps(0, inputs) + np.float32(1)) * np.float32(2.0**-_STEPS)
        angle = self._numpy_steps(1, inputs) * np.float32(2.0 * math.pi * 2.0**-_STEPS)
        return np.sqrt(np.log(radius) * np.float32(-2)) * np.cos(angle)


def is_random(op: Op) -> bool:
    """Whether the results of `op` are random numbers."""
    return isinstance(op, _Random)
