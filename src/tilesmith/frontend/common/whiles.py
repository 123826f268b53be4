"""Loops that run while a condition holds, for formats in which the condition and the step are two
functions of the carried values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import one, only_tensors, results_of, several, values_of
from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.iterations import ENDLESS, settled
from tilesmith.frontend.common.slots import Resource, Result, Slot
from tilesmith.graph.control import Loop
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, i64

_STEPS = 1 << 12
"""Upper bound on the steps of an unrolled loop."""


def repeated(n: CallingNode, condition: Any, step: Any, state: Sequence[Slot]) -> Result:
    """The carried values after a loop that begins with `state`.

    condition: a function of the carried values; its only result says whether another iteration
        follows.
    step: a function from the carried values of an iteration to those of the next iteration.
    """
    first = _condition(n, n.inline(condition, state, n.loc))
    known = n.known(first)
    if known is not None and not known:
        return tuple(state)
    made = _loop(n, condition, step, first, state)
    return _unrolled(n, condition, step, first, state) if made is None else made


def _loop(
    n: CallingNode, condition: Any, step: Any, first: Value, before: Sequence[Slot]
) -> tuple[Slot, ...] | None:
    """A loop at run time; None if a graph can't hold its carried values.

    first: the condition before the first iteration, which is not known to be false.
    """
    handles = {i: s for i, s in enumerate(before) if isinstance(s, Resource)}
    state = only_tensors([s for s in before if not isinstance(s, Resource)])
    if state is None:
        return None

    def completed(values: Sequence[Value]) -> list[Slot]:
        """`values` with the handles inserted.  Handles are carried values that never change."""
        rest = iter(values)
        return [handles[i] if i in handles else next(rest) for i in range(len(before))]

    def iterate(body: Body, number: Value, inner: Sequence[Value]) -> Sequence[Value] | None:
        results = n.nest(body, step, completed(inner), n.loc)
        if results is None or any(results[i] != s for i, s in handles.items()):
            return None
        again = n.nest(body, condition, results, n.loc)
        values = only_tensors([s for i, s in enumerate(results) if i not in handles])
        if values is None or again is None:
            return None
        return [_condition(n, again), *values]

    made = settled(n, state, iterate)
    if made is None:
        return None
    shapes, body, again, results = made
    names = [f"out{i}" for i in range(len(results) + 1)]
    graph = body.finish([again, *results], names)
    op = shapes.completed(Loop(graph, len(state), conditional=True))
    assert op is not None  # the loop collects no results
    n.builder.measured.update(op.symbols)
    after = several(n.add(op, n.const(ENDLESS, i64), first, *state, *body.captured))
    return tuple(completed(after))


def _unrolled(
    n: CallingNode, condition: Any, step: Any, going: Value, state: Sequence[Slot]
) -> Result:
    """Unroll a loop whose conditions are known.

    Raises ValuesNeededError if a condition is not known.
    """
    for number in range(_STEPS):
        if not n.scalar(going, "the condition of the loop"):
            return tuple(state)
        loc = f"{n.loc}.{number}"
        state = results_of(n.inline(step, state, loc))
        going = _condition(n, n.inline(condition, state, loc))
    return n.unsupported(f"a loop of more than {_STEPS} steps whose values change their form")


def _condition(n: CallingNode, results: list[Slot]) -> Value:
    """The only result of a condition, as a scalar bool."""
    (condition, *others) = values_of(n, results)
    if others or condition.dtype is not bool_ or condition.type.size != 1:
        n.bad(f"the condition: expected one bool, found {condition.type}")
    return one(n, condition)
