"""Convolutions with a 3x3 window become Winograd convolutions if the target chooses so.

    conv(x, w)  ->  winograd_conv(x, G w G')

These convolutions must be float32, without strides, dilations and groups, and have constant
weights.  The weights are transformed when they are first read.  For symbolic image sizes, a proof
is needed that the reads of tiles are inside the tensors.  Without the proof, the convolution is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Expr
from tilesmith.ir.symbols import bound
from tilesmith.ir.types import TensorType, same_shape
from tilesmith.ops.conv import Conv
from tilesmith.ops.winograd import WinogradConv, transform_weights
from tilesmith.support.errors import ExpressionError
from tilesmith.te.interpolation import WINDOW
from tilesmith.te.lower import lower
from tilesmith.te.schedule import create_schedule
from tilesmith.te.winograd import points

from .dce import dce
from .localise import own_symbols

Choice = Callable[[Node], int | None]
"""Chooses the tile size for a convolution that can be rewritten; None to keep the convolution."""


def winograd(graph: Graph, choice: Choice) -> Graph:
    """`graph` with convolutions rewritten; the same object if none is chosen."""
    made: dict[tuple[Value, int], Constant] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        m = choice(node) if _can_rewrite(graph, node) else None
        if m is not None:
            assert isinstance(node.op, Conv)
            x, w = node.inputs
            op = WinogradConv(m, node.op.pads)
            if _is_proved(op, x.type, _transformed_type(w, m)):
                if (w, m) not in made:
                    made[w, m] = _transformed(graph.constant[w], m)
                node = replace(node, op=op, inputs=(x, made[w, m].value))
        nodes.append(node)
    if not made:
        return graph
    constants = (*graph.constants, *made.values())
    return dce(replace(graph, constants=constants, nodes=tuple(nodes)))


def has_form(op: Conv, x: Value, w: Value) -> bool:
    """Whether a convolution of `x` with `w` has a form that Winograd's algorithm can compute."""
    plain = op.groups == 1 and all(n == 1 for n in (*op.strides, *op.dilations))
    window = same_shape(w.shape[2:], (WINDOW, WINDOW))
    return plain and window and x.dtype == f32 and isinstance(x.shape[1], int)


def _can_rewrite(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, Conv):
        return False
    x, w = node.inputs
    return has_form(node.op, x, w) and w in graph.constant and w.layout is None


def _is_proved(op: WinogradConv, *types: TensorType) -> bool:
    """Whether it is proved for all sizes that the reads of all stages are inside their tensors."""
    if all(t.is_static for t in types):
        return True
    own = own_symbols(d for t in types for d in t.shape if isinstance(d, Expr))
    local = (TensorType(t.dtype, tuple(bound(d, own) for d in t.shape)) for t in types)
    tensors = op.tensors(*local)
    try:
        lower(create_schedule([t.op for t in tensors.outputs]), [*tensors.inputs, *tensors.outputs])
    except ExpressionError:
        return False
    return True


def _transformed_type(weights: Value, m: int) -> TensorType:
    oc, ic = weights.type.static_shape[:2]
    t = points(m)
    return TensorType(weights.dtype, (t, t, oc, ic))


def _transformed(weights: Constant, m: int) -> Constant:
    value = Value(weights.value.name, _transformed_type(weights.value, m))
    return Constant(value, Data(lambda: transform_weights(weights.data.read(), m)))
