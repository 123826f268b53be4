"""Values of the host during import (see `graph.control`): strings, and objects that are not
tensors.

Sequences and optional values that are known during import stay out of the graph; only the
importer's tables hold them, as slots (see `Slot`).  `as_value` adds the contents of a slot to the
graph when a node on the host reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.slots import Slot, TensorList
from tilesmith.graph.control import Host
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, host_type, string, unknown
from tilesmith.ir.types import Dim, TensorType


def scalar(dtype: DType) -> TensorType:
    """The type, always of rank 0, of a value whose host type is not strings."""
    return TensorType(dtype, ())


def is_object(slot: Slot) -> bool:
    """Whether a slot is a value of the host."""
    return isinstance(slot, Value) and slot.dtype.is_host


def element(dtype: DType) -> DType:
    """The element type of a tensor; `unknown` if the value may be something other than a tensor."""
    if not dtype.is_host or dtype is string:
        return dtype
    return dtype.of[0] if dtype.form == "tensor" else unknown


def tensor_of(dtype: DType) -> DType:
    """The host type of tensors whose rank is not known."""
    return unknown if dtype is unknown else host_type("tensor", dtype)


def item_of(sequence: DType) -> TensorType:
    """The type of a sequence's items."""
    inner = sequence.of[0] if sequence.form == "seq" else unknown
    return scalar(inner if inner.form or inner is unknown else tensor_of(inner))


def sequence_of(values: Sequence[Value]) -> DType:
    """The host type of a sequence of values."""
    kinds = {v.dtype if v.dtype.form not in (None, "tensor") else element(v.dtype) for v in values}
    return host_type("seq", kinds.pop() if len(kinds) == 1 else unknown)


def as_value(builder: FoldingBuilder, slot: Slot, loc: str = "") -> Value:
    """A value with the contents of a slot."""
    if isinstance(slot, Value):
        return slot
    if isinstance(slot, TensorList):
        items = [as_value(builder, v, loc) for v in slot.items]
        dtype = sequence_of(items) if items else host_type("seq", slot.dtype)
        return builder.add(Host("sequence_construct", "", (scalar(dtype),)), *items, loc=loc)
    return builder.add(Host("none", "", (scalar(unknown),)), loc=loc)


def string_constant(builder: FoldingBuilder, array: np.ndarray, name: str) -> Value:
    """A constant of strings."""
    settings = json.dumps({"values": array.reshape(-1).tolist(), "shape": list(array.shape)})
    type = TensorType(string, array.shape)
    return builder.add(Host("string_constant", settings, (type,), "Constant"), loc=name, name=name)


def strings(shape: Sequence[Dim]) -> TensorType:
    """The type of a tensor of strings."""
    return TensorType(string, tuple(shape))


def common_type(a: TensorType, b: TensorType) -> TensorType | None:
    """The host type to which both types can be converted.  None if they are equal, or if neither is
    a host type.
    """
    if a == b or not (a.dtype.is_host or b.dtype.is_host):
        return None
    x, y = element(a.dtype), element(b.dtype)
    tensors = all(t.dtype.form == "tensor" or not t.dtype.form for t in (a, b))
    return scalar(tensor_of(x) if tensors and x is y else unknown)


def lifted(builder: FoldingBuilder, value: Value, type: TensorType) -> Value:
    """A value converted to a more general host type."""
    if value.type == type:
        return value
    return builder.add(Host("identity", "", (type,)), value)
