"""The interface of an import function to one call of an operator, and the table of operators.

A function is registered with `@relay_op("nn.conv2d")`.  It gets a `RelayNode` and returns the
call's result, a value or a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.relay.parse import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType

_HINTS = frozenset(
    {
        "attrs_type_key", "channels", "units", "kernel_size", "out_layout", "out_dtype",
        "auto_scheduler_rewritten_layout", "meta_schedule_original_shape",
    }
)  # fmt: skip
"""Attributes that are ignored: they follow from the operands, or are hints for TVM's scheduling."""


@dataclass(slots=True, eq=False)
class RelayNode(CallingNode):
    """One call of an operator during import.

    operator: its name.
    slots: its arguments: values, and tuples of them.
    attributes: its attributes: numbers, texts, None and tuples of these.
    """

    operator: str
    slots: tuple[Any, ...]
    attributes: Mapping[str, Any]
    _read: set[str] = field(default_factory=set)
    _read_slots: set[int] = field(default_factory=set)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All arguments; none may be a tuple."""
        return tuple(self.input(i) for i in range(len(self.slots)))

    def input(self, index: int) -> Value:
        """Argument number `index`, a tensor."""
        slot = self._slot(index)
        if not isinstance(slot, Value):
            self.bad(f"expected a tensor as argument number {index + 1}")
        return slot

    def items(self, index: int = 0) -> tuple[Value, ...]:
        """The elements of an argument that is a tuple of tensors."""
        slot = self._slot(index)
        if not isinstance(slot, tuple) or not all(isinstance(s, Value) for s in slot):
            self.bad(f"expected a tuple of tensors as argument number {index + 1}")
        return slot

    def _slot(self, index: int) -> Any:
        self._read_slots.add(index)
        return self.slots[index] if index < len(self.slots) else None

    # Attributes

    def has(self, name: str) -> bool:
        """Whether an attribute is given and is not None."""
        return self.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; `default` if it is left out.  It must have the Python type of `default`."""
        self._read.add(name)
        value = self.attributes.get(name)
        if value is None:
            return default
        if isinstance(default, float) and isinstance(value, int):
            value = float(value)
        if isinstance(default, bool) and value in (0, 1):
            value = bool(value)
        if default is not None and type(value) is not type(default):
            self.bad(f"attribute {name!r}: expected a {type(default).__name__}, found {value!r}")
        return value

    def int(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer; required without a default."""
        value = self.get(name, default)
        if not isinstance(value, int):
            self.bad(f"attribute {name!r}: expected an integer, found {value!r}")
        return value

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers, or one integer; required without a default."""
        value = self.get(name)
        value = default if value is None else value
        value = (value,) if isinstance(value, int) else value
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            self.bad(f"attribute {name!r}: expected integers, found {value!r}")
        return value

    def text(self, name: str, default: str, among: tuple[str, ...] = ()) -> str:
        """An attribute that is a text; it must be one of `among` if these are given."""
        value = self.get(name, default)
        if among and value not in among:
            self.unsupported(f"attribute {name!r} = {value!r}; supported are {', '.join(among)}")
        return value

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """An attribute that names an element type; required without a default."""
        text = self.get(name, "")
        dtype = default if text in ("", "void") else element_type(text)
        if dtype is None:
            self.bad(f"attribute {name!r}: expected an element type, found {text!r}")
        return dtype

    def check_all_read(self) -> None:
        """Raises UnsupportedError if the import function did not read an attribute that matters,
        ModelError if it did not read an argument.
        """
        unknown = sorted(k for k, v in self.attributes.items() if v is not None)
        unknown = [k for k in unknown if k not in self._read and k not in _HINTS]
        if unknown:
            self.unsupported(f"attribute {unknown[0]!r} = {self.attributes[unknown[0]]!r}")
        extra = [i for i in range(len(self.slots)) if i not in self._read_slots]
        if extra:
            self.bad(f"expected no argument number {extra[0] + 1}, found {len(self.slots)} in all")


ImportFunction: TypeAlias = Callable[[RelayNode], Any]

OPERATORS: Registry[ImportFunction] = Registry()
"""The operators by domain (always empty) and name."""

relay_op = OPERATORS.register
