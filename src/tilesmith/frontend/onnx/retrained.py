"""An ONNX model with other contents of its weights."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesmith.support.errors import UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto


def with_weights(source: Any, arrays: Mapping[str, np.ndarray]) -> ModelProto:
    """A copy of a model in which weights have new contents; all else stays.

    source: a path, bytes or an `onnx.ModelProto`.
    arrays: contents by the names of initialisers, or of the results of Constant nodes.

    Raises UnsupportedError for a name that is neither.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
    else:
        is_path = isinstance(source, (str, os.PathLike))
        model = onnx.load(source if is_path else io.BytesIO(bytes(source)))
    left = dict(arrays)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            tensor.CopyFrom(numpy_helper.from_array(left.pop(tensor.name), tensor.name))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in left:
            tensor = numpy_helper.from_array(left.pop(node.output[0]))
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", tensor))
    if left:
        raise UnsupportedError(
            f"the source model has no initialisers or constants named {', '.join(left)}"
        )
    return model
