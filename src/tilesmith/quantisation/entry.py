"""From a model of floats to a quantised one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Unpack

import numpy as np

from tilesmith.driver import compile
from tilesmith.driver.compiler import load_graph
from tilesmith.driver.session import Session
from tilesmith.graph.nodes import Graph
from tilesmith.ops.conv import Conv
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

from .costs import Costs
from .layers import Layer, layers_of, prepared
from .model import Distance, Reference, distance, observe
from .options import QuantizeChoices, QuantizeOptions
from .ranges import calibrated
from .report import LayerReport, QuantisationReport
from .samples import Samples
from .schemes import Scheme, Treatment, rewritten
from .simulate import Simulation
from .weights import QuantisedWeights, per_channel


def quantize(
    model: Any,
    data: Any = None,
    *,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
    **choices: Unpack[QuantizeChoices],
) -> tuple[Graph, QuantisationReport]:
    """Quantise the layers of a trained model; nothing is trained.

    model: as for `compile`, of floats.
    data: samples of its inputs: a folder of .npz or .npy files, one such file, or a sequence of
        mappings by name (of arrays, for a model with one input).  Schemes that measure nothing work
        without.
    shapes: fixed shapes of inputs whose dimensions the model leaves open.
    options: all options of compilation; its target is what layers are predicted for.
    choices: the fields of `QuantizeOptions` (docs/quantisation.md).

    The first result is a graph for `compile`, or for `save_onnx`.  The second says what was done to
    each layer; printed, it is a table.

    Raises UsageError for wrong choices, for missing samples, and where a layer's input is zero in
    all samples; ModelError for a sample that does not fit the model or is not finite; the errors of
    `compile`.
    """
    return quantize_model(model, data, QuantizeOptions(**choices), shapes, options)


def quantize_model(
    model: Any,
    data: Any,
    wanted: QuantizeOptions,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
) -> tuple[Graph, QuantisationReport]:
    """`quantize`, for choices that were made already."""
    session = Session.of(options)
    graph = prepared(load_graph(model, shapes, session))
    layers = layers_of(graph)
    if not layers:
        raise UsageError(
            "expected convolutions or matrix products of f32 with constant weights, found none: "
            "there is nothing to quantise"
        )
    samples = None if data is None else Samples(data, graph)
    return _Quantisation(wanted, session, graph, layers, samples).run()


@dataclass(slots=True)
class _Quantisation:
    """One quantisation.

    wanted: the user's choices.
    session: how programs are compiled.
    graph: the prepared model of floats, which has `layers`.
    samples: to calibrate on, if there are any.
    """

    wanted: QuantizeOptions
    session: Session
    graph: Graph
    layers: Sequence[Layer]
    samples: Samples | None

    def run(self) -> tuple[Graph, QuantisationReport]:
        """The quantised graph and its report."""
        options = self.session.options
        schemes = _schemes(self.layers, self.wanted)
        if self.samples is None and "int8" in schemes.values():
            raise UsageError(
                "scheme int8 fixes the ranges of activations, which takes samples: give data, or "
                "choose int8-dynamic or int8-weights"
            )
        reference = None
        if self.samples is not None:
            axes = {layer.input: layer.input_axis for layer in self.layers}
            reference = observe(self.graph, axes, self.samples, options)
        weights = {layer: per_channel(layer) for layer in self.layers if schemes[layer] != "f32"}
        chosen = {
            layer: self._treatment(layer, scheme, weights.get(layer), reference)
            for layer, scheme in schemes.items()
        }
        found = rewritten(self.graph, chosen)
        return found, self._report(found, chosen, reference)

    def _treatment(
        self,
        layer: Layer,
        scheme: Scheme,
        weights: QuantisedWeights | None,
        reference: Reference | None,
    ) -> Treatment:
        """How a layer is brought to a scheme.  Raises UsageError if its input is always zero."""
        if scheme == "f32" or weights is None:
            return Treatment()
        correction = by = None
        if reference is not None:
            seen = reference.observed[layer.input]
            if self.wanted.bias_correction:
                correction = _correction(layer, weights, seen.mean)
            if scheme == "int8":
                by = calibrated(seen, self.wanted.calibration, self.wanted.activation_type)
                if by is None:
                    raise UsageError(
                        f"the input of layer {layer.name!r} is zero in all samples, so it has no "
                        f"scale; give samples in which it is not, or pins={{{layer.name!r}: 'f32'}}"
                    )
        return Treatment(scheme, weights, by, correction)

    def _report(
        self, found: Graph, chosen: Mapping[Layer, Treatment], reference: Reference | None
    ) -> QuantisationReport:
        options = self.session.options
        costs = Costs(self.layers, self.session)
        alone: dict[Layer, Distance] = {}
        joint = value = float_value = drop = None
        if reference is not None and self.samples is not None:
            to = self.wanted.activation_type
            simulation = Simulation(self.graph, self.layers, to, options)
            for layer, treatment in chosen.items():
                alone[layer] = (
                    Distance.none()
                    if treatment.scheme == "f32"
                    else simulation.distance(self.samples, reference, {layer: treatment})
                )
            joint = distance(found, self.samples, reference, options)
            drop = 1 - joint.cosine
        if self.wanted.metric is not None:
            value, float_value = (
                self.wanted.metric(compile(g, options=options)) for g in (found, self.graph)
            )
            drop = float_value - value
        lines = [
            LayerReport(
                layer.name,
                t.scheme,
                t.input.low if t.input else None,
                t.input.high if t.input else None,
                alone[layer].decibels if alone else None,
                alone[layer].cosine if alone else None,
                costs.seconds(layer, t),
                costs.seconds(layer, Treatment()),
            )
            for layer, t in chosen.items()
        ]
        return QuantisationReport(
            lines,
            joint.decibels if joint else None,
            joint.cosine if joint else None,
            drop,
            value,
            float_value,
            sum(x.seconds for x in lines),
            sum(x.float_seconds for x in lines),
            len(reference.answers) if reference else 0,
        )


def _schemes(layers: Sequence[Layer], wanted: QuantizeOptions) -> dict[Layer, Scheme]:
    """The scheme of each layer.  Raises UsageError for a pin that no layer has."""
    found: dict[Layer, Any] = dict.fromkeys(layers, wanted.scheme)
    for pattern, scheme in (wanted.pins or {}).items():
        matched = [layer for layer in layers if fnmatchcase(layer.name, pattern)]
        if not matched:
            names = ", ".join(layer.name for layer in layers[:8])
            raise UsageError(f"pins: no layer is called {pattern!r}; layers are {names}, ...")
        found |= dict.fromkeys(matched, scheme)
    return found


def _correction(layer: Layer, weights: QuantisedWeights, mean: np.ndarray) -> np.ndarray:
    """Minus the mean error of a layer's result, per channel, for inputs of these means per channel
    (Nagel et al., Data-Free Quantization, 2019, section 4.2).
    """
    error = (weights.values - layer.weights).astype(np.float64)
    if isinstance(layer.node.op, Conv):
        per_input = error.reshape(*error.shape[:2], -1).sum(2)  # [OC, IC / groups]
        groups = layer.node.op.groups
        split = per_input.reshape(groups, -1, per_input.shape[1])
        return -np.einsum("goi,gi->go", split, mean.reshape(groups, -1)).reshape(-1)
    return -np.tensordot(error, mean, (1 - layer.channel_axis, 0))
