"""Operators that PyTorch decomposes before a compiler sees them.

They remain in programs that were not decomposed: archives from `torch.export.save`, and
TorchScript.
"""

from __future__ import annotations

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.aten.shapes import cat, slice_
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.ops import elementwise as ew


@aten_op("aten.to.device")
def to_device(
    n: AtenNode,
    self: Operand,
    device: object = None,
    dtype: DType | None = None,
    *placement: object,
) -> Value:
    return n.tensor(self, dtype)


@aten_op("aten.to.other", "aten.type_as.default")
def to_other(n: AtenNode, self: Operand, other: Value, *placement: object) -> Value:
    return n.tensor(self, other.dtype)


@aten_op("aten.zero.default")
def zero(n: AtenNode, self: Value) -> Value:
    return n.full(0, self.type.shape, self.dtype)


@aten_op("aten.diff.default")
def diff(
    node: AtenNode,
    self: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Differences of neighbours along an axis, taken `n` times."""
    parts = [x for x in (prepend, self, append) if x is not None]
    x = cat(node, parts, dim) if len(parts) > 1 else self
    for _ in range(n):
        ends, begins = slice_(node, x, dim, 1), slice_(node, x, dim, 0, -1)
        x = node.add(ew.LogicalXor() if x.dtype.is_bool else ew.Sub(), ends, begins)
    return x
