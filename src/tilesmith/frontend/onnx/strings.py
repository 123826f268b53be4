"""ONNX's operators on strings; they run on the host."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tilesmith.frontend.common.host_values import element, scalar, tensor_of
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import STRING, natively, on_host, strings_in
from tilesmith.frontend.onnx.registry import object_op, onnx_op
from tilesmith.frontend.onnx.tensors import decode, element_type
from tilesmith.graph.nodes import Value
from tilesmith.host_functions.vectorizers import misplaced_grams
from tilesmith.ir.dtypes import DType, bool_, f32, i64, string, u8
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.ops.rules import broadcast_shapes


def _text(n: OnnxNode, index: int = 0) -> Value:
    value = n.input(index)
    if element(value.dtype) is not string:
        n.bad(f"expected strings as input number {index + 1}, found {value.type}")
    return value


def _like(value: Value, dtype: DType) -> TensorType:
    """The type of a tensor of `dtype` with the shape of `value`."""
    if value.dtype.form == "tensor":
        return scalar(tensor_of(dtype))
    return TensorType(dtype, value.shape)


def _both(n: OnnxNode, dtype: DType) -> TensorType:
    """The type of an elementwise result of both inputs."""
    a, b = _text(n, 0), _text(n, 1)
    if a.dtype is not string or b.dtype is not string:
        return scalar(tensor_of(dtype))
    return TensorType(dtype, broadcast_shapes(n.op_type, a.shape, b.shape))


@onnx_op("StringConcat", since=20)
@object_op("StringConcat", since=20)
def string_concat(n: OnnxNode) -> Result:
    return on_host(n, "string_concat", [_both(n, string)], n.inputs)


@onnx_op("StringSplit", since=20)
@object_op("StringSplit", since=20)
def string_split(n: OnnxNode) -> Result:
    x = _text(n)
    delimiter = n.attr_string("delimiter", "")
    most = n.attr_int("maxsplit") if n.has("maxsplit") else None
    results = [scalar(tensor_of(string)), _like(x, i64)]
    return on_host(n, "string_split", results, [x], delimiter=delimiter, maxsplit=most)


@onnx_op("RegexFullMatch", since=20)
@object_op("RegexFullMatch", since=20)
def regex_full_match(n: OnnxNode) -> Result:
    x, pattern = _text(n), n.attr_string("pattern")
    return on_host(n, "regex_full_match", [_like(x, bool_)], [x], pattern=pattern)


@onnx_op("StringNormalizer", since=10)
@object_op("StringNormalizer", since=10)
def string_normalizer(n: OnnxNode) -> Result:
    n.ignore("locale")  # upper and lower case follow Unicode
    x = _text(n)
    case = n.attr_string("case_change_action", "NONE", among=("NONE", "LOWER", "UPPER"))
    words = list(n.attr_strings("stopwords") or ())
    result = scalar(tensor_of(string)) if words else _like(x, string)
    if not words and any(same_dim(d, 0) for d in x.shape):
        result = scalar(tensor_of(string))  # an empty input gives one empty string
    return on_host(
        n, "string_normalizer", [result], [x],
        case=case, sensitive=n.attr_flag("is_case_sensitive"), stopwords=words,
    )  # fmt: skip


@object_op("Equal", since=7)
def text_equal(n: OnnxNode) -> Result:
    return on_host(n, "string_equal", [_both(n, bool_)], n.inputs)


@object_op("Cast", since=6)
def text_cast(n: OnnxNode) -> Result:
    n.ignore("saturate", "round_mode")
    x, to = n.input(0), element_type(n.attr_int("to"), "attribute 'to'", strings=True)
    if to is string:
        return on_host(n, "cast_to_string", [_like(x, string)], [x])
    return on_host(n, "cast_from_string", [_like(x, to)], [x], to=to.numpy.name)


@object_op("LabelEncoder", since=1, domain="ai.onnx.ml")
def label_encoder(n: OnnxNode) -> Result:
    x = n.input(0)
    if n.version < 2:
        classes = list(n.attr_strings("classes_strings") or ())
        numbers = list(range(len(classes)))
        if element(x.dtype) is string:
            mapping: tuple[Any, ...] = classes, numbers, n.attr_int("default_int64", -1), i64
            n.ignore("default_string")
        else:
            mapping = numbers, classes, n.attr_string("default_string", "_Unused"), string
            n.ignore("default_int64")
    else:
        mapping = _table(n)
    keys, values, default, dtype = mapping
    if len(keys) != len(values):
        n.bad(f"expected as many values as keys, found {len(values)} for {len(keys)}")
    name = "string" if dtype is string else dtype.numpy.name
    return on_host(
        n, "label_encoder", [_like(x, dtype)], [x],
        keys=keys, values=values, default=default, dtype=name,
    )  # fmt: skip


def _table(n: OnnxNode) -> tuple[list[Any], list[Any], Any, DType]:
    """Keys, values, the default value, and the type of values."""
    keys, _ = _column(n, "keys")
    values, dtype = _column(n, "values")
    defaults = {
        f32: n.attr_float("default_float", -0.0),
        i64: n.attr_int("default_int64", -1),
        string: n.attr_string("default_string", "_Unused"),
    }
    stored = n.attributes.get("default_tensor", at.TENSOR)
    if stored is not None:
        elements, _ = _contents(n, stored, "attribute 'default_tensor'")
        if len(elements) != 1:
            n.bad(f"attribute 'default_tensor': expected one element, found {len(elements)}")
        return keys, values, elements[0], dtype
    return keys, values, defaults.get(dtype, 0), dtype


def _column(n: OnnxNode, side: str) -> tuple[list[Any], DType]:
    """The keys or the values, and their type."""
    stored = n.attributes.get(f"{side}_tensor", at.TENSOR)
    if stored is not None:
        return _contents(n, stored, f"attribute '{side}_tensor'")
    for read, kind, dtype in (
        (n.attr_strings, "strings", string),
        (n.attr_ints, "int64s", i64),
        (n.attr_floats, "floats", f32),
    ):
        elements = read(f"{side}_{kind}")
        if elements is not None:
            return list(elements), dtype
    return n.bad(f"expected {side} in one of the attributes {side}_*, found none")


def _contents(n: OnnxNode, tensor: Any, what: str) -> tuple[list[Any], DType]:
    if tensor.data_type == STRING:
        return strings_in(tensor, what).reshape(-1).tolist(), string
    decoded = decode(tensor, n.files, what)
    return decoded.data.array.reshape(-1).tolist(), decoded.type.dtype


@object_op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(n: OnnxNode) -> Result:
    x = n.input(0)
    pool = list(n.attr_strings("pool_strings") or n.attr_ints("pool_int64s") or ())
    starts, indexes = (
        list(n.attr_ints("ngram_counts") or ()),
        list(n.attr_ints("ngram_indexes") or ()),
    )
    if problem := misplaced_grams(starts, len(pool)):
        n.bad(problem)
    weights = n.attr_floats("weights")
    size = max(indexes, default=-1) + 1
    grams = sum((b - a) // i for i, (a, b) in enumerate(pairwise([*starts, len(pool)]), 1))
    if len(indexes) != grams or min(indexes, default=0) < 0:
        n.bad(f"attribute 'ngram_indexes': expected {grams} places, found {len(indexes)}")
    if weights is not None and len(weights) != grams:
        n.bad(f"attribute 'weights': expected {grams} numbers, found {len(weights)}")
    scale = None
    if weights is not None:
        of_place = dict(zip(indexes, weights, strict=True))
        scale = [of_place.get(k, 1.0) for k in range(size)]
    result = _like(x, f32)
    if x.dtype.form != "tensor":
        result = TensorType(f32, (*x.shape[:-1], size))
    return on_host(
        n, "tf_idf", [result], [x],
        mode=n.attr_string("mode", among=("TF", "IDF", "TFIDF")), pool=pool, starts=starts,
        indexes=indexes, weights=scale,
        shortest=n.attr_int("min_gram_length"), longest=n.attr_int("max_gram_length"),
        skips=n.attr_int("max_skip_count"),
    )  # fmt: skip


_PIXELS = 256
"""Usual extent of an image."""


@onnx_op("ImageDecoder", since=20)
def image_decoder(n: OnnxNode) -> Result:
    x, form = n.input(0), n.attr_string("pixel_format", "RGB", among=("RGB", "BGR", "Grayscale"))
    if x.dtype is not u8 or x.type.rank != 1:
        n.bad(f"expected u8 of rank 1, found {x.type}")
    (pixels,) = on_host(n, "decode_image", [scalar(tensor_of(u8))], [x], pixel_format=form)
    return natively(n, pixels, u8, 3, _PIXELS)
