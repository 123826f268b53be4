"""Reverse-mode differentiation of a graph: the result is a graph of the same operators.

The nodes are walked backwards.  A node whose results have cotangents gives cotangents to its
operands, by the rules of `ops.gradients`.  Only nodes between the wanted values and the
differentiated result take part.  A value's cotangents are added where it has several readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import StopGradient
from tilesmith.ops.gradients import Call, gradients_of, origin_of, zeros
from tilesmith.support.errors import ModelError, UnsupportedError


def differentiate(graph: Graph, of: Sequence[int], wrt: Sequence[Value]) -> Graph:
    """The graph with the gradients of its results `of` as further results, one for each of `wrt`.

    of: numbers of the results.  A result that is not a scalar is weighted by a cotangent, a further
        input of the result's name and type; that of a scalar is 1.
    wrt: inputs and constants of the graph.

    A gradient and a cotangent are named after their value with "d_" in front, once more if an
    output or input has that name.

    Raises ModelError if a value has no floats, or if no result depends on it; UnsupportedError,
    which names every node without a gradient.
    """
    _check(graph, of, wrt)
    fixed = {c.value for c in graph.constants} & {*wrt}
    kept = {c.value: c for c in graph.constants if c.value in fixed}
    # As inputs the wanted constants keep their readers: expansions reshape other constants.
    opened = replace(
        graph,
        inputs=(*graph.inputs, *kept),
        constants=tuple(c for c in graph.constants if c.value not in fixed),
    )
    flat = decompose_only(opened, _is_expanded)
    while any(_is_expanded(n.op) for n in flat.nodes):
        flat = decompose_only(flat, _is_expanded)

    b = Builder(graph.name)
    inputs = {v: b.input(v.name, v.type) for v in graph.inputs}
    for v, c in kept.items():
        inputs[v] = b.lazy_constant(v.type, c.data, v.name)
    reverse = Reverse(b, flat, b.include(flat, inputs), wrt)
    for number in of:
        y, name = flat.outputs[number], graph.output_names[number]
        reverse.add(y, reverse.seed(y, _unused(name, [v.name for v in graph.inputs])))
    gradients = reverse.run(of, wrt)
    names = [_unused(v.name, graph.output_names) for v in wrt]
    outputs = [reverse.new[v] for v in flat.outputs]
    made = b.finish([*outputs, *gradients], [*graph.output_names, *names])
    return dce(replace(made, defaults=graph.defaults))


def _unused(name: str, taken: Sequence[str]) -> str:
    """`name` with "d_" in front, as often as is needed for a name that is not `taken`."""
    name = f"d_{name}"
    while name in taken:
        name = f"d_{name}"
    return name


def _is_expanded(op: Op) -> bool:
    return origin_of(type(op)) == "expansion"


def _check(graph: Graph, of: Sequence[int], wrt: Sequence[Value]) -> None:
    for v in (*(graph.outputs[n] for n in of), *wrt):
        if not v.dtype.is_float:
            raise ModelError(
                f"{v.name!r}: expected a tensor of floats to differentiate, found {v.type}"
            )


class Reverse:
    """One walk backwards.

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

    def run(self, of: Sequence[int], wrt: Sequence[Value]) -> list[Value]:
        """The gradient of each of `wrt`, of the results with the numbers `of`."""
        problems: dict[str, None] = {}
        for node in reversed(self.graph.nodes):
            try:
                self.step(node)
            except UnsupportedError as e:
                problems[f"node {node.loc!r}: {e}" if node.loc else str(e)] = None
        if problems:
            raise UnsupportedError("\n".join(problems))
        needed = self._needed(of)
        missing = [v.name for v in wrt if v not in needed]
        if missing:
            names = ", ".join(self.graph.output_names[n] for n in of)
            raise ModelError(
                f"expected values on which {names} depends, found {', '.join(map(repr, missing))}; "
                "leave such values out of wrt"
            )
        return [self._cotangents.get(v) or zeros(self.b, v.type) for v in wrt]

    def _needed(self, of: Sequence[int]) -> set[Value]:
        """The values that the differentiated results are computed from."""
        needed = {self.graph.outputs[n] for n in of}
        for node in reversed(self.graph.nodes):
            if any(v in needed for v in node.outputs):
                needed.update(node.inputs)
        return needed

    def step(self, node: Node) -> None:
        """Hand the cotangents of a node's results to its operands."""
        cotangents = tuple(self._cotangents.get(v) for v in node.outputs)
        wanted = tuple(v in self.active for v in node.inputs)
        if not any(g is not None for g in cotangents) or not any(wanted):
            return
        inputs, outputs = (tuple(self.new[v] for v in vs) for vs in (node.inputs, node.outputs))
        for v, g, w in zip(
            node.inputs,
            gradients_of(Call(self.b, node.op, inputs, outputs, cotangents, wanted)),
            wanted,
            strict=True,
        ):
            if g is not None and w:
                self.add(v, g)
