"""Control flow: operators that hold graphs, of which a part runs, or runs again and again.

They are steps of the main function, not kernels; `Measure`, which holds no graph, is
one too (`graph.measure`).

A body sees nothing but its own inputs and constants: what it uses of the graph around it is passed
explicitly.  Values at the border of a body are row-major.

    %y: f32[4] = if(%c, %x) {then=graph a(%x: f32[4]) { ... },
      otherwise=graph b(%x: f32[4]) { ... }}
    %h: f32[8], %all: f32[9,8] = loop(%h0, %xs, %w) {body=graph step(%i: i64[], %h: f32[8],
      %x: f32[4], %w: f32[8,8]) { ... }, carried=1, sliced=(1,), collected=(1,), steps=9}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Value
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.ops.base import Op
from tilesmith.support.errors import ModelError

T = TypeVar("T")

INDEX = TensorType(i64, ())
"""The type of an iteration's number and of a number of iterations."""
CONDITION = TensorType(bool_, ())


@dataclass(frozen=True)
class Control(Op, abstract=True):
    """Base of the operators that are steps of the main function, not kernels."""

    heavy_reference = True

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return tuple(v for v in self.attributes.values() if isinstance(v, Graph))

    def with_bodies(self, change: Callable[[Graph], Graph]) -> Control:
        """The operator with other bodies; the same object if none changes."""
        new = {k: change(v) for k, v in self.attributes.items() if isinstance(v, Graph)}
        same = all(new[k] is self.attributes[k] for k in new)
        return self if same else replace(self, **new)


@dataclass(frozen=True)
class If(Control):
    """`then` if the first input is true, else `otherwise`; only that branch runs.

    The other inputs are those of both branches.

    then, otherwise: the branches, whose inputs and results have the same types.
    """

    then: Graph
    otherwise: Graph

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        _check("condition", types[:1], (CONDITION,))
        for name, branch in (("then", self.then), ("otherwise", self.otherwise)):
            _check(f"inputs of {name}", types[1:], _types(branch.inputs))
        _check("results of otherwise", _types(self.otherwise.outputs), _types(self.then.outputs))
        return _types(self.then.outputs)


@dataclass(frozen=True)
class Loop(Control):
    """`body` for iterations 0, 1, ... while there are any left and the condition is true.

    Inputs, in order: the number of iterations (if `steps` is None), the condition before the first
    one (if `conditional`), the carried values before the first one, the sliced inputs, and values
    that are the same in all iterations.  Results: the carried values after the last iteration, then
    the collected results.

    The body's inputs: the iteration's number, carried values, an element of each sliced input
    along its first axis, values that are the same in all iterations.  Its results: the condition
    for the next iteration (if `conditional`), carried values, an element of each collected result.

    body: what one iteration computes.
    carried: number of values that an iteration hands to the next one.
    sliced: for each sliced input, 1 if iteration i sees its element i, -1 if it sees them
        backwards, the last one first.
    collected: the same for each result that has an element of every iteration.
    steps: number of iterations (the most, if `conditional`), which may be an extent that only a run
        knows; None: it is an input, and nothing is sliced or collected.
    conditional: whether there is a condition.
    """

    body: Graph
    carried: int
    sliced: tuple[int, ...] = ()
    collected: tuple[int, ...] = ()
    steps: Dim | None = None
    conditional: bool = False

    @property
    def leading(self) -> int:
        """Number of inputs in front of the carried values."""
        return (self.steps is None) + self.conditional

    def split(self, inputs: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """The node's inputs: carried values, sliced inputs, and values that are always the same."""
        a = self.leading
        b = a + self.carried
        c = b + len(self.sliced)
        return inputs[a:b], inputs[b:c], inputs[c:]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if len(types) < self.leading + self.carried + len(self.sliced):
            raise ModelError(f"expected more inputs, found {len(types)}")
        if self.steps is None and (self.sliced or self.collected):
            raise ModelError("slices need a number of iterations that is known")
        if self.collected and self.conditional:
            raise ModelError("a loop with a condition collects no results")
        first = (*([INDEX] if self.steps is None else ()), *([CONDITION] * self.conditional))
        _check("number of iterations, condition", types[: self.leading], first)
        carried, sliced, same = self.split(types)
        for t in sliced:
            if self.steps is None or not t.rank or not same_dim(t.shape[0], self.steps):
                raise ModelError(f"sliced input: expected {self.steps} elements, found {t}")
        elements = (TensorType(t.dtype, t.shape[1:]) for t in sliced)
        _check("inputs of the body", (INDEX, *carried, *elements, *same), _types(self.body.inputs))
        results = _types(self.body.outputs)
        end = self.conditional + self.carried
        wanted = (*([CONDITION] * self.conditional), *carried)
        _check("condition and carried values of the body", results[:end], wanted)
        if len(results) != end + len(self.collected):
            raise ModelError(
                f"expected {end + len(self.collected)} results of the body, found {len(results)}"
            )
        if self.steps is None:
            return tuple(carried)
        return (*carried, *(TensorType(t.dtype, (self.steps, *t.shape)) for t in results[end:]))


def _types(values: Sequence[Value]) -> tuple[TensorType, ...]:
    return tuple(v.type for v in values)


def _check(what: str, found: Sequence[TensorType], wanted: Sequence[TensorType]) -> None:
    if tuple(found) != tuple(wanted):
        shown = (f"({', '.join(map(str, types))})" for types in (wanted, found))
        raise ModelError(f"{what}: expected {', found '.join(shown)}")


def everywhere(
    run: Callable[[Graph], Graph], inside: Callable[[Graph], Graph] | None = None
) -> Callable[[Graph], Graph]:
    """A pass on the bodies of control flow, the innermost first, and then on the graph itself.

    inside: the pass on bodies, if it is another one.
    """

    def whole(graph: Graph, run: Callable[[Graph], Graph] = run) -> Graph:
        return run(in_bodies(graph, lambda body: whole(body, inside or run)))

    return whole


def in_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """`graph` with `change` applied to the bodies of its nodes; the same object if none changes."""
    nodes = [_changed(n, change) if isinstance(n.op, Control) else n for n in graph.nodes]
    same = all(a is b for a, b in zip(nodes, graph.nodes))
    return graph if same else replace(graph, nodes=tuple(nodes))


def _changed(node: Node, change: Callable[[Graph], Graph]) -> Node:
    assert isinstance(node.op, Control)
    op = node.op.with_bodies(change)
    return node if op is node.op else replace(node, op=op)


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """The graph and the bodies of its control flow, each before those inside it."""
    yield graph
    for n in graph.nodes:
        if isinstance(n.op, Control):
            for body in n.op.bodies:
                yield from graphs_in(body)


def nodes_in(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """Each node with the graph that it is in: in order, those of bodies in place of their node."""
    for n in graph.nodes:
        if isinstance(n.op, Control):
            for body in n.op.bodies:
                yield from nodes_in(body)
        else:
            yield graph, n


def kernels_in(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """Those of `nodes_in` that become kernels: the calls of the program, in order."""
    return (
        (g, n)
        for g, n in nodes_in(graph)
        if isinstance(n.op, Fused) and not isinstance(n.op, InPlace)
    )
