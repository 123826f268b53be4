"""TFLite's products of matrices."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.convolutions import check_floats, finished
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import same_dim
from tilesmith.ops import matmul as mm


def rows_of(n: TfliteNode, x: Value, w: Value) -> Value:
    """The input of FULLY_CONNECTED as rows of I elements, for weights [O, I].

    The shape is [..., I] if the result keeps the input's axes, else [rows, I].
    """
    if w.type.rank != 2 or n.choice("weights_format", ("DEFAULT", "SHUFFLED4x16INT8")) != "DEFAULT":
        n.unsupported(f"weights {w.type} that are not stored as [O, I]")
    width = n.extent(w, 1)
    fits = x.type.rank > 0 and same_dim(x.type.shape[-1], width)
    if n.option("keep_num_dims"):
        return x if fits else n.bad(f"expected rows of {width} numbers, found {x.type}")
    if fits:
        return n.reshape(x, (extents.product(x.type.shape[:-1]), width))
    if width < 1:
        n.bad(f"expected weights with columns, found {w.type}")
    return n.reshape(x, (as_dim(as_expr(extents.product(x.type.shape)) // width), width))


def product(n: TfliteNode, x: Value, w: Value) -> Value:
    """Rows [..., I] times weights [O, I]: [..., O]."""
    return n.add(mm.MatMul(transpose_b=True), x, w)


@tflite_op("FULLY_CONNECTED")
def fully_connected(n: TfliteNode) -> Result:
    x, w = n.input(0), n.input(1)
    check_floats(n, x, w)
    return finished(n, product(n, rows_of(n, x, w), w), n.optional(2))


@tflite_op("BATCH_MATMUL")
def batch_matmul(n: TfliteNode) -> Result:
    x, y = n.input(0), n.input(1)
    check_floats(n, x, y)
    op = mm.MatMul(bool(n.option("adj_x")), bool(n.option("adj_y")))
    return n.add(op, x, y)
