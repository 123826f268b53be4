"""The conventions of ai.onnx.ml's models: rows of samples, scores of classes and their labels.

The specification leaves open the treatment of a single score and of two classes.  For both, ONNX
Runtime's conventions are followed:

- Of the transforms, only PROBIT applies to a single score.
- Two classes with one score s have the scores 1 - s and s, or -s and s.  The model's weights
  decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import on_host
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, i64, string
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, reduce, slicing

ml_op = partial(onnx_op, since=1, domain="ai.onnx.ml")


def samples(n: OnnxNode, x: Value, dtype: DType = f32) -> Value:
    """The input as dtype[samples, features]; a vector is one sample."""
    if x.type.rank not in (1, 2):
        n.bad(f"expected samples by features, found {x.type}")
    x = x.cast(dtype)
    return x if x.type.rank == 2 else n.reshape(x, (1, *x.type.shape))


def flat(n: OnnxNode, x: Value) -> Value:
    """All elements in one axis."""
    return n.reshape(x, (extents.product(x.type.shape),))


@dataclass(frozen=True)
class Labels:
    """The labels of a classifier's classes: integers, or strings, which are chosen on the host.

    ints: i64[classes], the labels, or the indices of string labels.
    names: the string labels; empty if labels are integers.
    """

    ints: np.ndarray
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ints)

    def of(self, n: OnnxNode, place: Value) -> Value:
        """The labels of classes given by index, i64 or strings[samples]."""
        if not self.names:
            return n.add(gather.Gather(0), n.const(self.ints), place)
        return mapped(n, place, self.ints.tolist(), self.names, "")

    def chosen(self, n: OnnxNode, is_second: Value) -> Value:
        """The labels for a decision between two classes.  If labels are integers, ONNX Runtime uses
        0 and 1 here.
        """
        return self.of(n, is_second) if self.names else is_second


def mapped(
    n: OnnxNode, x: Value, keys: Sequence[object], values: Sequence[object], default: object
) -> Value:
    """The strings or integers (i64) that elements of `x` stand for, and `default` for others."""
    dtype, name = (string, "string") if isinstance(default, str) else (i64, "int64")
    (labels_,) = on_host(
        n, "label_encoder", [TensorType(dtype, x.shape)], [x],
        keys=list(keys), values=list(values), default=default, dtype=name,
    )  # fmt: skip
    return labels_


def labels(n: OnnxNode, ints: str, strings: str = "classlabels_strings") -> Labels:
    """The labels that a classifier has in one of two attributes."""
    names, numbers_ = n.attr_strings(strings) or (), n.attr_ints(ints) or ()
    if bool(names) == bool(numbers_):
        n.bad(f"expected labels in one of the attributes {ints!r} and {strings!r}")
    numbers = np.arange(len(names)) if names else np.asarray(numbers_, np.int64)
    return Labels(numbers, names)


def best(n: OnnxNode, scores: Value) -> Value:
    """The index of each sample's largest score, i64[samples]."""
    return n.add(reduce.ArgMax(-1, False), scores)


def _probit(n: OnnxNode, p: Value) -> Value:
    """sqrt(2) times the inverse of erf at 2p - 1, by S. Winitzki's approximation."""
    constant = partial(n.const, dtype=p.dtype)
    x = constant(2.0) * p - constant(1.0)
    ends = constant(1.0) - x, constant(1.0) + x
    log = fn.log(n.add(ew.Mul(), *ends))
    half = log * constant(0.5)
    first = half + constant(2 / (math.pi * 0.147))
    inner = first * first - log / constant(0.147)
    size = fn.sqrt(fn.sqrt(inner) - first)
    sign = fn.where(x < constant(0.0), constant(-1.0), constant(1.0))
    return sign * constant(math.sqrt(2)) * size


def _softmax_zero(n: OnnxNode, scores: Value) -> Value:
    """Softmax over the scores that are not 0; zeros stay 0."""
    constant = partial(n.const, dtype=scores.dtype)
    largest = scores.max((-1,), keepdims=True)
    is_counted = abs(scores) > constant(1e-7)
    power = fn.exp(scores - largest)
    total = fn.where(is_counted, power, constant(0.0)).sum((-1,), keepdims=True)
    small = scores * fn.exp(-largest)
    return fn.where(is_counted, power, small) / total


def _logistic(n: OnnxNode, scores: Value) -> Value:
    return n.add(act.Sigmoid(), scores)


def _softmax(n: OnnxNode, scores: Value) -> Value:
    return n.add(norm.Softmax(-1), scores)


_POST_TRANSFORMS: dict[str, Callable[[OnnxNode, Value], Value]] = {
    "NONE": lambda n, scores: scores,
    "LOGISTIC": _logistic,
    "SOFTMAX": _softmax,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def post_transform(n: OnnxNode) -> str:
    """The name of the function that is applied to the scores."""
    return n.attr_string("post_transform", "NONE", tuple(_POST_TRANSFORMS))


def transformed(n: OnnxNode, scores: Value, name: str) -> Value:
    """The function `name` applied to `scores`, T[samples, scores]."""
    if n.extent(scores, 1) == 1 and name != "PROBIT":
        return scores
    return _POST_TRANSFORMS[name](n, scores)


def of_two(n: OnnxNode, score: Value, is_mirrored: bool, name: str) -> Value:
    """The scores of two classes from the score of the second, T[samples, 1] to T[samples, 2].

    is_mirrored: whether the first score is minus the second; otherwise it is 1 minus the second.
    name: name of the transformation.  With LOGISTIC the first score is always minus the second.
        SOFTMAX and SOFTMAX_ZERO are not applied.
    """
    if is_mirrored or name == "LOGISTIC":
        first = -score
    else:
        first = 1.0 - score
    both = n.add(slicing.Concat(1), first, score)
    return transformed(n, both, name) if name in ("LOGISTIC", "PROBIT") else both
