"""Operators of ai.onnx.ml that scale, replace and select features.

Rows are samples, the last axis holds features, and results are f32 where the specification does
not name the type of the input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.ml.scores import flat, ml_op
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import gather, reduce, slicing
from tilesmith.ops.base import Op
from tilesmith.ops.functions import is_nan, where


def _per_feature(n: OnnxNode, name: str, x: Value, default: float) -> Value:
    """An attribute with one number for all features, or one for each."""
    numbers = n.attr_floats(name) or (default,)
    if len(numbers) != 1 and len(numbers) != n.extent(x, -1):
        n.bad(f"attribute {name!r}: expected 1 or {n.extent(x, -1)} numbers, found {len(numbers)}")
    return n.const(np.asarray(numbers, np.float32))


@ml_op("Scaler")
def scaler(n: OnnxNode) -> Result:
    x = n.input(0).cast(f32)
    centred = x - _per_feature(n, "offset", x, 0.0)
    return centred * _per_feature(n, "scale", x, 1.0)


@ml_op("Normalizer")
def normalizer(n: OnnxNode) -> Result:
    """Rows divided by their norms.  Rows of norm 0 stay unchanged.  The MAX norm is the largest
    value and not the largest magnitude.
    """
    norms: dict[str, Callable[..., Op]] = {
        "MAX": reduce.ReduceMax, "L1": reduce.ReduceL1, "L2": reduce.ReduceL2
    }  # fmt: skip
    x = n.input(0).cast(f32)
    size = n.add(norms[n.attr_string("norm", "MAX", tuple(norms))]((-1,), True), x)
    is_zero = size.equals(0.0)
    return x / where(is_zero, 1.0, size)


@ml_op("Binarizer")
def binarizer(n: OnnxNode) -> Result:
    x = n.input(0)
    above = x > n.attr_float("threshold", 0.0)
    return above.cast(x.dtype)


@ml_op("Imputer")
def imputer(n: OnnxNode) -> Result:
    x = n.input(0)
    floats, ints = n.attr_floats("imputed_value_floats"), n.attr_ints("imputed_value_int64s")
    numbers = floats if x.dtype.is_float else ints
    replaced: float = n.attr_float("replaced_value_float", 0.0)
    if not x.dtype.is_float:
        replaced = n.attr_int("replaced_value_int64", 0)
    if not numbers or (len(numbers) != 1 and len(numbers) != n.extent(x, -1)):
        n.bad(f"expected 1 or {n.extent(x, -1)} imputed values for {x.type}, found {numbers}")
    if replaced != replaced:
        is_missing = is_nan(x)
    else:
        is_missing = x.equals(replaced)
    return where(is_missing, np.asarray(numbers), x)


@ml_op("FeatureVectorizer")
def feature_vectorizer(n: OnnxNode) -> Result:
    sizes = n.attr_ints("inputdimensions")
    parts: list[Value] = []
    for x in n.inputs:
        rows, features = (x.type.shape or (1,))[0], extents.product(x.type.shape[1:])
        parts.append(n.reshape(x.cast(f32), (rows, features)))
    widths = tuple(n.extent(p, 1) for p in parts)
    if sizes is not None and sizes != widths:
        n.bad(f"expected inputs of {sizes} features, found {widths}")
    return parts[0] if len(parts) == 1 else n.add(slicing.Concat(1), *parts)


@ml_op("ArrayFeatureExtractor")
def array_feature_extractor(n: OnnxNode) -> Result:
    x, places = n.input(0), n.input(1).cast(i64)
    picked = n.add(gather.Gather(-1), x, flat(n, places))
    return picked if x.type.rank > 1 else n.reshape(picked, (1, *picked.type.shape))
