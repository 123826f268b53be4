"""Encoders of ai.onnx.ml: categories as other categories, or as vectors of zeros and a one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.elementwise import cast_to
from tilesmith.frontend.onnx.ml.scores import ml_op
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.tensors import decode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import gather
from tilesmith.ops.lookup import Position


def position(n: OnnxNode, x: Value, keys: np.ndarray) -> tuple[Value, np.ndarray]:
    """Where each element of x stands among `keys`, sorted as the second result says by their
    numbers; the count of keys if it is not there.  The last of equal keys counts.
    """
    known, last = np.unique(keys[::-1], return_index=True)
    return n.add(Position(), x, n.const(known)), len(keys) - 1 - last


@ml_op("OneHotEncoder")
def one_hot_encoder(n: OnnxNode) -> Result:
    cats = n.attr_ints("cats_int64s")
    if not cats:
        n.unsupported("categories that are strings")
    place, order = position(n, cast_to(n, n.input(0), i64), np.asarray(cats, np.int64))
    if n.attr_flag("zeros", True):
        order = np.append(order, len(cats))  # behind the last category: a row of zeros
    column = n.add(gather.Gather(0), n.const(order.astype(np.int64)), place)
    return n.add(gather.OneHot(len(cats)), column, n.const((0.0, 1.0), f32))


@ml_op("LabelEncoder", since=2)
def label_encoder(n: OnnxNode) -> Result:
    x = n.input(0)
    keys, values = _list(n, "keys"), _list(n, "values")
    if len(keys) != len(values):
        n.bad(f"expected as many values as keys, found {len(values)} for {len(keys)}")
    if keys.dtype != x.dtype.numpy:
        n.bad(f"expected an input of the keys' type {keys.dtype}, found {x.type}")
    place, order = position(n, x, keys)
    results = np.append(values[order], _default(n, values.dtype))
    return n.add(gather.Gather(0), n.const(results), place)


def _list(n: OnnxNode, side: str) -> np.ndarray:
    """The keys or the values."""
    if stored := n.attributes.get(f"{side}_tensor", at.TENSOR):
        return decode(stored, n.files, f"attribute '{side}_tensor'").data.array.reshape(-1)
    if n.has(f"{side}_strings"):
        n.unsupported(f"{side} that are strings")
    ints, floats = n.attr_ints(f"{side}_int64s"), n.attr_floats(f"{side}_floats")
    if ints is not None:
        return np.asarray(ints, np.int64)
    if floats is None:
        n.bad(f"expected {side} in one of the attributes {side}_*, found none")
    return np.asarray(floats, np.float32)


def _default(n: OnnxNode, dtype: Any) -> np.ndarray:
    """The value of a key that is not known."""
    n.ignore("default_string")
    stored = n.attributes.get("default_tensor", at.TENSOR)
    numbers = {
        np.dtype(np.int64): n.attr_int("default_int64", -1),
        np.dtype(np.float32): n.attr_float("default_float", -0.0),
    }
    if stored is None:
        return np.asarray(numbers.get(dtype, 0), dtype)
    found = decode(stored, n.files, "attribute 'default_tensor'").data.array
    if found.size != 1 or found.dtype != dtype:
        n.bad(f"attribute 'default_tensor': expected one {dtype}, found {found.dtype}{found.shape}")
    return found.reshape(())
