"""ONNX nodes that run on the host (see `graph.control`), and stored tensors of strings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.host_values import as_value
from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.common.slots import Slot
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.proto import text
from tilesmith.graph.control import Host
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i64, string
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError

STRING = 8
"""TensorProto.STRING."""


def on_host(
    n: OnnxNode,
    function: str,
    results: Sequence[TensorType],
    inputs: Sequence[Slot],
    **settings: Any,
) -> tuple[Value, ...]:
    """The results of a host function (see `tilesmith.host_functions`)."""
    values = [as_value(n.builder, s, n.loc) for s in inputs]
    op = Host(function, json.dumps(settings) if settings else "", tuple(results), n.op_type)
    made = n.add(op, *values)
    return made if isinstance(made, tuple) else (made,)


def strings_in(tensor: Any, what: str) -> np.ndarray:
    """The contents of a TensorProto of strings.

    Raises ModelError unless it contains as many strings as its shape requires, in UTF-8.
    """
    shape = TensorType(string, checked_shape(tensor.dims, what)).static_shape
    strings = [_decoded(s, what) for s in tensor.string_data]
    if len(strings) != int(np.prod(shape, dtype=object)):
        raise ModelError(f"{what}: expected strings{list(shape)}, found {len(strings)} strings")
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(shape)


def _decoded(value: bytes, what: str) -> str:
    return text(value, f"a string of {what}")


def natively(n: OnnxNode, value: Value, dtype: DType, rank: int, usual: int) -> Value:
    """A host tensor of unknown extents as a native tensor, whose extents the run measures.

    usual: extent for which kernels are made fast.
    """
    (extents,) = on_host(n, "shape", [TensorType(i64, (rank,))], [value], rank=rank)
    symbols = tuple(symbol(f"{n.label}.{i}", 0, LARGEST, usual) for i in range(rank))
    n.builder.add(Measure(symbols, (LARGEST,) * rank), extents)
    (made,) = on_host(n, "identity", [TensorType(dtype, symbols)], [value])
    return made
