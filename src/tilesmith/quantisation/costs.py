"""What a layer costs in each scheme, as the performance model predicts its kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.driver.tuned import predicted_seconds
from tilesmith.graph.bind import expected_graph
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import DType
from tilesmith.ir.types import TensorType
from tilesmith.ops.quantize import Dequantize
from tilesmith.perf.cost import Place, constants_place
from tilesmith.runtime.threads import thread_count

from .layers import Layer, layers_of
from .schemes import Treatment, rewritten


class Costs:
    """Predicted seconds of layers.

    Layers are predicted one by one, with a fixed int8 layer's input in integers: the layer before
    writes them in its own kernel.  Equal layers are predicted once.  Weights lie where those of the
    whole model fit.
    """

    def __init__(self, layers: Sequence[Layer], session: Session) -> None:
        self._session = session
        size = sum(layer.weights.nbytes for layer in layers)
        self._place: Place = constants_place(size, session.target)
        self._known: dict[tuple[object, ...], float] = {}

    def seconds(self, layer: Layer, treatment: Treatment) -> float:
        """The predicted time of a layer that is treated so."""
        is_fixed = treatment.input is not None
        key = (layer.node.op, layer.input.type, layer.weights.shape, treatment.scheme, is_fixed)
        if key not in self._known:
            self._known[key] = self.of(_alone(layer, treatment))
        return self._known[key]

    def of(self, graph: Graph) -> float:
        """The predicted time of all kernels of a graph, at expected sizes."""
        total = 0.0
        threads = thread_count(self._session.options.threads)
        for _, node in kernels_in(optimise(expected_graph(graph), self._session)):
            assert isinstance(node.op, Fused)
            constants = [i for i, v in enumerate(node.inputs) if v in graph.constant]
            group = self._session.group(node.op.body, constants)
            total += predicted_seconds(group, {}, self._session, threads, self._place)
        return total


def _alone(layer: Layer, treatment: Treatment) -> Graph:
    """A graph of nothing but one layer."""
    b = Builder("layer")
    x = b.input("x", _input_type(layer, treatment))
    if treatment.input is not None:
        by = treatment.input
        scale, zero = np.asarray(by.scale, np.float32), np.asarray(by.zero, by.to.numpy)
        x = b.add(Dequantize(), x, b.constant(scale), b.constant(zero))
    y = b.add(layer.node.op, x, b.constant(layer.weights, "weights"))
    graph = b.finish(y)
    (found,) = layers_of(graph)
    return rewritten(graph, {found: _without_input(treatment)})


def _input_type(layer: Layer, treatment: Treatment) -> TensorType:
    dtype: DType = layer.input.dtype if treatment.input is None else treatment.input.to
    return TensorType(dtype, layer.input.type.shape)


def _without_input(t: Treatment) -> Treatment:
    return Treatment(t.scheme, t.weights)
