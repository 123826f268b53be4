"""The interface of an import function to one TFLite operator: its inputs as graph values, what the
file declares about its tensors, its options, and the methods of `NodeContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.hlo.node import HloNode
from tilesmith.frontend.common.states import States
from tilesmith.frontend.tflite.model import Operator, Quantization, Tensor
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError


@dataclass(slots=True, eq=False)
class TfliteNode(HloNode):
    """One operator during import.

    operator: the operator as the file states it.
    input_tensors: declarations of the inputs; None for one that is left out.
    output_tensors: declarations of the outputs.
    intermediate_tensors: declarations of the values inside the operator.
    keep: sets the value of a variable, given by its index among the inputs.
    states: the model's variables.
    """

    operator: Operator
    input_tensors: tuple[Tensor | None, ...]
    output_tensors: tuple[Tensor, ...]
    intermediate_tensors: tuple[Tensor, ...]
    keep: Callable[[int, Value], None]
    states: States

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

    @property
    def kind(self) -> str:
        return self.operator.kind.lower()

    @property
    def output_count(self) -> int:
        return len(self.output_tensors)

    def output_dtype(self, index: int = 0) -> DType:
        return self.output_tensor(index).dtype

    def output_dims(self, index: int = 0) -> tuple[int, ...] | None:
        return self.output_tensor(index).dims

    @property
    def stored_zero(self) -> int:
        return self.quantization(self.output_tensor()).zero_point if self.is_quantized else 0

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

    def called(self, name: str) -> int:
        return self.option(f"{name}_subgraph_index")

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """The name in `among` for an option that is a number."""
        number = self.option(name)
        if not 0 <= number < len(among):
            raise ModelError(
                f"option {name!r}: expected one of {', '.join(among)}, found number {number}"
            )
        return among[number]
