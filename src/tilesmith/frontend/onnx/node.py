"""What an operator's import function sees:

one node, its inputs as graph values, and means to add to the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.attributes import Attributes
from tilesmith.frontend.onnx.errors import ValuesNeededError
from tilesmith.frontend.onnx.proto import text
from tilesmith.frontend.onnx.slots import Slot, kind_of
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType
from tilesmith.ops.base import Op
from tilesmith.support.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from tilesmith.frontend.onnx.importer import Frame, Importer


class NodeContext:
    """One node while it is imported.

    Reading inputs and attributes goes through this class, which raises ModelError for what is
    missing or of the wrong type and, at the end (`check_all_read`), for what the function did not
    look at.
    """

    def __init__(
        self,
        importer: Importer,
        op_type: str,
        version: int,
        attributes: Attributes,
        inputs: tuple[Slot, ...],
        outputs: tuple[str, ...],
        loc: str,
        frame: Frame,
    ) -> None:
        self.importer = importer
        self.op_type = op_type
        self.version = version
        self.attributes = attributes
        self.loc = loc
        self.frame = frame
        self._inputs = inputs
        self._outputs = outputs
        self._inputs_read = 0

    # Inputs

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs of an operator that takes any number of them; none may be left out."""
        self._inputs_read = len(self._inputs)
        return tuple(self._required(self._tensor(v, i), i) for i, v in enumerate(self._inputs))

    @property
    def optional_inputs(self) -> tuple[Value | None, ...]:
        """All inputs, None for each that is left out."""
        self._inputs_read = len(self._inputs)
        return tuple(self._tensor(v, i) for i, v in enumerate(self._inputs))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All inputs, whatever they hold."""
        self._inputs_read = len(self._inputs)
        return self._inputs

    def slot(self, index: int) -> Slot:
        """Input number `index`, whatever it holds; None when it is left out."""
        self._inputs_read = max(self._inputs_read, index + 1)
        return self._inputs[index] if index < len(self._inputs) else None

    def input(self, index: int) -> Value:
        """Required input number `index`."""
        return self._required(self.optional(index), index)

    def optional(self, index: int) -> Value | None:
        """Input number `index`; None when it is left out."""
        return self._tensor(self.slot(index), index)

    def _tensor(self, slot: Slot, index: int) -> Value | None:
        if slot is None or isinstance(slot, Value):
            return slot
        raise ModelError(f"expected a tensor as input number {index + 1}, found {kind_of(slot)}")

    def _required(self, value: Value | None, index: int) -> Value:
        if value is None:
            raise ModelError(f"expected input number {index + 1}, which is required; found none")
        return value

    def wants(self, index: int) -> bool:
        """Whether the model uses output number `index`."""
        return index < len(self._outputs) and bool(self._outputs[index])

    @property
    def output_count(self) -> int:
        """Number of outputs that the node names, left-out ones in the middle included."""
        return len(self._outputs)

    # Attributes

    def has(self, name: str) -> bool:
        return name in self.attributes.names

    def attr_int(self, name: str, default: int | None = None) -> int:
        found = self.attributes.get(name, at.INT)
        return int(self._given(name, default) if found is None else found)

    def attr_flag(self, name: str, default: bool = False) -> bool:
        """An int attribute that is 0 or 1."""
        found = self.attr_int(name, int(default))
        if found not in (0, 1):
            raise ModelError(f"attribute {name!r}: expected 0 or 1, found {found}")
        return bool(found)

    def attr_float(self, name: str, default: float | None = None) -> float:
        found = self.attributes.get(name, at.FLOAT)
        return float(self._given(name, default) if found is None else found)

    def attr_string(
        self, name: str, default: str | None = None, among: tuple[str, ...] = ()
    ) -> str:
        found = self.attributes.get(name, at.STRING)
        value = self._given(name, default) if found is None else text(found, f"attribute {name!r}")
        if among and value not in among:
            raise ModelError(
                f"attribute {name!r}: expected one of {', '.join(among)}, found {value!r}"
            )
        return str(value)

    def attr_ints(self, name: str) -> tuple[int, ...] | None:
        """A list of ints; None when it is not given."""
        found = self.attributes.get(name, at.INTS)
        return None if found is None else tuple(int(i) for i in found)

    def attr_floats(self, name: str) -> tuple[float, ...] | None:
        found = self.attributes.get(name, at.FLOATS)
        return None if found is None else tuple(float(f) for f in found)

    def attr_strings(self, name: str) -> tuple[str, ...] | None:
        found = self.attributes.get(name, at.STRINGS)
        return None if found is None else tuple(text(s, f"attribute {name!r}") for s in found)

    def ignore(self, *names: str) -> None:
        """Declares that attributes have no meaning for the result (hints for training)."""
        for name in names:
            self.attributes.find(name)

    def _given(self, name: str, default: Any) -> Any:
        if default is None:
            raise ModelError(f"expected attribute {name!r}, which is required; found none")
        return default

    # The graph

    def add(self, op: Op, *inputs: Value) -> Any:
        """The value (tuple of values) of an operator;

        computed at once when its inputs are small constants.
        """
        return self.importer.add(op, inputs, self.loc)

    def const(self, array: Any, dtype: DType | None = None) -> Value:
        """A constant; `dtype` gives the element type of Python numbers."""
        return self.importer.constant(
            np.asarray(array, dtype=dtype.numpy if dtype is not None else None)
        )

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value that does not depend on the model's inputs, else None."""
        return self.importer.known(value)

    def array(self, value: Value, what: str) -> np.ndarray:
        """The contents of `value`, needed now for `what` ("axes").

        Raises ValuesNeededError when unknown.
        """
        found = self.importer.known(value)
        if found is None:
            names = self.importer.inputs_behind(value)
            of = (
                f"it is computed from input {', '.join(map(repr, names))}"
                if names
                else "it is not known"
            )
            raise ValuesNeededError(
                f"the value of {what} must be known when the model is compiled; {of} "
                "(give the input a constant value with values={name: array})",
                names,
            )
        return found

    def int_list(self, value: Value, what: str) -> tuple[int, ...]:
        """The contents of a 1-D (or scalar) integer value as ints."""
        found = self.array(value, what)
        if found.dtype.kind not in "iu" or found.ndim > 1:
            raise ModelError(f"{what}: expected a list of integers, found {value.type}")
        return tuple(int(i) for i in found.reshape(-1))

    def scalar(self, value: Value, what: str) -> Any:
        """The contents of a value of one element, as a Python number."""
        found = self.array(value, what)
        if found.size != 1:
            raise ModelError(f"{what}: expected one number, found {value.type}")
        return found.reshape(-1)[0].item()

    def ints_or_input(self, name: str, index: int, since: int) -> tuple[int, ...] | None:
        """A list that is attribute `name` before opset `since` and input number `index` from then
        on.
        """
        if self.version < since:
            return self.attr_ints(name)
        value = self.optional(index)
        return None if value is None else self.int_list(value, name)

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """An axis as a number from 0;

        negative ones count from the end. Raises ModelError out of range.
        """
        if not -rank <= axis < rank:
            raise ModelError(
                f"{what}: expected -{rank} to {rank - 1} for rank {rank}, found {axis}"
            )
        return axis % rank if rank else 0

    def axes(self, axes: tuple[int, ...], rank: int, what: str = "axes") -> tuple[int, ...]:
        """Several distinct axes, as `axis`."""
        found = tuple(self.axis(a, rank, what) for a in axes)
        if len(set(found)) != len(found):
            raise ModelError(f"{what}: expected distinct axes, found {list(axes)}")
        return found

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of a value as numbers."""
        return value.type.static_shape

    # Errors

    def bad(self, message: str) -> NoReturn:
        raise ModelError(message)

    def unsupported(self, message: str) -> NoReturn:
        raise UnsupportedError(message)

    def check_all_read(self) -> None:
        """Raises ModelError for attributes and inputs that the import function did not look at."""
        if self.attributes.unread:
            raise ModelError(
                f"has unknown attributes {', '.join(map(repr, self.attributes.unread))}"
            )
        extra = [v for v in self._inputs[self._inputs_read :] if v is not None]
        if extra:
            raise ModelError(
                f"expected at most {self._inputs_read} inputs, found {len(self._inputs)}"
            )
