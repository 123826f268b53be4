"""The choice, by cost, between computing a stage in its readers and storing it.

An inlined stage is computed again for each point at which it is read (a blur, a level of a
pyramid), and so are the stages inlined into it.  A stored stage is computed once, written and read.
Producers are decided first, so that the work of a stage with all inlined producers is known when
the stage is decided.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.ir.expr import Expr, Load, substitute
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.perf.cycles import read_rate
from tilesmith.te.rewrite import loads, map_loads
from tilesmith.te.state import State
from tilesmith.te.tensor import Compute, Reduce, Tensor

from .work import element_cycles, is_larger

MAX_NODES = 512
"""Upper bound on nodes of an expression after inlining.  More take long to compile and spill
registers.
"""
GAIN = 1.2
"""Least ratio of inlining cost to storing cost for which a stage is stored.  It exceeds 1, since an
inlined stage needs no loops.
"""


@dataclass(frozen=True, slots=True)
class Body:
    """A stage with the stages inlined into it so far.

    op: its compute.
    values: its expressions; for a reduction, the expressions that are reduced.
    needed: lower bound on its evaluations: of all elements, or of the elements that are read.
    each: cycles of one core per evaluation.
    """

    op: Compute
    values: tuple[Expr, ...]
    needed: float
    each: float

    @staticmethod
    def of(op: Compute, values: tuple[Expr, ...], needed: float, target: Target) -> Body:
        axes = (*op.axis, *op.reduce_axis)
        lane = axes[-1].var if axes else None
        return Body(op, values, needed, element_cycles(values, lane, target))


def stored_stages(
    state: State, inlined: Collection[str], target: Target
) -> dict[str, tuple[str, ...]]:
    """The stages of `inlined` that are better stored, each with the readers that should read it
    from memory.

    All other readers compute the stage again.
    """
    readers = direct_readers(state)
    computed = {n: _values(st.compute) for n, st in state.stages.items() if not st.is_placeholder}
    points = {n: {r: len(_reads(state, computed[r], n)) for r in readers[n]} for n in state.stages}
    if not any(sum(points[n].values()) > 1 for n in inlined):
        return {}
    needed = _needed(state, points)
    bodies = {
        n: Body.of(state.stages[n].compute, values, needed[n], target)
        for n, values in computed.items()
    }
    stored: dict[str, tuple[str, ...]] = {}
    for name in (n for n in state.stages if n in inlined):
        again = {
            r: _with_inlined(state, bodies[r], name, bodies[name], times, target)
            for r, times in points[name].items()
        }
        kept = _readers_from_memory(name, bodies, again, target)
        if kept:
            stored[name] = kept
        bodies |= {r: body for r, body in again.items() if body is not None and r not in kept}
    return stored


def _values(op: Compute) -> tuple[Expr, ...]:
    first = op.body[0] if op.body else None  # stages written as loops have no body
    return first.sources if isinstance(first, Reduce) else op.body


def _needed(state: State, points: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Lower bound on the evaluations of each stage: one for each element, or for each read."""
    evaluations: dict[str, float] = {}
    for name, stage in reversed(tuple(state.stages.items())):
        if not stage.is_placeholder:
            op = stage.compute
            elements = least = expected_size(op.shape)
            # The steps of a scan read earlier steps, so all steps are needed.
            later = (r in evaluations for r in points[name])
            if not stage.is_output and all(points[name].values()) and all(later):
                least = min(
                    elements, sum(times * evaluations[r] for r, times in points[name].items())
                )
            evaluations[name] = least * expected_size(a.extent for a in op.reduce_axis)
    return evaluations


def direct_readers(state: State) -> dict[str, list[str]]:
    """For each stage, the stages whose expressions read it."""
    readers: dict[str, list[str]] = {n: [] for n in state.stages}
    for stage in state.stages.values():
        for producer in dict.fromkeys(n for n, _ in stage.reads):
            readers[producer].append(stage.name)
    return readers


def _reads(state: State, values: Sequence[Expr], name: str) -> list[Load]:
    """The distinct reads of stage `name`."""
    return [
        n for n in loads(tuple(values)) if isinstance(n.buffer, Tensor)
        and state.tensors[n.buffer][0] == name
    ]  # fmt: skip


def _with_inlined(
    state: State, reader: Body, name: str, stage: Body, times: int, target: Target
) -> Body | None:
    """`reader` with stage `name` inlined at its `times` reads; None if the result is too large."""
    if times > 1 and is_larger(stage.values, 4 * MAX_NODES // times):
        return None
    variables = [a.var for a in stage.op.axis]

    def resolve(load: Load) -> Expr:
        assert isinstance(load.buffer, Tensor)
        source, value = state.tensors[load.buffer]
        if source != name:
            return load
        bindings: dict[Expr, Expr] = dict(zip(variables, load.indices, strict=True))
        return substitute(stage.values[value], bindings)

    values = map_loads(reader.values, resolve)
    if is_larger(values, MAX_NODES):
        return None
    return Body.of(reader.op, values, reader.needed, target)


def _readers_from_memory(
    name: str, bodies: Mapping[str, Body], again: Mapping[str, Body | None], target: Target
) -> tuple[str, ...]:
    """The readers for which stage `name` is better stored: none, the costliest, or all."""
    stage = bodies[name]
    extra = {
        r: math.inf if body is None else body.needed * (body.each - bodies[r].each)
        for r, body in again.items()
    }
    elements = expected_size(stage.op.shape)
    bytes_ = elements * sum(t.dtype.bytes for t in stage.op.outputs)
    once = elements * stage.each
    near = once + 3 * bytes_ / target.model.l2_bytes_per_cycle
    far = once + 3 * bytes_ / read_rate(bytes_, target)
    inline = sum(extra.values())
    every, costliest = tuple(extra), max(extra, key=lambda r: extra[r])
    ways = [
        (far if len(every) > 1 else near, every),
        (near + sum(extra[r] for r in every if r != costliest), (costliest,)),
    ]
    cycles, kept = min(ways)
    return kept if GAIN * cycles < inline else ()
