"""Gradients of branches and loops, which are branches and loops again.

A branch is run once more, followed by its backward pass.  A loop is run once more and records a
trace: the carried values before each iteration.  A second loop computes the gradients, from the
last iteration to the first.  For each iteration it repeats the forward pass from the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tilesmith.graph.builder import Builder
from tilesmith.graph.control import If, Loop
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.extents import difference
from tilesmith.ops.gradients import Call, zeros
from tilesmith.support.errors import UnsupportedError

Backwards: TypeAlias = Callable[
    [Builder, Graph, Sequence[Value], Sequence[int], Sequence[tuple[int, Value]]], list[Value]
]
"""Adds the forward and the backward pass of a body to a builder.  Arguments: the builder, the body,
the values of its inputs, numbers of the inputs whose gradients are wanted, and pairs of an output's
number and its cotangent.  The result has the gradient of each wanted input.
"""


def of_branches(call: Call, backwards: Backwards) -> tuple[Any, ...]:
    """The gradients of the operands of `If`; None for the condition."""
    op = call.op
    assert isinstance(op, If)
    if op.results:
        raise UnsupportedError("if with results of several shapes has no gradient")
    passed = [n for n, w in enumerate(call.wanted[1:]) if w]
    live = [n for n, g in enumerate(call.cotangents) if g is not None]

    def branch(body: Graph) -> Graph:
        b = Builder(body.name)
        inputs = [b.input(f"x{n}", v.type) for n, v in enumerate(body.inputs)]
        seeds = [(n, b.input(f"g{n}", body.outputs[n].type)) for n in live]
        results = backwards(b, body, inputs, passed, seeds)
        return b.finish(results, [f"d{n}" for n in passed])

    made = If(branch(op.then), branch(op.otherwise))
    results = call.builder.add(made, *call.inputs, *(call.cotangents[n] for n in live))
    values = iter(results if isinstance(results, tuple) else (results,))
    return None, *(next(values) if w else None for w in call.wanted[1:])


def of_loop(call: Call, backwards: Backwards) -> tuple[Any, ...]:
    """The gradients of the operands of `Loop`."""
    op, b = call.op, call.builder
    assert isinstance(op, Loop)
    if op.steps is None or op.conditional or op.symbols or op.inside:
        raise UnsupportedError(
            "loop has no gradient: expected a number of iterations and shapes that are known"
        )
    carried, sliced, same = op.split(call.inputs)
    a, c = len(carried), len(sliced)
    floats = [n for n, v in enumerate(carried) if v.type.dtype.is_float]
    moving = [n for n, v in enumerate(sliced) if v.type.dtype.is_float]
    still = [n for n, v in enumerate(same) if v.type.dtype.is_float]
    traced = _traced(op)
    results = b.add(traced, *call.inputs)
    results = results if isinstance(results, tuple) else (results,)
    trace = results[len(op.body.outputs) :]

    def cotangent(n: int) -> Any:
        g = call.cotangents[n]
        return zeros(b, call.outputs[n].type) if g is None else g

    collected = [n for n in range(len(op.collected)) if call.outputs[a + n].type.dtype.is_float]
    body = _reversed(op, floats, moving, still, collected, backwards)
    made = Loop(
        body,
        len(floats) + len(still),
        (
            *(-1 for _ in trace),
            *(-way for way in op.sliced),
            *(-op.collected[n] for n in collected),
        ),
        tuple(-op.sliced[n] for n in moving),
        op.steps,
    )
    gradients = b.add(
        made,
        *(cotangent(n) for n in floats),
        *(zeros(b, same[n].type) for n in still),
        *trace,
        *sliced,
        *(cotangent(a + n) for n in collected),
        *same,
    )
    values = list(gradients) if isinstance(gradients, tuple) else [gradients]
    places = [*floats, *(a + c + n for n in still), *(a + n for n in moving)]
    by_place = dict(zip(places, values, strict=True))
    return tuple(by_place.get(n) for n in range(len(call.inputs)))


def _traced(op: Loop) -> Loop:
    """The loop that also collects the carried values before each iteration."""
    body = op.body
    own = body.inputs[1 : 1 + op.carried]
    outputs = (*body.outputs, *own)
    names = tuple(f"y{n}" for n in range(len(outputs)))
    return replace(
        op,
        body=replace(body, outputs=outputs, output_names=names),
        collected=(*op.collected, *(1 for _ in own)),
    )


def _reversed(
    op: Loop,
    floats: Sequence[int],
    moving: Sequence[int],
    still: Sequence[int],
    collected: Sequence[int],
    backwards: Backwards,
) -> Graph:
    """The body of the loop of the gradients.

    floats, moving, still: numbers of those carried values, sliced inputs and unchanging values that
        are floats.
    collected: numbers of the collected results that are floats.
    """
    body, a, c = op.body, op.carried, len(op.sliced)
    own, elements, same = body.inputs[1 : 1 + a], body.inputs[1 + a :][:c], body.inputs[1 + a + c :]
    b = Builder(body.name)
    number = b.input("i", body.inputs[0].type)
    carried = [b.input(f"g{n}", own[n].type) for n in floats]
    sums = [b.input(f"s{n}", same[n].type) for n in still]
    trace = [b.input(f"x{n}", v.type) for n, v in enumerate(own)]
    rows = [b.input(f"e{n}", v.type) for n, v in enumerate(elements)]
    weights = [b.input(f"c{n}", body.outputs[a + n].type) for n in collected]
    fixed = [b.input(f"w{n}", v.type) for n, v in enumerate(same)]
    assert op.steps is not None
    last = number * 0 + difference(op.steps, 1)
    inputs = [last - number, *trace, *rows, *fixed]  # iterations run backwards
    wanted = [
        *(1 + n for n in floats), *(1 + a + c + n for n in still), *(1 + a + n for n in moving)
    ]  # fmt: skip
    seeds = [*zip(floats, carried, strict=True),
             *zip((a + n for n in collected), weights, strict=True)]  # fmt: skip
    gradients = backwards(b, body, inputs, wanted, seeds)
    end = len(floats)
    added = [s + g for s, g in zip(sums, gradients[end:], strict=False)]
    results = [*gradients[:end], *added, *gradients[end + len(still) :]]
    return b.finish(results, [f"d{n}" for n in range(len(results))])
