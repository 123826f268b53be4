"""Core ML's recurrent layers as loops over time.  Sequences are [steps, batch, inputs]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import apply, mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import shape, slicing

Inside: TypeAlias = Callable[[Value], Value]
"""A function that captures a value of the enclosing graph: returns its stand-in in a body."""

Cell: TypeAlias = Callable[[MilNode, Value, Sequence[Value], Inside], Sequence[Value]]
"""A function that computes the state after a step from the projected inputs and the old state."""


def _times(n: MilNode, x: Value, w: Value) -> Value:
    """Rows [..., I] times weights [O, I]."""
    return n.add(mm.MatMul(transpose_b=True), x, w)


def _activated(n: MilNode, name: str, default: str, x: Value) -> Value:
    """x after the activation function that argument `name` names, with default parameters."""
    kind = n.text(name, default)
    made = x if kind == "linear" else apply(n, kind, x=x)
    assert isinstance(made, Value)
    return made


def _parts(n: MilNode, x: Value, axis: int, count: int) -> Sequence[Value]:
    size = n.builder.divided(n.kind, x.type.shape[axis], count, "the size of the gates", n.loc)
    return n.add(slicing.Split(axis, (size,) * count), x)


def _layer(
    n: MilNode,
    weights: tuple[Value, Value | None],
    state: Sequence[Value],
    cell: Cell,
    backward: bool = False,
) -> tuple[Sequence[Value], Value]:
    """The final state of one direction, and the outputs of all steps, [steps, batch, hidden].

    weights: weights of the inputs, and a bias or None.
    """
    w, bias = weights
    if n.input("x").type.rank != 3 or w.type.rank != 2:
        n.bad(f"expected a sequence of rank 3 and weights, found {n.input('x').type} and {w.type}")
    projected = _times(n, n.input("x"), w)
    projected = projected if bias is None else projected + bias

    def step(
        body: Body, _: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        after = cell(replace(n, builder=body), x, before, body.capture)
        return after, after[0]

    return over_time(n, n.kind, projected, state, step, backward)


def _is_backward(n: MilNode) -> bool:
    return n.text("direction", "forward", ("forward", "reverse")) == "reverse"


def _shown(n: MilNode, outputs: Value, final: Value) -> Value:
    """The outputs of all steps, or only the last output as [1, batch, hidden]."""
    return outputs if n.flag("output_sequence") else n.add(shape.Unsqueeze((0,)), final)


@mil_op("rnn")
def rnn(n: MilNode) -> Result:
    r = n.input("weight_hh")

    def cell(n: MilNode, x: Value, before: Sequence[Value], inside: Inside) -> Sequence[Value]:
        return [_activated(n, "activation", "tanh", x + _times(n, before[0], inside(r)))]

    weights = n.input("weight_ih"), n.optional("bias")
    (h,), outputs = _layer(n, weights, [n.input("initial_h")], cell, _is_backward(n))
    return _shown(n, outputs, h), h


@mil_op("gru")
def gru(n: MilNode) -> Result:
    """The gates are reset, output and update.  Without `reset_after`, the state is reset before it
    is multiplied by the weights of the output gate.
    """
    r, bias, own = n.input("weight_hh"), n.optional("bias"), n.optional("input_bias")
    is_after = n.flag("reset_after")
    if not is_after and bias is not None and own is not None:
        bias, own = bias + own, None
    outer, recurrent = (own, bias) if is_after else (bias if own is None else own, None)

    def cell(n: MilNode, x: Value, before: Sequence[Value], inside: Inside) -> Sequence[Value]:
        h, weights = before[0], inside(r)
        xs = _parts(n, x, 1, 3)
        rows = _parts(n, weights, 0, 3)
        hs = [_times(n, h, row) for row in rows]
        if recurrent is not None:
            hs = [a + b for a, b in zip(hs, _parts(n, inside(recurrent), 0, 3), strict=True)]
        reset, update = (
            _activated(n, "recurrent_activation", "sigmoid", xs[i] + hs[i]) for i in (0, 2)
        )
        product = reset * hs[1] if is_after else _times(n, reset * h, rows[1])
        new = _activated(n, "activation", "tanh", xs[1] + product)
        return [new + update * (h - new)]

    weights = n.input("weight_ih"), outer
    (h,), outputs = _layer(n, weights, [n.input("initial_h")], cell, _is_backward(n))
    return _shown(n, outputs, h), h


@mil_op("lstm")
def lstm(n: MilNode) -> Result:
    """The gates are input, forget, output and cell."""
    directions = ("forward", "reverse", "bidirectional")
    direction = n.text("direction", "forward", directions)
    initial = [n.input("initial_h"), n.input("initial_c")]
    if direction != "bidirectional":
        (h, c), outputs = _lstm(n, "", initial, direction == "reverse")
        return _shown(n, outputs, h), h, c
    pairs = [_parts(n, v, 1, 2) for v in initial]
    (h1, c1), forward = _lstm(n, "", [p[0] for p in pairs], False)
    (h2, c2), backward = _lstm(n, "_back", [p[1] for p in pairs], True)
    h, c = n.add(slicing.Concat(1), h1, h2), n.add(slicing.Concat(1), c1, c2)
    return _shown(n, n.add(slicing.Concat(2), forward, backward), h), h, c


def _lstm(
    n: MilNode, suffix: str, state: Sequence[Value], backward: bool
) -> tuple[Sequence[Value], Value]:
    r, peephole = n.input(f"weight_hh{suffix}"), n.optional(f"peephole{suffix}")
    clip = n.number("clip", 0.0)

    def cell(n: MilNode, x: Value, before: Sequence[Value], inside: Inside) -> Sequence[Value]:
        h, c = before
        i, f, o, g = _parts(n, x + _times(n, h, inside(r)), 1, 4)
        peep = None if peephole is None else _parts(n, inside(peephole), 0, 3)
        if peep is not None:
            i, f = i + peep[0] * c, f + peep[1] * c
        i, f = (_activated(n, "recurrent_activation", "sigmoid", v) for v in (i, f))
        c = f * c + i * _activated(n, "cell_activation", "tanh", g)
        c = fn.clip(c, -clip, clip) if clip else c
        o = o if peep is None else o + peep[2] * c
        o = _activated(n, "recurrent_activation", "sigmoid", o)
        return [o * _activated(n, "activation", "tanh", c), c]

    weights = n.input(f"weight_ih{suffix}"), n.optional(f"bias{suffix}")
    return _layer(n, weights, state, cell, backward)
