"""ONNX's operators in opsets 1 to 6, where they differ from later ones.

In these versions, operands broadcast only if an attribute allows it.  Element types are given by
name, and several operators have attributes that are inputs in later versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.elementwise import BROADCAST_SINCE_7
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.resizing import upsampled
from tilesmith.frontend.onnx.shapes import PAD_MODES, reshaped
from tilesmith.frontend.onnx.tensors import ELEMENT_TYPES
from tilesmith.ir.types import same_shape
from tilesmith.ops import activation as act
from tilesmith.ops import slicing
from tilesmith.ops.base import Op

_TYPE_NAMES = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
    "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip
"""The names of TensorProto.DataType."""


def _binary(n: OnnxNode, make: Callable[[], Op]) -> Result:
    """A binary operator.  With `broadcast`, the axes of B correspond to those of A from `axis` on,
    by default to the last ones.
    """
    a, b = n.input(0), n.input(1)
    if not n.attr_flag("broadcast"):
        n.ignore("axis")
        if not same_shape(a.type.shape, b.type.shape):
            n.bad(f"without broadcast: expected operands of one shape, found {a.type} and {b.type}")
        return n.add(make(), a, b)
    if same_shape(b.type.shape, (1,) * b.type.rank):
        n.ignore("axis")
        return n.add(make(), a, n.reshape(b, ()))
    missing = a.type.rank - b.type.rank
    if missing < 0:
        n.bad(f"broadcast: expected a right operand of at most rank {a.type.rank}, found {b.type}")
    start = n.axis(n.attr_int("axis"), a.type.rank) if n.has("axis") else missing
    if start > missing:
        n.bad(f"attribute 'axis': expected at most {missing} for {b.type}, found {start}")
    b = n.reshape(b, (*n.shape(b), *[1] * (missing - start)))
    return n.add(make(), a, b)


for _name, _make in BROADCAST_SINCE_7.items():
    onnx_op(_name, since=1, until=6)(partial(_binary, make=_make))


@onnx_op("Cast", since=1, until=5)
def cast_by_name(n: OnnxNode) -> Result:
    word = n.attr_string("to")
    code = _TYPE_NAMES.get(word)
    if code is None:
        n.bad(f"attribute 'to': expected one of {', '.join(_TYPE_NAMES)}, found {word!r}")
    return n.input(0).cast(ELEMENT_TYPES[code])


@onnx_op("Concat", since=1, until=3)
def concat(n: OnnxNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    return n.add(slicing.Concat(n.axis(n.attr_int("axis", 1), n.inputs[0].type.rank)), *n.inputs)


@onnx_op("Pad", since=1, until=1)
def pad(n: OnnxNode) -> Result:
    pads = n.attr_ints("paddings")
    if pads is None:
        n.bad("expected attribute 'paddings', which is required; found none")
    mode = n.attr_string("mode", "constant", among=PAD_MODES[:3])
    return n.add(slicing.Pad(pads, mode, n.attr_float("value", 0.0)), n.input(0))


@onnx_op("PRelu", since=1, until=6)
def prelu(n: OnnxNode) -> Result:
    """PRelu with a single slope, or a slope for each channel."""
    x, slope = n.input(0), n.input(1)
    if same_shape(slope.type.shape, (1,) * slope.type.rank):
        slope = n.reshape(slope, ())
    elif x.type.rank < 2 or not same_shape(slope.type.shape, (n.extent(x, 1),)):
        n.bad(f"slope: expected one number, or one per channel of {x.type}, found {slope.type}")
    else:
        slope = n.reshape(slope, (*n.shape(slope), *[1] * (x.type.rank - 2)))
    return n.add(act.PRelu(), x, slope)


@onnx_op("Reshape", since=1, until=4)
def reshape(n: OnnxNode) -> Result:
    dims = n.attr_ints("shape")
    if dims is None:
        n.bad("expected attribute 'shape', which is required; found none")
    return reshaped(n, dims, zero_is_zero=False)


@onnx_op("Tile", since=1, until=5)
def tile(n: OnnxNode) -> Result:
    x = n.input(0)
    repeats = [1] * x.type.rank
    count, axis = (int(n.scalar(n.input(i), what)) for i, what in ((1, "tiles"), (2, "axis")))
    repeats[n.axis(axis, x.type.rank)] = count
    return tiled(n, x, repeats)


@onnx_op("Upsample", since=1, until=6)
def upsample(n: OnnxNode) -> Result:
    x = n.input(0)
    if x.type.rank != 4:
        n.bad(f"expected an input [N, C, H, W], found {x.type}")
    return upsampled(n, (1.0, 1.0, n.attr_float("height_scale"), n.attr_float("width_scale")))
