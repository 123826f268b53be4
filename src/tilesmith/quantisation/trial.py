"""The effects of treatments on a model's answers: for single layers, and for all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tilesmith.driver import compile
from tilesmith.graph.nodes import Graph
from tilesmith.support.options import Options

from .assign import Option, cheapest
from .costs import Costs
from .layers import Layer
from .model import Distance, Reference, distance
from .options import QuantizeOptions
from .report import LayerReport, QuantisationReport
from .samples import Samples
from .schemes import Treatment, rewritten
from .simulate import Simulation


class Trial:
    """Measurements on one model of floats.  Each is made only once."""

    def __init__(
        self,
        wanted: QuantizeOptions,
        options: Options,
        graph: Graph,
        layers: Sequence[Layer],
        samples: Samples | None,
        reference: Reference | None,
    ) -> None:
        self._wanted = wanted
        self._options = options
        self._graph = graph
        self._layers = layers
        self._samples = samples
        self._reference = reference
        self._alone: dict[tuple[Layer, str], Distance] = {}

    @cached_property
    def _simulation(self) -> Simulation:
        to = self._wanted.activation_type
        return Simulation(self._graph, self._layers, to, self._options)

    @cached_property
    def _float_value(self) -> float:
        """The metric of the model of floats."""
        assert self._wanted.metric is not None
        return self._wanted.metric(compile(self._graph, options=self._options))

    def alone(self, layer: Layer, treatment: Treatment) -> Distance | None:
        """The distance of the answers if only this layer is treated; None without samples."""
        if self._samples is None or self._reference is None:
            return None
        if treatment.scheme == "f32":
            return Distance.none()
        key = (layer, treatment.scheme)
        if key not in self._alone:
            one = {layer: treatment}
            self._alone[key] = self._simulation.distance(self._samples, self._reference, one)
        return self._alone[key]

    def assign(
        self, treatments: Mapping[Layer, Sequence[Treatment]], costs: Costs
    ) -> dict[Layer, Treatment]:
        """A treatment for each layer, with the least predicted time within the limit of loss."""
        by_scheme: dict[Layer, dict[str, Treatment]] = {
            k: {t.scheme: t for t in several} for k, several in treatments.items()
        }
        options: dict[Layer, list[Option]] = {}
        for layer, several in treatments.items():
            options[layer] = []
            for t in several:
                distance = self.alone(layer, t)
                assert distance is not None
                options[layer].append(
                    Option(t.scheme, costs.seconds(layer, t.scheme), distance.ratio)
                )

        def treated(chosen: Mapping[Layer, str]) -> dict[Layer, Treatment]:
            return {layer: by_scheme[layer][scheme] for layer, scheme in chosen.items()}

        def keeps(chosen: Mapping[Layer, str]) -> bool:
            return self._drop(rewritten(self._graph, treated(chosen))) <= self._wanted.max_drop

        return treated(cheapest(options, keeps))

    def _drop(self, graph: Graph) -> float:
        """The loss of the metric, or of the answers' cosine similarity."""
        metric = self._wanted.metric
        if metric is not None:
            return self._float_value - metric(compile(graph, options=self._options))
        return 1 - self._distance(graph).cosine

    def _distance(self, graph: Graph) -> Distance:
        """The distance of a graph's answers from those of the model of floats."""
        assert self._samples is not None and self._reference is not None
        return distance(graph, self._samples, self._reference, self._options)

    def report(
        self, found: Graph, chosen: Mapping[Layer, Treatment], costs: Costs
    ) -> QuantisationReport:
        """The scheme of each layer, its cost and its gain."""
        joint = None if self._reference is None else self._distance(found)
        has_metric = self._wanted.metric is not None
        drop = self._drop(found) if has_metric else None if joint is None else 1 - joint.cosine
        lines = []
        for layer, t in chosen.items():
            far = self.alone(layer, t)
            lines.append(
                LayerReport(
                    layer.name,
                    t.scheme,
                    t.input.low if t.input else None,
                    t.input.high if t.input else None,
                    far.decibels if far else None,
                    far.cosine if far else None,
                    costs.seconds(layer, t.scheme),
                    costs.seconds(layer, "f32"),
                )
            )
        return QuantisationReport(
            lines,
            joint.decibels if joint else None,
            joint.cosine if joint else None,
            drop,
            self._float_value - drop if has_metric and drop is not None else None,
            self._float_value if has_metric else None,
            sum(x.seconds for x in lines),
            sum(x.float_seconds for x in lines),
            len(self._reference.answers) if self._reference else 0,
        )
