"""The interface of an import function to one ONNX node: its inputs as graph values, its attributes,
and the methods of `NodeContext` to add to the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.external import ExternalFiles
from tilesmith.frontend.common.operands import Operands
from tilesmith.frontend.common.slots import Scope, Slot
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.attributes import Attributes
from tilesmith.frontend.onnx.proto import text
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError


@dataclass(slots=True, eq=False)
class OnnxNode(Operands, CallingNode):
    """One node during import.

    Reading inputs and attributes goes through this class.  It raises ModelError for parts that are
    missing or of the wrong type and, at the end (`check_all_read`), for parts that the function did
    not read.

    op_type: the operator.
    version: version of the operator's opset.
    attributes: attributes by name.
    slots: the node's inputs.
    outputs: the names of its outputs ("" for one left out).
    files: external data of tensors in attributes.
    in_place: values that live in the memory of an input of the model, by name.
    scope: the names that the node sees.
    """

    op_type: str
    version: int
    attributes: Attributes
    slots: tuple[Slot, ...]
    outputs: tuple[str, ...]
    files: ExternalFiles
    in_place: frozenset[str] = frozenset()
    scope: Scope = field(default_factory=Scope)
    _inputs_read: int = field(default=0, init=False)

    # Inputs

    @property
    def all_slots(self) -> tuple[Slot, ...]:
        """All inputs, of any kind."""
        self._inputs_read = len(self.slots)
        return self.slots

    def slot(self, index: int) -> Slot:
        """Input number `index`, of any kind; None if it is omitted."""
        self._inputs_read = max(self._inputs_read, index + 1)
        return self.slots[index] if index < len(self.slots) else None

    def wants(self, index: int) -> bool:
        """Whether the model uses output number `index`."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def is_in_place(self, index: int) -> bool:
        """Whether output number `index` lives in the memory of an input of the model."""
        return self.wants(index) and self.outputs[index] in self.in_place

    @property
    def output_count(self) -> int:
        """The number of outputs that the node names, including omitted ones in the middle."""
        return len(self.outputs)

    def as_operator(
        self, op_type: str, version: int, slots: Sequence[Slot] | None = None
    ) -> OnnxNode:
        """The same node as another operator, with inputs `slots` (default: all of its own)."""
        return replace(
            self,
            op_type=op_type,
            version=version,
            slots=self.all_slots if slots is None else tuple(slots),
        )

    # Attributes

    def has(self, name: str) -> bool:
        return name in self.attributes.names

    def attr_int(self, name: str, default: int | None = None) -> int:
        value = self.attributes.get(name, at.INT)
        return int(self._given(name, default) if value is None else value)

    def attr_flag(self, name: str, default: bool = False) -> bool:
        """An int attribute that is 0 or 1."""
        value = self.attr_int(name, int(default))
        if value not in (0, 1):
            raise ModelError(f"attribute {name!r}: expected 0 or 1, found {value}")
        return bool(value)

    def attr_float(self, name: str, default: float | None = None) -> float:
        value = self.attributes.get(name, at.FLOAT)
        return float(self._given(name, default) if value is None else value)

    def attr_string(
        self, name: str, default: str | None = None, among: tuple[str, ...] = ()
    ) -> str:
        stored = self.attributes.get(name, at.STRING)
        value = (
            self._given(name, default) if stored is None else text(stored, f"attribute {name!r}")
        )
        if among and value not in among:
            raise ModelError(
                f"attribute {name!r}: expected one of {', '.join(among)}, found {value!r}"
            )
        return str(value)

    def attr_ints(self, name: str) -> tuple[int, ...] | None:
        """A list of ints; None when it is not given."""
        numbers = self.attributes.get(name, at.INTS)
        return None if numbers is None else tuple(int(i) for i in numbers)

    def attr_floats(self, name: str) -> tuple[float, ...] | None:
        numbers = self.attributes.get(name, at.FLOATS)
        return None if numbers is None else tuple(float(f) for f in numbers)

    def attr_strings(self, name: str) -> tuple[str, ...] | None:
        strings = self.attributes.get(name, at.STRINGS)
        return None if strings is None else tuple(text(s, f"attribute {name!r}") for s in strings)

    def ignore(self, *names: str) -> None:
        """Mark attributes as read that have no effect on the result, such as hints for training."""
        for name in names:
            self.attributes.find(name)

    def _given(self, name: str, default: Any) -> Any:
        if default is None:
            raise ModelError(f"expected attribute {name!r}, which is required; found none")
        return default

    def ints_or_input(self, name: str, index: int, since: int) -> tuple[int, ...] | None:
        """A list of ints: attribute `name` before opset `since`, else input number `index`."""
        if self.version < since:
            return self.attr_ints(name)
        value = self.optional(index)
        return None if value is None else self.int_list(value, name)

    def computed(self, name: str, index: int, since: int) -> Value | None:
        """Input number `index` if its contents are known only at run time; else None.

        since: the opset that added the input.  Before it, the result is None.
        """
        value = self.optional(index) if self.version >= since else None
        return None if value is None or self.is_known(value) else value

    def dims_or_input(self, name: str, index: int, since: int) -> tuple[Dim, ...] | None:
        """Like `ints_or_input`, for numbers or symbolic dimensions."""
        if self.version < since:
            return self.attr_ints(name)
        value = self.optional(index)
        return None if value is None else self.dims(value, name)

    def check_all_read(self) -> None:
        """Raises ModelError for attributes and inputs that the import function did not read."""
        if self.attributes.unread:
            raise ModelError(
                f"has unknown attributes {', '.join(map(repr, self.attributes.unread))}"
            )
        extra = [v for v in self.slots[self._inputs_read :] if v is not None]
        if extra:
            raise ModelError(
                f"expected at most {self._inputs_read} inputs, found {len(self.slots)}"
            )
