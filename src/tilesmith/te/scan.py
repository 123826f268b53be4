"""Scans: tensors whose values at one step are computed from those at earlier steps.

    s = te.placeholder((T, n), name="s")                            # stands for the result
    first = te.compute((1, n), lambda t, i: x[0, i])
    step = te.compute((T, n), lambda t, i: s[t - 1, i] + x[t, i])
    total = te.scan(first, step, s)                                 # a cumulative sum

The first axis of all these tensors is time.  A scan is a compute that reads its own results:

    total[t, i] = first[t, i] if t < 1 else step[t, i]

So every primitive for computes applies to it: its axes are split, vectorised and parallel, and
other stages are computed at its loops.  `Recurrence` holds the properties of a scan, for
`te.lower_scan` and `te.check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Expr, Load, Var, const, select
from tilesmith.ir.types import same_dim
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .rewrite import loads
from .tensor import Compute, Extern, IterVar, Operation, Placeholder, Recurrence, Tensor
from .written import line_of_caller


@checked(ExpressionError)
def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state: Tensor | Sequence[Tensor],
    name: str = "scan",
) -> Any:
    """The tensor of all steps of a recurrence; a tuple of tensors if sequences are given.

    init: the first steps, of shape (given, ...).  `given` is a constant, in most scans 1.
    update: the formula of step `t`, of shape (T, ...).  It reads the state only at steps `t -
        given` to `t - 1`, directly or through other computes whose first axis is time.
    state: placeholders of the shape of `update`, which stand for the result.

    Only the last steps are kept in memory if later stages read no other steps.  Raises
    ExpressionError for shapes, element types and indices that a scan can't have.
    """
    several = not isinstance(state, Tensor)
    inits, updates, states = (
        (x,) if isinstance(x, Tensor) else tuple(x) for x in (init, update, state)
    )
    if not len(inits) == len(updates) == len(states) > 0:
        raise ExpressionError(
            f"{name}: expected as many first steps and updates as states, found {len(inits)}, "
            f"{len(updates)} and {len(states)}"
        )
    first_steps = _checked_shapes(name, inits, updates, states)
    inside = _inside(updates, states)
    lag, mixed = _reads_of_states(name, inside, states, first_steps)
    axes = tuple(
        IterVar(Var(f"i{n}" if n else "t"), extent) for n, extent in enumerate(states[0].shape)
    )
    t, *rest = (a.var for a in axes)
    first = const(0) if first_steps == 1 else t
    body = tuple(
        select(t < first_steps, i[(first, *rest)], u[(t, *rest)])
        for i, u in zip(inits, updates, strict=True)
    )
    recurrence = Recurrence(states, first_steps, lag, mixed, inside)
    op = Compute(name, axes, body, source=line_of_caller(1), recurrence=recurrence)
    return op.outputs if several else op.outputs[0]


def _checked_shapes(
    name: str,
    inits: tuple[Tensor, ...],
    updates: tuple[Tensor, ...],
    states: tuple[Tensor, ...],
) -> int:
    """Check all shapes.  Returns the number of first steps."""
    whole = states[0].shape
    first_steps = inits[0].shape[0] if inits[0].shape else 0
    if not isinstance(first_steps, int) or first_steps < 1:
        raise ExpressionError(f"{name}: {inits[0]!r} must give a constant number of first steps")
    for first, step, s in zip(inits, updates, states, strict=True):
        if not isinstance(s.op, Placeholder):
            raise ExpressionError(f"{name}: a state is a te.placeholder, found {s!r}")
        if not first.dtype is step.dtype is s.dtype:
            raise ExpressionError(
                f"{name}: a state, its first steps and its update have one element type, found "
                f"{s!r}, {first!r} and {step!r}"
            )
        for tensor, shape in ((s, whole), (step, whole), (first, (first_steps, *whole[1:]))):
            fits = len(tensor.shape) == len(shape)
            if not fits or not all(map(same_dim, tensor.shape, shape)):
                raise ExpressionError(f"{name}: expected shape {list(shape)}, found {tensor!r}")
    return first_steps


def _reads_of_states(
    name: str, inside: frozenset[Compute], states: tuple[Tensor, ...], first_steps: int
) -> tuple[int, frozenset[int]]:
    """The largest distance in steps from a step to a state that it reads, and the axes along which
    a step reads other indices than its own.
    """
    rank, lag = len(states[0].shape), 1
    mixed: set[int] = set()
    own_states = set(states)
    for op in inside:
        if isinstance(op, Extern):
            raise ExpressionError(f"{name}: {op.name} is loops, which can't read a state")
        for load in loads(op.body):
            tensor = load.buffer
            assert isinstance(tensor, Tensor)
            if tensor not in own_states and tensor.op not in inside:
                continue
            back = _steps_back(op, load)
            if tensor not in own_states:
                if back != 0:
                    raise ExpressionError(
                        f"{name}: {op.name} reads {load}; what reads a state is read at its own "
                        "step, the first axis"
                    )
            elif back is None or not 1 <= back <= first_steps:
                raise ExpressionError(
                    f"{name}: {op.name} reads {load}; expected a step from {first_steps} to 1 "
                    "before its own, the first axis: as many as the first steps give"
                )
            else:
                lag = max(lag, back)
            own = [a.var for a in op.axis]
            mixed |= {
                a for a in range(1, rank)
                if not len(own) == len(load.indices) == rank or load.indices[a] is not own[a]
            }  # fmt: skip
    return lag, frozenset(mixed)


def _inside(updates: Sequence[Tensor], states: Sequence[Tensor]) -> frozenset[Compute]:
    """The computes that `updates` use and that read a state, directly or through others."""
    stack: list[Operation] = [u.op for u in updates]
    known: dict[Operation, bool] = {}
    own_states = set(states)
    while stack:
        op = stack[-1]
        if op in known:
            stack.pop()
            continue
        waiting = [t.op for t in op.inputs if t.op not in known and t not in own_states]
        if waiting:
            stack += waiting
            continue
        known[op] = any(t in own_states or known.get(t.op, False) for t in op.inputs)
    return frozenset(op for op, reads in known.items() if reads and isinstance(op, Compute))


def _steps_back(op: Compute, load: Load) -> int | None:
    """The distance in steps from a compute back to the state that it reads; None if it varies."""
    if not op.axis or not load.indices:
        return None
    time: Expr = op.axis[0].var
    terms, offset = affine_form(load.indices[0] - time)
    return -offset if not terms else None
