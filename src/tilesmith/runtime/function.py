"""One kernel as a Python callable on NumPy arrays: the result of `tilesmith.build`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.link import Library, assembly
from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import InternalError, ModelError, UsageError

from .arrays import as_stored, is_foreign, stored_dtype, to_numpy
from .native import Failure, Function
from .threads import thread_count


class NativeFunction:
    """`f(*arrays)` runs the kernel on arrays for the buffer parameters in order, outputs included,
    which are written in place.

    `params` give the shapes to check (those before flattening).  A scalar parameter that is a
    dimension of an array is taken from its shape.  Others follow the arrays as integers.

    may_be: for an output, the inputs that may be the same array; no other argument may overlap an
        output.
    lives_in: for an output without an argument of its own, the input in whose array it lies.
    """

    def __init__(
        self,
        kernel: Kernel,
        code: bytes,
        params: Sequence[Buffer | Var],
        outputs: Sequence[Buffer],
        target: Target,
        threads: int | None = None,
        assemble: Callable[[str, Target], str] = assembly,
        may_be: Mapping[Buffer, Collection[Buffer]] | None = None,
        lives_in: Mapping[Buffer, Buffer] | None = None,
    ) -> None:
        missing = missing_features(host(), target)
        if missing:
            raise ModelError(
                f"{kernel.symbol} was compiled for {target.name}; this machine lacks "
                f"{', '.join(missing)}"
            )
        self.kernel = kernel
        self.target = target
        self.decisions: Mapping[str, object] = {}
        """The knobs that tuning chose, by name; without those that have their default."""
        self._assemble = assemble
        self.threads = thread_count(threads)
        homes = lives_in or {}
        buffers = tuple(p for p in params if isinstance(p, Buffer))
        self.buffers = tuple(b for b in buffers if b not in homes)
        self.scalars = tuple(p for p in params if isinstance(p, Var))
        number = {b: i for i, b in enumerate(self.buffers)}
        self._places = tuple(number[homes.get(b, b)] for b in buffers)
        written = {number[homes.get(b, b)] for b in outputs}
        self._written = [i in written for i in range(len(self.buffers))]
        self._same: list[set[int]] = [set() for _ in self.buffers]
        for out, inputs in (may_be or {}).items():
            self._same[number[homes.get(out, out)]] |= {number[b] for b in inputs}
        dims = {d for b in self.buffers for d in b.shape if isinstance(d, Var)}
        self._given = [v for v in self.scalars if v not in dims]
        self._library = Library([code], [kernel.symbol])
        self._plain = not any(is_foreign(b.dtype.numpy) for b in self.buffers)
        self._native = self._make_native()
        self._call = self._native.call

    def _make_native(self) -> Any:
        symbols = list(dict.fromkeys((*self.scalars, *self._dimensions())))
        number = {v: i for i, v in enumerate(symbols)}
        arrays = tuple(
            (
                stored_dtype(b.dtype).kind,
                b.dtype.bytes,
                tuple(tuple(_steps(d, number)) for d in b.shape),
                written,
                tuple(same),
            )
            for b, written, same in zip(self.buffers, self._written, self._same, strict=True)
        )
        k = self.kernel
        try:
            return Function(
                self._library.address(k.symbol),
                tuple(_steps(k.workspace_bytes_shared, number)),
                tuple(_steps(k.workspace_bytes_per_thread, number)),
                self.threads,
                arrays,
                len(symbols),
                tuple(number[v] for v in self._given),
                self._places,
                tuple(number[v] for v in self.scalars),
                self._library,
            )
        except ValueError as e:
            raise UsageError(f"{k.symbol} can't be called from Python: {e}") from e

    def _dimensions(self) -> list[Var]:
        return [d for b in self.buffers for d in b.shape if isinstance(d, Var)]

    def __call__(self, *args: Any) -> None:
        """Run on arrays, then the scalars that no array's shape determines.

        An input that is not C-contiguous or aligned is copied.  Raises ModelError if the arguments
        do not fit, UsageError if an output overlaps another argument.
        """
        outcome = self._call(args) if self._plain else False
        if outcome is False:
            arrays, values = self._checked(args)
            outcome = self._call((*arrays, *(values[v] for v in self._given)))
        if outcome is not None:
            self._settle(outcome)

    def bind(self, *args: Any) -> Callable[[], None]:
        """The call with these arguments, checked once: a function without parameters.

        It reads and writes the arrays' memory as it is at each call, and keeps the arrays alive.
        An input that is not C-contiguous was copied when it was bound: changes to it do not
        count.  A plain call with NumPy arrays is nearly as fast; a bound one saves converting
        other arguments (torch tensors, bfloat16, strided inputs) each time.

        Raises what a plain call does.
        """
        arrays, values = self._checked(args)
        arguments = (*arrays, *(values[v] for v in self._given))
        call = self._call

        def run() -> None:
            outcome = call(arguments)
            if outcome is not None:
                self._settle(outcome)

        return run

    def _settle(self, outcome: Any) -> None:
        """Raise what the outcome of a call with checked arguments stands for, if anything."""
        if outcome is False:
            raise InternalError(f"{self.kernel.symbol} refuses arguments that were checked")
        if outcome is not None:
            failure = Failure(*outcome).text(self.kernel.messages)
            raise ModelError(f"{self.kernel.symbol}: {failure}")

    def _checked(self, args: Sequence[Any]) -> tuple[list[np.ndarray], dict[Expr, int]]:
        """The arguments as arrays that the kernel can use, and the values of all symbols.

        Raises ModelError or UsageError, which says what is wrong.
        """
        count = len(self.buffers)
        if len(args) != count + len(self._given):
            wanted = ", ".join([b.name for b in self.buffers] + [v.name for v in self._given])
            raise ModelError(
                f"{self.kernel.symbol}: expected {count + len(self._given)} arguments "
                f"({wanted}), found {len(args)}"
            )
        values: dict[Expr, int] = {
            v: int(a) for v, a in zip(self._given, args[count:], strict=True)
        }
        arrays = [
            self._array(b, w, a)
            for b, w, a in zip(self.buffers, self._written, args[:count], strict=True)
        ]
        for b, a in zip(self.buffers, arrays, strict=True):
            for d, n in zip(b.shape, a.shape, strict=True):
                if isinstance(d, Var):
                    values.setdefault(d, n)
        for b, a in zip(self.buffers, arrays, strict=True):
            expected = tuple(_dimension(d, values) for d in b.shape)
            if expected != a.shape:
                raise ModelError(
                    f"{self.kernel.symbol}: argument {b.name!r}: expected shape {expected}, "
                    f"found {a.shape}"
                )
        self._check_overlaps(arrays)
        return arrays, values

    def _array(self, buffer: Buffer, written: bool, value: Any) -> np.ndarray:
        what = f"{self.kernel.symbol}: argument {buffer.name!r}"
        array = to_numpy(value, what)
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
                if not self._written[i] or i == j or max(start, first) >= min(end, last):
                    continue
                if j in self._same[i] and (start, end) == (first, last):
                    continue
                also = " or twice the same array" if j in self._same[i] else ""
                raise UsageError(
                    f"{self.kernel.symbol}: the output {shown[i]} overlaps the argument "
                    f"{shown[j]}; expected arrays with memory of their own{also}"
                )

    @property
    def source(self) -> str:
        """The text that the kernel was compiled from: LLVM's, or C."""
        return self.kernel.text

    @property
    def assembly(self) -> str:
        """The kernel's machine code as text."""
        return self._assemble(self.kernel.text, self.target)

    def __repr__(self) -> str:
        return f"<native function {self.kernel.symbol}({', '.join(b.name for b in self.buffers)})>"


_STEPS = {
    op: number
    for number, op in enumerate(("add", "sub", "mul", "floordiv", "floormod", "min", "max"), 2)
}
"""The operations of a dimension's steps in `csrc/function.c`; 0 is a number and 1 a symbol."""


def _steps(d: Expr | int, number: Mapping[Var, int]) -> list[tuple[int, int]]:
    """A dimension as steps on a stack.  Raises ModelError if it depends on something unknown."""
    if isinstance(d, (int, Const)):
        return [(0, d if isinstance(d, int) else int(d.value))]
    if isinstance(d, Var) and d in number:
        return [(1, number[d])]
    if isinstance(d, Binary) and d.op in _STEPS:
        return [*_steps(d.a, number), *_steps(d.b, number), (_STEPS[d.op], 0)]
    raise ModelError(f"the dimension {d} can't be computed from the arguments")


def _dimension(d: Expr | int, values: dict[Expr, int]) -> int:
    """The value of a dimension.  Raises ModelError if it depends on something unknown."""
    if isinstance(d, int):
        return d
    if isinstance(d, Const):
        return int(d.value)
    if d in values:
        return values[d]
    if isinstance(d, Binary):
        a, b = _dimension(d.a, values), _dimension(d.b, values)
        operations: dict[str, Callable[[int, int], int]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
            "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b, "min": min, "max": max,
        }  # fmt: skip
        if d.op in operations:
            return operations[d.op](a, b)
    raise ModelError(f"the dimension {d} can't be computed from the arguments")
