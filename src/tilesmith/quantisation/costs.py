"""Predicted cost of a layer in each scheme, by the performance model of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.driver.tuned import predicted_seconds
from tilesmith.graph.bind import expected_graph
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import DType
from tilesmith.ops.quantize import Dequantize
from tilesmith.perf.cost import Place, constants_place
from tilesmith.runtime.threads import thread_count

from .layers import Layer, layers_of
from .schemes import Scheme, Treatment, rewritten
from .weights import in_groups, per_channel


class Costs:
    """Predicted seconds of layers in their schemes.

    Each layer is predicted by itself, and equal layers only once.  The input of an int8 layer with
    a fixed range already consists of integers, since the layer before writes them.  Weights are
    read from the level of memory that holds the weights of all layers.
    """

    def __init__(self, layers: Sequence[Layer], to: DType, group: int, session: Session) -> None:
        self._session = session
        self._to = to
        self._group = group
        size = sum(layer.weights.nbytes for layer in layers)
        self._place: Place = constants_place(size, session.target)
        self._known: dict[tuple[object, ...], float] = {}

    def seconds(self, layer: Layer, scheme: Scheme) -> float:
        """The predicted time of a layer in a scheme, in seconds."""
        key = (layer.node.op, layer.input.type, layer.weights.shape, scheme)
        if key not in self._known:
            self._known[key] = self.of(self._alone(layer, scheme))
        return self._known[key]

    def of(self, graph: Graph) -> float:
        """The predicted time of all kernels of a graph at expected sizes, in seconds."""
        total = 0.0
        threads = thread_count(self._session.options.threads)
        for _, node in kernels_in(optimise(expected_graph(graph), self._session)):
            assert isinstance(node.op, Fused)
            constants = [i for i, v in enumerate(node.inputs) if v in graph.constant]
            group = self._session.group(node.op.body, constants)
            total += predicted_seconds(group, {}, self._session, threads, self._place)
        return total

    def _alone(self, layer: Layer, scheme: Scheme) -> Graph:
        """A graph of only one layer.  The values of its scales do not matter for the time."""
        b = Builder("layer")
        is_fixed = scheme == "int8"
        x = b.input(
            "x", replace(layer.input.type, dtype=self._to) if is_fixed else layer.input.type
        )
        if is_fixed:
            scale, zero = np.ones((), np.float32), np.zeros((), self._to.numpy)
            x = b.add(Dequantize(), x, b.constant(scale), b.constant(zero))
        y = b.add(layer.node.op, x, b.constant(layer.weights, "weights"))
        graph = b.finish(y)
        (alone,) = layers_of(graph)
        weights = None
        if scheme != "f32":
            is_narrow = scheme == "int4-weights"
            weights = in_groups(alone, self._group) if is_narrow else per_channel(alone)
        return rewritten(graph, {alone: Treatment(scheme, weights)})
