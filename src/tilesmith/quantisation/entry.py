"""The entry of quantisation: from a model of floats to a quantised graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Unpack

import numpy as np

from tilesmith.driver.compiler import load_graph
from tilesmith.driver.request import Request
from tilesmith.driver.session import Session
from tilesmith.graph.nodes import Graph
from tilesmith.ops.conv import Conv
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

from .balance import balanced
from .costs import Costs
from .layers import Layer, layers_of, prepared
from .model import Reference, observe
from .options import AUTO, QuantizeChoices, QuantizeOptions
from .ranges import calibrated
from .report import QuantisationReport
from .samples import Samples
from .schemes import SCHEMES, Scheme, Treatment, rewritten
from .trial import Trial
from .weights import QuantisedWeights, in_groups, per_channel


@checked(UsageError)
def quantize(
    model: Any,
    data: Any = None,
    *,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
    **choices: Unpack[QuantizeChoices],
) -> tuple[Graph, QuantisationReport]:
    """Quantise the layers of a trained model; nothing is trained.

    model: as for `compile`; its types are floats.
    data: samples of the model's inputs: a folder of .npz or .npy files, one such file, or a
        sequence of mappings from names to arrays (or of arrays, for a model with one input).
        Schemes that measure nothing work without samples.
    shapes: fixed shapes of inputs whose dimensions the model leaves open.
    options: all options of compilation.  The time of layers is predicted for its target.
    choices: the fields of `QuantizeOptions` (docs/quantisation.md).

    Returns a graph for `compile` or `save_onnx`, and a report with the scheme of each layer.  The
    report prints as a table.

    Raises UsageError for wrong choices, for missing samples, and if a layer's input is zero in all
    samples.  Raises ModelError for a sample that does not match the model's inputs or is not
    finite.  Raises the errors of `compile`.
    """
    request = Request.of(model, options, shapes=shapes)
    return quantize_model(request, data, QuantizeOptions(**choices))


def quantize_model(
    request: Request, data: Any, wanted: QuantizeOptions
) -> tuple[Graph, QuantisationReport]:
    """`quantize` with the choices as one value."""
    session = Session.of_request(request)
    graph = prepared(load_graph(request, session))
    layers = layers_of(graph)
    if not layers:
        raise UsageError(
            "expected convolutions or matrix products of f32 with constant weights, found none: "
            "there is nothing to quantise"
        )
    samples = None if data is None else Samples(data, graph)
    if samples is not None and wanted.balance and wanted.scheme in (AUTO, "int8", "int8-dynamic"):
        axes = {layer.input: layer.input_axis for layer in layers}
        reference = observe(graph, axes, samples, session.options)
        graph = balanced(graph, layers, reference.observed)
        layers = layers_of(graph)
    return _Quantisation(wanted, session, graph, layers, samples).run()


@dataclass(slots=True)
class _Quantisation:
    """One quantisation of one model.

    wanted: the user's choices.
    session: the settings of compilation.
    graph: the prepared model of floats.
    layers: the layers of `graph` that may be quantised.
    samples: samples for calibration, if there are any.
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
        needed = {"int8", AUTO} & {self.wanted.scheme, *(self.wanted.pins or {}).values()}
        if self.samples is None and needed:
            raise UsageError(
                f"scheme {min(needed)} takes samples: give data, or choose int8-dynamic or "
                "int8-weights"
            )
        costs = Costs(self.layers, self.wanted.activation_type, self.wanted.group, self.session)
        if self.wanted.scheme == AUTO:
            schemes = {layer: _faster(layer, several, costs) for layer, several in schemes.items()}
        reference = None
        if self.samples is not None:
            axes = {layer.input: layer.input_axis for layer in self.layers}
            narrow = {k.input for k, several in schemes.items() if "int4-weights" in several}
            reference = observe(self.graph, axes, self.samples, options, narrow)
        treatments = {
            layer: self._treatments(layer, several, reference) for layer, several in schemes.items()
        }
        trial = Trial(self.wanted, options, self.graph, self.layers, self.samples, reference)
        if self.wanted.scheme == AUTO:
            chosen = trial.assign(treatments, costs)
        else:
            chosen = {layer: several[0] for layer, several in treatments.items()}
        quantised = rewritten(self.graph, chosen)
        return quantised, trial.report(quantised, chosen, costs)

    def _treatments(
        self, layer: Layer, schemes: Sequence[Scheme], reference: Reference | None
    ) -> list[Treatment]:
        """The treatment of a layer by each scheme.  An input that is always zero rules out int8;
        raises UsageError if no other scheme is allowed.
        """
        treatments: list[Treatment] = []
        seen = None if reference is None else reference.observed[layer.input]
        for scheme in schemes:
            if scheme == "f32":
                treatments.append(Treatment())
                continue
            by = correction = None
            if scheme == "int4-weights":
                moments = None if seen is None else seen.moments
                weights = in_groups(layer, self.wanted.group, moments)
            else:
                weights = per_channel(layer)
            if seen is not None and self.wanted.bias_correction:
                correction = _correction(layer, weights, seen.mean)
            if scheme == "int8":
                assert seen is not None
                by = calibrated(seen, self.wanted.calibration, self.wanted.activation_type)
                if by is None and len(schemes) > 1:
                    continue
                if by is None:
                    raise UsageError(
                        f"the input of layer {layer.name!r} is zero in all samples, so it has no "
                        f"scale; give samples in which it is not, or pins={{{layer.name!r}: 'f32'}}"
                    )
            treatments.append(Treatment(scheme, weights, by, correction))
        return treatments


def _faster(layer: Layer, schemes: Sequence[Scheme], costs: Costs) -> tuple[Scheme, ...]:
    """The schemes that are predicted to be faster than f32, and f32 itself."""
    if len(schemes) == 1:
        return (*schemes,)
    plain = costs.seconds(layer, "f32")
    return tuple(s for s in schemes if s == "f32" or costs.seconds(layer, s) < plain)


def _schemes(layers: Sequence[Layer], wanted: QuantizeOptions) -> dict[Layer, tuple[Scheme, ...]]:
    """The schemes that each layer may have.  Raises UsageError for a pin that matches no layer."""
    all_: Any = SCHEMES if wanted.scheme == AUTO else (wanted.scheme,)
    allowed: dict[Layer, Any] = dict.fromkeys(layers, all_)
    for layer in layers:
        if not layer.is_product:  # only matrix products can have weights in groups
            allowed[layer] = tuple(s for s in all_ if s != "int4-weights") or ("f32",)
    for pattern, scheme in (wanted.pins or {}).items():
        matched = [layer for layer in layers if fnmatchcase(layer.name, pattern)]
        if not matched:
            names = ", ".join(layer.name for layer in layers[:8])
            raise UsageError(f"pins: no layer is called {pattern!r}; layers are {names}, ...")
        for layer in matched:
            if scheme == "int4-weights" and not layer.is_product:
                raise UsageError(
                    f"pins: layer {layer.name!r} is a convolution; int4-weights is for products"
                )
            allowed[layer] = (scheme,)
    return allowed


def _correction(layer: Layer, weights: QuantisedWeights, mean: np.ndarray) -> np.ndarray:
    """Minus the mean error of a layer's result, per channel.  `mean` is the mean of the layer's
    input, per channel (Nagel et al., Data-Free Quantization, 2019, section 4.2).
    """
    error = (weights.values - layer.weights).astype(np.float64)
    if isinstance(layer.node.op, Conv):
        per_input = error.reshape(*error.shape[:2], -1).sum(2)  # [OC, IC / groups]
        groups = layer.node.op.groups
        split = per_input.reshape(groups, -1, per_input.shape[1])
        return -np.einsum("goi,gi->go", split, mean.reshape(groups, -1)).reshape(-1)
    return -np.tensordot(error, mean, (1 - layer.channel_axis, 0))
