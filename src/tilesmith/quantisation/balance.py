"""Channel scales that move from activations into weights where this reduces the quantisation error.

The largest channel determines the range of a whole tensor, so few integers represent the other
channels.  For any s > 0 per channel

    layer(x, w)  =  layer(x / s, w * s)

with w * s along the layer's inputs.  So large channels of x become smaller.  The weights become
larger instead, but they have a scale per channel of the result.  The division costs nothing where
other constants in the producer of x can absorb it:

    layer norm          its scale and bias are divided           (Xiao et al., SmoothQuant, 2022)
    a layer and Relu    its weights and bias are divided         (Nagel et al., Data-Free
                                                                  Quantization, 2019)
    anything else       a multiplication, which fuses with the producer; for products only

s is max|x|^a / max|w|^(1-a), with the exponent a of least expected error; s is 1 if no exponent
reduces the error enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ops.activation import LeakyRelu, Relu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Mul
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import LayerNorm
from tilesmith.ops.pool import AvgPool, MaxPool

from .histogram import Observed
from .layers import Layer

_EXPONENTS = (0.25, 0.5, 0.75)
_FREE, _PAID = 0.9, 0.5
"""Upper bounds on the fraction of the expected error that may remain.  The first holds if a norm
or a layer absorbs the division, the second if the division needs a node of its own.
"""
_HOMOGENEOUS: tuple[type[Op], ...] = (Relu, LeakyRelu, MaxPool, AvgPool)
"""Operators f with f(x / s) = f(x) / s for every s > 0 per channel."""


def balanced(graph: Graph, layers: Sequence[Layer], observed: Mapping[Value, Observed]) -> Graph:
    """An equivalent graph in which the channels that layers read have more equal magnitudes; the
    same object if no layer gains.
    """
    readers: dict[Value, list[Layer]] = {}
    for layer in layers:
        readers.setdefault(layer.input, []).append(layer)
    plan = _Plan()
    made_by = {layer.output: layer for layer in layers}
    for x, several in readers.items():
        alone = x not in graph.outputs and len(graph.consumers.get(x, ())) == len(several)
        source = _source(graph, x, made_by) if alone else None
        if source is None and not all(k.is_product for k in several):
            continue
        s = _scales(several, observed[x], _PAID if source is None else _FREE)
        if s is None:
            continue
        plan.read |= dict.fromkeys((k.output for k in several), s)
        if source is None:
            plan.divided |= dict.fromkeys((k.output for k in several), s)
        elif isinstance(source, Layer):
            plan.made[source.output] = s
            if source.bias is not None:
                plan.biases[source.bias.outputs[0]] = s
        else:
            plan.norms[source.outputs[0]] = s
    return plan.apply(graph)


def _source(graph: Graph, x: Value, made_by: Mapping[Value, Layer]) -> Layer | Node | None:
    """The norm or the layer that can absorb a division of `x`; None if there is none.  Only layers
    may read `x`.
    """
    while (node := graph.producer.get(x)) is not None:
        if isinstance(node.op, LayerNorm):
            whole = node.op.axis in (-1, x.type.rank - 1) and not node.op.with_stats
            return node if whole and all(v in graph.constant for v in node.inputs[1:]) else None
        if x in made_by:
            return made_by[x]
        if isinstance(node.op, Add):
            layer = next((made_by[v] for v in node.inputs if v in made_by), None)
            return layer if layer is not None and layer.bias is node else None
        if not isinstance(node.op, _HOMOGENEOUS):
            return None
        (x,) = node.inputs
        if len(graph.consumers.get(x, ())) != 1 or x in graph.outputs:
            return None
    return None


def _scales(layers: Sequence[Layer], seen: Observed, worth: float) -> np.ndarray | None:
    """Divisors of the input's channels.  None if more than the fraction `worth` of the expected
    error would remain.
    """
    assert seen.largest is not None and seen.squares is not None
    x = seen.largest.astype(np.float64)
    w = np.max([_input_largest(layer) for layer in layers], 0).astype(np.float64)
    live = (x > 0) & (w > 0)
    best, least = None, worth * _expected_error(layers, seen, np.ones(len(x)))
    for exponent in _EXPONENTS:
        s = np.ones(len(x))
        s[live] = x[live] ** exponent / w[live] ** (1 - exponent)
        s[live] /= np.exp(np.log(s[live]).mean()) if live.any() else 1.0
        error = _expected_error(layers, seen, s)
        if error < least:
            best, least = s.astype(np.float32), error
    return best


def _by_input(layer: Layer, w: np.ndarray) -> np.ndarray:
    """Weights as [IC, others].  In a grouped convolution, the row of an input channel has only the
    weights of its group.
    """
    if isinstance(layer.node.op, Conv):
        groups = layer.node.op.groups
        split = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
        return np.moveaxis(split, 2, 1).reshape(groups * w.shape[1], -1)
    return w if layer.channel_axis == 1 else w.T


def _input_largest(layer: Layer) -> np.ndarray:
    return np.abs(_by_input(layer, layer.weights)).max(1)


def _expected_error(layers: Sequence[Layer], seen: Observed, s: np.ndarray) -> float:
    """The expected squared error of the results, up to a constant factor.  It comes from rounding
    the weights, and from rounding the input with the step size of its largest channel.
    """
    assert seen.largest is not None and seen.squares is not None
    step = float((seen.largest / s).max()) / 255
    power = float((seen.squares / max(seen.count, 1) / np.square(s)).sum())
    total = 0.0
    for layer in layers:
        w = _scaled(layer, s)
        others = tuple(a for a in range(w.ndim) if a != layer.channel_axis)
        steps = np.abs(w).max(others) / 127
        taps = w[0, 0].size if isinstance(layer.node.op, Conv) else 1
        share = 1 / layer.node.op.groups if isinstance(layer.node.op, Conv) else 1.0
        total += step**2 * float(np.square(w).sum())
        total += float(np.square(steps).sum()) * power * taps * share
    return total


def _scaled(layer: Layer, s: np.ndarray) -> np.ndarray:
    """The weights, multiplied by `s` along their input channels."""
    w = layer.weights
    if isinstance(layer.node.op, Conv):
        groups = layer.node.op.groups
        split = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        by = s.reshape(groups, 1, w.shape[1], *[1] * (w.ndim - 2))
        return (split * by).reshape(w.shape)
    return w * (s[:, None] if layer.channel_axis == 1 else s)


@dataclass(slots=True)
class _Plan:
    """Factors and divisors s, by the result of the node that changes.

    read: layers whose weights are multiplied along their input channels.
    divided: layers whose input is divided by a node of its own.
    made: layers whose weights are divided along their result channels.
    biases: additions whose constant is divided.
    norms: layer norms whose scale and bias are divided.
    """

    read: dict[Value, np.ndarray] = field(default_factory=dict)
    divided: dict[Value, np.ndarray] = field(default_factory=dict)
    made: dict[Value, np.ndarray] = field(default_factory=dict)
    biases: dict[Value, np.ndarray] = field(default_factory=dict)
    norms: dict[Value, np.ndarray] = field(default_factory=dict)

    def apply(self, graph: Graph) -> Graph:
        """The graph with all changes made."""
        layers = (self.layer,)
        rules = {Conv: layers, MatMul: layers, Add: (self.bias,), LayerNorm: (self.norm,)}
        return Rewriter(graph, rules).run()

    def layer(self, r: Rewriter, n: Node) -> Result:
        """A layer with scaled weights, on a divided input if the plan says so."""
        (out,) = n.outputs
        if out not in self.read and out not in self.made:
            return None
        x, w = n.inputs
        array = r.array(w)
        assert array is not None
        layer = Layer("", n, array, None)
        if out in self.made:
            axis, by = layer.channel_axis, self.made[out]
            array = array / by.reshape(-1, *[1] * (array.ndim - axis - 1))
            layer = Layer("", n, array, None)
        if out in self.read:
            array = _scaled(layer, self.read[out])
        if out in self.divided:
            x = r.add(Mul(), x, r.constant((1 / self.divided[out]).astype(np.float32)))
        return r.add(n.op, x, r.constant(array.astype(np.float32)))

    def bias(self, r: Rewriter, n: Node) -> Result:
        """The addition of a layer's bias, with the bias divided."""
        by = self.biases.pop(n.outputs[0], None)
        if by is None:
            return None
        constant = next(v for v in n.inputs if r.is_constant(v))
        (other,) = (v for v in n.inputs if v is not constant)
        array = r.array(constant)
        assert array is not None
        producer = r.producer(other)
        is_conv = producer is not None and isinstance(producer.op, Conv)
        after = other.type.rank - 2 if is_conv else 0
        divided = array / by.reshape(-1, *[1] * after)
        return r.add(Add(), other, r.constant(divided.astype(np.float32)))

    def norm(self, r: Rewriter, n: Node) -> Result:
        """The norm with its results divided: the divisors go into its scale and bias."""
        by = self.norms.pop(n.outputs[0], None)
        if by is None:
            return None
        x, *vectors = n.inputs
        divided = []
        for v in vectors:
            array = r.array(v)
            assert array is not None
            divided.append(r.constant((array / by).astype(np.float32)))
        return r.add(n.op, x, *divided)
