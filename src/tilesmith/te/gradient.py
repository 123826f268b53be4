"""Reverse-mode differentiation of tensor expressions: the gradient of computes consists of
computes.

An output element reads elements of a tensor X: `Y[i] = f(..., X[a(i, k)], ...)`, where i are the
spatial axes and k the reduction axes.  With the cotangent G of Y, the gradient of X is

    dX[j] = sum over all (i, k) with a(i, k) = j of G[i] * f'(i, k)

a(i, k) = j stands for one equation per dimension of X.  `_Read` solves the affine equations for
axes.  A solved axis disappears from the sum.  If the solution may lie outside the axis, a condition
remains.  An equation that is not affine, such as a lookup or a clamp, stays as a condition of the
sum.  So the gradient of a contraction is a contraction.  The gradient of a padding is a crop.  The
gradient of a window with strides is a sum over the taps whose position is divisible by the stride.

Reductions: each term of a sum gets the cotangent.  If several elements equal the maximum or
    minimum, they share the cotangent evenly, as in `torch.amax`.  In a product, each factor gets
    the cotangent times the product of the other factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilesmith.ir.affine import as_affine
from tilesmith.ir.derivative import derivative, times
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.expr import (
    Const,
    Expr,
    Let,
    Load,
    Var,
    all_of,
    as_expr,
    cast,
    const,
    post_order,
    reads_memory,
    rebuilt,
    select,
    substitute,
    vars_of,
)
from tilesmith.ir.simplify import EMPTY, can_prove, simplify
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .rewrite import loads
from .tensor import (
    MAX,
    MIN,
    PROD,
    SUM,
    Compute,
    Extern,
    IterVar,
    Placeholder,
    Reduce,
    Tensor,
    compute,
    producers_first,
    reduce_axis,
)
from .tensor import prod as product
from .tensor import sum as total


@checked(ExpressionError)
def gradient(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    cotangents: Tensor | Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of `outputs` with respect to `inputs`, each of the shape and type of its input.

    outputs: tensors of floats.
    inputs: tensors that `outputs` are computed from; arguments or intermediate results.
    cotangents: a tensor per output, of its shape and type, by which the output's elements are
        weighted.  None: ones, which gives the gradient of the sum of all elements.

    The gradient of an input that no output depends on is zero.  Raises ExpressionError for tensors
    of integers, cotangents of another shape or type, and computes without a derivative: loops
    (`te.extern`), recurrences (`te.scan`) and reducers other than sum, product, minimum, maximum.
    """
    ys, xs = _tensors(outputs, "outputs"), _tensors(inputs, "inputs")
    for t in (*ys, *xs):
        if not t.dtype.is_float:
            raise ExpressionError(
                f"gradient: expected tensors of floats, found {t.name} of {t.dtype}, which has no "
                "derivative"
            )
    if cotangents is None:
        seeds = tuple(
            compute(y.shape, lambda *i, y=y: const(1, y.dtype), f"d_{y.name}") for y in ys
        )
    else:
        seeds = _tensors(cotangents, "cotangents")
    if len(seeds) != len(ys):
        raise ExpressionError(
            f"gradient: expected a cotangent for each of {len(ys)} outputs, found {len(seeds)}"
        )
    for y, g in zip(ys, seeds, strict=True):
        if g.dtype is not y.dtype or not same_shape(g.shape, y.shape):
            raise ExpressionError(
                f"gradient: expected a cotangent of the shape and type of {y!r}, found {g!r}"
            )
    return _Reverse(ys, xs, seeds).run()


def _tensors(given: Tensor | Sequence[Tensor], what: str) -> tuple[Tensor, ...]:
    listed = (given,) if isinstance(given, Tensor) else tuple(given)
    for t in listed:
        if not isinstance(t, Tensor):
            raise ExpressionError(f"gradient: expected tensors as {what}, found {t!r}")
    return listed


def _wide(dtype: DType) -> DType:
    """The type in which gradients of `dtype` are added: f32 for 16-bit floats."""
    return f32 if dtype.bits == 16 else dtype


@dataclass
class _Reverse:
    """One differentiation.

    outputs, inputs, seeds: those of `gradient`.
    parts: for each tensor, the terms of its gradient; they are in the type of `_wide`.
    """

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    seeds: tuple[Tensor, ...]
    parts: dict[Tensor, list[Tensor]] = field(default_factory=dict)

    def run(self) -> tuple[Tensor, ...]:
        order = producers_first(t.op for t in self.outputs)
        wanted = set(self.inputs)  # a set, since `in` on a tuple would compare with ==
        reached = set(wanted)
        for op in order:
            if any(t in reached for t in op.inputs):
                reached.update(op.outputs)
        for y, seed in zip(self.outputs, self.seeds, strict=True):
            self.parts.setdefault(y, []).append(seed)
        results: dict[Tensor, Tensor] = {}
        for op in reversed(order):
            for y in op.outputs:
                if y not in reached or y not in self.parts:
                    continue
                g = self.whole(y)
                if y in wanted:
                    results[y] = g
                if any(t in reached for t in op.inputs):
                    self.step(op, y, g, reached)
        return tuple(results[x] if x in results else _zeros(x) for x in self.inputs)

    def whole(self, x: Tensor) -> Tensor:
        """The gradient of `x`: the sum of its terms, in the type of `x`."""
        parts = self.parts[x]
        if len(parts) == 1 and parts[0].dtype is x.dtype:
            return parts[0]

        def body(*i: Expr) -> Expr:
            values = [cast(p[i], _wide(x.dtype)) for p in parts]
            value = values[0]
            for v in values[1:]:
                value = value + v
            return cast(value, x.dtype)

        return compute(x.shape, body, f"d_{x.name}", _names(x))

    def step(self, op: Compute | Placeholder, y: Tensor, g: Tensor, reached: set[Tensor]) -> None:
        """Add the terms that the cotangent `g` of `y` gives to the tensors that `op` reads."""
        if isinstance(op, Placeholder):
            return
        if isinstance(op, Extern) or op.recurrence is not None:
            kind = "te.extern" if isinstance(op, Extern) else "te.scan"
            raise ExpressionError(
                f"gradient: {op.place} is a {kind}, which has no derivative; expected te.compute"
            )
        body = op.body[y.index]
        weight = cast(g[tuple(a.var for a in op.axis)], _wide(g.dtype))
        if isinstance(body, Reduce):
            value, weight = _of_reduction(op, body, y, weight)
        else:
            value = body
        value = _without_lets(value)
        for load in loads((value,)):
            x = load.buffer
            if not isinstance(x, Tensor) or x not in reached or not x.dtype.is_float:
                continue
            slope = derivative(value, load)
            if slope is not None:
                term = times(weight, cast(slope, weight.dtype))
                part = _Read(op, load, x, simplify(term)).sum()
                self.parts.setdefault(x, []).append(part)


def _zeros(x: Tensor) -> Tensor:
    return compute(x.shape, lambda *i: const(0, x.dtype), f"d_{x.name}")


def _names(x: Tensor) -> list[str] | None:
    return [a.name for a in x.op.axis] if isinstance(x.op, Compute) else None


def _without_lets(root: Expr) -> Expr:
    """`root` with the value of each `Let` in place of its variable."""
    done: dict[Expr, Expr] = {}
    for node in post_order(root):
        new = rebuilt(node, done)
        done[node] = substitute(new.body, {new.var: new.value}) if isinstance(new, Let) else new
    return done[root]


def _of_reduction(op: Compute, body: Reduce, y: Tensor, weight: Expr) -> tuple[Expr, Expr]:
    """The reduced expression, and the cotangent of one of its values."""
    reducer = next((r for r in (SUM, PROD, MIN, MAX) if body.reducer.combine is r.combine), None)
    value, *others = body.sources
    if reducer is None or others:
        raise ExpressionError(
            f"gradient: {op.place} reduces with {body.reducer.name!r}, which has no derivative; "
            "expected a sum, product, minimum or maximum"
        )
    if reducer is SUM:
        return value, weight
    own = tuple(a.var for a in op.axis)

    def reduced(e: Expr, name: str, combine: object = total) -> Tensor:
        """A stage that reduces `e` over the same axes."""
        axes = [reduce_axis(a.extent, a.name) for a in op.reduce_axis]
        renamed = {a.var: b.var for a, b in zip(op.reduce_axis, axes, strict=True)}

        def body(*i: Expr) -> Expr:
            spatial = {a.var: v for a, v in zip(op.axis, i, strict=True)}
            return combine(substitute(e, {**renamed, **spatial}), axis=axes)  # type: ignore[operator]

        return compute(op.shape, body, name, [a.name for a in op.axis])

    one, zero = const(1, value.dtype), const(0, value.dtype)
    if reducer in (MIN, MAX):
        is_chosen = value == y[own]
        ties = reduced(select(is_chosen, one, zero), "ties")
        return value, select(is_chosen, weight / cast(ties[own], weight.dtype), 0)
    # The product of the other factors, also if some factors are 0.
    zeros = reduced(select(value == 0, one, zero), "zeros")
    rest = reduced(select(value == 0, one, value), "rest", product)
    others = select(
        value == 0,
        select(zeros[own] == 1, rest[own], zero),
        select(zeros[own] == 0, rest[own] / value, zero),
    )
    return value, weight * cast(others, weight.dtype)


class _Read:
    """The part of a tensor's gradient that comes from one compute's reads of this tensor.

    axes: the axes of the compute that are not solved yet.
    known: solved axes, as expressions of the tensor's index and of the other axes.
    conditions: what must hold for an iteration to read the element.
    """

    def __init__(self, op: Compute, load: Load, x: Tensor, term: Expr) -> None:
        self.op, self.load, self.x, self.term = op, load, x, term
        self.axes = {a.var: a for a in (*op.axis, *op.reduce_axis)}
        self.known: dict[Expr, Expr] = {}
        self.conditions: list[Expr] = []

    def sum(self) -> Tensor:
        """`dX[j]`, in the type of `term`."""
        index = [IterVar(Var(f"j{n}"), e) for n, e in enumerate(self.x.shape)]
        self.solve([a.var for a in index])
        free = {v: reduce_axis(a.extent, a.name) for v, a in self.axes.items()}
        renamed: dict[Expr, Expr] = {v: a.var for v, a in free.items()}
        ranges = EMPTY.with_box(
            {a.var: (0, as_expr(a.extent) - 1) for a in (*index, *free.values())}
        )
        known = {v: substitute(e, renamed) for v, e in self.known.items()}
        conditions = [simplify(substitute(c, renamed), ranges) for c in self.conditions]
        conditions = [c for c in dict.fromkeys(conditions) if not can_prove(c, ranges)]
        value = simplify(substitute(self.term, {**renamed, **known}), ranges)
        # Conditions that read memory are evaluated only where the others hold.
        for tests in (
            [c for c in conditions if reads_memory(c)],
            [c for c in conditions if not reads_memory(c)],
        ):
            if tests:
                value = select(all_of(*tests), value, const(0, value.dtype))
        if free:
            value = Reduce(SUM, (value,), tuple(free.values()))

        def body(*j: Expr) -> Expr:
            return substitute(value, {a.var: v for a, v in zip(index, j, strict=True)})

        return compute(self.x.shape, body, f"d_{self.x.name}", _names(self.x))

    def solve(self, index: Sequence[Var]) -> None:
        """Solve the equations `load.indices = index` for axes."""
        waiting = list(zip(self.load.indices, index, self.x.shape, strict=True))
        # Plain axes first: they make the other equations smaller.
        waiting.sort(key=lambda w: (not isinstance(w[0], Var), len(vars_of((w[0],)))))
        for read, j, extent in waiting:
            if same_dim(extent, 1) and isinstance(read, Const):
                continue
            equation = simplify(substitute(read, self.known)) if self.known else read
            if not self.solve_one(equation, j, extent):
                self.conditions.append(equation == j)

    def solve_one(self, at: Expr, j: Var, extent: object) -> bool:
        """Solve `at = j` for one axis.  If `at` is affine in several axes, the axis with the most
        iterations is chosen.  Returns False if `at` is not affine in any axis.
        """
        form = as_affine(at)
        if form is None:
            return False
        terms, constant = form
        inside = [v for v in terms if isinstance(v, Var) and v in self.axes]
        others = vars_of(e for e in terms if not isinstance(e, Var))
        inside = [v for v in inside if v not in others]
        if not inside:
            return False
        axis = max(inside, key=lambda v: expected(self.axes[v].extent))
        factor = terms[axis]
        rest: Expr = j - constant if constant else j
        for e, k in terms.items():
            if e is not axis:
                rest = rest - (e if k == 1 else e * k)
        if factor < 0:
            rest, factor = -rest, -factor
        if factor > 1:
            self.conditions.append(rest % factor == 0)
            rest = rest // factor
        own = self.axes.pop(axis)
        if not (rest is j and same_dim(own.extent, extent)):  # type: ignore[arg-type]  # a Dim
            self.conditions += [rest >= 0, rest < as_expr(own.extent)]
        # Solutions of earlier equations may contain this axis.
        self.known = {v: substitute(e, {axis: rest}) for v, e in self.known.items()}
        self.conditions = [substitute(c, {axis: rest}) for c in self.conditions]
        self.known[axis] = rest
        return True
