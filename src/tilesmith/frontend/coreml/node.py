"""The interface of an import function to one operation of an ML program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import Slot, kind_of
from tilesmith.frontend.common.states import States
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import BY_NAME, DType
from tilesmith.support.errors import ModelError

Argument: TypeAlias = "Slot | str | tuple[Any, ...]"
"""An argument of an operation: a value, a text, or several arguments."""

_DTYPE_NAMES = {"fp16": "f16", "fp32": "f32", "bool": "bool", "string": "string"} | {
    f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32)
}


@dataclass(slots=True, eq=False)
class MilNode(CallingNode):
    """One operation during import.

    kind: the operator.
    version: the release of its operator set, such as 15 for iOS15.
    arguments: its arguments by name.
    blocks: its nested blocks.
    count: the number of its outputs.
    states: the model's states.
    """

    kind: str
    version: int
    arguments: Mapping[str, Argument]
    blocks: Sequence[Message]
    count: int
    states: States

    def has(self, name: str) -> bool:
        return name in self.arguments

    def optional(self, name: str) -> Value | None:
        """The tensor argument `name`; None if it is left out."""
        argument = self.arguments.get(name)
        if isinstance(argument, tuple) and len(argument) == 1:
            argument = argument[0]
        if argument is None or isinstance(argument, Value):
            return argument
        kind = "a text or a list" if isinstance(argument, (str, tuple)) else kind_of(argument)
        raise ModelError(f"argument {name!r}: expected a tensor, found {kind}")

    def input(self, name: str) -> Value:
        """The required tensor argument `name`."""
        value = self.optional(name)
        return value if value is not None else self._missing(name)

    def _missing(self, name: str) -> Any:
        raise ModelError(f"expected argument {name!r}, which is required; found none")

    def slots(self, name: str) -> tuple[Slot, ...]:
        """The arguments bound to `name`."""
        argument = self.arguments.get(name, ())
        return argument if isinstance(argument, tuple) else (argument,)  # type: ignore[return-value]

    def values(self, name: str) -> tuple[Value, ...]:
        """The tensors bound to `name`, at least one."""
        values = tuple(s for s in self.slots(name) if isinstance(s, Value))
        if not values or len(values) < len(self.slots(name)):
            raise ModelError(f"argument {name!r}: expected tensors, found {len(values)}")
        return values

    def text(self, name: str, default: str | None = None, among: Sequence[str] = ()) -> str:
        """A text argument, which must be one of `among` if these are given."""
        text = self.arguments.get(name, default)
        if not isinstance(text, str):
            return self._missing(name) if text is None else self.bad(f"{name!r}: expected a text")
        if among and text not in among:
            self.unsupported(f"{name} {text!r}; supported are {', '.join(among)}")
        return text

    def number(self, name: str, default: float | None = None) -> Any:
        """A number that is known when the model is compiled."""
        value = self.optional(name)
        if value is None:
            return self._missing(name) if default is None else default
        return self.scalar(value, name)

    def int(self, name: str, default: int | None = None) -> int:
        return int(self.number(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.number(name, default))

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers that is known when the model is compiled."""
        value = self.optional(name)
        if value is None:
            return self._missing(name) if default is None else tuple(default)
        return self.int_list(value, name)

    def mask(self, name: str, rank: int) -> tuple[bool, ...]:
        """A list with a bool for each of `rank` axes; False by default."""
        value = self.optional(name)
        mask = np.zeros(rank, bool) if value is None else self.array(value, name)
        if mask.shape != (rank,):
            self.bad(f"{name}: expected {rank} bools, found {list(mask.shape)}")
        return tuple(map(bool, mask))

    def dtype(self, name: str, default: str | None = None) -> DType:
        """The element type that a text argument names."""
        return BY_NAME[_DTYPE_NAMES[self.text(name, default, tuple(_DTYPE_NAMES))]]

    def of(self, kind: str, **arguments: Any) -> MilNode:
        """The same node with another operator and other arguments.

        An argument is a value, a text, a number, an array or a list; None if it is left out.
        """
        made: dict[str, Argument] = {}
        for name, a in arguments.items():
            if a is None or isinstance(a, (Value, str)):
                made |= {} if a is None else {name: a}
            elif isinstance(a, (list, tuple)) and a and isinstance(a[0], Value):
                made[name] = tuple(a)
            else:
                array = np.asarray(a)
                if not array.size and array.dtype == np.float64:
                    array = array.astype(np.int64)
                made[name] = self.const(
                    array.astype(np.float32) if array.dtype == np.float64 else array
                )
        return replace(self, kind=kind, arguments=made)
