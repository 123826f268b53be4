"""Operators that draw random numbers, for training: each step draws new numbers.

The numbers are those of `ops.random`, not PyTorch's; the distributions are the same.  A program
that is compiled alone would draw the same numbers in every call, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bool_, f32
from tilesmith.ir.types import Dim
from tilesmith.ops.functions import where
from tilesmith.ops.random import RandomNormal, RandomUniform


def _drawn(n: AtenNode, op: type[RandomUniform] | type[RandomNormal], size: Sequence[Dim]) -> Value:
    """Random numbers as f32, from a stream of their own.  Only graphs for training have them."""
    if not n.builder.for_training:
        n.unsupported(
            "it draws random numbers, which only training by ts.Trainer does; draw them outside "
            "and hand them in as an input, or call .eval() on the module"
        )
    return n.add(op(tuple(size), (n.builder.next_stream(), 1)))


def dropped(n: AtenNode, x: Value, rate: float) -> Value:
    """Dropout in training: elements are 0 with the probability `rate`, others are multiplied by 1 /
    (1 - rate).
    """
    return _with_dropout(n, x, rate)[0]


def _with_dropout(n: AtenNode, x: Value, rate: float) -> tuple[Value, Value]:
    """The result of dropout, and the mask of the elements that are kept."""
    kept = _drawn(n, RandomUniform, x.type.shape) >= rate
    return where(kept, x * (1 / (1 - rate) if rate < 1 else 0.0), 0.0), kept


@aten_op("aten.native_dropout.default")
def native_dropout(n: AtenNode, input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if (train is None or train) and p > 0:
        return _with_dropout(n, input, p)
    return input, n.full(True, input.type.shape, bool_)


@aten_op("aten.dropout.default")
def dropout(n: AtenNode, input: Value, p: float, train: bool) -> Value:
    return native_dropout(n, input, p, train)[0]


@aten_op("aten.rand.default")
def rand(n: AtenNode, size: Sequence[Any], dtype: DType | None = None) -> Value:
    return _drawn(n, RandomUniform, n.dims_of(size)).cast(dtype or f32)


@aten_op("aten.rand_like.default")
def rand_like(n: AtenNode, self: Value, dtype: DType | None = None) -> Value:
    return _drawn(n, RandomUniform, self.type.shape).cast(dtype or self.dtype)


@aten_op("aten.randn.default")
def randn(n: AtenNode, size: Sequence[Any], dtype: DType | None = None) -> Value:
    return _drawn(n, RandomNormal, n.dims_of(size)).cast(dtype or f32)


@aten_op("aten.randn_like.default")
def randn_like(n: AtenNode, self: Value, dtype: DType | None = None) -> Value:
    return _drawn(n, RandomNormal, self.type.shape).cast(dtype or self.dtype)


@aten_op("aten.bernoulli.default")
def bernoulli(n: AtenNode, self: Value) -> Value:
    return (_drawn(n, RandomUniform, self.type.shape) < self.cast(f32)).cast(self.dtype)


@aten_op("aten.bernoulli.p")
def bernoulli_p(n: AtenNode, self: Value, p: float) -> Value:
    return (_drawn(n, RandomUniform, self.type.shape) < p).cast(self.dtype)
