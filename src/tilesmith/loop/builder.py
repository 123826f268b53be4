"""Writing loop nests by hand: statements in program order, blocks as `with` blocks.

    b = LoopBuilder("running_sum")
    x, y = b.input("x", TensorType(f32, (n, m))), b.output("y", TensorType(f32, (n, m)))
    with b.independent(n) as i:
        total = b.variable("total", const(0.0))
        with b.loop(m) as j:
            total.value = total.value + x[i, j]
            y[i, j] = total.value
    func = b.finish()

The builder serves computations that no tensor expression describes (sorting, scattering): operators
(`ops.Op.loops`) and parts of a tensor expression (`te.extern`).  Their authors mark loops with
independent iterations.  The compiler decides whether such a loop runs on threads, in vector lanes
or in sequence, and it chooses the memory of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, ExprLike, Load, Var, as_expr
from tilesmith.ir.loop_tables import ForKind, Scope
from tilesmith.ir.types import Dim, TensorType
from tilesmith.support.arguments import checked_methods
from tilesmith.support.errors import ExpressionError

from . import nodes
from .nodes import Buffer, Func, Stmt, seq

_Wrap = Callable[[Stmt], Stmt]


class Array:
    """A buffer in a program: `a[i, j]` reads an element, `a[i, j] = e` writes it."""

    def __init__(self, builder: LoopBuilder, buffer: Buffer) -> None:
        self._builder = builder
        self.buffer = buffer

    def __getitem__(self, indices: ExprLike | Sequence[ExprLike]) -> Load:
        return Load(self.buffer, _indices(indices))

    def __setitem__(self, indices: ExprLike | Sequence[ExprLike], value: ExprLike) -> None:
        own = _indices(indices)
        self._builder.append(nodes.Store(self.buffer, own, as_expr(value, Load(self.buffer, own))))


class Variable:
    """A mutable number; `value` reads and writes it."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def value(self) -> Expr:
        return self._array[0]

    @value.setter
    def value(self, new: ExprLike) -> None:
        self._array[0] = new


@checked_methods(ExpressionError)
class LoopBuilder:
    """Makes one `Func`, whose parameters are the inputs and outputs in the order of declaration."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._params: list[Buffer] = []
        self._outputs: list[Buffer] = []
        self._blocks: list[list[Stmt | _Wrap]] = [[]]

    def input(self, name: str, type: TensorType) -> Array:
        self._params.append(Buffer(name, type.dtype, type.shape))
        return Array(self, self._params[-1])

    def output(self, name: str, type: TensorType) -> Array:
        result = self.input(name, type)
        self._outputs.append(result.buffer)
        return result

    # blocks

    @contextmanager
    def loop(
        self,
        extent: ExprLike,
        name: str = "i",
        start: ExprLike = 0,
        kind: ForKind = "serial",
    ) -> Iterator[Var]:
        """A loop whose variable counts from `start` to `start + extent - 1`."""
        var = Var(name, i64)
        self._open()
        yield var
        self.append(nodes.For(var, as_expr(start), as_expr(extent), kind, self._close()))

    def independent(self, extent: ExprLike, name: str = "i") -> AbstractContextManager[Var]:
        """A loop whose iterations may run in any order, and in parallel."""
        return self.loop(extent, name, kind="parallel")

    @contextmanager
    def nest(
        self, shape: Sequence[ExprLike], name: str = "i", kind: ForKind = "serial"
    ) -> Iterator[tuple[Var, ...]]:
        """Nested loops, one for each extent.  Without extents the statements run once."""
        with ExitStack() as loops:
            yield tuple(
                loops.enter_context(self.loop(n, f"{name}{k}", kind=kind))
                for k, n in enumerate(shape)
            )

    def independent_nest(
        self, shape: Sequence[ExprLike], name: str = "i"
    ) -> AbstractContextManager[tuple[Var, ...]]:
        """`nest` of independent loops."""
        return self.nest(shape, name, "parallel")

    @contextmanager
    def when(self, cond: Expr) -> Iterator[None]:
        """Statements that run if `cond` is true."""
        self._open()
        yield
        self.append(nodes.If(as_expr(cond), self._close()))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Statements that run if the condition of the preceding `when` was false."""
        before = self._blocks[-1].pop() if self._blocks[-1] else None
        if not isinstance(before, nodes.If) or before.otherwise is not None:
            raise ExpressionError(f"{self._name}: expected a `when` right before an `otherwise`")
        self._open()
        yield
        self.append(nodes.If(before.cond, before.then, self._close()))

    # statements

    def append(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def check(self, cond: Expr, message: str) -> None:
        """Stop the kernel with `message` if `cond` is false."""
        self.append(nodes.Assert(as_expr(cond), message))

    def let(self, name: str, value: Expr) -> Var:
        """Evaluate an expression here and bind the result to a name until the end of the block."""
        known = as_expr(value)  # a `te` axis becomes its variable
        var = Var(name, known.dtype)
        self._blocks[-1].append(lambda rest: nodes.LetStmt(var, known, rest))
        return var

    def scratch(
        self, name: str, dtype: DType, shape: Sequence[Dim], scope: Scope = "heap"
    ) -> Array:
        """Uninitialised memory until the end of the block.  Each iteration of an independent loop
        has its own.
        """
        buffer = Buffer(name, to_dtype(dtype), tuple(shape), scope)
        self._blocks[-1].append(lambda rest: nodes.Allocate(buffer, rest))
        return Array(self, buffer)

    def variable(self, name: str, start: ExprLike) -> Variable:
        """A mutable number with initial value `start`, until the end of the block."""
        value = as_expr(start)
        result = Variable(self.scratch(name, value.dtype, (1,), "register"))
        result.value = value
        return result

    def finish(self) -> Func:
        """The function.  Raises ExpressionError if a block is still open."""
        if len(self._blocks) != 1:
            raise ExpressionError(
                f"{self._name}: finish() stands inside a block that is still open"
            )
        return Func(self._name, tuple(self._params), tuple(self._outputs), self._close())

    def _open(self) -> None:
        self._blocks.append([])

    def _close(self) -> Stmt:
        """The innermost block as one statement.  Allocations and lets contain the statements after
        them.
        """
        result = seq()
        for item in reversed(self._blocks.pop()):
            result = seq(item, result) if isinstance(item, Stmt) else item(result)
        return result


def _indices(written: ExprLike | Sequence[ExprLike]) -> tuple[Expr, ...]:
    items = written if isinstance(written, (tuple, list)) else (written,)
    return tuple(as_expr(i) for i in items)  # type: ignore[arg-type]
