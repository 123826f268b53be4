"""One call of a layer or an operation, as import functions see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.slots import FAILED, Failed
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.keras.weights import Weights
from tilesmith.graph.nodes import Data, Value
from tilesmith.ir.dtypes import DType, bf16, bool_, dtype, f16, f32, f64, i32
from tilesmith.ir.types import TensorType
from tilesmith.ops.shape import Unsqueeze
from tilesmith.support.errors import ExpressionError

_REQUIRED = object()
_RANKS = (bool_, *map(dtype, ("u8", "i8", "u16", "i16", "u32", "i32", "i64")), f16, bf16, f32, f64)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the model.

    value: its value; FAILED if it could not be made.
    mask: bools over its first axes, true for the elements that count; None if all elements count.
    """

    value: Value | Failed
    mask: Value | None = None


def leaves(tree: Any) -> Iterator[Any]:
    """The elements of nested lists and dictionaries, in order."""
    if isinstance(tree, dict):
        tree = [tree[k] for k in sorted(tree, key=str)]
    elif not isinstance(tree, (list, tuple)):
        yield tree
        return
    for item in tree:
        yield from leaves(item)


@dataclass(slots=True, eq=False)
class KerasNode(NodeContext):
    """A call of a layer.

    kind: the layer's class.
    config: its configuration.
    weights: its weights.
    args: the call's positional arguments: tensors, numbers, and lists of them.
    kwargs: its named arguments.
    major: the version of Keras.
    new: new contents of weights, by name.
    call: imports a call of a layer inside this layer, from its serialised form, its weights and
        the call's arguments.
    """

    kind: str
    config: dict[str, Any]
    weights: Weights
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    major: int
    call: Callable[..., Any]
    new: NewWeights

    # Arguments

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the positional and then the named arguments."""
        return [t for t in leaves([self.args, self.kwargs]) if isinstance(t, Tensor)]

    @property
    def inputs(self) -> list[Value]:
        """The values of `tensors`."""
        return [t.value for t in self.tensors if isinstance(t.value, Value)]

    def input(self, index: int = 0) -> Value:
        """Tensor number `index`.  Raises ModelError if there are fewer."""
        inputs = self.inputs
        if index >= len(inputs):
            self.bad(f"expected at least {index + 1} inputs, found {len(inputs)}")
        return inputs[index]

    def mask(self, index: int = 0) -> Value | None:
        """The mask of tensor number `index`."""
        tensors = self.tensors
        passed = self.kwargs.get("mask")
        if index == 0 and isinstance(passed, Tensor) and isinstance(passed.value, Value):
            return passed.value.cast(bool_)
        return tensors[index].mask if index < len(tensors) else None

    def argument(self, name: str, position: int | None = None, default: Any = _REQUIRED) -> Any:
        """An argument of the call, by position or by name, or else an entry of the configuration.

        Raises ModelError for an argument that is missing and has no default.
        """
        entry = self.config.get(name, default)
        if position is not None and position < len(self.args):
            entry = self.args[position]
        entry = self.kwargs.get(name, entry)
        if entry is _REQUIRED:
            self.bad(f"expected {name!r} in the configuration, found none")
        return entry.value if isinstance(entry, Tensor) else entry

    def option(self, name: str, default: Any = _REQUIRED, kind: type = object) -> Any:
        """An entry of the configuration, of a Python type `kind`.

        Raises ModelError for an entry of another type, or that is missing and has no default.
        """
        entry = self.argument(name, None, default)
        if kind is float and isinstance(entry, int):
            entry = float(entry)
        if not isinstance(entry, kind) or (kind is int and isinstance(entry, bool)):
            self.bad(f"{name!r}: expected {kind.__name__}, found {entry!r}")
        return entry

    def integers(self, name: str, rank: int, default: Any = _REQUIRED) -> tuple[int, ...]:
        """An entry of `rank` integers.  A single integer stands for all of them."""
        entry = self.option(name, default)
        numbers = (entry,) * rank if isinstance(entry, int) else tuple(entry or ())
        if len(numbers) != rank or not all(type(i) is int for i in numbers):
            self.bad(f"{name!r}: expected {rank} integers, found {entry!r}")
        return numbers

    def positive(self, name: str, rank: int, default: Any = _REQUIRED) -> tuple[int, ...]:
        """As `integers`, each at least 1."""
        numbers = self.integers(name, rank, default)
        return numbers if min(numbers) > 0 else self.bad(f"{name!r}: expected numbers above 0")

    # Weights

    @property
    def computes(self) -> DType:
        """The element type of the layer's computations, from its dtype policy."""
        policy = self.config.get("dtype")
        if isinstance(policy, dict):
            if "Quantized" in str(policy.get("class_name")):
                self.unsupported("quantised weights; save the model before quantize()")
            policy = policy.get("config", {}).get("name")
        name = str(policy or "float32").removeprefix("mixed_")
        try:
            return dtype(name)
        except ExpressionError:
            return self.bad(f"'dtype': expected an element type or a policy, found {policy!r}")

    def weight(self, index: int, to: DType | None = None) -> Value:
        """Weight number `index` in the layer's element type, or in `to`."""
        array = self.weights.array(index)
        type_ = TensorType(dtype(array.dtype), array.shape)
        name = f"{self.loc}/{index}"
        data = self.new.data(name, type_, Data.of(array))
        value = self.builder.lazy_constant(type_, data, name)
        to = to or self.computes
        return value.cast(to) if value.dtype.is_float and value.dtype is not to else value

    def optional(self, *wanted: bool, to: DType | None = None) -> list[Value | None]:
        """The wanted weights in order; None for the others, which are not in the file."""
        numbers = iter(range(len(wanted)))
        return [self.weight(next(numbers), to) if w else None for w in wanted]

    # Layout

    @property
    def is_first(self) -> bool:
        """Whether channels come before the spatial axes."""
        layout = self.option("data_format", None) or "channels_last"
        if layout not in ("channels_first", "channels_last"):
            self.bad(f"'data_format': expected channels_first or channels_last, found {layout!r}")
        return layout == "channels_first"

    def channels_first(self, x: Value) -> Value:
        """`x`, which has the layer's layout, with the channels as second axis."""
        return x if self.is_first else x.transpose(0, x.type.rank - 1, *range(1, x.type.rank - 1))

    def as_given(self, y: Value) -> Value:
        """`y`, which has the channels as second axis, in the layer's layout."""
        return y if self.is_first else y.transpose(0, *range(2, y.type.rank), 1)

    # Element types

    def together(self, *operands: Any) -> tuple[Value, ...]:
        """Operands cast to a common element type.  Python's numbers take the type of tensors."""
        types = [v.dtype for v in operands if isinstance(v, Value)]
        numbers = [v for v in operands if not isinstance(v, Value)]
        common = max(types, key=_RANKS.index, default=f32)
        if any(np.asarray(v).dtype.kind == "f" for v in numbers) and not common.is_float:
            common = f32
        if numbers and common is bool_ and any(np.asarray(v).dtype.kind == "i" for v in numbers):
            common = i32
        return tuple(
            v.cast(common) if isinstance(v, Value) else self.const(v, common) for v in operands
        )


def with_axis(n: NodeContext, x: Value, axis: int) -> Value:
    """`x` with a new axis of extent 1.  A negative `axis` counts from the end of the result."""
    return n.add(Unsqueeze((n.axis(axis, x.type.rank + 1),)), x)


def is_failed(tree: Any) -> bool:
    """Whether any tensor in nested lists could not be made."""
    return any(isinstance(t, Tensor) and t.value is FAILED for t in leaves(tree))
