"""Control flow: operators that contain graphs (bodies).  They run one of several bodies, or one
body repeatedly.

These operators are steps of the main function, not kernels.  Two operators without a body are steps
as well:
`Measure` (`graph.measure`) and `Host`.  `Host` calls a function of the host for an operator without
native code, such as an operator on strings.  Values of host types (`ir.dtypes`) live on the host;
compiled code moves numbers that stand for the objects.

A body reads its own inputs and constants only: values of the graph around it are passed as inputs.
Inputs and outputs of a body are row-major.

Shapes of results may depend on the branch taken, and on the number of iterations that ran.  The
node then defines symbols for the extents that are known only at run time; later nodes use these
symbols.  If the carried values of a loop change their shapes, the body has its own symbols for the
extents of its carried inputs.

    %y: f32[4] = if(%c, %x) {then=graph a(%x: f32[4]) { ... },
      otherwise=graph b(%x: f32[4]) { ... }}
    %h: f32[8], %all: f32[9,8] = loop(%h0, %xs, %w) {body=graph step(%i: i64[], %h: f32[8],
      %x: f32[4], %w: f32[8,8]) { ... }, carried=1, sliced=(1,), collected=(1,), steps=9}
    %a: f32[m] = loop(%count, %x) {body=graph step(%i: i64[], %a: f32[n]) { ... -> f32[n + 1] },
      carried=1, results=(f32[m],), symbols=(`m`,), bounds=(2147483647,)}
    %words: string[4] = host(%text) {function="string_normalizer", settings="{...}",
      results=(string[4],), operator="StringNormalizer"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Structure, Value
from tilesmith.host_functions import prepare
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.expr import Expr, Var, as_expr
from tilesmith.ir.extents import difference
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Result
from tilesmith.ir.symbols import as_dim, bound
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.support.errors import ModelError

T = TypeVar("T")

INDEX = TensorType(i64, ())
"""The type of an iteration's number and of a number of iterations."""
CONDITION = TensorType(bool_, ())


@dataclass(frozen=True)
class Control(Structure, abstract=True):
    """Base of the operators that are steps of the main function, not kernels."""

    heavy_reference = True


@dataclass(frozen=True)
class If(Control):
    """`then` if the first input is true, else `otherwise`; only that branch runs.

    The other inputs are passed to both branches.

    then, otherwise: the branches.  The types of their inputs are equal; the types of their results
        may differ in extents only.
    results: the types of the results; empty if the results of both branches have equal types.
    symbols: the extents in `results` that depend on the branch.
    bounds: the upper bound of each symbol (as in `Measure`).
    """

    then: Body[Graph]
    otherwise: Body[Graph]
    results: Label[tuple[TensorType, ...]] = ()
    symbols: Result[tuple[Var, ...]] = ()
    bounds: Operand[tuple[Dim, ...]] = ()

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        _check("condition", types[:1], (CONDITION,))
        for name, branch in (("then", self.then), ("otherwise", self.otherwise)):
            _check(f"inputs of {name}", types[1:], _types(branch.inputs))
        for name, branch in (("then", self.then), ("otherwise", self.otherwise)):
            if self.results:
                self.extents(branch)
            else:
                _check(f"results of {name}", _types(branch.outputs), _types(self.then.outputs))
        return self.results or _types(self.then.outputs)

    def extents(self, branch: Graph) -> dict[Var, Dim]:
        """The values of `symbols` after `branch`.  Raises ModelError if the branch's results don't
        match `results`.
        """
        return matched(self.symbols, self.results, _types(branch.outputs), branch.name)


@dataclass(frozen=True)
class Loop(Control):
    """Runs `body` for iterations 0, 1, ... until none is left or the condition is false.

    Inputs, in order: the number of iterations (if `steps` is None), the condition before the first
    one (if `conditional`), the carried values before the first one, the sliced inputs, and values
    that are the same in all iterations.  Results, in order: the carried values after the last
    iteration, then the collected results.

    The body's inputs, in order: the iteration's number, carried values, an element of each sliced
    input along its first axis, values that are the same in all iterations.  The body's results, in
    order: the condition for the next iteration (if `conditional`), carried values, an element of
    each collected result.

    body: the graph of one iteration.
    carried: number of values that an iteration hands to the next one.
    sliced: for each sliced input, 1 if iteration i reads element i; -1 if the first iteration reads
        the last element, and so on backwards.
    collected: for each collected result, which has one element per iteration, 1 or -1 as in
        `sliced`.
    steps: number of iterations (an upper bound, if `conditional`); it may be an extent known only
        at run time.  None if the number is an input; then nothing is sliced.
    conditional: whether there is a condition.
    results: the types of the results; empty if they follow from the other types.
    symbols: the extents in `results` that depend on the number of iterations.  Extents of carried
        values come first.  The number of iterations follows if results are collected and `steps` is
        not this number.
    bounds: the upper bound of each symbol (as in `Measure`).
    inside: the body's own symbols: extents of carried inputs that change between iterations.  The
        first `known` of them grow by a constant, `steps` times, so a formula gives their values
        after the loop.  The values of the others after the loop become `symbols`.
    """

    body: Body[Graph]
    carried: Label[int]
    sliced: Label[tuple[int, ...]] = ()
    collected: Label[tuple[int, ...]] = ()
    steps: Label[Dim | None] = None
    conditional: Label[bool] = False
    results: Label[tuple[TensorType, ...]] = ()
    symbols: Result[tuple[Var, ...]] = ()
    bounds: Operand[tuple[Dim, ...]] = ()
    inside: Binder[tuple[Var, ...]] = ()

    @property
    def ran(self) -> Var | None:
        """The symbol of the number of iterations; None if `steps` is this number, or if no results
        are collected.
        """
        return self.symbols[-1] if self.collected and self._is_open else None

    @property
    def _is_open(self) -> bool:
        return self.conditional or self.steps is None

    @property
    def _carried_types(self) -> tuple[TensorType, ...]:
        return _types(self.body.inputs[1 : 1 + self.carried])

    def first_extents(self, carried: Sequence[Value]) -> dict[Var, Dim]:
        """The values of the body's symbols in the first iteration, from the carried values before
        the loop.
        """
        return matched(self.inside, self._carried_types, _types(carried), "carried values")

    def next_extents(self) -> dict[Var, Dim]:
        """The values of the body's symbols in the next iteration, as formulas of their current
        values.
        """
        following = self.body.outputs[self.conditional :][: self.carried]
        return matched(self.inside, self._carried_types, _types(following), "results of the body")

    def last_extents(self) -> dict[Var, Dim]:
        """The values of the body's symbols after the last iteration, from the types of the
        results.
        """
        if not self.inside:
            return {}
        return matched(self.inside, self._carried_types, self.results[: self.carried], "results")

    def extents_after(self, carried: Sequence[Value], steps: int) -> dict[Var, Dim]:
        """The values of `symbols` after `steps` iterations, 0 or 1, that begin with `carried`."""
        first = self.first_extents(carried) if self.inside else {}
        if steps:
            known: dict[Expr, Dim] = {**first}
            first = {s: bound(d, known) for s, d in self.next_extents().items()}
        unknown = [first[s] for s in self.inside[self.known :]]
        # The symbol after those of the unknown extents is the number of iterations.
        return dict(zip(self.symbols, [*unknown, steps]))

    @property
    def known(self) -> int:
        """Number of the body's symbols whose values after the loop are known as formulas."""
        return len(self.inside) - len(self.symbols) + (self.ran is not None)

    @property
    def leading(self) -> int:
        """Number of the node's inputs before the carried values."""
        return (self.steps is None) + self.conditional

    def split(self, inputs: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """Three groups of a node's `inputs`: carried values, sliced inputs, unchanging values."""
        a = self.leading
        b = a + self.carried
        c = b + len(self.sliced)
        return inputs[a:b], inputs[b:c], inputs[c:]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if len(types) < self.leading + self.carried + len(self.sliced):
            raise ModelError(f"expected more inputs, found {len(types)}")
        if self.steps is None and self.sliced:
            raise ModelError("slices need a number of iterations that is known")
        if self.collected and self._is_open and not self.symbols:
            raise ModelError("a number of iterations that is not known before needs a symbol")
        wanted = (*([INDEX] if self.steps is None else ()), *([CONDITION] * self.conditional))
        _check("number of iterations, condition", types[: self.leading], wanted)
        carried, sliced, same = self.split(types)
        for t in sliced:
            if self.steps is None or not t.rank or not same_dim(t.shape[0], self.steps):
                raise ModelError(f"sliced input: expected {self.steps} elements, found {t}")
        elements = (TensorType(t.dtype, t.shape[1:]) for t in sliced)
        own = self._carried_types
        _check("inputs of the body", (INDEX, *own, *elements, *same), _types(self.body.inputs))
        results = _types(self.body.outputs)
        end = self.conditional + self.carried
        first = matched(self.inside, own, carried, "carried values")
        going = matched(
            self.inside, own, results[self.conditional : end], "carried values of the body"
        )
        self._check_inside(first, going)
        _check(
            "condition of the body",
            results[: self.conditional],
            wanted[len(wanted) - self.conditional :],
        )
        if len(results) != end + len(self.collected):
            raise ModelError(
                f"expected {end + len(self.collected)} results of the body, found {len(results)}"
            )
        rows = self.ran if self._is_open else self.steps
        stacked = (TensorType(t.dtype, (rows, *t.shape)) for t in results[end:] if rows is not None)
        whole = (*(self.results[: self.carried] if self.results else own), *stacked)
        if self.results:
            _check("results", self.results, whole)
        return whole

    def _check_inside(self, first: Mapping[Var, Dim], going: Mapping[Var, Dim]) -> None:
        """Raises ModelError if an extent in `results` differs from the extent after the last
        iteration.
        """
        last = self.last_extents()
        if not {*first} == {*going} == {*last} == {*self.inside}:
            raise ModelError(f"the symbols {self.inside} are not those of carried values")
        for i, s in enumerate(self.inside):
            if i >= self.known:
                if last[s] is not self.symbols[i - self.known]:
                    raise ModelError(f"extent {s.name!r} behind the loop: found {last[s]}")
                continue
            counted = grown(first[s], s, going[s], self.steps)
            if counted is None or not same_dim(last[s], counted):
                raise ModelError(f"extent {s.name!r} is not {last[s]} behind {self.steps} steps")


def _types(values: Sequence[Value]) -> tuple[TensorType, ...]:
    return tuple(v.type for v in values)


def _check(what: str, found: Sequence[TensorType], wanted: Sequence[TensorType]) -> None:
    if tuple(found) != tuple(wanted):
        raise ModelError(f"{what}: expected {_shown(wanted)}, found {_shown(found)}")


def _shown(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def grown(first: Dim, current: Var, following: Dim, steps: Dim | None) -> Dim | None:
    """The extent that begins as `first` and changes from `current` to `following` in each of
    `steps` steps.  None if a step does not add a constant of at least 0.
    """
    added = difference(following, current)
    if steps is None or not isinstance(added, int) or added < 0:
        return None
    return as_dim(as_expr(first) + as_expr(steps) * added)


def matched(
    symbols: Sequence[Var], wanted: Sequence[TensorType], found: Sequence[TensorType], what: str
) -> dict[Var, Dim]:
    """The extents in the types `found` that occur in the place of `symbols` in `wanted`.

    Raises ModelError if the types differ elsewhere, or if a symbol would have two values.
    """
    extents: dict[Var, Dim] = {}
    own = {*symbols}
    fits = len(wanted) == len(found) and all(
        a.dtype is b.dtype and a.rank == b.rank for a, b in zip(wanted, found)
    )
    for a, b in zip(wanted, found) if fits else ():
        for d, e in zip(a.shape, b.shape, strict=True):
            wanted_dim = extents.setdefault(d, e) if isinstance(d, Var) and d in own else d
            fits = fits and same_dim(wanted_dim, e)
    if not fits:
        _check(what, found, wanted)
        raise ModelError(f"{what}: a symbol of {_shown(wanted)} is two extents in {_shown(found)}")
    return extents


def everywhere(
    run: Callable[[Graph], Graph], inside: Callable[[Graph], Graph] | None = None
) -> Callable[[Graph], Graph]:
    """A pass that runs `run` on the bodies of control flow, innermost first, and then on the graph
    itself.

    inside: the pass for bodies; None to use `run`.
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
    """The graph and all bodies of control flow in it, outer graphs before inner ones."""
    yield graph
    for n in graph.nodes:
        if isinstance(n.op, Control):
            for body in n.op.bodies:
                yield from graphs_in(body)


def nodes_in(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """Each node with its graph, in order.  A node with bodies is replaced by the nodes of its
    bodies.
    """
    for n in graph.nodes:
        if isinstance(n.op, Control):
            for body in n.op.bodies:
                yield from nodes_in(body)
        else:
            yield graph, n


def kernels_in(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """The nodes of `nodes_in` that become kernels, in the program's order of calls."""
    return (
        (g, n)
        for g, n in nodes_in(graph)
        if isinstance(n.op, Fused) and not isinstance(n.op, InPlace)
    )


@dataclass(frozen=True)
class Host(Control):
    """A call of a stateless function of the host.

    function: the function's name in the table of `tilesmith.host_functions`.
    settings: the constant arguments of the function as a JSON object; "" for none.
    results: types of the results.  Symbols in them are known before the node runs.
    operator: the operator's name in the source model.
    is_fallback: True if the function runs an operator on numbers for which there is no native code;
        False if the operator belongs on the host, as operators on strings do.
    """

    function: Label[str]
    settings: Label[str]
    results: Label[tuple[TensorType, ...]]
    operator: Label[str] = ""
    is_fallback: Label[bool] = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return self.results

    def reference(self, *inputs: Any) -> Any:
        return prepare(self.function, self.settings)(*inputs)


def conform(value: Any, type: TensorType) -> Any:
    """A result of a host function, converted to `type`; an array if `type` is a tensor's."""
    if type.dtype.is_host and type.dtype.name != "string":
        return value
    if type.dtype.is_host:
        return np.asarray(value, object)
    return np.asarray(value, type.dtype.numpy)
