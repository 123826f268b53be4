"""The main program: its steps, inputs, outputs and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith.ir.dtypes import DType
from tilesmith.ir.grammar import Binder, Body, Label
from tilesmith.ir.sizes import Sizes
from tilesmith.support.errors import UsageError

from .nodes import Node, Step


@dataclass(frozen=True, slots=True)
class TensorSpec(Node):
    """An input or output of a program.

    name: the tensor's name for users.
    dtype: element type.
    shape: extents.  An extent that is known only at run time is the name of a symbol.  For an
        output, it may also be a formula of symbols, or the name of an extent that the run measures.
    """

    syntax = "{name}: {dtype}[{shape}]"
    name: Label[str]
    dtype: Label[DType]
    shape: Label[tuple[int | str, ...]]

    @property
    def is_static(self) -> bool:
        """True if every extent is a number."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The extents as numbers.  Raises UsageError if one is known only at run time."""
        if not self.is_static:
            raise UsageError(f"{self} has sizes that only a run knows; choose some with shapes=")
        return tuple(d for d in self.shape if isinstance(d, int))

    @property
    def bytes(self) -> int:
        """Bytes of a static tensor; for a host type, the bytes of the number that stands for an
        object.
        """
        if self.dtype.is_host:
            return self.dtype.bytes
        return math.prod(self.static_shape) * self.dtype.bytes

    @property
    def type(self) -> str:
        """Element type and shape as text: `f32[1,3,224,224]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Symbol(Node):
    """A size that is known only at run time.

    name: the symbol's name in the shapes of inputs.
    low, high, expected: the fields of `ir.sizes.Sizes`.
    """

    syntax = "{name} from {low} to {high} expected {expected}"
    name: Label[str]
    low: Label[int]
    high: Label[int]
    expected: Label[int]

    @staticmethod
    def of(name: str, sizes: Sizes) -> Symbol:
        return Symbol(name, sizes.low, sizes.high, sizes.expected)

    @property
    def sizes(self) -> Sizes:
        """The symbol's range and expected size.  Raises ValueError if they are not in order."""
        return Sizes(self.low, self.high, self.expected)


@dataclass(frozen=True, slots=True)
class Main(Node):
    """The main program.

    inputs, outputs: the tensors, in order.
    symbols: extents of inputs that are known only at run time, in the order of their numbers.
    arena_bytes, scratch_bytes, constant_bytes: sizes of these memories; each thread has its own
        scratch memory.
    size_values: number of values that the functions of sizes compute.
    in_place: outputs in the memory of an input, as pairs (number of the output, number of the
        input).
    parts: number of parts, each a program of its own; 0 for a program without parts.
    steps: its steps, in order.
    """

    syntax = (
        "main({inputs}) -> ({outputs}){symbols=}{arena_bytes=}{scratch_bytes=}{constant_bytes=}"
        "{size_values=}{in_place=}{parts=}:\n{steps}"
    )
    inputs: Binder[tuple[TensorSpec, ...]]
    outputs: Binder[tuple[TensorSpec, ...]]
    symbols: Binder[tuple[Symbol, ...]] = ()
    arena_bytes: Label[int] = 0
    scratch_bytes: Label[int] = 0
    constant_bytes: Label[int] = 0
    size_values: Label[int] = 0
    in_place: Label[tuple[tuple[int, int], ...]] = ()
    parts: Label[int] = 0
    steps: Body[tuple[Step, ...]] = ()
