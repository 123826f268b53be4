"""Operators that ONNX defines by a function of other operators, and that have no import function
of ours: their bodies are imported as those of a model's own functions are.

The bodies come with the `onnx` package.  Nothing of the model but the operator's name reaches it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def standard_function(domain: str, name: str, version: int) -> Any | None:
    """The FunctionProto of an operator at an opset, with its attributes' defaults; None if ONNX
    defines it otherwise, or not at all.
    """
    import onnx  # delayed: only who meets such an operator pays for it

    try:
        schema: Any = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated or not schema.has_function:
        return None
    function = onnx.FunctionProto()
    function.CopyFrom(schema.function_body)
    for attribute in schema.attributes.values():
        if attribute.default_value.name:
            function.attribute_proto.append(attribute.default_value)
    return function
