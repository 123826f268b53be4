"""The walk over a TFLite model, in which tensors become values and operators become nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED, Complex, Failed, Slot
from tilesmith.frontend.common.states import States
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.tflite.complex_numbers import on_complex
from tilesmith.frontend.tflite.model import Model, Operator, Subgraph, Tensor
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import import_function
from tilesmith.frontend.tflite.tensors import contents
from tilesmith.frontend.tflite.variables import written
from tilesmith.graph.nodes import Data, Value
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError, UnsupportedError


@dataclass(slots=True)
class Frame:
    """A call of a subgraph.

    graph: the subgraph.
    number: the subgraph's number in the model.
    depth: number of calls around this one.
    prefix: put in front of the names of nodes, for messages.
    values: the values of tensors so far, by the tensor's number.
    body: the builder that has these values.
    """

    graph: Subgraph
    number: int
    depth: int
    prefix: str
    body: FoldingBuilder
    values: dict[int, Slot] = field(default_factory=dict)


class TfliteImporter(Importer):
    """Imports one model."""

    def __init__(
        self, builder: FoldingBuilder, model: Model, new_weights: NewWeights | None = None
    ) -> None:
        """new_weights: new contents for the main function's stored tensors, by name."""
        super().__init__(builder)
        self.model = model
        self.states = States(builder)
        if len(model.signatures) > 1:
            self.states.shared = written(model)
        self._new_weights = new_weights or NewWeights()

    def frame(self, number: int, depth: int = 0, prefix: str = "") -> Frame:
        """A new call of subgraph `number`."""
        if depth > MAX_DEPTH:
            raise ModelError(f"subgraphs call one another more than {MAX_DEPTH} deep")
        return Frame(self.model.subgraph(number), number, depth, prefix, self.builder)

    def body(self, frame: Frame) -> list[Slot]:
        """Imports a subgraph whose inputs are in `frame`; returns its outputs."""
        for number, operator in enumerate(frame.graph.operators):
            self._node(number, operator, frame)
        return [self._slot(frame, t) for t in frame.graph.outputs]

    def call(self, number: int, frame: Frame, arguments: Sequence[Slot], loc: str) -> list[Slot]:
        """The outputs of a subgraph for `arguments`; its nodes are inlined."""
        inner = self.frame(number, frame.depth + 1, f"{loc}/")
        if len(arguments) != len(inner.graph.inputs):
            raise ModelError(
                f"subgraph {inner.graph.name!r}: expected {len(inner.graph.inputs)} inputs, found "
                f"{len(arguments)}"
            )
        inner.values |= dict(zip(inner.graph.inputs, arguments, strict=True))
        return self.body(inner)

    def nested(
        self, body: Body, number: int, frame: Frame, arguments: Sequence[Slot], loc: str
    ) -> list[Slot] | None:
        """The outputs of a subgraph whose nodes are added to `body`.  None if one of its operators
        is unsupported or invalid (see `within`).
        """
        return self.within(body, lambda: self.call(number, frame, arguments, loc))

    def _slot(self, frame: Frame, number: int) -> Slot:
        """The value of a tensor; a stored one becomes a constant when it is first read."""
        if number < 0:
            return None
        tensor = frame.graph.tensors[number]
        if tensor.is_variable:
            zeros = np.zeros(tensor.shape, tensor.dtype.numpy)
            name = _state_name(frame, tensor)
            return self.states.read(self.builder, (frame.number, number), name, zeros)
        if number not in frame.values:
            frame.values[number] = self._stored(frame, number)
        return frame.values[number]

    def _stored(self, frame: Frame, number: int) -> Slot:
        tensor = frame.graph.tensors[number]
        try:
            array = contents(self.model, tensor)
        except UnsupportedError as e:
            self.note(Site("stored tensor", "", tensor.name), e)
            return FAILED
        if array is None:
            raise ModelError(
                f"tensor {number} ({tensor.name!r}) of {frame.graph.name!r} is read, but no "
                "operator before computes it"
            )
        type_ = TensorType(tensor.dtype, array.shape)
        data = Data.of(np.asarray(array))
        if frame.depth == 0 and tensor.name:
            data = self._new_weights.data(tensor.name, type_, data)
        return self.builder.lazy_constant(type_, data, tensor.name)

    def _keep(self, frame: Frame, number: int, value: Value) -> None:
        """Set the value of a variable."""
        tensor = frame.graph.tensors[number]
        if not tensor.is_variable:
            raise ModelError(f"tensor {tensor.name!r}: expected a variable, found another tensor")
        name = _state_name(frame, tensor)
        self.states.write(self.builder, (frame.number, number), name, value)

    def _node(self, number: int, operator: Operator, frame: Frame) -> None:
        self.builder.count()
        tensors = frame.graph.tensors
        outputs = tuple(tensors[o] for o in operator.outputs)
        label = outputs[0].name if outputs else ""
        loc = f"{frame.prefix}{label or operator.name.lower()}"
        slots = tuple(self._slot(frame, i) for i in operator.inputs)
        node = TfliteNode(
            self.builder,
            loc,
            label,
            lambda called, arguments, at: self.call(called, frame, arguments, at),
            lambda body, called, arguments, at: self.nested(body, called, frame, arguments, at),
            slots,
            operator,
            tuple(tensors[i] if i >= 0 else None for i in operator.inputs),
            outputs,
            tuple(tensors[i] for i in operator.intermediates),
            lambda index, value: self._keep(frame, operator.inputs[index], value),
            self.states,
        )
        site = Site(operator.name, f"operator {number} of {frame.graph.name!r}", loc)
        results = self.attempt(site, lambda: self._results(node))
        for i, o in enumerate(operator.outputs):
            frame.values[o] = FAILED if results is None else results[i]

    def _results(self, node: TfliteNode) -> Sequence[Slot] | None:
        """An operator's outputs; None where an input failed.  Raises UnsupportedError."""
        operator = node.operator
        function = import_function(operator, node.has_quantized)
        if function is None:
            kind = "custom operator" if operator.kind == "CUSTOM" else "operator"
            of = " for quantised tensors" if node.has_quantized else ""
            raise UnsupportedError(f"the {kind} is not supported{of}")
        if any(isinstance(s, Failed) for s in node.slots):
            return None
        with self.builder.at(node.loc, node.label):
            is_complex = any(isinstance(s, Complex) for s in node.slots)
            made = on_complex(node, function) if is_complex else function(node)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) < len(operator.outputs):
            raise UnsupportedError(f"its output number {len(results) + 1} is not supported")
        for tensor, value in zip(node.output_tensors, results, strict=False):
            if isinstance(value, Value) and value.dtype is not tensor.dtype:
                raise UnsupportedError(
                    f"tensor {tensor.name!r} is declared as {tensor.dtype}; the operator gives "
                    f"{value.type}"
                )
        return results


def _state_name(frame: Frame, tensor: Tensor) -> str:
    """The name of a variable tensor among the states of all functions."""
    return f"{frame.graph.name}/{tensor.name}" if frame.number else tensor.name
