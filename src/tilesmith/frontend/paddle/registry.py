"""The table of Paddle's operators by their names in Paddle 3, and functions that read operands."""

from __future__ import annotations

from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import TensorList
from tilesmith.frontend.paddle.schema import dtype_named
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.ir.types import Dim

OPERATORS: Layers = Layers()
"""The operators by name."""

paddle_op, same_operator = OPERATORS.register, OPERATORS.register_same


def tensors(n: LayerNode, index: int = 0) -> tuple[Value, ...]:
    """The tensors of an input that is a list."""
    slot = n.slot(index)
    return slot.items if isinstance(slot, TensorList) else (n.input(index),)


def sizes(n: LayerNode, index: int, what: str) -> tuple[Dim, ...]:
    """The extents in an input, which is one tensor of extents or a list of tensors."""
    return tuple(d for v in tensors(n, index) for d in n.extents(v, what))


def whole(n: LayerNode, index: int, what: str) -> tuple[int, ...]:
    """The integers in an input, which must be known; empty if the input is left out."""
    slot = n.slot(index)
    values = () if slot is None else tensors(n, index)
    return tuple(i for v in values for i in n.int_list(v, what))


def axis_input(n: LayerNode, index: int, rank: int) -> int:
    """An axis that is an input, counted from the front."""
    numbers = whole(n, index, "axis") or (0,)
    return n.axis(numbers[0], rank)


def dtype_of(n: LayerNode, name: str, default: DType) -> DType:
    """The element type that an attribute states; `default` if it is left out or undefined."""
    stated = n.layer.attributes.get(name)
    if stated in (None, -1, "") or str(stated).lower().startswith("undefined"):
        return default
    return dtype_named(stated)
