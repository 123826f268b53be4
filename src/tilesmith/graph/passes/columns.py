"""Convolutions whose factors are both variables become matrix products if the target chooses so.

    conv(x, w)            ->  w @ im2col(x)
    conv_transpose(x, w)  ->  col2im(w' @ x)

The columns of the product are the window positions of all images.  So they are many even if an
image is narrow, as in the gradients of a network's last layers.  The convolution must have no
groups and constant sizes, and its element type must be its accumulator type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.dtypes import f32, f64
from tilesmith.ops.base import Op
from tilesmith.ops.columns import Col2Im, Im2Col
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape, Transpose

from .rewriter import Rewriter

Choice = Callable[[Node, bool], bool]
"""Whether a convolution that can be rewritten becomes a product.  Arguments: the convolution, and
whether all its readers exchange the first two axes of the result.  Then they can read the product
without a transposition.
"""


def columns(graph: Graph, choice: Choice) -> Graph:
    """`graph` with convolutions rewritten; the same object if none is chosen."""
    kept = {v for n in graph.nodes if not _exchanges(n.op) for v in n.inputs} | {*graph.outputs}

    def asked(rule: Callable[[Rewriter, Node], Value]) -> Callable[[Rewriter, Node], Value | None]:
        def rewritten(r: Rewriter, node: Node) -> Value | None:
            if not _can_rewrite(r, node) or not choice(node, node.outputs[0] not in kept):
                return None
            return rule(r, node)

        return rewritten

    rules = {Conv: (asked(_product),), ConvTranspose: (asked(_transposed_product),)}
    return Rewriter(graph, rules).run()


def _exchanges(op: Op) -> bool:
    return isinstance(op, Transpose) and op.perm[:2] == (1, 0)


def _can_rewrite(r: Rewriter, node: Node) -> bool:
    assert isinstance(node.op, (Conv, ConvTranspose))
    values = (*node.inputs, *node.outputs)
    if any(r.is_constant(v) for v in node.inputs) or not all(v.type.is_static for v in values):
        return False
    return node.op.groups == 1 and values[-1].dtype in (f32, f64) and _have_one_type(values)


def _have_one_type(values: Sequence[Value]) -> bool:
    return all(v.dtype == values[0].dtype and 0 not in v.type.static_shape for v in values)


def _product(r: Rewriter, node: Node) -> Value:
    op = node.op
    assert isinstance(op, Conv)
    x, w = node.inputs
    filters, *window = w.type.static_shape
    n, _, *places = node.outputs[0].type.static_shape
    under = r.add(Im2Col(tuple(window[1:]), op.strides, op.pads, op.dilations), x)
    right = r.add(Reshape((math.prod(window), n * math.prod(places))), under)
    left = r.add(Reshape((filters, math.prod(window))), w)
    product_of_columns = r.add(Reshape((filters, n, *places)), r.add(MatMul(), left, right))
    return _exchanged(r, product_of_columns)


def _transposed_product(r: Rewriter, node: Node) -> Value:
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, w = node.inputs
    channels, filters, *window = w.type.static_shape
    n, _, *places = x.type.static_shape
    image = node.outputs[0].type.static_shape[2:]
    rows, count = filters * math.prod(window), math.prod(places)
    left = r.add(Reshape((channels, rows)), w)
    right = r.add(Reshape((channels, n * count)), _exchanged(r, x))
    columns_of_product = r.add(MatMul(transpose_a=True), left, right)
    under = _exchanged(r, r.add(Reshape((rows, n, count)), columns_of_product))
    ends = _ends(op, places, window, image)
    pads = (*(op.pads[: len(window)] or (0,) * len(window)), *ends)
    return r.add(Col2Im(image, tuple(window), op.strides, pads, op.dilations), under)


def _ends(
    op: ConvTranspose, places: Sequence[int], window: Sequence[int], image: Sequence[int]
) -> list[int]:
    """The pads at the end of each axis for which the window has exactly `places` positions."""
    rank = len(window)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    begins = op.pads[:rank] or (0,) * rank
    return [
        s * (p - 1) + d * (k - 1) + 1 - b - i
        for s, p, d, k, b, i in zip(strides, places, dilations, window, begins, image, strict=True)
    ]


def _exchanged(r: Rewriter, value: Value) -> Value:
    """The value with its first two axes exchanged."""
    return r.add(Transpose((1, 0, *range(2, value.type.rank))), value)
