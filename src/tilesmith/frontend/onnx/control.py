"""ONNX's control flow, resolved during import.

A condition that is known chooses a branch; otherwise both branches are computed (they have no
effects) and `Where` chooses. Loops whose number of steps is known are unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.frontend.common.errors import NotedError
from tilesmith.frontend.common.slots import FAILED, Result, Slot, kind_of
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, shape, slicing

_STEPS = 1 << 12
"""Most steps of a loop that is unrolled."""


def graph_attribute(n: OnnxNode, name: str) -> Any:
    found = n.attributes.get(name, at.GRAPH)
    if found is None:
        n.bad(f"expected attribute {name!r}, which is required; found none")
    return found


def results_of(slots: list[Slot]) -> tuple[Slot, ...]:
    """The results of a sub-graph.

    Raises NotedError when a node inside failed: that problem is noted already.
    """
    if any(s is FAILED for s in slots):
        raise NotedError("its sub-graph has nodes that are not supported")
    return tuple(slots)


def _tensors(n: OnnxNode, slots: Sequence[Slot]) -> tuple[Value, ...]:
    """The results of a sub-graph where only tensors can be."""
    for s in slots:
        if not isinstance(s, Value):
            n.unsupported(f"{kind_of(s)} as a result that is chosen or collected at run time")
    return tuple(s for s in slots if isinstance(s, Value))


def _values(n: OnnxNode, slots: list[Slot]) -> tuple[Value, ...]:
    return _tensors(n, results_of(slots))


@onnx_op("If", since=1)
def if_(n: OnnxNode) -> Result:
    condition = n.input(0)
    branches = graph_attribute(n, "then_branch"), graph_attribute(n, "else_branch")
    if condition.dtype is not bool_ or condition.type.size != 1:
        n.bad(f"cond: expected one bool, found {condition.type}")
    known = n.known(condition)
    if known is not None:
        chosen = branches[0] if bool(known.reshape(-1)[0]) else branches[1]
        return results_of(n.inline(chosen, (), n.loc))
    then, otherwise = (_values(n, n.inline(g, (), n.loc)) for g in branches)
    if len(then) != len(otherwise):
        n.bad(
            f"expected as many results from both branches, found {len(then)} and {len(otherwise)}"
        )
    for a, b in zip(then, otherwise, strict=True):
        if a.type != b.type:
            n.array(condition, f"cond (its branches give {a.type} and {b.type})")
    condition = n.add(shape.Reshape(()), condition)
    return tuple(n.add(ew.Where(), condition, a, b) for a, b in zip(then, otherwise, strict=True))


@onnx_op("Loop", since=1)
def loop(n: OnnxNode) -> Result:
    body = graph_attribute(n, "body")
    limit, condition = n.optional(0), n.optional(1)
    carried = n.slots[2:]
    if any(v is None for v in carried):
        n.bad("expected every loop-carried value, found one left out")
    state: list[Slot] = list(carried)
    steps = None if limit is None else int(n.scalar(limit, "the trip count"))
    going = condition if condition is not None else n.const(True, bool_)
    scans: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    if len(body.output) < 1 + len(state):
        n.bad(f"expected at least {1 + len(state)} outputs of the body, found {len(body.output)}")
    step = 0
    while steps is None or step < steps:
        if not bool(n.scalar(going, "the condition of the loop")):
            break
        if step >= _STEPS:
            n.unsupported(f"a loop of more than {_STEPS} steps")
        arguments = [n.const(step, i64), going, *state]
        results = results_of(n.inline(body, arguments, f"{n.loc}.{step}"))
        count = len(state)
        (going,) = _tensors(n, results[:1])
        state = [*results[1 : 1 + count]]
        for found, value in zip(scans, _tensors(n, results[1 + count :]), strict=True):
            found.append(value)
        step += 1
    if step == 0 and scans:
        n.unsupported("a loop of no steps that collects values (their shapes are unknown)")
    collected = [_stack(n, found, 0) for found in scans]
    return (*state, *collected)


def _stack(n: OnnxNode, values: list[Value], axis: int) -> Value:
    """Values of one shape along a new axis."""
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
    lengths = {n.shape(v)[a] for v, a in zip(sequences, axes, strict=True)}
    if len(lengths) != 1:
        n.bad(f"expected sequences of one length, found {sorted(lengths)}")
    length = lengths.pop()
    if not 1 <= length <= _STEPS:
        n.unsupported(f"a scan of {length} steps (supported are 1 to {_STEPS})")
    collected: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(length):
        elements = [
            n.add(gather.Gather(a), v, n.const(length - 1 - step if back else step, i64))
            for v, a, back in zip(sequences, axes, backward, strict=True)
        ]
        results = _values(n, n.inline(body, [*state, *elements], f"{n.loc}.{step}"))
        state = list(results[: len(state)])
        for found, value in zip(collected, results[len(state) :], strict=True):
            found.append(value)
    stacked = [
        _stack(n, found[::-1] if back else found, n.axis(a, found[0].type.rank + 1))
        for found, a, back in zip(collected, out_axes, out_backward, strict=True)
    ]
    return tuple(s for s in (*state, *stacked) if isinstance(s, Value))


def _list(n: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    """A list of `count` ints, zeros when it is not given."""
    found = n.attr_ints(name)
    if found is not None and len(found) != count:
        n.bad(f"attribute {name!r}: expected {count} numbers, found {list(found)}")
    return found or (0,) * count
