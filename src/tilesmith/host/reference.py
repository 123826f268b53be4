"""Nodes that the reference evaluator of the `onnx` package runs."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .functions import Function, host_function


@host_function("onnx", prepared=True)
def onnx_model(model: str) -> Function:
    """The function of a model: its bytes in base64.  An input that is None is left out.

    Raises ModelError without the `onnx` package.
    """
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError as e:
        raise ModelError(
            f"a node of this model runs on the host by the package onnx, which is not here ({e}); "
            "install it: pip install onnx"
        ) from None
    proto = onnx.ModelProto.FromString(base64.b64decode(model))
    evaluator = ReferenceEvaluator(proto)
    names = [i.name for i in proto.graph.input]

    def run(*inputs: Any) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            return tuple(evaluator.run(None, dict(zip(names, inputs, strict=True))))

    return run
