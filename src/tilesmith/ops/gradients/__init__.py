"""Gradients of operators: rules of reverse-mode differentiation.

`rule_of` says where the gradient of an operator comes from.  The first that applies is used:

- *written*: a user's operator has a method `vjp`; ours has a function in this package, registered
  with `gradient`.  Written rules exist where a named operator computes the gradient (that of a
  convolution is a transposed convolution), or where a formula uses the result (softmax).
- *scalar*: the gradient of an elementwise operator follows from the derivative of its expression.
- *expansion*: a composite operator is replaced by its expansion.
- *tensor*: the gradient of a primitive operator is the operator `vjp`, whose expression follows
  from the operator's tensor expression (`te.gradient`).

No operator of integers or bools has a gradient.
"""

from __future__ import annotations

from . import convolutions, lookups, matrices, norms, pools, reductions, scalars, scans, shapes
from .call import Call, zeros
from .dispatch import Origin, gradients_of, origin_of

__all__ = [
    "Call", "Origin", "convolutions", "gradients_of", "lookups", "matrices", "norms", "origin_of",
    "pools", "reductions", "scalars", "scans", "shapes", "zeros",
]  # fmt: skip
