"""The interface of an import function to one TFLite operator: its inputs as graph values, what the
file declares about its tensors, its options, and the methods of `NodeContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.slots import Slot, kind_of
from tilesmith.frontend.tflite.model import Operator, Quantization, Tensor
from tilesmith.frontend.tflite.states import States
from tilesmith.graph.nodes import Value
from tilesmith.support.errors import ModelError


@dataclass(slots=True, eq=False)
class TfliteNode(CallingNode):
    """One operator during import.

    operator: the operator as the file states it.
    slots: its inputs; None for one that is left out.
    input_tensors: declarations of the inputs; None for one that is left out.
    output_tensors: declarations of the outputs.
    intermediate_tensors: declarations of the values inside the operator.
    keep: sets the value of a variable, given by its index among the inputs.
    states: the model's variables.
    """

    operator: Operator
    slots: tuple[Slot, ...]
    input_tensors: tuple[Tensor | None, ...]
    output_tensors: tuple[Tensor, ...]
    intermediate_tensors: tuple[Tensor, ...]
    keep: Callable[[int, Value], None]
    states: States

    # Inputs

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs of an operator that takes any number of them; none may be left out."""
        return tuple(self.input(i) for i in range(len(self.slots)))

    def input(self, index: int) -> Value:
        """Required input number `index`."""
        value = self.optional(index)
        if value is None:
            raise ModelError(f"expected input number {index + 1}, which is required; found none")
        return value

    def optional(self, index: int) -> Value | None:
        """Input number `index`; None if it is left out."""
        slot = self.slots[index] if index < len(self.slots) else None
        if slot is None or isinstance(slot, Value):
            return slot
        raise ModelError(f"expected a tensor as input number {index + 1}, found {kind_of(slot)}")

    # Declarations

    def input_tensor(self, index: int) -> Tensor:
        """Declaration of required input number `index`."""
        tensor = self.input_tensors[index] if index < len(self.input_tensors) else None
        if tensor is None:
            raise ModelError(f"expected input number {index + 1}, which is required; found none")
        return tensor

    def output_tensor(self, index: int = 0) -> Tensor:
        """Declaration of output number `index`."""
        if index >= len(self.output_tensors):
            raise ModelError(f"expected output number {index + 1}, found none")
        return self.output_tensors[index]

    def quantization(self, tensor: Tensor) -> Quantization:
        """A tensor's quantisation.  Raises ModelError if it has none."""
        if tensor.quantization is None:
            raise ModelError(f"tensor {tensor.name!r}: expected a scale and zero point, found none")
        return tensor.quantization

    @property
    def is_quantized(self) -> bool:
        """Whether the first output holds quantised numbers."""
        return self.output_tensor().is_quantized

    @property
    def has_quantized(self) -> bool:
        """Whether an input or output holds quantised numbers."""
        return any(t is not None and t.is_quantized for t in self.input_tensors) or any(
            t.is_quantized for t in self.output_tensors
        )

    # Options

    def option(self, name: str) -> Any:
        """An option; 0 if the operator has no options at all.

        Raises ModelError if its options are of another kind.
        """
        options = self.operator.options
        if options is None:
            return 0
        if not options.has_field(name):
            raise ModelError(f"expected options with {name!r}, found {options.table_name}")
        return getattr(options, name)

    def options(self, name: str) -> tuple[int, ...]:
        """An option that is a list of integers; empty if it is left out."""
        numbers = self.option(name)
        return tuple(map(int, numbers)) if isinstance(numbers, np.ndarray) else ()

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """The name in `among` for an option that is a number."""
        number = self.option(name)
        if not 0 <= number < len(among):
            raise ModelError(
                f"option {name!r}: expected one of {', '.join(among)}, found number {number}"
            )
        return among[number]
