"""The model with any of its layers quantised, compiled once.

Weights, corrections and the maps of activations are inputs of the program.  So the effect of a
scheme on one layer is measured by a run with other inputs, without a compilation.  Activations are
rounded to the values that their integers represent, and multiplied as floats.  The results are the
same as with integers, up to the rounding of floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.driver import compile
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import DType, bool_, f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Clip, Div, Mul, Round, Sub, Where
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape
from tilesmith.support.options import Options

from .layers import Layer
from .model import Answers, Distance, Reference
from .ranges import affine
from .samples import Sample, Samples
from .schemes import Treatment


@dataclass(frozen=True, slots=True, eq=False)
class _Knobs:
    """The inputs of the program that control the treatment of a layer.

    on: whether the layer's input is rounded.
    scale, zero: the map of the layer's input to integers.
    weights: the layer's weights.
    correction: numbers that are added to the layer's result, per channel.
    """

    on: Value
    scale: Value
    zero: Value
    weights: Value
    correction: Value


class Simulation:
    """A compiled graph whose `layers` may each be quantised, with activations of type `to`."""

    def __init__(self, graph: Graph, layers: Sequence[Layer], to: DType, options: Options) -> None:
        self._to = to
        self._knobs = {layer: _knobs(layer, i) for i, layer in enumerate(layers)}
        by_output = {layer.output: k for layer, k in self._knobs.items()}

        def simulated(r: Rewriter, n: Node) -> Result:
            k = by_output.pop(n.outputs[0], None)
            return None if k is None else self._layer(r, n, k)

        inputs = [v for k in self._knobs.values() for v in _values(k)]
        opened = replace(graph, inputs=(*graph.inputs, *inputs))
        rules = {Conv: (simulated,), MatMul: (simulated,)}
        self._exe = compile(Rewriter(opened, rules).run(), options=options)
        self._as_is: dict[str, np.ndarray] = {}
        for layer in layers:
            self._as_is |= self._settings(layer, Treatment(), {})

    def run(
        self,
        sample: Sample,
        number: int,
        treatments: Mapping[Layer, Treatment],
        reference: Reference,
    ) -> Answers:
        """The answers to a sample, if these layers are treated.

        number: number of the sample in `reference`.

        Dynamic ranges are those of the model of floats.  For one treated layer they are exact, for
        several approximate.
        """
        inputs = {**self._as_is, **sample}
        ranges = {v: seen.ranges[number] for v, seen in reference.observed.items()}
        for layer, treatment in treatments.items():
            inputs |= self._settings(layer, treatment, ranges)
        return self._exe.run(inputs)

    def distance(
        self, samples: Samples, reference: Reference, treatments: Mapping[Layer, Treatment]
    ) -> Distance:
        """The distance of the answers from the reference's, if these layers are treated."""
        total = Distance.none()
        for number, (sample, expected) in enumerate(zip(samples, reference.answers, strict=True)):
            total.add(self.run(sample, number, treatments, reference), expected)
        return total

    def _settings(
        self, layer: Layer, t: Treatment, ranges: Mapping[Value, tuple[float, float]]
    ) -> dict[str, np.ndarray]:
        """The inputs for a layer's treatment.

        ranges: ranges of values, in place of those that a run of "int8-dynamic" computes.
        """
        by = t.input
        if t.scheme == "int8-dynamic":
            by = affine(*ranges[layer.input], self._to)
        k = self._knobs[layer]
        channels = layer.weights.shape[layer.channel_axis]
        correction = np.zeros(channels) if t.correction is None else t.correction
        return {
            k.on.name: np.asarray(by is not None),
            k.scale.name: np.asarray(by.scale if by else 1.0, np.float32),
            k.zero.name: np.asarray(by.zero if by else 0.0, np.float32),
            k.weights.name: layer.weights if t.weights is None else t.weights.values,
            k.correction.name: correction.astype(np.float32),
        }

    def _layer(self, r: Rewriter, n: Node, k: _Knobs) -> Value:
        x = n.inputs[0]
        q = r.add(Add(), r.add(Round(), r.add(Div(), x, k.scale)), k.zero)
        q = r.add(Clip(float(self._to.min), float(self._to.max)), q)
        rounded = r.add(Mul(), r.add(Sub(), q, k.zero), k.scale)
        y = r.add(n.op, r.add(Where(), k.on, rounded, x), k.weights)
        after = n.outputs[0].type.rank - 2 if isinstance(n.op, Conv) else 0
        return r.add(Add(), y, r.add(Reshape((-1, *[1] * after)), k.correction))


def _knobs(layer: Layer, number: int) -> _Knobs:
    def value(name: str, dtype: DType, *shape: int) -> Value:
        return Value(f"{name} {number}", TensorType(dtype, shape))

    channels = layer.weights.shape[layer.channel_axis]
    return _Knobs(
        value("on", bool_),
        value("scale", f32),
        value("zero", f32),
        value("weights", f32, *layer.weights.shape),
        value("correction", f32, channels),
    )


def _values(k: _Knobs) -> tuple[Value, ...]:
    return k.on, k.scale, k.zero, k.weights, k.correction
