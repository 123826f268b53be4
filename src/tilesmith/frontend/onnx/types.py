"""ONNX's types: tensors, and the host types of sequences, optional values and maps."""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.common.host_values import tensor_of
from tilesmith.frontend.onnx.tensors import ELEMENT_TYPES, element_type
from tilesmith.ir import dtypes as dt
from tilesmith.ir.dtypes import DType, host_type, string, unknown
from tilesmith.support.errors import UnsupportedError

_DEPTH = 8
"""Upper bound on the nesting of types."""

_NAMES = {
    "float": dt.f32, "double": dt.f64, "float16": dt.f16, "bfloat16": dt.bf16, "bool": dt.bool_,
    "string": string, "uint4": dt.uint4, "int4": dt.int4, "uint2": dt.uint2, "int2": dt.int2,
    "float8e4m3fn": dt.f8e4m3fn, "float8e4m3fnuz": dt.f8e4m3fnuz, "float8e5m2": dt.f8e5m2,
    "float8e5m2fnuz": dt.f8e5m2fnuz, "float8e8m0": dt.f8e8m0, "float4e2m1": dt.f4e2m1,
    **{f"{sign}int{bits}": getattr(dt, f"{sign or 'i'}{bits}") for sign in ("u", "")
       for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Element types as ONNX's definitions of operators write them."""


def type_of_text(text: str) -> DType:
    """The host type of a type in an operator's definition, such as `seq(tensor(float))`."""
    name, _, rest = text.removesuffix(")").partition("(")
    if name == "map":
        key, _, value = rest.partition(",")
        key_type = _NAMES.get(key.strip())
        return unknown if key_type is None else host_type("map", key_type, _inner(value.strip()))
    if name == "seq":
        return host_type("seq", _inner(rest))
    if name == "optional":
        return host_type("optional", _inner(rest))
    return tensor_of(_NAMES.get(rest, unknown)) if name == "tensor" else unknown


def _inner(text: str) -> DType:
    """The type of a sequence's items; for a tensor, its element type."""
    if text in _NAMES:
        return _NAMES[text]
    tensor = type_of_text(text)
    return tensor.of[0] if tensor.form == "tensor" else tensor


def host_type_of(type: Any, what: str, depth: int = 0) -> DType:
    """The host type of a TypeProto; for a tensor, its element type.

    Raises UnsupportedError for sparse tensors and opaque types.
    """
    kind = type.WhichOneof("value")
    if depth > _DEPTH:
        raise UnsupportedError(f"{what}: its type is nested more than {_DEPTH} deep")
    if kind == "tensor_type":
        return element_type(type.tensor_type.elem_type, what, strings=True)
    if kind == "sequence_type":
        return host_type("seq", host_type_of(type.sequence_type.elem_type, what, depth + 1))
    if kind == "optional_type":
        return host_type("optional", host_type_of(type.optional_type.elem_type, what, depth + 1))
    if kind == "map_type":
        key = ELEMENT_TYPES.get(type.map_type.key_type, string)
        return host_type("map", key, host_type_of(type.map_type.value_type, what, depth + 1))
    raise UnsupportedError(f"{what} is a {str(kind).removesuffix('_type')}, which is not supported")
