"""The table of ONNX operators: which Python function imports which operator at which opset
versions.

A function is registered with `@onnx_op("Conv", since=1)`; it gets an `OnnxNode` and returns the
node's output (a tuple if there are several).  `frontend.onnx.operators` imports the modules with
the operators of ONNX's own domain.  The modules of other domains are imported when a model has such
an operator.

Other operators may be functions of ONNX: their bodies come with the `onnx` package, and are
imported like those of a model's own functions.  For this, the package gets only the operator's
domain, name and version, and no other part of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode

ImportFunction: TypeAlias = Callable[[OnnxNode], Result]

OLDEST_OPSET = 1
FAMILIAR_OPSET = 23
"""Up to this opset, models are not checked with the `onnx` package, which takes long to import."""

_HOMES = {
    domain: tuple(f"tilesmith.frontend.onnx.{module}" for module in modules.split())
    for domain, modules in {
        "ai.onnx.ml": "ml.encoders ml.features ml.linear ml.trees",
        "ai.onnx.preview.training": "gradient optimizers",
        "com.microsoft": "contrib.attention contrib.fused contrib.quantized",
    }.items()
}
"""The modules that register the operators of other domains."""

OPERATORS: Registry[ImportFunction] = Registry(_HOMES)
"""The operators by domain (empty for the default one), name and opset version."""

onnx_op, same_operator = OPERATORS.register, OPERATORS.register_same

OBJECTS: Registry[ImportFunction] = Registry(_HOMES)
"""Functions for nodes that read objects of the host: strings, sequences, optionals, maps."""

object_op = OBJECTS.register


@lru_cache(maxsize=256)
def standard_function(domain: str, name: str, version: int) -> Any | None:
    """The FunctionProto of an operator at an opset, with the defaults of its attributes.  None if
    ONNX does not define the operator as a function.
    """
    import onnx  # imported here, since few models need it

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
