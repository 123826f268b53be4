"""Recipes of branches and loops."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper, numpy_helper

from .builder import F32, Array, Builder, Rejected, info_of, recipe
from .elementwise import BINARY, REDUCTIONS, UNARY

_KEEPING = ("Add", "Sub", "Mul", "Tanh", "Sigmoid", "Abs", "Relu", "Softsign", "Sin", "Neg", "Max")
_INSIDE = (*UNARY, *BINARY, *REDUCTIONS, "Transpose", "Softmax", "Slice", "Concat", "MatMul", "If")


def _inner(b: Builder) -> Builder:
    if b.depth > 1:
        raise Rejected("deep enough")
    return Builder(b.random, b.opset, b, depth=b.depth + 1)


def _graph(b: Builder, name: str, inputs: list[str], outputs: list[str]) -> GraphProto:
    stored = [numpy_helper.from_array(b.values[n], n) for n in b.constants]
    formals = [info_of(n, b.values[n]) for n in inputs]
    infos = [info_of(n, b.of(n)) if n in b.values else ValueInfoProto(name=n) for n in outputs]
    return helper.make_graph(b.nodes, name, formals, infos, stored)


def _keep(b: Builder, name: str, count: int) -> str:
    """A value computed from `name` by elementwise operators, of the same type."""
    want = b.of(name)
    for _ in range(count):
        try:
            op = b.choose(_KEEPING)
            inputs = [name] if op in UNARY else [name, b.like(name)]
            (found,) = b.add(op, inputs)
        except Rejected:
            continue
        if (b.of(found).shape, b.of(found).dtype) == (want.shape, want.dtype):
            name = found
    return b.add("Identity", [name])[0]


@recipe("If")
def branch(b: Builder, op: str) -> None:
    condition = np.array(b.chance(0.5))
    known = b.store(condition) if b.chance(0.15) else b.given(condition)
    x = b.pick((F32,))
    graphs = {}
    for name in ("then_branch", "else_branch"):
        inner = _inner(b)
        inner.grow(b.number(0, 2), _INSIDE)
        graphs[name] = _graph(inner, name, [], [_keep(inner, x, b.number(0, 2))])
    b.add(op, [known], **graphs)


def _zeros_like(b: Builder, array: Array) -> str:
    name = b.name()
    b.values[name] = array
    return name


@recipe("Loop")
def loop(b: Builder, op: str) -> None:
    x = b.pick((F32,))
    inner = _inner(b)
    step, going, carried = (_zeros_like(inner, a) for a in (np.int64(0), np.array(True), b.of(x)))
    inner.grow(b.number(0, 2), _INSIDE)
    result = _keep(inner, carried, b.number(1, 3))
    again = (
        inner.add("Less", [step, inner.store(np.int64(b.number(1, 6)))])[0]
        if b.chance(0.4)
        else (inner.add("Identity", [going])[0])
    )
    scanned = [inner.add("Identity", [result])[0]] if b.chance(0.5) else []
    body = _graph(inner, "body", [step, going, carried], [again, result, *scanned])
    trips = np.int64(b.number(0, 5))
    count = b.store(trips) if b.chance(0.4) else b.given(trips)
    going_on = b.store(np.array(True)) if b.chance(0.7) else b.given(np.array(b.chance(0.8)))
    b.add(op, [count, going_on, x], 1 + len(scanned), body=body)


@recipe("Scan")
def scan(b: Builder, op: str) -> None:
    if b.opset < 9:
        raise Rejected("its first version had a batch")
    x = b.pick((F32,), rank=(1, 3), fits=lambda a: a.shape[0] > 0)
    rows = b.of(x)
    inner = _inner(b)
    start = b.fresh(rows.shape[1:])
    state, row = _zeros_like(inner, b.of(start)), _zeros_like(inner, rows[0])
    mixed = inner.add(b.choose(["Add", "Mul", "Sub", "Max"]), [state, row])[0]
    result = _keep(inner, mixed, b.number(0, 2))
    out = inner.add("Identity", [result])[0]
    body = _graph(inner, "body", [state, row], [result, out])
    directions = {}
    if b.chance(0.4):
        directions["scan_input_directions"] = [b.number(0, 1)]
    if b.chance(0.3):
        directions["scan_output_directions"] = [b.number(0, 1)]
    b.add(op, [start, x], 2, body=body, num_scan_inputs=1, **directions)
