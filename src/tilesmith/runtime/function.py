"""One kernel as a Python callable on NumPy arrays: the result of `tilesmith.build`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.link import Library, assembly
from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import ModelError

from .arrays import to_numpy
from .native import Context, aligned_bytes, round_up
from .threads import thread_count


class NativeFunction:
    """`f(*arrays)` runs the kernel on arrays for the buffer parameters in order, outputs included,
    which are written in place.

    `params` give the shapes to check (those before flattening).  A scalar parameter that is a
    dimension of an array is taken from its shape.  Others follow the arrays as integers.
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
    ) -> None:
        missing = missing_features(host(), target)
        if missing:
            raise ModelError(
                f"{kernel.symbol} was compiled for {target.name}; this machine lacks "
                f"{', '.join(missing)}"
            )
        self.kernel = kernel
        self.target = target
        self._assemble = assemble
        self.threads = thread_count(threads)
        self.buffers = tuple(p for p in params if isinstance(p, Buffer))
        self.scalars = tuple(p for p in params if isinstance(p, Var))
        names = {b.name for b in outputs}
        self._written = [b in outputs or b.name in names for b in self.buffers]
        dims = {d for b in self.buffers for d in b.shape if isinstance(d, Var)}
        self._given = [v for v in self.scalars if v not in dims]
        self._library = Library([code], [kernel.symbol])
        types = (
            [ctypes.c_void_p] * len(self.buffers)
            + [ctypes.c_int64] * len(self.scalars)
            + [ctypes.c_void_p] * 2
        )
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(
            self._library.address(kernel.symbol)
        )

    def __call__(self, *args: Any) -> None:
        """Run on arrays, then the scalars that no array's shape determines.  Raises ModelError if
        they do not fit.
        """
        self.bind(*args)()

    def bind(self, *args: Any) -> Callable[[], None]:
        """The call with these arguments, checked once and ready to be repeated (for timing).

        It keeps the arrays alive.
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
        k = self.kernel
        shared = round_up(k.workspace_bytes_shared)
        private = round_up(k.workspace_bytes_per_thread)
        memory = aligned_bytes(shared + private * self.threads)
        context = Context.of(self.threads, memory.ctypes.data + shared, private)
        raw = (
            [a.ctypes.data for a in arrays]
            + [values[v] for v in self.scalars]
            + [memory.ctypes.data, ctypes.addressof(context)]
        )
        function = self._function
        keep = (arrays, memory, context, self)

        def run(_keep: object = keep) -> None:
            code = function(*raw)
            if code:
                raise ModelError(f"{k.symbol}: {context.failure(code).text(k.messages)}")

        return run

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
        return array if plain else np.array(array, order="C")

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
