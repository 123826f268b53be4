"""Operators that only unpack stored weights: 16-bit floats, and sparse tensors."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.ir.dtypes import f32


@tflite_op("DEQUANTIZE")
def dequantize(n: TfliteNode) -> Result:
    x = n.input(0)
    if not x.dtype.is_float:
        n.bad(f"expected floats, or integers with a scale, found {x.type}")
    return x.cast(f32)


@stored_op("DENSIFY")
def densify(n: TfliteNode) -> Result:
    return n.input(0)  # sparse contents are read as dense ones
