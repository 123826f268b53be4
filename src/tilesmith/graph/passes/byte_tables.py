"""Functions of one quantised number of 8 bits become tables of 256 entries.

    u8(clip(round(sigmoid(f32(i32(q) - z) * s) / t) + y))  ->  table[q]

Quantised models have functions such as a sigmoid, a GELU or x * sigmoid(x) between a dequantisation
and a quantisation.  A table holds the exact results of the operators' references.  Only functions
with a costly operator are worth a lookup.
"""

from __future__ import annotations

import numpy as np

from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import i32
from tilesmith.ir.types import same_shape
from tilesmith.ops.elementwise import Add, Cast, Elementwise
from tilesmith.ops.gather import Gather
from tilesmith.ops.structure import structure


def byte_tables(graph: Graph) -> Graph:
    """`graph` with tables for costly functions of one byte; the same object if there are none."""
    return Rewriter(graph, {Cast: (_table,)}).run()


def _table(r: Rewriter, n: Node) -> Result:
    """Replace a cast to 8 bits by a lookup, if each result depends on a single number of 8 bits."""
    result = n.outputs[0]
    if not _is_byte(result):
        return None
    function = _function(r, n)
    if function is None:
        return None
    source, nodes = function
    if not any(_is_costly(m) for m in nodes):
        return None
    values = np.arange(int(source.dtype.min), int(source.dtype.max) + 1, dtype=source.dtype.numpy)
    table = r.constant(_evaluated(r, source, values, nodes))
    place = r.add(Cast(i32), source)
    if source.dtype.min:
        place = r.add(Add(), place, r.constant(np.asarray(-int(source.dtype.min), np.int32)))
    return r.add(Gather(0), table, place)


def _is_byte(v: Value) -> bool:
    return v.dtype.is_int and v.dtype.bits == 8


def _function(r: Rewriter, last: Node) -> tuple[Value, list[Node]] | None:
    """The only value of 8 bits on which `last` depends, apart from constants, and the nodes from
    that value to `last`.
    """
    source: Value | None = None
    order: dict[Node, None] = {}
    left = [last]
    while left:
        node = left[-1]
        above = list[Node]()
        for v in node.inputs if node not in order else ():
            if r.is_constant(v):
                if not (v.type.size == 1 or _is_lookup(r, node)):
                    return None
                continue
            maker = r.producer(v)
            if _is_byte(v) and (maker is None or not _is_lookup(r, maker)):
                if source is not None and v is not source:
                    return None
                source = v
            elif maker is None or not _is_pointwise(r, maker, last):
                return None
            elif maker not in order:
                above.append(maker)
        if above:
            left += reversed(above)
        else:
            order[left.pop()] = None
    return (source, list(order)) if source is not None else None


def _is_lookup(r: Rewriter, node: Node) -> bool:
    """Whether `node` reads a table that this pass made."""
    return (
        isinstance(node.op, Gather)
        and r.is_constant(node.inputs[0])
        and node.inputs[0].shape == (256,)
        and _is_byte(node.outputs[0])
    )


def _is_pointwise(r: Rewriter, node: Node, last: Node) -> bool:
    is_function = isinstance(node.op, Elementwise) or _is_lookup(r, node)
    return is_function and same_shape(node.outputs[0].shape, last.outputs[0].shape)


def _is_costly(node: Node) -> bool:
    types = tuple(v.type for v in node.inputs)
    return isinstance(node.op, Gather) or structure(node.op, types).is_costly


def _evaluated(r: Rewriter, source: Value, values: np.ndarray, nodes: list[Node]) -> np.ndarray:
    """The result of the last of `nodes` for all `values` of `source`."""
    known: dict[Value, np.ndarray] = {source: values}

    def operand(node: Node, v: Value) -> np.ndarray:
        if v in known:
            return known[v]
        array = r.array(v)
        assert array is not None
        return array if _is_lookup(r, node) else array.reshape(())

    for node in nodes:
        (known[node.outputs[0]],) = evaluate_op(node.op, *(operand(node, v) for v in node.inputs))
    return known[nodes[-1].outputs[0]]
