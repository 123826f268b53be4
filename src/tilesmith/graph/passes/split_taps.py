"""Convolutions whose windows read mostly padding become sums over their taps.

A tap is one position of the kernel.  With a large dilation, most taps read the image at few
positions of the window (Chen et al., "Rethinking Atrous Convolution for Semantic Image
Segmentation", 2017, section 3.3), and padding at the others:

    conv(x, w)  ->  sum over taps of pad(conv1x1(crop(x), w[tap]))

Crops are negative pads of the 1x1 convolutions.  The result of each covers only the positions at
which its tap reads the image.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

from tilesmith.graph.builder import infer
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.slicing import Pad

from .dce import dce

PASS_CHANNELS = 16
"""Number of channels for which the products of a tap take as long as adding its result to the sum.
"""
MOST_WORK_LEFT = 0.7
"""Upper bound on the fraction of work that remains.  It is below 1, since splitting makes more and
smaller kernels.
"""

Tap = tuple[int, ...]


def split_taps(graph: Graph) -> Graph:
    """`graph` with dilated convolutions rewritten; the same object if there are none.

    These convolutions must be dilated, without strides and groups, with constant weights, and with
    an element type that is its own accumulator type.
    """
    made: list[Constant] = []
    nodes: list[Node] = []
    for node in graph.nodes:
        if _can_split(graph, node) and _is_worth_it(node):
            nodes += _split(graph, node, made)
        else:
            nodes.append(node)
    if not made:
        return graph
    return dce(replace(graph, constants=(*graph.constants, *made), nodes=tuple(nodes)))


def _can_split(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, Conv) or node.op.groups != 1:
        return False
    x, w = node.inputs
    dilated = any(d != 1 for d in node.op.dilations) and all(s == 1 for s in node.op.strides)
    known = x.type.is_static and w in graph.constant and w.layout is None
    return dilated and known and x.dtype in (f32, f64)


def _is_worth_it(node: Node) -> bool:
    shape = node.outputs[0].type.static_shape[2:]
    channels = node.inputs[0].type.static_shape[1]
    taps = _taps(node)
    whole = math.prod(shape) * math.prod(node.inputs[1].type.static_shape[2:])
    met = sum(math.prod(_result(shape, *_margins(node, tap))) for tap in taps)
    passes = (len(taps) - 1) * math.prod(shape)
    return met * channels + passes * PASS_CHANNELS < MOST_WORK_LEFT * whole * channels


def _taps(node: Node) -> list[Tap]:
    """The taps that read the image at some position of the window."""
    shape = node.outputs[0].type.static_shape[2:]
    kernel = node.inputs[1].type.static_shape[2:]
    taps = product(*(range(k) for k in kernel))
    return [t for t in taps if min(_result(shape, *_margins(node, t))) > 0]


def _margins(node: Node, tap: Tap) -> tuple[list[int], list[int]]:
    """Along each spatial axis, the numbers of result positions before and after those at which
    `tap` reads the image.

    A negative number -n means that the tap skips n image elements there.
    """
    assert isinstance(node.op, Conv)
    win = node.op.window(node.inputs[1].type.static_shape[2:])
    begins, ends = win.static_pads(node.op.name)
    before = [b - t * d for b, t, d in zip(begins, tap, win.dilations, strict=True)]
    rest = [k - 1 - t for k, t in zip(win.kernel, tap, strict=True)]
    after = [e - r * d for e, r, d in zip(ends, rest, win.dilations, strict=True)]
    return before, after


def _result(shape: tuple[int, ...], before: list[int], after: list[int]) -> list[int]:
    """The shape of the block of result positions at which a tap with these margins reads the
    image.
    """
    return [n - max(b, 0) - max(a, 0) for n, b, a in zip(shape, before, after, strict=True)]


def _split(graph: Graph, node: Node, made: list[Constant]) -> list[Node]:
    x, w = node.inputs
    nodes: list[Node] = []
    total: Value | None = None

    def add(op: Op, *inputs: Value) -> Value:
        (type_,) = infer(op, tuple(v.type for v in inputs))
        nodes.append(Node(op, inputs, (Value("", type_),), node.loc))
        return nodes[-1].outputs[0]

    for tap in _taps(node):
        before, after = _margins(node, tap)
        made.append(_weights_of(graph.constant[w], tap))
        crop = tuple(min(p, 0) for p in (*before, *after))
        part = add(Conv(pads=crop), x, made[-1].value)
        around = (0, 0, *(max(p, 0) for p in before), 0, 0, *(max(p, 0) for p in after))
        part = add(Pad(around), part) if any(around) else part
        total = part if total is None else add(Add(), total, part)
    if total is None:  # the whole window is padding
        return [node]
    nodes[-1] = replace(nodes[-1], outputs=node.outputs)
    return nodes


def _weights_of(weights: Constant, tap: Tap) -> Constant:
    shape = weights.value.type.static_shape
    type_ = TensorType(weights.value.dtype, (*shape[:2], *(1 for _ in tap)))
    value = Value(weights.value.name, type_)
    cut = (slice(None), slice(None), *(slice(t, t + 1) for t in tap))
    return Constant(value, Data(lambda: weights.data.read()[cut]))
