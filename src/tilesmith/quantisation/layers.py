"""The layers of a model that may be quantised: convolutions and products with constant weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.cse import cse
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.graph.passes.fold import fold
from tilesmith.graph.passes.fold_batch_norm import fold_batch_norm
from tilesmith.ir.dtypes import f32
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import Gemm, MatMul
from tilesmith.ops.norm import BatchNorm

_PASSES: tuple[Callable[[Graph], Graph], ...] = (
    lambda g: decompose_only(g, lambda op: isinstance(op, (Gemm, BatchNorm))),
    fold,
    fold_batch_norm,
    cse,
    dce,
)


def prepared(graph: Graph) -> Graph:
    """`graph` with scales and shifts folded into weights.  Other operators are kept."""
    for run in _PASSES:
        graph = run(graph)
    return graph


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A product or convolution with constant weights.

    name: name of the layer's source node, made unique in the model.
    node: the node of the product or convolution.
    weights: values of the weights.  Those of a convolution have the shape [OC, IC / groups,
        kernel...].
    bias: the node that adds a constant vector to the layer's result, if there is one.
    """

    name: str
    node: Node
    weights: np.ndarray
    bias: Node | None

    @property
    def input(self) -> Value:
        """The operand that is multiplied with the weights."""
        return self.node.inputs[0]

    @property
    def output(self) -> Value:
        return self.node.outputs[0]

    @property
    def channel_axis(self) -> int:
        """The axis of the weights that corresponds to the results' channels."""
        if isinstance(self.node.op, Conv):
            return 0
        return 0 if isinstance(self.node.op, MatMul) and self.node.op.transpose_b else 1

    @property
    def input_axis(self) -> int:
        """The axis of the input that holds its channels."""
        return 1 if isinstance(self.node.op, Conv) else self.input.type.rank - 1

    @property
    def is_product(self) -> bool:
        return isinstance(self.node.op, MatMul)


def layers_of(graph: Graph) -> list[Layer]:
    """The layers of a prepared graph, in the order of its nodes."""
    layers: list[Layer] = []
    names: dict[str, int] = {}
    for n in graph.nodes:
        if not _is_layer(graph, n):
            continue
        name = n.loc or n.outputs[0].name or n.op.name
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name}.{names[name]}"
        weights = logical_array(graph.constant[n.inputs[1]])
        layers.append(Layer(name, n, weights, _bias(graph, n)))
    return layers


def _is_layer(graph: Graph, n: Node) -> bool:
    op = n.op
    if not isinstance(op, (Conv, MatMul)) or op.to is not None or n.outputs[0].dtype is not f32:
        return False
    x, w = n.inputs
    if x in graph.constant or w not in graph.constant or not w.type.is_static:
        return False
    if isinstance(op, MatMul):
        return w.type.rank == 2 and x.type.rank >= 2 and not op.transpose_a
    return True


def _bias(graph: Graph, n: Node) -> Node | None:
    """The only reader of `n`'s result if it adds a constant per channel, else None."""
    (out,) = n.outputs
    readers = graph.consumers.get(out, ())
    if len(readers) != 1 or out in graph.outputs or not isinstance(readers[0].op, Add):
        return None
    (add,) = readers
    if add.outputs[0].type != out.type:
        return None
    axis = 1 if isinstance(n.op, Conv) else out.type.rank - 1
    for v in add.inputs:
        if v in graph.constant and v.type.is_static:
            shape = (1,) * (out.type.rank - v.type.rank) + v.type.static_shape
            if math.prod(shape) == shape[axis]:
                return add
    return None
