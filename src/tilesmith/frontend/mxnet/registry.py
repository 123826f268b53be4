"""The table of MXNet's operators: which Python function imports which operator."""

from __future__ import annotations

from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.ir import dtypes
from tilesmith.ir.dtypes import DType

OPERATORS: Layers = Layers()
"""The operators by name."""

mxnet_op, same_operator = OPERATORS.register, OPERATORS.register_same


def is_listed(n: LayerNode, name: str) -> bool:
    """Whether an attribute is given and not (), which often stands for the default."""
    return n.has(name) and n.layer.attributes[name] != ()


def list_of(n: LayerNode, name: str, default: int, count: int) -> tuple[int, ...]:
    """An attribute with a number for each of `count` axes."""
    return n.attr_ints(name) if is_listed(n, name) else (default,) * count


def dtype_of(n: LayerNode, name: str = "dtype", default: DType = dtypes.f32) -> DType:
    """The element type that an attribute names by NumPy's name."""
    if not n.has(name):
        return default
    wanted = n.attr_string(name)
    for dtype in dtypes.BY_NAME.values():
        if not dtype.is_storage and dtype.numpy.name == wanted:
            return dtype
    return n.unsupported(f"element type {wanted}")
