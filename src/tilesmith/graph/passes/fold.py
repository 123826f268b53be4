"""Constant folding: a node whose inputs are all constants is computed at compile time, by its
operator's reference.

Users' operators are not folded, since programs would then depend on their references too.  Control
flow is not folded, since it may run for long.

A large result is not folded if it is much larger than the node's inputs: a scalar broadcast to a
megabyte would replace a cheap operation by weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilesmith.graph.control import Control
from tilesmith.graph.evaluate import evaluate_op, logical_array
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.perf.limits import FOLDED_BYTES
from tilesmith.support.errors import ModelError

GROWTH = 4
"""Upper bound on the ratio of result bytes to input bytes of a large result that is folded.
Weights that grow by padding stay below this bound.  It is cheaper to repeat a larger broadcast in
each run.
"""


def fold(graph: Graph, limit: int = FOLDED_BYTES) -> Graph:
    """`graph` with known results as constants; the same object if there are none.

    limit: results of up to this many bytes are always folded.  Larger results are folded if they
        have at most `GROWTH` times the bytes of the node's inputs.
    """
    constants = dict(graph.constant)
    nodes: list[Node] = []
    for node in graph.nodes:
        arrays = _folded(node, constants) if _is_foldable(node, constants, limit) else None
        if arrays is not None:
            for v, array in zip(node.outputs, arrays, strict=True):
                constants[v] = Constant(v, Data.of(_physical(v, array)))
        else:
            nodes.append(node)
    if len(nodes) == len(graph.nodes):
        return graph
    # The folded results keep their values, so other nodes stay unchanged.
    return dce(replace(graph, constants=tuple(constants.values()), nodes=tuple(nodes)))


def _folded(node: Node, constants: dict[Value, Constant]) -> tuple[np.ndarray, ...] | None:
    """The results of a node; None if computing them raises an error, since a run may never reach
    the node.
    """
    try:
        return evaluate_op(node.op, *(logical_array(constants[v]) for v in node.inputs))
    except ModelError:
        return None


def _is_foldable(node: Node, constants: dict[Value, Constant], limit: int) -> bool:
    if (
        node.op.custom
        or isinstance(node.op, Control)
        or not node.op.is_static
        or not all(v in constants for v in node.inputs)
    ):
        return False
    if not node.op.is_static or not all(v.type.is_static for v in node.outputs):
        return False
    size = sum(_physical_bytes(v) for v in node.outputs)
    read = sum(_physical_bytes(v) for v in node.inputs)
    return size <= max(limit, GROWTH * read) or _only_repacks(node)


def _only_repacks(node: Node) -> bool:
    """Whether the results have no more bytes than the inputs, layouts aside.  Then only a layout's
    padding makes the constant larger, which is intended.
    """
    logical = sum(v.type.bytes for v in node.outputs)
    return logical <= sum(v.type.bytes for v in node.inputs)


def _physical_bytes(value: Value) -> int:
    shape = value.type.static_shape
    if value.layout is not None:
        shape = value.layout.physical_shape(shape)
    return math.prod(shape) * value.dtype.bytes


def _physical(value: Value, array: np.ndarray) -> np.ndarray:
    """`array` in the layout of `value`, contiguous.  It is a copy, since a view would keep its base
    alive.
    """
    if value.layout is not None and not value.layout.is_row_major:
        return value.layout.pack(array)
    is_own = array.base is None and array.flags.c_contiguous
    return array if is_own else np.array(array, order="C")
