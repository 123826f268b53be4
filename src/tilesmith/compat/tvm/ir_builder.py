"""TVM's `tir.ir_builder`: loops that are written statement by statement, inside `te.extern`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from tilesmith import te
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, as_expr
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.loop.builder import Array
from tilesmith.support.errors import UsageError

_OLDER = {"vectorize": "vectorized", "unroll": "unrolled"}
"""Newer names of kinds of loops, by those of TVM before 0.7."""

_KINDS = tuple(k.name for k in LOOP_KINDS.values() if not k.level)

_CURRENT: ContextVar[te.LoopBuilder | None] = ContextVar("builder", default=None)


class Buffer:
    """An array in a program: an operand or a result of `te.extern`, or allocated memory.

    `buffer[i, j]` is an element; with one index for several dimensions, the element at this place
    in row-major order.
    """

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[Any, ...]:
        return self._array.buffer.shape

    @property
    def dtype(self) -> DType:
        return self._array.buffer.dtype

    @property
    def name(self) -> str:
        return self._array.buffer.name

    def __getitem__(self, index: Any) -> Expr:
        return self._array[self._indices(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[self._indices(index)] = value

    def _indices(self, index: Any) -> Sequence[Any]:
        if isinstance(index, (tuple, list)) or len(self.shape) < 2:
            return index if isinstance(index, (tuple, list)) else (index,)
        rest, found = as_expr(index), []
        for extent in reversed(self.shape[1:]):
            found.insert(0, rest % extent)
            rest = rest // extent
        return (rest, *found)


class IRBuilder:
    """Writes statements into the program of the enclosing `te.extern`."""

    def __init__(self, builder: te.LoopBuilder) -> None:
        self._builder = builder

    @contextmanager
    def for_range(
        self,
        begin: Any,
        end: Any,
        name: str = "i",
        dtype: str = "int32",
        kind: str = "serial",
        for_type: str | None = None,
    ) -> Iterator[Expr]:
        """A loop from `begin` to before `end`; loop variables have 64 bits."""
        wanted = _OLDER.get(for_type or kind, for_type or kind)
        if wanted not in _KINDS:
            raise UsageError(f"for_range: expected a kind of {', '.join(_KINDS)}, found {wanted!r}")
        extent = as_expr(end) - as_expr(begin)
        with self._builder.loop(extent, name, begin, wanted) as var:  # type: ignore[arg-type]
            yield var

    def if_scope(self, cond: Any) -> AbstractContextManager[None]:
        return self._builder.when(cond)

    def else_scope(self) -> AbstractContextManager[None]:
        return self._builder.otherwise()

    def let(self, var_name: str, value: Any) -> Expr:
        return self._builder.let(var_name, value)

    def likely(self, expr: Expr) -> Expr:
        """The condition, unchanged.  The hint that it is mostly true has no effect."""
        return expr

    def buffer_ptr(self, buf: Buffer, shape: Any = None) -> Buffer:
        return buf

    def allocate(
        self, dtype: str | DType, shape: Any, name: str = "buf", axis_separators: Any = None,
        scope: str | None = None,
    ) -> Buffer:  # fmt: skip
        """Memory until the end of the block, on the stack if `scope` is "local"."""
        sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
        memory = "stack" if scope == "local" else "heap"
        return Buffer(self._builder.scratch(name, to_dtype(dtype), sizes, memory))

    def get(self) -> None:
        """Nothing: the statements are in the program already."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError(
            f"IRBuilder.{name} has no counterpart: tilesmith.te.extern with a LoopBuilder"
        )


def create() -> IRBuilder:
    """The builder of the enclosing `te.extern`.  Raises UsageError outside of one."""
    builder = _CURRENT.get()
    if builder is None:
        raise UsageError("ir_builder.create: expected te.extern around the call, found none")
    return IRBuilder(builder)


def extern(
    shape: Any,
    inputs: Sequence[te.Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """The tensor that loops compute; a list of tensors for a list of shapes.

    fcompute: writes the loops with an `ir_builder`.  It gets the operands and the results.

    Raises UsageError if it returns a call of an external function.
    """
    if in_buffers is not None or out_buffers is not None:
        raise UsageError("extern: operands are dense arrays; leave in_buffers and out_buffers out")

    def body(builder: te.LoopBuilder, *arrays: Array) -> None:
        buffers = [Buffer(a) for a in arrays]
        token = _CURRENT.set(builder)
        try:
            made = fcompute(buffers[: len(inputs)], buffers[len(inputs) :])
        finally:
            _CURRENT.reset(token)
        if made is not None:
            raise UsageError(f"{name}: expected statements of an ir_builder, found {made!r}")

    found = te.extern(shape, inputs, body, dtype, name)
    return list(found) if isinstance(found, tuple) else found
