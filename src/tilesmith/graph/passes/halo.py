"""Halos: borders of zeros, stored around values that their readers pad.

A padded convolution reads past the border of its input.  If the program computes that input, its
kernel can write it into the middle of a larger buffer with a border of zeros.  Then nothing is
copied, and no read needs a predicate.  The producer's kernel writes the border (`strategy.cpu`),
and the reader's kernel drops its predicates (`strategy.group`).
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.control import Control
from tilesmith.graph.nodes import Graph, Node, Value, with_values
from tilesmith.ir.layout import Layout
from tilesmith.ops.structure import stages, structure, zero_padding

from .choices import Choose, preferred

Pads = tuple[tuple[int, int], ...]


def add_halos(graph: Graph, choose: Choose = preferred) -> Graph:
    """`graph` with a halo on each computed value that a reader pads with zeros.  A value gets no
    halo if `choose` prefers readers with peeled borders.
    """
    wanted: dict[Value, Pads] = {}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value, pads in _padded_inputs(node):
            if _may_have_halo(graph, value):
                readers.setdefault(value, []).append(node)
                before = wanted.get(value, ((0, 0),) * len(pads))
                wanted[value] = tuple(
                    (max(a, c), max(b, d)) for (a, b), (c, d) in zip(before, pads, strict=True)
                )
    for value, padding in readers.items():
        about = (graph.producer[value], *dict.fromkeys(padding))
        if not choose("halo", about, (True, False), True):
            del wanted[value]
    if not wanted:
        return graph
    new = {v: replace(v, layout=_with_halo(v, pads)) for v, pads in wanted.items()}
    return with_values(graph, new)


def _padded_inputs(node: Node) -> list[tuple[Value, Pads]]:
    """The inputs that `node` pads with zeros, with their pads; empty if it is no contraction."""
    types = tuple(v.type for v in node.inputs)
    if structure(node.op, types).kind != "contraction":
        return []
    tensors = node.op.tensors(*types)
    value_of: dict[object, Value] = dict(zip(tensors.inputs, node.inputs, strict=True))
    paddings = filter(None, map(zero_padding, stages(tensors.outputs)))
    return [(value_of[load.buffer], pads) for load, pads in paddings if load.buffer in value_of]


def _may_have_halo(graph: Graph, value: Value) -> bool:
    producer = graph.producer.get(value)
    if producer is None or value in graph.outputs:
        return False  # the caller or a constant owns the memory
    if len(producer.outputs) != 1:
        return False
    if any(isinstance(n.op, Control) for n in graph.consumers[value]):
        return False
    return structure(producer.op, tuple(v.type for v in producer.inputs)).kind != "opaque"


def _with_halo(value: Value, pads: Pads) -> Layout:
    layout = value.layout or Layout.row_major(value.type.rank)
    dims = []
    for d in layout.dims:
        before, after = pads[d.axis]
        dims.append(replace(d, before=before, after=after) if d.part == "whole" else d)
    return Layout(tuple(dims))
