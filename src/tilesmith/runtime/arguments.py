"""A kernel as a Python callable, and its arguments: arrays for buffers, integers for scalars."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import Kernel
from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.support.errors import ModelError, UsageError

from .arrays import as_stored, to_numpy


class Arguments:
    """The arguments that a `KernelFunction` expects.

    A scalar parameter that is a dimension of an array is read from the array's shape.  The other
    scalars are passed as integers after the arrays.

    func: the kernel before its buffers are flattened; its parameters have the expected shapes.
    may_be: output -> inputs.  A caller may pass the output's array for these inputs, too.  No
        other argument may overlap an output.
    lives_in: output -> input, for outputs that are not arguments.  The kernel writes the output
        into the input's array.
    """

    def __init__(
        self,
        func: Func,
        may_be: Mapping[Buffer, Collection[Buffer]] | None = None,
        lives_in: Mapping[Buffer, Buffer] | None = None,
    ) -> None:
        self.symbol = func.name
        homes = lives_in or {}
        buffers = func.buffers
        self.buffers = tuple(b for b in buffers if b not in homes)
        self.scalars = tuple(p for p in func.params if isinstance(p, Var))
        number = {b: i for i, b in enumerate(self.buffers)}
        self.places = tuple(number[homes.get(b, b)] for b in buffers)
        """For each buffer parameter, the index of its array among the arguments."""
        written = {number[homes.get(b, b)] for b in func.outputs}
        self.written = [i in written for i in range(len(self.buffers))]
        self.same: list[set[int]] = [set() for _ in self.buffers]
        """For each array, the indices of the arrays that may be identical to it."""
        for out, inputs in (may_be or {}).items():
            self.same[number[homes.get(out, out)]] |= {number[b] for b in inputs}
        dims = {d for b in self.buffers for d in b.shape if isinstance(d, Var)}
        self.given = [v for v in self.scalars if v not in dims]
        """The scalars that no array's shape determines."""

    def checked(self, args: Sequence[Any]) -> tuple[list[np.ndarray], dict[Expr, int]]:
        """The arguments as arrays that the kernel can use, and the values of all symbols.

        Raises ModelError for a wrong count, type or shape, UsageError if an output overlaps another
        argument.
        """
        count = len(self.buffers)
        if len(args) != count + len(self.given):
            wanted = ", ".join([b.name for b in self.buffers] + [v.name for v in self.given])
            raise ModelError(
                f"{self.symbol}: expected {count + len(self.given)} arguments "
                f"({wanted}), found {len(args)}"
            )
        values: dict[Expr, int] = {
            v: self._integer(v, a) for v, a in zip(self.given, args[count:], strict=True)
        }
        arrays = [
            self._array(b, w, a)
            for b, w, a in zip(self.buffers, self.written, args[:count], strict=True)
        ]
        for b, a in zip(self.buffers, arrays, strict=True):
            for d, n in zip(b.shape, a.shape, strict=True):
                if isinstance(d, Var):
                    values.setdefault(d, n)
        for b, a in zip(self.buffers, arrays, strict=True):
            expected = tuple(dimension(d, values) for d in b.shape)
            if expected != a.shape:
                raise ModelError(
                    f"{self.symbol}: argument {b.name!r}: expected shape {expected}, "
                    f"found {a.shape}"
                )
        self._check_overlaps(arrays)
        return arrays, values

    def _integer(self, scalar: Var, value: Any) -> int:
        try:
            integer = operator.index(value)
        except TypeError:
            integer = None
        if integer is None or not -(1 << 63) <= integer < 1 << 63:
            shown = type(value).__name__ if integer is None else integer
            raise ModelError(
                f"{self.symbol}: argument {scalar.name!r}: expected an integer of 64 bits, found "
                f"{shown}"
            )
        return integer

    def _array(self, buffer: Buffer, written: bool, value: Any) -> np.ndarray:
        what = f"{self.symbol}: argument {buffer.name!r}"
        array = to_numpy(value, what, buffer.dtype)
        if array.dtype != buffer.dtype.numpy:
            raise ModelError(
                f"{what}: expected element type {buffer.dtype} ({buffer.dtype.numpy}), found "
                f"{array.dtype}"
            )
        if array.ndim != len(buffer.shape):
            raise ModelError(
                f"{what}: expected {len(buffer.shape)} dimensions, found shape {array.shape}"
            )
        plain = array.flags.c_contiguous and array.flags.aligned
        if written and not (plain and array.flags.writeable):
            raise ModelError(f"{what} is an output: expected a writable, C-contiguous array")
        return as_stored(array)

    def _check_overlaps(self, arrays: Sequence[np.ndarray]) -> None:
        ranges = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]
        shown = [
            f"{b.name!r} (bytes {start:#x} to {end:#x})"
            for b, (start, end) in zip(self.buffers, ranges, strict=True)
        ]
        for i, (start, end) in enumerate(ranges):
            for j, (first, last) in enumerate(ranges):
                if not self.written[i] or i == j or max(start, first) >= min(end, last):
                    continue
                if j in self.same[i] and (start, end) == (first, last):
                    continue
                also = " or twice the same array" if j in self.same[i] else ""
                raise UsageError(
                    f"{self.symbol}: the output {shown[i]} overlaps the argument "
                    f"{shown[j]}; expected arrays with memory of their own{also}"
                )


class KernelFunction(ABC):
    """A compiled kernel, as `tilesmith.build` returns it.  `f(*arrays)` runs it on an array for
    each buffer parameter, in order.  Outputs are among these arrays and are written in place.

    kernel: the kernel's text and facts.
    arguments: the expected arguments.
    target: the machine for which the kernel was compiled.
    """

    def __init__(self, kernel: Kernel, arguments: Arguments, target: Target) -> None:
        self.kernel = kernel
        self.arguments = arguments
        self.target = target
        self.decisions: Mapping[str, object] = {}
        """The tuning knobs whose chosen value is not the default, by name."""

    @abstractmethod
    def __call__(self, *args: Any) -> None:
        """Run the kernel.  The arguments are the arrays, then the scalars that no array's shape
        determines.

        Raises ModelError if the arguments do not fit, UsageError if an output overlaps another
        argument.
        """

    @abstractmethod
    def bind(self, *args: Any) -> Callable[[], None]:
        """A function without parameters that calls the kernel with `args`.  The arguments are
        checked only here, not in each call.

        Each call reads and writes the arrays' current memory; the function keeps the arrays alive.
        An input that is not C-contiguous is copied by `bind`: later changes to it have no effect.

        Raises the errors of a plain call.
        """

    @property
    def source(self) -> str:
        """The text from which the kernel was compiled: LLVM IR, C or OpenCL C."""
        return self.kernel.text

    @property
    @abstractmethod
    def assembly(self) -> str:
        """The kernel's machine code as text."""

    def __repr__(self) -> str:
        names = ", ".join(b.name for b in self.arguments.buffers)
        return f"<{self.target.backend} function {self.kernel.symbol}({names})>"


def dimension(d: Expr | int, values: Mapping[Expr, int]) -> int:
    """The value of a dimension.  Raises ModelError if it contains a symbol without a value."""
    if isinstance(d, int):
        return d
    if isinstance(d, Const):
        return int(d.value)
    if d in values:
        return values[d]
    if isinstance(d, Binary):
        a, b = dimension(d.a, values), dimension(d.b, values)
        operations: dict[str, Callable[[int, int], int]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
            "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b, "min": min, "max": max,
        }  # fmt: skip
        if d.op in operations:
            return operations[d.op](a, b)
    raise ModelError(f"the dimension {d} can't be computed from the arguments")
