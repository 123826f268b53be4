"""Graph pass: convolutions and dense layers of bytes that fit the accelerator run there.

    i8(clip(round(f32(conv(x, w, to=i32) - c) * s + t), -128, 127))
      ->  host(x, w, [-c, s, t]) {function=accelerator}

A dense layer is a convolution of 1 x 1 whose pixels are its rows.  A ReLU before the rounding is
the least result.  Numbers stay those of a CPU with fused multiply-adds, to the bit.  A layer of
another form, or without tiles that fit, stays on the CPU; the pass says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilesmith.graph.control import Host
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.left import LeftLayer
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import f32, i8, i32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Cast, Clip, Mul, Round, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.support.errors import ScheduleError

from .convolution import Convolution, compiled
from .hosted import NAME, settings
from .machine import Machine

NOT_QUANTISED = "its result isn't scaled and rounded to signed bytes with a zero point of 0"


def offload(graph: Graph, machine: Machine) -> tuple[Graph, tuple[LeftLayer, ...]]:
    """`graph` with layers on the accelerator, the same object if there are none; and the
    convolutions and matrix products that stay on the CPU.
    """
    reasons: dict[Value, str] = {}

    def cast(r: Rewriter, n: Node) -> Result:
        found = _layer(r, n, machine)
        if isinstance(found, _Left):
            reasons[found.product] = found.why
        if not isinstance(found, _Layer):
            return None
        try:
            kernel = compiled(found.conv, machine, low=found.low)
        except ScheduleError:
            reasons[found.node.outputs[0]] = "no tiles fit the buffers"
            return None
        made = found.add(r, settings(found.conv, kernel))
        return made if n.outputs[0].dtype is i8 else r.add(n.op, made)

    graph = Rewriter(graph, {Cast: (cast,)}).run()
    products = [n for n in graph.nodes if isinstance(n.op, (Conv, MatMul))]
    return graph, tuple(
        LeftLayer(n.loc, n.op.name, reasons.get(n.outputs[0]) or _reason(graph, n, machine))
        for n in products
    )


def _reason(graph: Graph, product: Node, machine: Machine) -> str:
    """Why a product that is no part of a layer stays on the CPU."""
    if isinstance(product.op, Conv):
        found = _shapes(product, machine, has_bias=False)
    else:
        constant = graph.constant.get(product.inputs[1])
        w = None if constant is None else logical_array(constant)
        found = _dense(product, w, has_bias=False)
    return found if isinstance(found, str) else NOT_QUANTISED


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution or a dense layer of the graph.

    node: the product.
    conv: its shapes.
    factors: the numbers of each channel, i32[2 or 3, outputs].
    low: its least result.
    result: the shape of the result.
    """

    node: Node
    conv: Convolution
    factors: np.ndarray
    low: int
    result: tuple[int, ...]

    def add(self, r: Rewriter, settings: str) -> Value:
        """The result of bytes, computed by the host function with these settings."""
        x, w = self.node.inputs
        factors, conv = r.constant(self.factors), self.conv
        if isinstance(self.node.op, Conv):
            op = Host(NAME, settings, (TensorType(i8, self.result),), "Conv")
            return r.add(op, x, w, factors)
        rows = conv.width
        x = r.add(Transpose((1, 0)), r.add(Reshape((rows, conv.inputs)), x))
        x = r.add(Reshape((1, conv.inputs, 1, rows)), x)
        array = r.array(w)
        assert array is not None and isinstance(self.node.op, MatMul)  # `_dense` asked for it
        array = array if self.node.op.transpose_b else array.T
        w = r.constant(np.ascontiguousarray(array)[:, :, None, None])
        op = Host(NAME, settings, (TensorType(i8, (1, conv.outputs, 1, rows)),), "MatMul")
        y = r.add(Reshape((conv.outputs, rows)), r.add(op, x, w, factors))
        return r.add(Reshape(self.result), r.add(Transpose((1, 0)), y))


class _Left(NamedTuple):
    """The result of a product that stays on the CPU, and why."""

    product: Value
    why: str


class _Chain:
    """Walks from a value to what it is computed from, through nodes that nothing else reads."""

    def __init__(self, r: Rewriter, value: Value) -> None:
        self.r = r
        self.value = value

    def step(self, kind: type[Op]) -> Node | None:
        """The node that computes the value, if it is of a kind; its first operand is next."""
        node = self.r.producer(self.value, kind)
        if node is None or not self.r.is_single_use(self.value):
            return None
        self.value = node.inputs[0]
        return node

    def constant(self, *kinds: type[Op]) -> tuple[Op, np.ndarray] | None:
        """The node of one of the kinds that computes the value, and its constant operand."""
        for kind in kinds:
            node = self.r.producer(self.value, kind)
            array = None if node is None else self.r.array(node.inputs[1])
            if node is not None and array is not None and self.step(kind):
                return node.op, array
        return None


def _layer(r: Rewriter, cast: Node, machine: Machine) -> _Layer | _Left | None:
    """The layer whose quantised result is that of a cast, or why its product is none; None if it
    has another form.
    """
    to = cast.outputs[0].dtype
    chain = _Chain(r, cast.inputs[0])
    clip = chain.step(Clip)
    if not to.is_int or clip is None or not isinstance(clip.op, Clip) or clip.op.max != i8.max:
        return None
    low = clip.op.min
    zero = r.producer(chain.value, Add)
    if zero is not None and r.splat(zero.inputs[1]) == 0:
        chain.step(Add)
    if low is None or low < i8.min or chain.step(Round) is None:
        return None
    least = _limited(chain, round(low))
    offset = chain.constant(Add) or (Add(), np.zeros((), np.float32))
    scale = chain.constant(Mul)
    wide = chain.step(Cast)
    if scale is None or wide is None or wide.outputs[0].dtype is not f32:
        return None
    bias = chain.constant(Sub, Add)
    node = chain.step(Conv) or chain.step(MatMul)
    result = [n for n in cast.outputs[0].shape if isinstance(n, int)]
    if node is None or len(result) < cast.outputs[0].type.rank:
        return None
    product = node.outputs[0]
    if least is None:
        return _Left(product, "its results are limited to less than 127 before they are rounded")
    if isinstance(node.op, Conv):
        conv = _shapes(node, machine, bias is not None)
    else:
        conv = _dense(node, r.array(node.inputs[1]), bias is not None)
    if isinstance(conv, str):
        return _Left(product, conv)
    rows = [a.astype(np.float32) for _, a in (scale, offset)]
    behind = 2 if isinstance(node.op, Conv) else 0
    factors = [_of_channels(a, conv.outputs, behind) for a in rows]
    if bias is not None:
        op, array = bias
        signed = -array if isinstance(op, Sub) else array
        factors.insert(0, _of_channels(signed.astype(np.int32), conv.outputs, behind))
    if any(a is None for a in factors):
        return _Left(product, "its bias, scale or offset isn't one number for each channel")
    words = np.stack([a.view(np.int32) for a in factors if a is not None])
    return _Layer(node, conv, words, least, tuple(result))


def _limited(chain: _Chain, low: int) -> int | None:
    """The least result after rounding, if limits before it are a least number only; else None.

    Rounding is monotone, so limits may be applied after it.
    """
    if chain.step(Relu):
        return max(low, 0)
    node = chain.step(Clip)
    if node is None:
        return low
    assert isinstance(node.op, Clip)
    least, most = node.op.min, node.op.max
    if most is not None and round(most) < i8.max:
        return None
    return low if least is None else max(low, round(least))


def _dense(node: Node, w: np.ndarray | None, has_bias: bool) -> Convolution | str:
    """The shapes of a product of bytes with a constant matrix, or why the accelerator can't
    compute it.

    w: the second operand, if it is constant.
    """
    op, x = node.op, node.inputs[0]
    assert isinstance(op, MatMul)
    extents = [n for n in x.shape if isinstance(n, int)]
    if why := _operands(node):
        return why
    if w is None or w.ndim != 2:
        return "its second operand isn't a constant matrix"
    if op.transpose_a or x.type.rank < 2:
        return "its rows are no rows of its first operand"
    return Convolution(
        inputs=extents[-1], outputs=w.shape[0 if op.transpose_b else 1], height=1,
        width=math.prod(extents[:-1]), has_bias=has_bias,
    )  # fmt: skip


def _shapes(node: Node, machine: Machine, has_bias: bool) -> Convolution | str:
    """The shapes of a convolution of bytes with two spatial axes, or why the accelerator can't
    compute it.
    """
    op, (x, w) = node.op, node.inputs
    assert isinstance(op, Conv)
    if why := _operands(node):
        return why
    sizes = [n for n in (*x.shape, *w.shape) if isinstance(n, int)]
    strides = set(op.strides or (1, 1))
    if len(sizes) != 8:
        return f"it has {x.type.rank - 2} spatial axes, not 2"
    if set(op.dilations) - {1}:
        return "its kernel is dilated"
    if len(strides) > 1:
        return "its strides differ"
    _, inputs, height, width, outputs, _, kh, kw = sizes
    if op.groups > 1 and inputs != outputs:
        return "its groups have other numbers of outputs than of inputs"
    pads = op.pads or (0,) * 4
    padding = pads[0], pads[1], pads[2], pads[3]
    conv = Convolution(
        inputs=inputs, outputs=outputs, height=height, width=width, kernel=(kh, kw),
        stride=strides.pop(), padding=padding, has_bias=has_bias, groups=op.groups,
    )  # fmt: skip
    if machine.block_out % conv.group and conv.groups > 1:
        return f"its groups of {conv.group} channels don't divide blocks of {machine.block_out}"
    if not conv.has_blocks(machine):
        return (
            f"it has groups, and blocks of {machine.block_in} inputs don't divide blocks of "
            f"{machine.block_out} results"
        )
    return conv


def _operands(node: Node) -> str:
    """Why the matrix unit doesn't multiply the operands of a product; "" if it does."""
    x, w = node.inputs
    types = [v.dtype.name for v in (x, w)]
    if not x.dtype is w.dtype is i8:
        return f"its operands are {' and '.join(dict.fromkeys(types))}, not signed bytes"
    if node.outputs[0].dtype is not i32:
        return f"its sums are {node.outputs[0].dtype.name}, not i32"
    if not (x.type.is_static and w.type.is_static):
        return "its shapes are open"
    return "" if x.type.size and w.type.size else "it has no elements"


def _of_channels(array: np.ndarray, channels: int, behind: int) -> np.ndarray | None:
    """A constant as one number for each channel, if it has the shape of one.

    behind: number of the result's axes behind that of the channels.
    """
    if array.size == 1:
        return np.full(channels, array.ravel()[0], array.dtype)
    axis = array.ndim - 1 - behind
    is_channels = array.size == channels and axis >= 0 and array.shape[axis] == channels
    return array.ravel() if is_channels else None
