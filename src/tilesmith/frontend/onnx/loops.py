"""ONNX's Loop and Scan.

A loop of a few steps, or with only known values, is unrolled.  Any other loop becomes a node with a
body.  Carried values may change their shapes (`carried`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import (
    as_values,
    one,
    only_tensors,
    results_of,
    several,
    tensors,
    values_of,
)
from tilesmith.frontend.common.carried import CarriedShapes
from tilesmith.frontend.common.errors import ValuesNeededError
from tilesmith.frontend.common.host_values import as_value, common_type, lifted
from tilesmith.frontend.common.iterations import ENDLESS, settled
from tilesmith.frontend.common.slots import Result, Slot
from tilesmith.frontend.onnx.collected import WIDTH, Ragged
from tilesmith.frontend.onnx.control import graph_attribute
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.control import INDEX, Loop
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops import gather, shape, slicing
from tilesmith.ops.functions import maximum

_STEPS = 1 << 12
"""Upper bound on the steps of an unrolled loop."""
_FEW = 4
"""Upper bound on the steps of a loop that is unrolled although it could be a node.

A loop whose body has sub-graphs is not unrolled for this reason.  Every loop is first imported as a
node.  So if all of n nested loops were unrolled, the innermost body would be imported 2**n times.
"""
_PLENTY = 1 << 40
"""Upper bound on the steps of a loop without a condition: more would take days."""


@onnx_op("Loop", since=1)
def loop(n: OnnxNode) -> Result:
    body = graph_attribute(n, "body")
    limit, condition = n.optional(0), n.optional(1)
    carried = n.all_slots[2:]
    if any(v is None for v in carried):
        n.bad("expected every loop-carried value, found one left out")
    if len(body.output) < 1 + len(carried):
        n.bad(f"expected at least {1 + len(carried)} outputs of the body, found {len(body.output)}")
    made = _loop_node(n, body, limit, condition, carried)
    if made is not None:
        return made
    try:
        return _unrolled(n, body, limit, condition, carried)
    except ValuesNeededError:
        values = [as_value(n.builder, s, n.loc) for s in carried]
        made = _loop_of_objects(n, body, limit, condition, values)
        if made is None:
            raise
        return made


def _loop_of_objects(
    n: OnnxNode,
    graph: Any,
    limit: Value | None,
    condition: Value | None,
    state: Sequence[Value],
) -> tuple[Value, ...] | None:
    """A loop at run time that carries values of the host; None if that is impossible.

    Carried values and the body's results for them get a common type, found in several rounds.
    """
    for _ in range(len(state) + 1):
        types = _carried_types(n, graph, condition, state)
        if types is None:
            return None
        common = [common_type(v.type, t) for v, t in zip(state, types, strict=True)]
        if all(t is None or t == v.type for t, v in zip(common, state, strict=True)):
            break
        state = [v if t is None else lifted(n.builder, v, t) for v, t in zip(state, common)]
    return _loop_node(n, graph, limit, condition, state, objects=True)


def _carried_types(
    n: OnnxNode, graph: Any, condition: Value | None, state: Sequence[Value]
) -> list[TensorType] | None:
    """The types of the carried values after one iteration."""
    body = Body(n.builder, "step")
    number, *inner = body.given([INDEX, *(v.type for v in state)])
    arguments = [number, body.constant(np.full(_shape(condition), True)), *inner]
    results = n.nest(body, graph, arguments, n.loc)
    if results is None:
        return None
    return [v.type for v in as_values(body, results[1 : 1 + len(state)])]


def _unrolled(
    n: OnnxNode,
    body: Any,
    limit: Value | None,
    condition: Value | None,
    carried: Sequence[Slot],
) -> Result:
    """Unroll a loop whose number of iterations is known.

    Raises ValuesNeededError if the number is not known.
    """
    state: list[Slot] = list(carried)
    steps = None if limit is None else int(n.scalar(limit, "the trip count"))
    going = condition if condition is not None else n.const(True, bool_)
    scans: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    step = 0
    while steps is None or step < steps:
        if not bool(n.scalar(going, "the condition of the loop")):
            break
        if step >= _STEPS:
            n.unsupported(f"a loop of more than {_STEPS} steps")
        arguments = [n.const(step, i64), going, *state]
        results = results_of(n.inline(body, arguments, f"{n.loc}.{step}"))
        count = len(state)
        (going,) = tensors(n, results[:1])
        state = [*results[1 : 1 + count]]
        for rows, value in zip(scans, tensors(n, results[1 + count :]), strict=True):
            rows.append(value)
        step += 1
    if step == 0 and scans:
        n.unsupported("a loop of no steps that collects values (their shapes are unknown)")
    collected = [_stack(n, rows, 0) for rows in scans]
    return (*state, *collected)


def _loop_node(
    n: OnnxNode,
    graph: Any,
    limit: Value | None,
    condition: Value | None,
    carried: Sequence[Slot],
    objects: bool = False,
    ragged: Sequence[Ragged] = (),
) -> tuple[Value, ...] | None:
    """A loop at run time; None for a loop to unroll: one with few steps, with only known
    values, or with carried values that change their rank.

    ragged: collected results whose shapes are known only during the iterations.
    """
    state = only_tensors(carried)
    if state is None:
        return None
    own = len(state)
    if ragged:
        state = (*state, n.const(0, i64), *(v for r in ragged for v in r.first(n)))
    steps = _known(n, limit)
    first = True if condition is None else _known(n, condition)

    def iterate(body: Body, number: Value, inner: Sequence[Value]) -> Sequence[Value] | None:
        going = body.constant(np.full(_shape(condition), True))
        inside = n.nest(body, graph, [number, going, *inner[:own]], n.loc)
        if objects and inside is not None:
            inside = _lifted(body, as_values(body, inside), state[:own])
        results = only_tensors(inside)
        if not results or not ragged:
            return results
        again, *rest = results
        return [again, *_with_ragged(replace(n, builder=body), rest, inner, own, ragged)]

    made = settled(n, state, iterate)
    if made is None:
        return None
    shapes, body, again, results = made
    collected = results[len(state) :]
    if any(v.dtype.is_host for v in collected):
        n.unsupported("a loop that collects strings or other objects of the host")
    always = body.known(again)
    is_conditional = always is None or not always.all() or first is not True
    if is_conditional and first is False:
        steps = 0
    if steps is not None and not is_conditional:
        if steps > _PLENTY:
            n.unsupported(f"a loop of {steps} steps without a condition (at most {_PLENTY})")
        is_known = not body.captured and all(n.known(v) is not None for v in state)
        few = 0 if _holds_graphs(graph) else _FEW
        if 0 < steps <= (_STEPS if is_known else few):
            return None
    inputs: list[Value] = []
    is_conditional = is_conditional and steps != 0
    count = _steps(n, limit, steps, not is_conditional and (bool(collected) or shapes.change))
    if count is None:
        inputs.append(n.const(ENDLESS, i64) if limit is None else _count(n, limit))
    if is_conditional:
        inputs.append(n.const(True, bool_) if condition is None else one(n, condition))
        results = [again.reshape(), *results]
    step = body.finish(results, [f"out{i}" for i in range(len(results))])
    ways = (1,) * len(collected)
    op = shapes.completed(Loop(step, len(state), (), ways, count, is_conditional))
    if op is None:
        if ragged:
            return None
        found_by_body = shapes.hidden(step)
        ragged = [
            Ragged(i, v)
            for i, v in enumerate(collected)
            if not found_by_body.isdisjoint(symbols_of(v.shape))
        ]
        return _loop_node(n, graph, limit, condition, carried, objects, ragged)
    n.builder.measured.update(op.symbols)
    made = several(n.add(op, *inputs, *state, *body.captured))
    return _stacked(n, made, own, ragged) if ragged else made


def _with_ragged(
    n: OnnxNode,
    results: Sequence[Value],
    inner: Sequence[Value],
    own: int,
    ragged: Sequence[Ragged],
) -> list[Value]:
    """The results of the body of a loop with `ragged` collected results.

    They are, in order: the loop's carried values, the number of iterations so far, the carried
    values for each ragged result (see `collected`), and the other collected results.

    results: the loop's carried values and all collected results, after the iteration.
    inner: all carried values before the iteration.
    own: number of carried values that the ONNX loop itself has.
    """
    count, *rest = inner[own:]
    going = [count + 1]
    for i, r in enumerate(ragged):
        current = rest[WIDTH * i : WIDTH * (i + 1)]
        going += r.following(n, results[own + r.number], current)
    taken = {own + r.number for r in ragged}
    collected = [v for i, v in enumerate(results) if i >= own and i not in taken]
    return [*results[:own], *going, *collected]


def _stacked(
    n: OnnxNode, made: Sequence[Value], own: int, ragged: Sequence[Ragged]
) -> tuple[Value, ...]:
    """The results of the loop in ONNX's order: carried values, then collected results."""
    count, *rest = made[own:]
    collected = [*rest[WIDTH * len(ragged) :]]
    for i, r in enumerate(ragged):  # in the order of their indices
        rows = r.stacked(n, rest[WIDTH * i : WIDTH * (i + 1)], count)
        collected.insert(r.number, rows)
    return (*made[:own], *collected)


def _lifted(body: Body, found: Sequence[Value], state: Sequence[Value]) -> list[Slot]:
    """The results `found` of a body.  Carried values among them are converted to host types that
    also hold the carried values before the loop, `state`.
    """
    again, *results = found
    common = [common_type(v.type, s.type) for v, s in zip(results, state)]
    pairs = zip(results, [*common, *[None] * (len(results) - len(state))], strict=True)
    return [again, *(v if t is None else lifted(body, v, t) for v, t in pairs)]


def _holds_graphs(graph: Any) -> bool:
    """Whether nodes of an ONNX graph have branches or bodies."""
    return any(a.HasField("g") for node in graph.node for a in node.attribute)


def _steps(n: OnnxNode, limit: Value | None, known: int | None, is_extent: bool) -> Dim | None:
    """The number of iterations as an extent; None without a limit.

    known: the limit, if it is known during import.
    is_extent: whether a result has this number as an extent.  If no result has, a limit that is
        known only at run time counts as no limit.
    """
    if known is not None:
        return max(int(known), 0)
    if limit is None:
        return None
    count = maximum(_count(n, limit).reshape(1), [0])
    if n.builder.contents(count) is None and not is_extent:
        return None
    return n.measured(count)[0]


def _known(n: OnnxNode, value: Value | None) -> Any:
    """The number or bool in a value of one element.  None for other values, or if unknown."""
    array = None if value is None else n.known(value)
    return None if array is None or array.size != 1 else array.reshape(-1)[0].item()


def _count(n: OnnxNode, limit: Value) -> Value:
    if limit.dtype is not i64 or limit.type.size != 1:
        n.bad(f"M: expected one i64, found {limit.type}")
    return one(n, limit)


def _shape(value: Value | None) -> tuple[int, ...]:
    return () if value is None or not value.type.is_static else value.type.static_shape


def _stack(n: OnnxNode, values: list[Value], axis: int) -> Value:
    """Stack values of one shape along a new axis."""
    if len({v.type for v in values}) != 1:
        n.unsupported("a loop that collects values of different types")
    parts = [n.add(shape.Unsqueeze((axis,)), v) for v in values]
    return n.add(slicing.Concat(axis), *parts)


@onnx_op("Scan", since=9)
def scan(n: OnnxNode) -> Result:
    body, count = graph_attribute(n, "body"), n.attr_int("num_scan_inputs")
    inputs = n.inputs
    if not 1 <= count <= len(inputs):
        n.bad(f"attribute 'num_scan_inputs': expected 1 to {len(inputs)}, found {count}")
    state: list[Slot] = list(inputs[: len(inputs) - count])
    sequences = inputs[len(inputs) - count :]
    outputs = len(body.output) - len(state)
    axes = [
        n.axis(a, v.type.rank)
        for a, v in zip(_list(n, "scan_input_axes", count), sequences, strict=True)
    ]
    backward = _list(n, "scan_input_directions", count)
    out_axes, out_backward = (
        _list(n, "scan_output_axes", outputs),
        _list(n, "scan_output_directions", outputs),
    )
    return _scanned(n, body, state, sequences, (axes, backward), (out_axes, out_backward))


@onnx_op("Scan", since=8, until=8)
def scan_of_batches(n: OnnxNode) -> Result:
    """Scan in opset 8, where the first axis of all values is the batch and the second the
    sequence.
    """
    body, count = graph_attribute(n, "body"), n.attr_int("num_scan_inputs")
    if n.optional(0) is not None:
        n.unsupported("sequences of several lengths (sequence_lens of Scan at opset 8)")
    operands = [n.input(i) for i in range(1, len(n.slots))]
    if not 1 <= count <= len(operands):
        n.bad(f"attribute 'num_scan_inputs': expected 1 to {len(operands)}, found {count}")
    batches = dict.fromkeys(n.extent(v, 0) for v in operands)
    (batch,) = batches if len(batches) == 1 else (None,)
    if not isinstance(batch, int) or not 1 <= batch <= _STEPS:
        n.unsupported(f"a scan at opset 8 over batches of {', '.join(map(str, batches))}")
    states, outputs = len(operands) - count, len(body.output) - (len(operands) - count)
    backward = _list(n, "directions", count)
    of_batches: list[tuple[Value, ...]] = []
    for i in range(batch):
        own = [n.add(gather.Gather(0), v, n.const(i, i64)) for v in operands]
        orders = ([0] * count, backward), ([0] * outputs, [0] * outputs)
        of_batches.append(_scanned(n, body, own[:states], own[states:], *orders))
    return tuple(_stack(n, [*values], 0) for values in zip(*of_batches, strict=True))


def _scanned(
    n: OnnxNode,
    body: Any,
    state: Sequence[Slot],
    sequences: Sequence[Value],
    given: tuple[Sequence[int], Sequence[int]],
    wanted: tuple[Sequence[int], Sequence[int]],
) -> tuple[Value, ...]:
    """The last state and the collected results.

    given, wanted: for each sequence and each collected result, its axis and whether it is backward.
    """
    (axes, backward), (out_axes, out_backward) = given, wanted
    lengths = dict.fromkeys(v.shape[a] for v, a in zip(sequences, axes, strict=True))
    if len(lengths) != 1:
        n.bad(f"expected sequences of one length, found {', '.join(map(str, lengths))}")
    (length,) = lengths
    if not isinstance(length, int) or length > _FEW or not length or _holds_graphs(body):
        made = _scan_node(n, body, state, sequences, given, wanted)
        if made is not None:
            return made
    if not isinstance(length, int):
        n.unsupported("a scan of a length that only a run knows, whose elements or state have such")
    if not 1 <= length <= _STEPS:
        n.unsupported(f"a scan of {length} steps (supported are 1 to {_STEPS})")
    collected: list[list[Value]] = [[] for _ in out_axes]
    for step in range(length):
        elements = [
            n.add(gather.Gather(a), v, n.const(length - 1 - step if back else step, i64))
            for v, a, back in zip(sequences, axes, backward, strict=True)
        ]
        results = values_of(n, n.inline(body, [*state, *elements], f"{n.loc}.{step}"))
        state = list(results[: len(state)])
        for rows, value in zip(collected, results[len(state) :], strict=True):
            rows.append(value)
    stacked = [
        _stack(n, rows[::-1] if back else rows, n.axis(a, rows[0].type.rank + 1))
        for rows, a, back in zip(collected, out_axes, out_backward, strict=True)
    ]
    return tuple(s for s in (*state, *stacked) if isinstance(s, Value))


def _scan_node(
    n: OnnxNode,
    graph: Any,
    carried: Sequence[Slot],
    sequences: Sequence[Value],
    given: tuple[Sequence[int], Sequence[int]],
    wanted: tuple[Sequence[int], Sequence[int]],
) -> tuple[Value, ...] | None:
    """A scan as a loop at run time; None if the types of its state change from step to step.

    given, wanted: for each sequence and each collected result, its axis and whether it is backward.
    """
    state = only_tensors(carried)
    if state is None:
        return None
    firsts = [_moved(n, v, a, 0) for v, a in zip(sequences, given[0], strict=True)]
    elements = [TensorType(v.dtype, v.shape[1:]) for v in firsts]
    body = Body(n.builder, "step")
    _, *inner = body.given([INDEX, *(v.type for v in state), *elements])
    results = only_tensors(n.nest(body, graph, inner, n.loc))
    if results is None or any(a.type != b.type for a, b in zip(results, state)):
        return None
    op = Loop(
        body.finish(results, [f"out{i}" for i in range(len(results))]),
        len(state),
        tuple(-1 if b else 1 for b in given[1]),
        tuple(-1 if b else 1 for b in wanted[1]),
        firsts[0].shape[0],
    )
    if CarriedShapes(n.label, state).completed(op) is None:
        return None
    made = several(n.add(op, *state, *firsts, *body.captured))
    ends, stacked = made[: len(state)], made[len(state) :]
    axes = (n.axis(a, v.type.rank) for a, v in zip(wanted[0], stacked, strict=True))
    return (*ends, *(_moved(n, v, 0, a) for v, a in zip(stacked, axes, strict=True)))


def _moved(n: OnnxNode, value: Value, axis: int, to: int) -> Value:
    """The tensor `value` with axis `axis` moved to `to`."""
    if axis == to:
        return value
    order = [i for i in range(value.type.rank) if i != axis]
    order.insert(to, axis)
    return value.transpose(*tuple(order))


def _list(n: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    """A list of `count` ints; zeros if the attribute is missing."""
    numbers = n.attr_ints(name)
    if numbers is not None and len(numbers) != count:
        n.bad(f"attribute {name!r}: expected {count} numbers, found {list(numbers)}")
    return numbers or (0,) * count
