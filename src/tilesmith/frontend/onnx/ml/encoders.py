"""Encoders: categories become other categories, one-hot vectors, or counts of n-grams."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx import strings
from tilesmith.frontend.onnx.ml.scores import mapped, ml_op
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import STRING
from tilesmith.frontend.onnx.registry import object_op, onnx_op
from tilesmith.frontend.onnx.tensors import decode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64, string
from tilesmith.ops import gather
from tilesmith.ops.functions import minimum
from tilesmith.ops.lookup import CountRuns, Position


def position(n: OnnxNode, x: Value, keys: np.ndarray) -> tuple[Value, np.ndarray]:
    """The index of each element of x among the sorted keys, and the order that sorts the keys.  An
    element that is not a key gets the number of keys.  Of equal keys the last one counts.
    """
    known, last = np.unique(keys[::-1], return_index=True)
    return n.add(Position(), x, n.const(known)), len(keys) - 1 - last


@object_op("OneHotEncoder", domain="ai.onnx.ml")
@ml_op("OneHotEncoder")
def one_hot_encoder(n: OnnxNode) -> Result:
    cats: tuple[object, ...] = n.attr_ints("cats_int64s") or n.attr_strings("cats_strings") or ()
    x, count = n.input(0), len(cats)
    if not count:
        n.bad("expected categories in attribute 'cats_int64s' or 'cats_strings', found none")
    if x.dtype is string:
        place, order = _numbered(n, x, list(cats), count), np.arange(count)
    else:
        place, order = position(n, x.cast(i64), np.asarray(cats, np.int64))
    if n.attr_flag("zeros", True):
        order = np.append(order, count)  # index of the row of zeros, after the last category
    column = n.add(gather.Gather(0), n.const(order.astype(np.int64)), place)
    return n.add(gather.OneHot(count), column, n.const((0.0, 1.0), f32))


def _numbered(n: OnnxNode, x: Value, keys: list[object], default: int) -> Value:
    """The number of each string in a list; `default` for other strings."""
    return mapped(n, x, keys, range(len(keys)), default)


@object_op("CategoryMapper", domain="ai.onnx.ml")
@ml_op("CategoryMapper")
def category_mapper(n: OnnxNode) -> Result:
    """Map strings to integers or integers to strings, depending on the input."""
    x, names, ints = n.input(0), n.attr_strings("cats_strings") or (), n.attr_ints("cats_int64s")
    name, number = n.attr_string("default_string", "_Unused"), n.attr_int("default_int64", -1)
    if ints is None or len(ints) != len(names):
        n.bad(f"expected as many cats_int64s as cats_strings, found {len(ints or ())}")
    if x.dtype is string:
        return mapped(n, x, names, ints, number)
    return mapped(n, x, ints, names, name)


@ml_op("LabelEncoder")
def label_encoder(n: OnnxNode) -> Result:
    """The encoder of numbers; strings are looked up on the host."""
    if n.version < 2 or n.has("values_strings") or _has_strings(n, "values_tensor"):
        return strings.label_encoder(n)
    x = n.input(0)
    keys, values = _list(n, "keys"), _list(n, "values")
    if len(keys) != len(values):
        n.bad(f"expected as many values as keys, found {len(values)} for {len(keys)}")
    if keys.dtype != x.dtype.numpy:
        n.bad(f"expected an input of the keys' type {keys.dtype}, found {x.type}")
    place, order = position(n, x, keys)
    results = np.append(values[order], _default(n, values.dtype))
    return n.add(gather.Gather(0), n.const(results), place)


def _has_strings(n: OnnxNode, name: str) -> bool:
    tensor = n.attributes.get(name, at.TENSOR)
    return tensor is not None and tensor.data_type == STRING


def _list(n: OnnxNode, side: str) -> np.ndarray:
    """The list of keys, or of values."""
    if stored := n.attributes.get(f"{side}_tensor", at.TENSOR):
        return decode(stored, n.files, f"attribute '{side}_tensor'").data.array.reshape(-1)
    ints, floats = n.attr_ints(f"{side}_int64s"), n.attr_floats(f"{side}_floats")
    if ints is not None:
        return np.asarray(ints, np.int64)
    if floats is None:
        n.bad(f"expected {side} in one of the attributes {side}_*, found none")
    return np.asarray(floats, np.float32)


def _default(n: OnnxNode, dtype: Any) -> np.ndarray:
    """The value for an element that is not a key."""
    n.ignore("default_string")
    stored = n.attributes.get("default_tensor", at.TENSOR)
    numbers = {
        np.dtype(np.int64): n.attr_int("default_int64", -1),
        np.dtype(np.float32): n.attr_float("default_float", -0.0),
    }
    if stored is None:
        return np.asarray(numbers.get(dtype, 0), dtype)
    array = decode(stored, n.files, "attribute 'default_tensor'").data.array
    if array.size != 1 or array.dtype != dtype:
        n.bad(f"attribute 'default_tensor': expected one {dtype}, found {array.dtype}{array.shape}")
    return array.reshape(())


@onnx_op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(n: OnnxNode) -> Result:
    """The vectorizer of integers; strings are counted on the host."""
    x, pool = n.input(0), np.asarray(n.attr_ints("pool_int64s") or (), np.int64)
    if x.type.rank not in (1, 2) or not x.dtype.is_int:
        n.bad(f"expected integers [C] or [N, C], found {x.type}")
    starts, columns = n.attr_ints("ngram_counts") or (), n.attr_ints("ngram_indexes") or ()
    mode = n.attr_string("mode", among=("TF", "IDF", "TFIDF"))
    shortest, longest = n.attr_int("min_gram_length"), n.attr_int("max_gram_length")
    skips, weights = n.attr_int("max_skip_count"), n.attr_floats("weights")
    outputs = max(columns, default=-1) + 1
    tables: list[np.ndarray] = []
    used: list[int] = []
    first = 0
    for length, (start, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        count = (end - start) // length
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            n.bad(f"ngram_counts: expected whole {length}-grams from {start} to {end}")
        to = np.asarray(columns[first : first + count], np.int64)
        first += count
        if len(to) != count or (to < 0).any():
            n.bad(f"ngram_indexes: expected a place for each n-gram, found {len(columns)}")
        if shortest <= length <= longest:
            runs, last = np.unique(
                pool[start:end].reshape(count, length)[::-1], axis=0, return_index=True
            )
            used.append(length)
            tables += [runs, to[count - 1 - last]]
    if first != len(columns) or skips < 0 or (weights is not None and len(weights) != first):
        n.bad(f"expected {first} ngram_indexes and weights, and max_skip_count from 0")
    rows = (x if x.type.rank == 2 else n.reshape(x, (1, *x.type.shape))).cast(i64)
    y = n.add(CountRuns(tuple(used), skips, outputs), rows, *map(n.const, tables))
    if mode == "IDF":
        y = minimum(y, 1.0)
    if mode != "TF" and weights is not None:
        scale = np.ones(outputs, np.float32)
        scale[list(columns)] = weights
        y = y * scale
    return y if x.type.rank == 2 else n.reshape(y, (outputs,))
