"""The schemes for a layer, and the nodes that each scheme inserts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.pool import MaxPool
from tilesmith.ops.quantize import Dequantize, DynamicQuantize, Quantize
from tilesmith.ops.shape import Flatten, Reshape, Squeeze, Transpose, Unsqueeze

from .layers import Layer
from .ranges import Affine
from .weights import QuantisedWeights

Scheme: TypeAlias = Literal["f32", "int8", "int8-dynamic", "int8-weights", "int4-weights"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
"""Schemes of a layer.  "f32": unchanged.  "int8": integers for activations and weights.
"int8-dynamic": the same, with ranges of activations computed in each run.  "int8-weights": integers
only for weights.  "int4-weights": the same with 4 bits, in groups, only for matrix products.
"""

_MOVEMENT: tuple[type[Op], ...] = (MaxPool, Reshape, Transpose, Flatten, Squeeze, Unsqueeze)
"""Operators that give the same result whether values are quantised before or after them."""


@dataclass(frozen=True, slots=True, eq=False)
class Treatment:
    """The treatment of one layer.

    scheme: one of `SCHEMES`.
    weights: the weights as integers; None if they stay floats.
    input: the map of the layer's input to integers; None unless its range is fixed.
    correction: constants that are added to the layer's result, per channel; None for no correction.
    """

    scheme: Scheme = "f32"
    weights: QuantisedWeights | None = None
    input: Affine | None = None
    correction: np.ndarray | None = None


def rewritten(graph: Graph, treatments: Mapping[Layer, Treatment]) -> Graph:
    """`graph` with each layer treated; the same object if no layer changes."""
    emitter = _Emitter()
    rules = {Conv: (emitter.layer,), MatMul: (emitter.layer,), Add: (emitter.bias,)}
    for layer, treatment in treatments.items():
        if treatment.scheme != "f32":
            emitter.treated[layer.output] = (layer, treatment)
            if layer.bias is not None and treatment.correction is not None:
                emitter.biases[layer.bias.outputs[0]] = (layer, treatment.correction)
    return Rewriter(graph, rules).run()


@dataclass(slots=True)
class _Emitter:
    """The rules that insert quantising nodes around layers.

    treated: layers and their treatments, by the layer's result.
    biases: layers and the corrections of their biases, by the result of the bias's addition.
    quantised: the values quantised and dequantised so far, by the original value and its map to
        integers (None for a dynamic range).
    """

    treated: dict[Value, tuple[Layer, Treatment]] = field(default_factory=dict)
    biases: dict[Value, tuple[Layer, np.ndarray]] = field(default_factory=dict)
    quantised: dict[tuple[Value, Affine | None], Value] = field(default_factory=dict)

    def layer(self, r: Rewriter, n: Node) -> Result:
        """The layer on dequantised operands, with its correction if it has no bias."""
        treated = self.treated.get(n.outputs[0])
        if treated is None:
            return None
        layer, treatment = treated
        x = n.inputs[0]
        if treatment.scheme == "int8-dynamic":
            x = self._dynamic(r, x)
        elif treatment.input is not None:
            x = self._fixed(r, x, treatment.input)
        assert treatment.weights is not None
        y = r.add(n.op, x, _dequantized(r, treatment.weights))
        if layer.bias is None and treatment.correction is not None:
            y = r.add(Add(), y, r.constant(_along_channels(layer, treatment.correction)))
        return y

    def bias(self, r: Rewriter, n: Node) -> Result:
        """The addition of a layer's bias, with the correction added to the bias."""
        corrected = self.biases.pop(n.outputs[0], None)
        if corrected is None:
            return None
        layer, correction = corrected
        constant = next(v for v in n.inputs if r.is_constant(v))
        (other,) = (v for v in n.inputs if v is not constant)
        old = r.array(constant)
        assert old is not None
        return r.add(Add(), other, r.constant(old + _along_channels(layer, correction)))

    def _fixed(self, r: Rewriter, x: Value, by: Affine) -> Value:
        """`x`, quantised and dequantised.  If operators that only move elements produce `x`, they
        move quantised bytes: the quantisation goes before them.
        """
        if (x, by) not in self.quantised:
            scale = r.constant(np.asarray(by.scale, np.float32))
            zero = r.constant(np.asarray(by.zero, by.to.numpy))
            moves: list[Op] = []
            source = x
            while (node := r.producer(source, *_MOVEMENT)) and r.is_single_use(source):
                moves.append(node.op)
                source = node.inputs[0]
            q = r.add(Quantize(by.to), source, scale, zero)
            for op in reversed(moves):
                q = r.add(op, q)
            self.quantised[x, by] = r.add(Dequantize(), q, scale, zero)
        return self.quantised[x, by]

    def _dynamic(self, r: Rewriter, x: Value) -> Value:
        if (x, None) not in self.quantised:
            self.quantised[x, None] = r.add(Dequantize(), *r.add(DynamicQuantize(), x))
        return self.quantised[x, None]


def _dequantized(r: Rewriter, w: QuantisedWeights) -> Value:
    zero = r.constant(np.zeros(w.scales.shape, w.to.numpy))
    integers, scales = r.constant(w.integers), r.constant(w.scales)
    return r.add(Dequantize(w.axis, w.block), integers, scales, zero)


def _along_channels(layer: Layer, vector: np.ndarray) -> np.ndarray:
    """A vector over the channels of a layer's result, in a shape that broadcasts to the result."""
    after = layer.output.type.rank - 2 if isinstance(layer.node.op, Conv) else 0
    return vector.astype(np.float32).reshape(-1, *[1] * after)
