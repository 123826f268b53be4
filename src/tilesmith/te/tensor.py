"""Tensor expressions: the value of each element of a tensor, independent of its execution.

A `Tensor` is one output of an operation: a `Placeholder` (an argument) or a `Compute` (an
expression per element).  The graph is immutable.  A schedule (`te.schedule`) refers to its
operations and defines their loops.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, ExprLike, Load, Operators, Var, as_expr, const, declared
from tilesmith.ir.grammar import Label, Operand
from tilesmith.ir.types import Dim, same_dim
from tilesmith.loop.nodes import Func
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import ExpressionError

from .laws import ALL_LAWS, Laws
from .written import extent as checked_extent
from .written import extents, line_of_caller


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(Operators):
    """An axis.

    var: its variable, which runs from 0 to `extent` - 1.
    extent: number of values.
    is_reduce: True for a reduction axis.
    """

    var: Var
    extent: Dim
    is_reduce: bool = False

    @property
    def name(self) -> str:
        return self.var.name

    def __as_expr__(self) -> Expr:
        return self.var

    def __repr__(self) -> str:
        return f"<axis {self.name}: {'reduce ' if self.is_reduce else ''}{self.extent}>"


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """The way in which a reduction combines values.  Reducers with equal fields are equal.  No
    other reducer has the definition of `SUM`, `PROD`, `MIN` or `MAX`, because these are recognised
    (see `comm_reducer`).

    name: label for people.
    combine: maps two n-tuples of values to one (argmax has n = 2).
    identity: maps the n element types to the n starting values.
    laws: laws that permit combining the values in another order.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]]
    laws: Laws = ALL_LAWS

    @property
    def operation(self) -> str | None:
        """ "add", "mul", "min" or "max" if that combines the values; else None."""
        operations = (op for op, known in BY_OPERATION.items() if self.combine is known.combine)
        return next(operations, None)


@declared.node
class Reduce(Expr):
    """One value of a reduction; allowed only at the top of a compute body.

    reducer: how values are combined.
    sources: the reduced expressions.
    axes: the reduction axes.
    index: number of the value, for a reducer of several values.
    """

    reducer: Label[Reducer]
    sources: Operand[tuple[Expr, ...]]
    axes: Label[tuple[IterVar, ...]]
    index: Label[int] = 0

    def _infer(self) -> tuple[DType, int]:
        return self.sources[self.index].dtype, 1


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """An argument of the program; its one output is `outputs[0]`.

    name: label for people.
    shape: extents.
    dtype: element type.
    outputs: its one tensor.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: DType
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", (Tensor(self, 0),))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """The properties of a scan (`te.scan`), a compute that reads its own results of earlier steps.

    states: placeholders that stand for the outputs of the scan, in order.
    given: number of first steps that read no state.
    lag: upper bound on the distance in steps to an earlier result that a step reads.
    mixed: numbers of the axes along which a step reads other indices than its own.
    inside: the computes that read a state.  They exist for step `given` and later steps.
    """

    states: tuple[Tensor, ...]
    given: int
    lag: int
    mixed: frozenset[int]
    inside: frozenset[Compute] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """`outputs[v][axis vars] = body[v]` for every point of `axis`.

    With a reduction every body is a `Reduce` of the same reducer, sources and axes, with `index` 0,
    1, ...

    name: label for people.
    axis: spatial axes.
    body: one expression per output.
    reduce_axis: reduction axes.
    source: the place "file:line" where a user wrote it; empty for the compiler's own.
    recurrence: the properties of a scan, whose first axis is time; None for other computes.
    outputs: its tensors.
    inputs: the tensors that the body reads, each once, in order of first use.
    """

    name: str
    axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    reduce_axis: tuple[IterVar, ...] = ()
    source: str = field(default="", repr=False)
    recurrence: Recurrence | None = None
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)
    inputs: tuple[Tensor, ...] = field(init=False, repr=False)
    """The tensors that the body reads, each once, in order of first use."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", tuple(Tensor(self, i) for i in range(len(self.body))))
        seen: dict[Tensor, None] = {}
        for body in self.body:
            for node in ir.post_order(body):
                if isinstance(node, Load):
                    assert isinstance(node.buffer, Tensor)
                    seen[node.buffer] = None
        object.__setattr__(self, "inputs", tuple(seen))

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(a.extent for a in self.axis)

    @property
    def laws(self) -> Laws:
        """The laws of the compute's reduction; all laws if it has none."""
        first = self.body[0] if self.body else None
        return first.reducer.laws if isinstance(first, Reduce) else ALL_LAWS

    @property
    def place(self) -> str:
        """The compute's name and source position, for error messages."""
        return f"{self.name} ({self.source})" if self.source else self.name


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Extern(Compute):
    """A compute without axes, with results that are computed by loops (`te.extern`).

    func: the loops; its buffers are `sources`, then the results.
    sources: the tensors that the loops read.
    """

    func: Func = field(repr=False)
    sources: tuple[Tensor, ...] = field(repr=False)

    def __post_init__(self) -> None:
        count = len(self.func.outputs)
        object.__setattr__(self, "outputs", tuple(Tensor(self, i) for i in range(count)))
        object.__setattr__(self, "inputs", tuple(dict.fromkeys(self.sources)))

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the first result."""
        return self.func.outputs[0].shape


Operation: TypeAlias = Placeholder | Compute


def producers_first(ops: Iterable[Operation]) -> dict[Operation, tuple[Tensor, ...]]:
    """`ops` and all operations that they need, producers first, each with the tensors it reads."""
    order: dict[Operation, tuple[Tensor, ...]] = {}
    inputs: dict[Operation, tuple[Tensor, ...]] = {}
    stack = [(op, False) for op in reversed([*ops])]
    while stack:
        op, expanded = stack.pop()
        if expanded:
            order[op] = inputs[op]
        elif op not in inputs:
            inputs[op] = op.inputs
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(inputs[op]))
    return order


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(Operators):
    """One output of an operation.  Indexing a tensor makes a `Load` for use in other computes.  A
    tensor without dimensions can be used like its only element.

    op: the operation.
    index: number of the output.
    """

    op: Operation
    index: int = 0

    @property
    def name(self) -> str:
        return self.op.name if self.index == 0 else f"{self.op.name}.{self.index}"

    @property
    def shape(self) -> tuple[Dim, ...]:
        op = self.op
        return op.func.outputs[self.index].shape if isinstance(op, Extern) else op.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        op = self.op
        if isinstance(op, Extern):
            return op.func.outputs[self.index].dtype
        return op.dtype if isinstance(op, Placeholder) else op.body[self.index].dtype

    __iter__ = None  # without it, Python would try the indices 0, 1, ...

    def __getitem__(self, indices: Any) -> Load:
        parts = indices if isinstance(indices, tuple) else (indices,)
        if len(parts) != self.rank:
            raise ExpressionError(
                f"{self.name} has rank {self.rank}, indexed with {len(parts)} indices"
            )
        exprs = tuple(as_expr(p) for p in parts)
        for e in exprs:
            if not e.dtype.is_int:
                raise ExpressionError(
                    f"{self.name} is indexed with {e}, a {e.dtype}; indices are integers"
                )
        return Load(self, tuple(ir.cast(e, i64) for e in exprs))

    def __call__(self, *indices: ExprLike) -> Load:
        return self[indices]

    def __as_expr__(self) -> Expr:
        if self.rank:
            raise ExpressionError(f"{self.name} has rank {self.rank}; index it to use an element")
        return self[()]

    def __repr__(self) -> str:
        return f"<tensor {self.name}: {self.dtype}{list(self.shape)}>"


@checked(ExpressionError, besides=["shape"])
def placeholder(shape: Sequence[Dim], dtype: DType | str = f32, name: str = "in") -> Tensor:
    """A program argument of `shape` and element type.  Raises ExpressionError for a bad shape."""
    return Placeholder(name, extents(shape, name), to_dtype(dtype)).outputs[0]


@checked(ExpressionError)
def var(name: str = "n") -> Var:
    """An i64 variable: an extent that is known only at run time, or an operand of expressions."""
    return Var(name, i64)


@checked(ExpressionError, besides=["extent"])
def reduce_axis(extent: Dim | tuple[Dim, Dim], name: str = "k") -> IterVar:
    """A reduction axis; `extent` is a number, or the pair (0, extent) as TE users write it."""
    if isinstance(extent, tuple):
        if len(extent) != 2:
            raise ExpressionError(
                f"reduce_axis {name!r}: expected an extent or (0, extent), found {shown(extent)}"
            )
        start, extent = extent
        if not same_dim(start, 0):
            raise ExpressionError(
                f"reduce_axis {name!r} starts at {start}; axes start at 0: add the start to the "
                "index"
            )
    return IterVar(Var(name), checked_extent(extent, f"reduce_axis {name}"), is_reduce=True)


@checked(ExpressionError, besides=["shape"])
def compute(
    shape: Sequence[Dim],
    body: Callable[..., Any],
    name: str = "compute",
    axis_names: Sequence[str] | None = None,
) -> Any:
    """The tensor whose element at (i, j, ...) is `body(i, j, ...)`; a tuple of tensors if `body`
    returns a tuple.

    `body` may take one variable per dimension or `*indices`; parameters with a default are not
    indices.  Raises ExpressionError for a wrong number of parameters, a bad shape, or a reduction
    that is not the whole of the element.
    """
    shape = extents(shape, name)
    parameters = inspect.signature(body).parameters.values()
    # parameters with defaults capture values, as in c=c
    params = [p for p in parameters if p.default is p.empty]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in params)
    names = [p.name for p in params if p.kind is not p.VAR_POSITIONAL]
    if not variadic and len(names) != len(shape):
        raise ExpressionError(
            f"{name}: the body takes {len(names)} indices, the shape has {len(shape)} dimensions"
        )
    if axis_names is None:
        axis_names = [names[i] if i < len(names) else f"i{i}" for i in range(len(shape))]
    if len(axis_names) != len(shape):
        raise ExpressionError(
            f"{name}: {len(axis_names)} axis_names, but the shape has {len(shape)} dimensions"
        )
    axes = tuple(IterVar(Var(n), e) for n, e in zip(axis_names, shape, strict=True))
    result = body(*(a.var for a in axes))
    several = isinstance(result, (tuple, list))
    bodies = tuple(as_expr(r) for r in (result if several else (result,)))
    reduces = [b for b in bodies if isinstance(b, Reduce)]
    for b in bodies:
        inner = [n for n in ir.post_order(b) if isinstance(n, Reduce) and n is not b]
        if inner:
            raise ExpressionError(
                f"{name}: a reduction stands inside another expression; give it a compute of its "
                "own"
            )
    if reduces and (
        len(reduces) != len(bodies) or any(r.sources is not reduces[0].sources for r in reduces)
    ):
        raise ExpressionError(f"{name}: all values of a compute must come from one reduction")
    source = line_of_caller(1)
    op = Compute(name, axes, bodies, reduces[0].axes if reduces else (), source)
    return op.outputs if several else op.outputs[0]


def reduced_axes(axis: IterVar | Sequence[IterVar]) -> tuple[IterVar, ...]:
    if not isinstance(axis, (IterVar, Expr, list, tuple)):
        raise ExpressionError(
            f"expected a reduction axis, made with te.reduce_axis, or a list, found {shown(axis)}"
        )
    axes = (axis,) if isinstance(axis, (IterVar, Expr)) else tuple(axis)
    for a in axes:
        if not isinstance(a, IterVar) or not a.is_reduce:
            raise ExpressionError(
                f"{shown(a)} is not a reduction axis; make one with te.reduce_axis"
            )
    if not axes:
        raise ExpressionError("a reduction needs at least one axis; make one with te.reduce_axis")
    if len(set(axes)) < len(axes):
        raise ExpressionError(
            f"a reduction lists an axis twice: {', '.join(a.name for a in axes)}; list each once"
        )
    return axes


def _builtin(name: str, op: str, identity: Callable[[DType], int | float]) -> Reducer:
    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (ir.binary(op, a[0], b[0]),)

    def start(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        return (const(identity(dtypes[0]), dtypes[0]),)

    return Reducer(name, combine, start)


SUM = _builtin("sum", "add", lambda d: 0)
PROD = _builtin("prod", "mul", lambda d: 1)
MIN = _builtin("min", "min", lambda d: d.max)
MAX = _builtin("max", "max", lambda d: d.min)
KNOWN = (SUM, PROD, MIN, MAX)
BY_OPERATION = {"add": SUM, "mul": PROD, "min": MIN, "max": MAX}


def recognised(reducer: Reducer, dtypes: tuple[DType, ...]) -> Reducer:
    """`SUM`, `PROD`, `MIN` or `MAX` if `reducer` has the same definition for `dtypes`, whatever its
    name.  If only the start value differs from one of these reducers, the result combines like this
    reducer and keeps the start value.  Any other `reducer` is returned as it is.
    """
    a, b = (tuple(Var(f"{x}{n}", d) for n, d in enumerate(dtypes)) for x in "ab")
    (value, *others), (start, *_) = reducer.combine(a, b), reducer.identity(dtypes)
    if others or not isinstance(value, ir.Binary) or {value.a, value.b} != {*a, *b}:
        return reducer
    known = BY_OPERATION.get(value.op)
    if known is None:
        return reducer
    (neutral,) = known.identity(dtypes)
    if start is neutral:
        return known
    if known in (SUM, PROD) and isinstance(start, ir.Const) and start is not const(-0.0, dtypes[0]):
        raise ExpressionError(
            f"reducer {reducer.name!r} starts from {start}, which changes a {known.name}: a split "
            f"reduction would count it in each part; start from {neutral}"
        )
    return Reducer(reducer.name, known.combine, reducer.identity)


def _reduction(reducer: Reducer) -> Callable[..., Expr]:
    def reduce(value: ExprLike, axis: IterVar | Sequence[IterVar]) -> Expr:
        source = as_expr(value)
        if source.dtype.is_bool and reducer in (SUM, PROD):
            raise ExpressionError(f"te.{reducer.name} of bools: cast {source} to a number first")
        return Reduce(reducer, (source,), reduced_axes(axis))

    reduce.__name__ = reducer.name
    reduce.__doc__ = f"The {reducer.name} of `value` over reduction axes `axis`."
    return reduce


def _extremum(reducer: Reducer) -> Callable[..., Expr]:
    over = _reduction(reducer)

    def extremum(value: ExprLike, axis: ExprLike | IterVar | Sequence[IterVar]) -> Expr:
        if isinstance(axis, (IterVar, tuple, list)):
            return over(value, axis)
        return ir.binary(reducer.name, value, axis)  # type: ignore[arg-type]  # no axis

    extremum.__name__ = reducer.name
    extremum.__doc__ = (
        f"The {reducer.name} of `value` over reduction axes `axis`, or of two operands: "
        f"`te.{reducer.name}(x, 0)`."
    )
    return extremum


sum = _reduction(SUM)  # the name is that of TVM: te.sum
prod = _reduction(PROD)
min = _extremum(MIN)  # te.min
max = _extremum(MAX)  # te.max


def if_then_else(cond: Expr, if_true: ExprLike, if_false: ExprLike) -> Expr:
    """`if_true` where `cond` holds, else `if_false`.  Only one of the two is evaluated, so `cond`
    may guard a load.
    """
    return ir.select(cond, if_true, if_false)
