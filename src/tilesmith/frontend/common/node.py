"""The base of the interface that import functions use, for every format.  It adds nodes to the
graph, reads values that must be known, and reports errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.types import Dim, same_shape
from tilesmith.ops import rules
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Cast
from tilesmith.ops.gather import Gather
from tilesmith.ops.select import Leading, NonZero
from tilesmith.ops.shape import Reshape
from tilesmith.ops.sizes import Extents, Iota
from tilesmith.support.errors import ModelError, UnsupportedError

from .errors import OpenValueError, ValuesNeededError
from .folding import FoldingBuilder

_MOST_POSITIONS = 1 << 24
"""Upper bound on the positions in a constant.  A run computes the positions of a longer axis."""


@dataclass(slots=True, eq=False)
class NodeContext:
    """One node during import.  Subclasses for each format read inputs and attributes.

    builder: makes the graph.
    loc: the node's name, for messages and as the `loc` of the nodes made from it.
    label: the name of the node's first output.  It becomes the label of the node's values.
    """

    builder: FoldingBuilder
    loc: str
    label: str

    # The graph

    def add(self, op: Op, *inputs: Value) -> Any:
        """The value (or tuple) of an operator; a constant if its inputs are small constants."""
        return self.builder.add(op, *inputs, loc=self.loc, name=self.label)

    def const(self, array: Any, dtype: DType | None = None) -> Value:
        """A constant; `dtype` gives the element type of Python numbers."""
        return self.builder.constant(
            np.asarray(array, dtype=dtype.numpy if dtype is not None else None)
        )

    # Shapes

    def reshape(self, x: Value, dims: Sequence[Dim]) -> Value:
        """`x` reshaped; `x` itself when it has that shape."""
        dims = tuple(dims)
        return x if same_shape(x.type.shape, dims) else x.reshape(*dims)

    def expand(self, x: Value, dims: Sequence[Dim]) -> Value:
        """`x` broadcast to a shape."""
        dims = tuple(dims)
        return x if same_shape(x.type.shape, dims) else x.expand(*dims)

    def of_dims(self, dims: Sequence[Dim], dims_shape: tuple[int, ...] | None = None) -> Value:
        """Dimensions as an i64 tensor of shape `dims_shape`, by default a list.  The tensor is a
        constant if all dimensions are numbers.
        """
        if dims_shape is None:
            dims_shape = (len(dims),)
        if all(isinstance(d, int) for d in dims):
            return self.const(np.array(dims, np.int64).reshape(dims_shape))
        return self.add(Extents(tuple(dims), dims_shape))

    def positions(self, count: Dim, rank: int = 1, axis: int = 0) -> Value:
        """The numbers from 0 to `count` - 1 along `axis` of a tensor of `rank` axes, as i64."""
        if isinstance(count, int) and count <= _MOST_POSITIONS:
            numbers = self.const(range(count), i64)
        else:
            numbers = self.add(Iota(count))
        return self.reshape(numbers, (*[1] * axis, count, *[1] * (rank - axis - 1)))

    # Values that must be constant

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value; None if they depend on the model's inputs."""
        return self.builder.known(value)

    def array(self, value: Value, what: str) -> np.ndarray:
        """The contents of `value`; `what` names their use ("axes").

        Raises ValuesNeededError when unknown.
        """
        array = self.known(value)
        if array is None and (held := self.builder.contents(value)) is not None:
            raise OpenValueError(
                f"the value of {what} must be a number when the model is compiled; it is "
                f"{', '.join(map(str, held.flat))} (give the inputs their sizes with shapes=)",
                [d for d in held.flat if isinstance(d, Expr)],
                value,
            )
        if array is None:
            names = self.builder.inputs_behind(value)
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
        return array

    def int_list(self, value: Value, what: str) -> tuple[int, ...]:
        """The contents of a 1-D (or scalar) integer value as ints."""
        numbers = self.array(value, what)
        if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
            raise ModelError(f"{what}: expected a list of integers, found {value.type}")
        return tuple(int(i) for i in numbers.reshape(-1))

    def scalar(self, value: Value, what: str) -> Any:
        """The contents of a value of one element, as a Python number."""
        array = self.array(value, what)
        if array.size != 1:
            raise ModelError(f"{what}: expected one number, found {value.type}")
        return array.reshape(-1)[0].item()

    def dims(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The contents of a 1-D (or scalar) integer value, as numbers or expressions."""
        held = self.builder.contents(value)
        if held is None or not value.dtype.is_int or held.ndim > 1:
            return self.int_list(value, what)
        return tuple(held.flat)

    def dim(self, value: Value, what: str) -> Dim:
        """The only element of an integer value, as a number or an expression."""
        dims = self.dims(value, what)
        if len(dims) != 1:
            raise ModelError(f"{what}: expected one number, found {value.type}")
        return dims[0]

    def is_known(self, value: Value) -> bool:
        """Whether the contents of `value` are numbers, or extents."""
        return self.builder.contents(value) is not None or self.known(value) is not None

    def elements(self, value: Value, what: str) -> list[Dim | None]:
        """The elements of a list (or scalar) of integers; None for elements known only at run time.

        Raises ModelError for another type, OpenDimensionError for a list of unknown length.
        """
        if not value.dtype.is_int or value.type.rank > 1:
            raise ModelError(f"{what}: expected a list of integers, found {value.type}")
        value.type.static_shape  # noqa: B018  (raises)
        return self.builder.partly(value)

    def extents(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The elements of a list (or scalar) of integers, as extents: numbers or expressions if
        known, else symbols that a run measures.
        """
        if self.is_known(value):
            return self.dims(value, what)
        known = self.elements(value, what)
        if value.dtype is not i64:
            value = self.add(Cast(i64), value)
        if value.type.rank == 0:
            value = self.add(Reshape((1,)), value)
        return self.measured(value, known)

    def one_extent(self, value: Value, what: str) -> Dim:
        """The only element of a value, as an extent (see `extents`)."""
        extents = self.extents(value, what)
        if len(extents) != 1:
            raise ModelError(f"{what}: expected one number, found {value.type}")
        return extents[0]

    def measured(
        self,
        value: Value,
        known: Sequence[Dim | None] = (),
        bounds: Sequence[Dim] = (),
        zero: Value | None = None,
        usual: Sequence[int] = (),
    ) -> tuple[Dim, ...]:
        """The elements of an i64 list as extents, measured by a run where they are not `known`.

        known: the known extents; by default none.
        usual: expected extents; by default their bounds.
        bounds: upper bounds of the extents; by default the largest size.
        zero: a list of numbers; a run in which one is not 0 is refused.
        """
        known = known or [None] * value.type.static_shape[0]
        bounds = bounds or [LARGEST] * len(known)
        unknown = [i for i, d in enumerate(known) if d is None]
        if 0 < len(unknown) < len(known):
            value = self.add(Gather(0), value, self.const(np.array(unknown, np.int64)))
        if not unknown:
            if zero is not None:
                self.builder.require_zero(zero)
            return tuple(d for d in known if d is not None)
        limits = [bounds[i] for i in unknown]
        guesses = [usual[i] for i in unknown if usual]
        extents = self.builder.measure(value, limits, zero, self.label, guesses)
        new = dict(zip(unknown, extents, strict=True))
        return tuple(new[i] if d is None else d for i, d in enumerate(known))

    def places(self, x: Value) -> Value:
        """Positions of elements other than 0, i64 [rank, count].  Only a run knows the count."""
        positions, count = self.add(NonZero(), x)
        (length,) = self.measured(count, bounds=[positions.type.shape[1]])
        return self.add(Leading(length), positions)

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of a value as numbers.  Raises OpenDimensionError where one is symbolic."""
        return value.type.static_shape

    def extent(self, value: Value, axis: int) -> int:
        """The extent of an axis as a number.  Raises OpenDimensionError where it is symbolic."""
        return rules.static("the operator", value.type.shape[axis], f"axis {axis} of {value.type}")

    # Axes

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """`axis` counted from 0.  A negative `axis` counts from the end.

        Raises ModelError if `axis` is out of range.
        """
        if not -rank <= axis < rank:
            raise ModelError(
                f"{what}: expected -{rank} to {rank - 1} for rank {rank}, found {axis}"
            )
        return axis % rank if rank else 0

    def axes(self, axes: tuple[int, ...], rank: int, what: str = "axes") -> tuple[int, ...]:
        """Several distinct axes, each checked as by `axis`."""
        numbers = tuple(self.axis(a, rank, what) for a in axes)
        if len(set(numbers)) != len(numbers):
            raise ModelError(f"{what}: expected distinct axes, found {list(axes)}")
        return numbers

    # Errors

    def bad(self, message: str) -> NoReturn:
        """Raise an error: the model is wrong at this node."""
        raise ModelError(message)

    def unsupported(self, message: str) -> NoReturn:
        """Raise an error: the model is valid, but Tilesmith does not support it."""
        raise UnsupportedError(message)
