"""Differentiation of a graph: the result is a graph of the same operators.

The nodes are walked backwards.  A node whose results have cotangents gives cotangents to its
operands, by the rules of `ops.gradients`.  Only nodes between the wanted values and the
differentiated result take part.  A value's cotangents are added where it has several readers.
Forward mode is reverse mode applied twice (`push_forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.control import If, Loop
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.graph.passes.differentiate_control import of_branches, of_loop
from tilesmith.ops.elementwise import StopGradient
from tilesmith.ops.gradients import Call, gradients_of, origin_of, zeros
from tilesmith.support.errors import ModelError, UnsupportedError


def differentiate(graph: Graph, of: Sequence[int], wrt: Sequence[Value]) -> Graph:
    """The graph with the gradients of its results `of` as further results, one for each of `wrt`.

    of: numbers of the results.  The cotangent of a result that is not a scalar is a further input
        of the result's type.  The cotangent of a scalar is 1.
    wrt: inputs and constants of the graph.

    A gradient and a cotangent have the name of their value with "d_" in front.  If another output
    or input has this name, "d_" is repeated.

    Raises ModelError if a value has no floats, or if no result depends on it.  Raises
    UnsupportedError, which names every node without a gradient.
    """
    b, (flat, values) = Builder(graph.name), _opened(graph, of, wrt)
    new = b.include(flat, values(b))
    reverse = Reverse(b, flat, new, wrt)
    for number in of:
        y, name = flat.outputs[number], graph.output_names[number]
        reverse.add(y, reverse.seed(y, _unused(name, [v.name for v in graph.inputs])))
    reverse.check(of, wrt)
    gradients = reverse.run(wrt)
    names = [_unused(v.name, graph.output_names) for v in wrt]
    outputs = [reverse.new[v] for v in flat.outputs]
    made = b.finish([*outputs, *gradients], [*graph.output_names, *names])
    return dce(replace(made, defaults=graph.defaults))


def push_forward(graph: Graph, of: Sequence[int], wrt: Sequence[Value]) -> Graph:
    """The graph with the derivatives of its results `of` along a direction as further results.

    The direction consists of a tangent for each value in `wrt`: a further input of the same type.
    Names, arguments and errors are those of `differentiate`.

    The product J^T u of the transposed Jacobian with a cotangent u is linear in u.  So the gradient
    of (J^T u) · v with respect to u is J v for every u.  The rules of reverse mode therefore give
    the forward derivative as well (J. Townsend, "A new trick for calculating Jacobian vector
    products", 2017).  Here u is zero.
    """
    flat, values = _opened(graph, of, wrt)
    b = Builder(graph.name)
    inner = {v: b.input(f"x{n}", v.type) for n, v in enumerate(flat.inputs)}
    reverse = Reverse(b, flat, b.include(flat, inner), wrt)
    seeds = {n: b.input(f"u{n}", flat.outputs[n].type) for n in of}
    for number, u in seeds.items():
        reverse.add(flat.outputs[number], u)
    reverse.check(of, wrt)
    gradients = reverse.run(wrt)
    transposed = _expanded(b.finish([*(reverse.new[v] for v in flat.outputs), *gradients]))

    b = Builder(graph.name)
    operands = values(b)
    names = [v.name for v in graph.inputs]
    tangents = [b.input(_unused(v.name, names), v.type) for v in wrt]
    end = len(flat.inputs)
    of_inner = dict(zip(transposed.inputs, (operands[v] for v in flat.inputs), strict=False))
    of_inner |= {u: zeros(b, u.type) for u in transposed.inputs[end:]}
    free = transposed.inputs[end:]
    forward = Reverse(b, transposed, b.include(transposed, of_inner), free)
    for g, tangent in zip(transposed.outputs[len(flat.outputs) :], tangents, strict=True):
        forward.add(g, tangent)
    results = forward.run(free)
    outputs = [forward.new[v] for v in transposed.outputs[: len(flat.outputs)]]
    made = b.finish(
        [*outputs, *results],
        [*graph.output_names, *(_unused(graph.output_names[n], graph.output_names) for n in of)],
    )
    return dce(replace(made, defaults=graph.defaults))


def _opened(
    graph: Graph, of: Sequence[int], wrt: Sequence[Value]
) -> tuple[Graph, Callable[[Builder], dict[Value, Value]]]:
    """The expanded graph, whose inputs include the constants among `wrt`, and a function.  The
    function adds these inputs to a builder, as inputs and constants, and returns their values
    there.

    Raises ModelError if a value of `of` or `wrt` has no floats.
    """
    _check(graph, of, wrt)
    kept = {c.value: c for c in graph.constants if c.value in {*wrt}}
    # The wanted constants become inputs, since expansions replace constants by reshaped copies.
    opened = replace(
        graph,
        inputs=(*graph.inputs, *kept),
        constants=tuple(c for c in graph.constants if c.value not in kept),
    )

    def values(b: Builder) -> dict[Value, Value]:
        inputs = {v: b.input(v.name, v.type) for v in graph.inputs}
        return inputs | {v: b.lazy_constant(v.type, c.data, v.name) for v, c in kept.items()}

    return _expanded(opened), values


def _unused(name: str, taken: Sequence[str]) -> str:
    """`name` with "d_" in front, as often as is needed for a name that is not `taken`."""
    name = f"d_{name}"
    while name in taken:
        name = f"d_{name}"
    return name


def _expanded(graph: Graph) -> Graph:
    """The graph without the composite operators that have no rule."""
    return decompose_only(graph, lambda op: origin_of(type(op)) == "expansion")


def _backwards(
    b: Builder,
    body: Graph,
    inputs: Sequence[Value],
    wanted: Sequence[int],
    seeds: Sequence[tuple[int, Value]],
) -> list[Value]:
    """Implements `differentiate_control.Backwards`."""
    flat = _expanded(body)
    wrt = [flat.inputs[n] for n in wanted]
    reverse = Reverse(b, flat, b.include(flat, dict(zip(flat.inputs, inputs))), wrt)
    for number, seed in seeds:
        reverse.add(flat.outputs[number], seed)
    return reverse.run(wrt)


_CONTROL = {If: of_branches, Loop: of_loop}


def _check(graph: Graph, of: Sequence[int], wrt: Sequence[Value]) -> None:
    for v in (*(graph.outputs[n] for n in of), *wrt):
        if not v.dtype.is_float:
            raise ModelError(
                f"{v.name!r}: expected a tensor of floats to differentiate, found {v.type}"
            )


class Reverse:
    """One backward walk over a graph.

    b: the builder that gets the gradients.
    new: the builder's value for each value of the graph.
    active: values that depend on the wanted ones through floats.
    """

    def __init__(
        self, b: Builder, graph: Graph, new: Mapping[Value, Value], wrt: Sequence[Value]
    ) -> None:
        self.b, self.graph, self.new = b, graph, new
        self.active = {*wrt}
        for n in graph.nodes:
            if any(v in self.active for v in n.inputs) and not isinstance(n.op, StopGradient):
                self.active.update(v for v in n.outputs if v.dtype.is_float)
        self._cotangents: dict[Value, Value] = {}

    def seed(self, y: Value, name: str) -> Value:
        """The cotangent of a result: 1 for a scalar, else an input."""
        if y.type.shape:
            return self.b.input(name, y.type)
        return self.b.constant(np.ones((), y.dtype.numpy))

    def add(self, v: Value, g: Value) -> None:
        """Add `g` to the cotangent of `v`."""
        old = self._cotangents.get(v)
        self._cotangents[v] = g if old is None else old + g

    def check(self, of: Sequence[int], wrt: Sequence[Value]) -> None:
        """Raises ModelError if no result with a number in `of` is computed from one of `wrt`."""
        needed = {self.graph.outputs[n] for n in of}
        for node in reversed(self.graph.nodes):
            if any(v in needed for v in node.outputs):
                needed.update(node.inputs)
        missing = [v.name for v in wrt if v not in needed]
        if missing:
            names = ", ".join(self.graph.output_names[n] for n in of)
            raise ModelError(
                f"expected values on which {names} depends, found "
                f"{', '.join(map(repr, missing))}; leave such values out of wrt"
            )

    def run(self, wrt: Sequence[Value]) -> list[Value]:
        """The gradient of each of `wrt`, after cotangents were added to results."""
        problems: dict[str, None] = {}
        for node in reversed(self.graph.nodes):
            try:
                self.step(node)
            except UnsupportedError as e:
                problems[f"node {node.loc!r}: {e}" if node.loc else str(e)] = None
        if problems:
            raise UnsupportedError("\n".join(problems))
        return [
            self._cotangents[v] if v in self._cotangents else zeros(self.b, v.type) for v in wrt
        ]

    def step(self, node: Node) -> None:
        """Hand the cotangents of a node's results to its operands."""
        cotangents = tuple(self._cotangents.get(v) for v in node.outputs)
        wanted = tuple(v in self.active for v in node.inputs)
        if not any(g is not None for g in cotangents) or not any(wanted):
            return
        inputs, outputs = (tuple(self.new[v] for v in vs) for vs in (node.inputs, node.outputs))
        call = Call(self.b, node.op, inputs, outputs, cotangents, wanted)
        rule = _CONTROL.get(type(node.op))
        gradients = gradients_of(call) if rule is None else rule(call, _backwards)
        for v, g, w in zip(node.inputs, gradients, wanted, strict=True):
            if g is not None and w:
                self.add(v, g)
