"""One application of an operator in reverse mode, and the table of written rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilesmith.ir.types import Dim, TensorType, same_dim, same_shape
from tilesmith.ops import rules
from tilesmith.ops.base import GraphBuilder, Op
from tilesmith.ops.shape import Expand
from tilesmith.ops.vjp import Vjp


@dataclass(frozen=True)
class Call:
    """An application of an operator whose operands' gradients are wanted.

    builder: the builder of the graph that gets the gradients.
    op: the operator.
    inputs, outputs: its operands and results, values of that graph.
    cotangents: the cotangent of each result; None for zero.
    wanted: for each operand, whether its gradient is wanted.
    """

    builder: GraphBuilder
    op: Any  # an instance of the class that the rule is registered for
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    cotangents: tuple[Any, ...]
    wanted: tuple[bool, ...]

    @property
    def cotangent(self) -> Any:
        """The cotangent of the first result, as a tensor of zeros if it is None."""
        g = self.cotangents[0]
        return zeros(self.builder, self.outputs[0].type) if g is None else g

    def derived(self, operand: int) -> Any:
        """The gradient of an operand of a primitive operator, from its tensor expression.  None if
        it is zero.
        """
        results = tuple(n for n, g in enumerate(self.cotangents) if g is not None)
        types = tuple(v.type for v in self.inputs)
        op = Vjp.derived(self.op, types, operand, results)
        if op is None:
            return None
        weights = (self.cotangents[n] for n in op.results)
        return self.builder.add(op, *(self.inputs[n] for n in op.read), *weights)


Rule: TypeAlias = Callable[[Call], "Sequence[Any]"]
"""Gives the gradient of each operand of a call; None for zero, or where it is not wanted."""

RULES: dict[type[Op], Rule] = {}
"""The written rules of our operators, by class."""


def gradient(*ops: type[Op]) -> Callable[[Rule], Rule]:
    """Registers a rule for operators."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, rule))
        return rule

    return register


def zeros(b: GraphBuilder, type: TensorType) -> Any:
    """A tensor of zeros."""
    zero = b.constant(np.zeros((), type.dtype.numpy))
    return zero if not type.shape else b.add(Expand(type.shape), zero)


def summed_to(g: Any, shape: Sequence[Dim]) -> Any:
    """The sum of `g` over the axes along which a tensor of `shape` was broadcast."""
    own = g.type.shape
    if same_shape(own, shape):
        return g
    skip = len(own) - len(shape)
    axes = [*range(skip)]
    axes += [
        a + skip for a, d in enumerate(shape) if same_dim(d, 1) and not same_dim(own[a + skip], 1)
    ]
    if axes:
        g = g.sum(tuple(axes), keepdims=True)
    return g if same_shape(g.type.shape, shape) else g.reshape(*shape)


def spread(g: Any, x: TensorType, axes: Sequence[int] | None, keepdims: bool) -> Any:
    """A reduction's cotangent as [.., 1, ..], with the reduced axes, so that it broadcasts to x."""
    gone = rules.normalize_axes("gradient", axes, x.rank)
    if keepdims or not gone:
        return g
    return g.reshape(*(1 if a in gone else d for a, d in enumerate(x.shape)))
