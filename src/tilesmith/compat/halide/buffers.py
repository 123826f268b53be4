"""Halide's buffers and parameters: what a pipeline reads from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Const, Load, const
from tilesmith.support.arguments import checked, checked_methods, shown
from tilesmith.support.errors import UsageError

from .element_types import Type, as_type
from .expressions import Expr, Var, fits, index_of


@dataclass(frozen=True, eq=False)
class Source:
    """What a read in an expression refers to: a value of a Func, a Buffer or an ImageParam.

    owner: the object.
    index: number of the value.
    name: label for people.
    dtype: element type.
    shape: nothing: a Func has no shape before a run.
    """

    owner: Any
    index: int
    name: str
    dtype: DType
    shape: tuple[int, ...] = field(default=(), repr=False)


IMPLICIT = Var("_")
"""Stands for all dimensions that an expression does not name."""


def expanded(places: tuple[Any, ...], rest: Sequence[Var]) -> tuple[Any, ...]:
    """`places` with `rest` for the implicit dimensions."""
    at = [n for n, p in enumerate(places) if p is IMPLICIT]
    return (*places[: at[0]], *rest, *places[at[0] + 1 :]) if at else places


def read(source: Source, dimensions: int, where: Any) -> Expr:
    """The element of `source` at the coordinates `where`, innermost first."""
    places = where if isinstance(where, tuple) else (where,)
    places = expanded(places, [Var(f"_{n}") for n in range(dimensions - len(places) + 1)])
    if len(places) != dimensions:
        raise UsageError(
            f"{source.name}: expected {dimensions} coordinates, one for each dimension, found "
            f"{len(places)}"
        )
    return Expr(Load(source, tuple(index_of(p) for p in places)))


def one_each(values: Sequence[Any], dimensions: int, what: str) -> list[Any]:
    """The values, one for each dimension.  Raises UsageError for another number of them."""
    if len(values) != dimensions:
        raise UsageError(f"{what}: expected {dimensions} values, found {shown(values)}")
    return [*values]


class Dimensional:
    """What buffers and images that are known later have in common."""

    _name: str

    def name(self) -> str:
        return self._name

    def dimensions(self) -> int:
        raise NotImplementedError

    def _dim(self, number: int) -> Any:
        raise NotImplementedError

    def dim(self, number: int) -> Any:
        """Dimension `number`, innermost first.  Raises UsageError if there is none."""
        if not 0 <= number < self.dimensions():
            raise UsageError(
                f"{self._name} has {self.dimensions()} dimensions, found number {number}"
            )
        return self._dim(number)

    def width(self) -> Any:
        return self.dim(0).extent()

    def height(self) -> Any:
        return self.dim(1).extent()

    def channels(self) -> Any:
        return self.dim(2).extent()


def number_of(value: Any, dtype: DType, name: str) -> bool | int | float:
    """`value` as a number of Python.  Raises UsageError for one that the type does not hold."""
    number = value.item() if isinstance(value, np.generic) else value
    is_bool = type(number) is bool
    if type(number) not in (bool, int, float) or dtype.is_bool != is_bool or not (
        is_bool or fits(number, dtype)
    ):  # fmt: skip
        raise UsageError(f"{name}: expected a number of type {dtype}, found {shown(value)}")
    return number


def zeros(sizes: Sequence[int], dtype: DType) -> np.ndarray:
    """An array of sizes that are given innermost first.  Raises UsageError for negative ones."""
    if any(n < 0 for n in sizes):
        raise UsageError(f"expected sizes from 0, found {shown(sizes)}")
    return np.zeros(tuple(reversed(sizes)), dtype.numpy)


@dataclass(frozen=True)
class Dimension:
    """One dimension of a `Buffer`.

    start: the first coordinate.
    size: number of elements.
    step: elements in memory from one to the next.
    """

    start: int
    size: int
    step: int

    def min(self) -> int:
        return self.start

    def extent(self) -> int:
        return self.size

    def max(self) -> int:
        return self.start + self.size - 1

    def stride(self) -> int:
        return self.step


@checked_methods(UsageError)
class Buffer(Dimensional):
    """An array.  The last axis of a NumPy array is the first dimension, x.

    array: the elements, slowest dimension first.
    mins: the first coordinate of each dimension, innermost first.
    """

    @checked(UsageError)
    def __init__(
        self, data: Any, sizes: Sequence[int] | None = None, name: str = "",
        reverse_axes: bool = True,
    ) -> None:  # fmt: skip
        if isinstance(data, Type):
            array = zeros(sizes or (), data.dtype)
        else:
            array = np.asarray(data.array if isinstance(data, Buffer) else data)
            if not reverse_axes:
                array = array.T
        self.array = array
        self.mins = list(data.mins) if isinstance(data, Buffer) else [0] * array.ndim
        if not reverse_axes:
            self.mins.reverse()
        self._name = name or "buffer"
        self.source = Source(self, 0, self._name, to_dtype(array.dtype))

    @staticmethod
    def make_interleaved(t: Any, width: int, height: int, channels: int) -> Buffer:
        """A picture in whose memory the channels of a pixel lie side by side."""
        array = np.zeros((height, width, channels), as_type(t).dtype.numpy)
        return Buffer(array.transpose(2, 0, 1))

    def type(self) -> Type:
        return Type(self.source.dtype)

    def dimensions(self) -> int:
        return self.array.ndim

    def extents(self) -> list[int]:
        return list(reversed(self.array.shape))

    def _dim(self, number: int) -> Dimension:
        step = self.array.strides[self.array.ndim - 1 - number] // self.array.itemsize
        return Dimension(self.mins[number], self.extents()[number], step)

    def set_min(self, mins: Sequence[int]) -> None:
        """Set the coordinates of the first element."""
        self.mins = one_each(mins, self.array.ndim, f"{self._name}.set_min")

    def fill(self, value: Any) -> None:
        """Set all elements to a number.  Raises UsageError for one that the type excludes."""
        self.array[...] = number_of(value, self.source.dtype, self._name)

    def copy(self) -> Buffer:
        made = Buffer(self, name=self._name)
        made.array = self.array.copy()
        return made

    def __getitem__(self, where: Any) -> Any:
        """An element: a number at coordinates that are numbers, else an expression."""
        places = where if isinstance(where, tuple) else (where,)
        if all(isinstance(p, (int, np.integer)) for p in places):
            return self.array[self._place(places)].item()
        return read(self.source, self.array.ndim, where)

    def __setitem__(self, where: Any, value: Any) -> None:
        place = self._place(where if isinstance(where, tuple) else (where,))
        self.array[place] = number_of(value, self.source.dtype, self._name)

    def _place(self, places: Sequence[int]) -> tuple[int, ...]:
        if len(places) != self.array.ndim:
            raise UsageError(
                f"{self._name}: expected {self.array.ndim} coordinates, found {len(places)}"
            )
        found = []
        for n, (p, low, size) in enumerate(zip(places, self.mins, self.extents(), strict=True)):
            if not low <= p < low + size:
                raise UsageError(
                    f"{self._name}: coordinate {p} of dimension {n}: expected {low} to "
                    f"{low + size - 1}"
                )
            found.append(int(p) - low)
        return tuple(reversed(found))

    def __as_halide__(self) -> Expr:
        return read(self.source, self.array.ndim, ())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<Buffer {self.type()}, extents {self.extents()}>"


@checked_methods(UsageError)
class Extent:
    """One dimension of an image that is known when the pipeline runs.

    start, size: variables for its first coordinate and its number of elements.
    given: what a program promises, by "min" and "extent".
    estimate: what runs may have: the same, where no image says it.
    """

    def __init__(self, name: str) -> None:
        self.start = ir.Var(f"{name}_min", i64)
        self.size = ir.Var(f"{name}_extent", i64)
        self.given: dict[str, int] = {}
        self.estimate: dict[str, int] = {}

    def min(self) -> Expr:
        return Expr(self.start, is_coordinate=True)

    def extent(self) -> Expr:
        return Expr(self.size, is_coordinate=True)

    def max(self) -> Expr:
        return Expr(self.start + self.size - 1, is_coordinate=True)

    def set_bounds(self, min: int, extent: int) -> Extent:
        """State the coordinates.  A run with other ones raises UsageError."""
        self.given = {"min": min, "extent": extent}
        return self

    def set_min(self, min: int) -> Extent:
        self.given["min"] = min
        return self

    def set_extent(self, extent: int) -> Extent:
        self.given["extent"] = extent
        return self

    def set_stride(self, stride: int) -> Extent:
        """This dimension.  Arrays in another order are copied, so strides need no promise."""
        return self

    def set_estimate(self, min: int, extent: int) -> Extent:
        """State the usual coordinates, for files.  A run may have others."""
        self.estimate = {"min": min, "extent": extent}
        return self

    def expected(self) -> tuple[int, int] | None:
        """The first and last coordinate that are promised, or else estimated; None for neither."""
        known = {"min": 0, **self.estimate, **self.given}
        return (known["min"], known["min"] + known["extent"] - 1) if "extent" in known else None

    def constants(self, start: int, size: int, name: str) -> dict[ir.Expr, Const]:
        """The values of the variables.  Raises UsageError if they break a promise."""
        found = {"min": start, "extent": size}
        for what, promised in self.given.items():
            if found[what] != promised:
                raise UsageError(f"{name}: expected {what} {promised}, found {found[what]}")
        return {self.start: const(start), self.size: const(size)}


@checked_methods(UsageError)
class Image(Dimensional):
    """The dimensions of an image that is known when the pipeline runs."""

    def __init__(self, name: str, dimensions: int) -> None:
        self._name = name
        self.extents = [Extent(f"{name}_{n}") for n in range(dimensions)]

    def dimensions(self) -> int:
        return len(self.extents)

    def _dim(self, number: int) -> Extent:
        return self.extents[number]

    def set_estimates(self, bounds: Sequence[tuple[int, int]]) -> None:
        pairs = one_each(bounds, len(self.extents), f"{self._name}.set_estimates")
        for extent, (low, size) in zip(self.extents, pairs, strict=True):
            extent.set_estimate(low, size)

    def constants(self, mins: Sequence[int], sizes: Sequence[int]) -> dict[ir.Expr, Const]:
        """The values of the variables for an image with these coordinates."""
        made: dict[ir.Expr, Const] = {}
        for n, (extent, low, size) in enumerate(zip(self.extents, mins, sizes, strict=True)):
            made |= extent.constants(low, size, f"dimension {n} of {self._name}")
        return made


class ImageParam(Image):
    """An image that is given when the pipeline runs."""

    def __init__(self, type: Any, dimensions: int, name: str = "input") -> None:
        super().__init__(name, dimensions)
        self.source = Source(self, 0, name, as_type(type).dtype)
        self._buffer: Buffer | None = None

    def type(self) -> Type:
        return Type(self.source.dtype)

    def set(self, buffer: Any) -> None:
        """Give the image for the next runs.  Raises UsageError for another type or rank."""
        made = buffer if isinstance(buffer, Buffer) else Buffer(buffer)
        found = made.source.dtype, made.dimensions()
        if found != (self.source.dtype, self.dimensions()):
            raise UsageError(
                f"{self._name}: expected {self.source.dtype} in {self.dimensions()} dimensions, "
                f"found {found[0]} in {found[1]}"
            )
        self._buffer = made

    def get(self) -> Buffer:
        if self._buffer is None:
            raise UsageError(f"{self._name} has no image: call {self._name}.set(buffer)")
        return self._buffer

    def is_set(self) -> bool:
        return self._buffer is not None

    def __getitem__(self, where: Any) -> Expr:
        return read(self.source, self.dimensions(), where)

    def __as_halide__(self) -> Expr:
        return self[()]


PARAMS: dict[ir.Expr, Param] = {}
"""The parameter of each variable."""


class Param(Expr):
    """A number from `low` to `high` that is given when the pipeline runs."""

    def __init__(
        self, type: Any, name: Any = "", value: Any = None, low: Any = None, high: Any = None
    ) -> None:
        if not isinstance(name, str):
            name, value, low, high = "", name, value, low
        self._name = name or "param"
        super().__init__(ir.Var(self._name, as_type(type).dtype))
        self._low, self._high = -math.inf, math.inf
        if low is not None:
            self._low = self._checked(low)
        if high is not None:
            self._high = self._checked(high)
        self._value = None if value is None else self._checked(value)
        self.source = Source(self, 0, self._name, self.ir.dtype)
        PARAMS[self.ir] = self

    def name(self) -> str:
        return self._name

    def _checked(self, value: Any) -> Any:
        """`value` as a number.  Raises UsageError for one that the type or the range excludes."""
        number = number_of(value, self.ir.dtype, self._name)
        if not self._low <= number <= self._high:
            raise UsageError(f"{self._name}: expected {self._low} to {self._high}, found {value!r}")
        return number

    def set(self, value: Any) -> None:
        """Give the number for the next runs.  Raises UsageError for one out of range."""
        self._value = self._checked(value)

    def get(self) -> Any:
        if self._value is None:
            raise UsageError(f"{self._name} has no value: call {self._name}.set(number)")
        return self._value

    def set_estimate(self, value: Any) -> None:
        """The value of runs for which none is set."""
        self._value = self._checked(value) if self._value is None else self._value

    def constant(self) -> Const:
        return const(self.get(), self.ir.dtype)
