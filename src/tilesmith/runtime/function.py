"""One kernel for a CPU as a Python callable on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.link import Library, assembly
from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.ir.target import Target
from tilesmith.support.errors import InternalError, ModelError, UsageError

from .arguments import Arguments, KernelFunction
from .arrays import is_foreign, stored_dtype
from .native import Failure, Function
from .threads import thread_count


class NativeFunction(KernelFunction):
    """A kernel whose object code runs in this process."""

    def __init__(
        self,
        kernel: Kernel,
        code: bytes,
        arguments: Arguments,
        target: Target,
        threads: int | None = None,
        assemble: Callable[[str, Target], str] = assembly,
    ) -> None:
        super().__init__(kernel, arguments, target)
        missing = missing_features(host(), target)
        if missing:
            raise ModelError(
                f"{kernel.symbol} was compiled for {target.name}; this machine lacks "
                f"{', '.join(missing)}"
            )
        self._assemble = assemble
        self.threads = thread_count(threads)
        self._library = Library([code], [kernel.symbol])
        self._plain = not any(is_foreign(b.dtype.numpy) for b in self.arguments.buffers)
        self._native = self._make_native()
        self._call = self._native.call

    def _make_native(self) -> Any:
        expected = self.arguments
        dims = (d for b in expected.buffers for d in b.shape if isinstance(d, Var))
        symbols = list(dict.fromkeys((*expected.scalars, *dims)))
        number = {v: i for i, v in enumerate(symbols)}
        arrays = tuple(
            (
                stored_dtype(b.dtype).kind,
                b.dtype.bytes,
                tuple(tuple(_steps(d, number)) for d in b.shape),
                written,
                tuple(same),
            )
            for b, written, same in zip(
                expected.buffers, expected.written, expected.same, strict=True
            )
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
                tuple(number[v] for v in expected.given),
                expected.places,
                tuple(number[v] for v in expected.scalars),
                self._library,
            )
        except ValueError as e:
            raise UsageError(f"{k.symbol} can't be called from Python: {e}") from e
        except OverflowError as e:
            raise UsageError(
                f"{k.symbol} can't be called: expected arrays and a workspace of fewer than 2^63 "
                f"bytes, found a workspace of {k.workspace_bytes_shared} and "
                f"{k.workspace_bytes_per_thread} for each thread; compute intermediate results "
                "where they are read (compute_at)"
            ) from e

    def __call__(self, *args: Any) -> None:
        """Run on arrays (see `KernelFunction`).  An input that is not C-contiguous, or not aligned,
        is copied.
        """
        try:
            outcome = self._call(args) if self._plain else False
            if outcome is False:
                outcome = self._call(self._checked(args))
        except MemoryError:
            raise self._no_memory() from None
        if outcome is not None:
            self._settle(outcome)

    def _no_memory(self) -> ModelError:
        k = self.kernel
        return ModelError(
            f"{k.symbol}: the system does not give {k.workspace_bytes_shared} bytes of workspace "
            f"and {k.workspace_bytes_per_thread} for each of {self.threads} threads; call it with "
            "smaller arrays, or compute intermediate results where they are read (compute_at)"
        )

    def bind(self, *args: Any) -> Callable[[], None]:
        """A function that calls the kernel with these arguments (see `KernelFunction`).  With NumPy
        arrays it is hardly faster than a plain call.  Other arguments (torch tensors, bfloat16,
        strided inputs) are converted only once.
        """
        arguments = self._checked(args)
        call = self._call

        def run() -> None:
            try:
                outcome = call(arguments)
            except MemoryError:
                raise self._no_memory() from None
            if outcome is not None:
                self._settle(outcome)

        return run

    def _checked(self, args: Sequence[Any]) -> tuple[Any, ...]:
        arrays, values = self.arguments.checked(args)
        return (*arrays, *(values[v] for v in self.arguments.given))

    def _settle(self, outcome: Any) -> None:
        """Raise the error of a call with checked arguments.  `outcome` is None after a success."""
        if outcome is False:
            raise InternalError(f"{self.kernel.symbol} refuses arguments that were checked")
        if outcome is not None:
            failure = Failure(*outcome).text(self.kernel.messages)
            raise ModelError(f"{self.kernel.symbol}: {failure}")

    @property
    def assembly(self) -> str:
        """The kernel's machine code as text."""
        return self._assemble(self.kernel.text, self.target)


def native(
    compile: Callable[[str, Target, int], bytes], assemble: Callable[[str, Target], str]
) -> Callable[..., NativeFunction]:
    """A function that makes the `NativeFunction` of a kernel (see `backend.base`).

    compile: makes object code from the kernel's text.
    assemble: makes assembly from this text.
    """

    def make(
        kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
    ) -> NativeFunction:
        code = compile(kernel.text, target, opt)
        return NativeFunction(kernel, code, arguments, target, threads, assemble)

    return make


_STEPS = {
    op: number
    for number, op in enumerate(("add", "sub", "mul", "floordiv", "floormod", "min", "max"), 2)
}
"""Codes of operations in `csrc/function.c`; code 0 pushes a number, code 1 a symbol's value."""


def _steps(d: Expr | int, number: Mapping[Var, int]) -> list[tuple[int, int]]:
    """A dimension as operations of a stack machine: pairs of code and operand.  Raises ModelError
    if the arguments do not determine the dimension.
    """
    pairs: list[tuple[int, int]] = []
    waiting: list[Expr | int] = [d]
    while waiting:  # this visits the steps from last to first
        e = waiting.pop()
        if isinstance(e, (int, Const)):
            pairs.append((0, e if isinstance(e, int) else int(e.value)))
        elif isinstance(e, Var) and e in number:
            pairs.append((1, number[e]))
        elif isinstance(e, Binary) and e.op in _STEPS:
            pairs.append((_STEPS[e.op], 0))
            waiting += (e.a, e.b)
        else:
            raise ModelError(f"the dimension {d} can't be computed from the arguments")
    return pairs[::-1]
