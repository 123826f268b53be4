"""Layout assignment: the memory layout of each value, chosen over the whole graph by cost.

Every kernel can read any layout (a layout is an index map), but not equally fast.  A contraction
writes the layout that its kernel is made for.  A node whose reads follow the order of its writes
can have row-major results, or any layout that a contraction gives to results of the same rank.  The
choice for all nodes together is a partitioned Boolean quadratic problem.  The cost of a pair of
producer and reader is the cost of reading the producer's layout, or the cost of a `relayout`
between them if this is less.  Inputs and outputs of the graph and of control flow are row-major.
Constants are packed when they are first read, at no cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tilesmith.graph.control import Host, nodes_in
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Relayout, Value
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import same_dim
from tilesmith.ops.base import Op
from tilesmith.support.pbqp import Problem

from .choices import Allow, Choose, anything, preferred

Choice = Layout | None
"""A layout for all results of a node that have the layout's rank; None is row-major."""


@dataclass(frozen=True, slots=True)
class NodeLayouts:
    """Layouts for a node.

    operands: operand number -> layout, for constants only.
    results: the layout of each result; None is row-major.
    """

    operands: dict[int, Layout]
    results: tuple[Layout | None, ...]


class LayoutPolicy(Protocol):
    """Costs of layouts on a target."""

    def fixed(self, node: Node, known: frozenset[int]) -> NodeLayouts | None:
        """The layouts of a node that has no choice; None if it has one.

        known: the numbers of the node's constant operands.
        """
        ...

    def favourite(self, node: Node) -> Layout | None:
        """The result layout that a free node computes faster than row-major; None if there is
        none.
        """
        ...

    def is_free(self, node: Node) -> bool:
        """Whether the node's results may have other layouts than row-major."""
        ...

    def reading(self, node: Node, number: int, layout: Choice, result: Choice) -> float:
        """Extra bytes moved if operand `number` has `layout`, compared with the layout that suits
        the kernel for a result in layout `result`.  Infinite if the kernel can't read `layout`.
        """
        ...

    def relayout(self, value: Value) -> float:
        """Bytes moved by a kernel that only changes the layout of `value`.  The number includes the
        cost of starting the kernel.
        """
        ...


def assign_layouts(
    graph: Graph,
    policy: LayoutPolicy,
    choose: Choose = preferred,
    allow: Allow = anything,
    is_body: bool = False,
) -> Graph:
    """`graph` with layouts on its values, constants packed to match, and relayouts where needed.

    choose: may overrule the costs for an operand whose layout does not suit its reader.  It decides
        whether there is a relayout, and the layout of the reader's results.
    allow: the layouts that results may have, where there is a choice.
    is_body: whether the graph is a body of control flow.  Results of a body need no separate
        memory: a result may be an input, a constant, or another result.
    """
    return _Assignment(graph, policy, choose, allow, is_body).run()


class _Assignment:
    def __init__(
        self, graph: Graph, policy: LayoutPolicy, choose: Choose, allow: Allow, is_body: bool
    ) -> None:
        self.graph = graph
        self.is_body = is_body
        self.choose = choose
        self.allow = allow
        self.policy = policy
        self.fixed: dict[Node, NodeLayouts] = {}
        for n in graph.nodes:
            known = frozenset(i for i, v in enumerate(n.inputs) if v in graph.constant)
            fixed_layouts = policy.fixed(n, known)
            if fixed_layouts is not None:
                self.fixed[n] = fixed_layouts
        self.by_rank: dict[int, dict[Choice, None]] = {}
        """Rank -> the layouts that values of this rank may have, row-major first."""
        for n, layouts in self.fixed.items():
            for v, layout in zip(n.outputs, layouts.results, strict=True):
                if plain(layout, v) is not None:
                    self.by_rank.setdefault(v.type.rank, {None: None})[layout] = None
        for n in graph.nodes:
            wanted = None if n in self.fixed else policy.favourite(n)
            if wanted is not None:
                self.by_rank.setdefault(wanted.rank, {None: None})[wanted] = None
        for v in graph.inputs:
            if v.layout is not None:
                self.by_rank.setdefault(v.type.rank, {None: None})[v.layout] = None
        self.choices = {n: self.choices_of(n) for n in graph.nodes}
        self.chosen: dict[Node, Choice] = {}
        self.after_relayout: dict[tuple[Node, int, Choice], tuple[float, Choice]] = {}
        self.now: dict[Value, Value] = {}
        self.packed: dict[tuple[Value, Layout], Constant] = {}
        self.converted: dict[tuple[Value, Layout | None], Value] = {}
        self.nodes: list[Node] = []

    def choices_of(self, node: Node) -> list[Choice]:
        if node in self.fixed:
            return [self.fixed[node].results[0]]
        known = self.by_rank.get(node.outputs[0].type.rank, {}) if node.outputs else {}
        if not known or not self.policy.is_free(node):
            return [None]
        options = [c for c in known if c is None or any(plain(c, v) is c for v in node.outputs)]
        names = tuple(map(_name, options))
        return [options[names.index(n)] for n in self.allow("layout", names)]

    def layouts_of(self, node: Node, choice: Choice) -> tuple[Layout | None, ...]:
        """The layout of each result."""
        if node in self.fixed:
            wanted = self.fixed[node].results
        else:
            rank = None if choice is None else choice.rank
            wanted = tuple(choice if v.type.rank == rank else None for v in node.outputs)
        return tuple(plain(w, v) for w, v in zip(wanted, node.outputs, strict=True))

    def run(self) -> Graph:
        self.chosen = self.solve()
        if self.overruled():
            self.chosen = self.solve()
        for node in self.graph.nodes:
            self.lay_out(node)
        outputs = self.outputs()
        if self.nodes == list(self.graph.nodes) and outputs == self.graph.outputs:
            return self.graph
        used = {v for n in self.nodes for v in n.inputs} | set(outputs)
        constants = [c for c in self.graph.constants if c.value in used] + list(
            self.packed.values()
        )
        return replace(
            self.graph, constants=tuple(constants), nodes=tuple(self.nodes), outputs=outputs
        )

    # choosing

    def solve(self) -> dict[Node, Choice]:
        if all(len(c) == 1 for c in self.choices.values()):
            return {n: c[0] for n, c in self.choices.items()}
        problem = Problem()
        number: dict[Node, int] = {}
        for node in self.graph.nodes:
            costs = np.zeros(len(self.choices[node]))
            for v in node.outputs:
                if v in self.graph.outputs:
                    costs += [
                        self.policy.relayout(v) * (self.layout(node, c, v) is not None)
                        for c in self.choices[node]
                    ]
            number[node] = problem.node(list(costs))
        for node in self.graph.nodes:
            for i, v in enumerate(node.inputs):
                if v in self.graph.constant:
                    continue
                producer = self.graph.producer.get(v)
                mine = self.choices[node]
                if producer is None:
                    costs = np.array([[self.read(node, i, v.layout, c)[0] for c in mine]])
                    problem.edge(problem.node([0.0]), number[node], costs)
                    continue
                theirs = [self.layout(producer, c, v) for c in self.choices[producer]]
                costs = np.array([[self.read(node, i, a, b)[0] for b in mine] for a in theirs])
                problem.edge(number[producer], number[node], costs)
        solution = problem.solve()
        return {n: self.choices[n][solution[number[n]]] for n in self.graph.nodes}

    def overruled(self) -> bool:
        """Whether `choose` overrules the cheapest result layout of some node that has an operand in
        an unfavourable layout.  The chosen layout becomes the only option of the node.
        """
        before = dict(self.choices)
        for node, options in before.items():
            across = [
                producer
                for i, v in enumerate(node.inputs)
                if (producer := self.graph.producer.get(v)) is not None
                and self.read(node, i, self.layout(producer, self.chosen[producer], v),
                              self.chosen[node])[0]
            ]  # fmt: skip
            if len(options) > 1 and across:
                names = tuple(map(_name, options))
                usual = names[options.index(self.chosen[node])]
                chosen = self.choose("layout", (*dict.fromkeys(across), node), names, usual)
                if chosen != usual:
                    self.choices[node] = [options[names.index(chosen)]]
        return self.choices != before

    def layout(self, producer: Node, choice: Choice, value: Value) -> Layout | None:
        return self.layouts_of(producer, choice)[producer.outputs.index(value)]

    def read(self, node: Node, i: int, layout: Choice, result: Choice) -> tuple[float, Choice]:
        """The lowest cost of reading operand i of `node`, with or without a relayout, and the
        layout in which the operand is read.
        """
        as_it_lies = self.policy.reading(node, i, layout, result), layout
        if not as_it_lies[0]:
            return as_it_lies
        return min(as_it_lies, self.converting(node, i, result), key=lambda c: c[0])

    def converting(self, node: Node, i: int, result: Choice) -> tuple[float, Choice]:
        """The cost of reading operand i of `node` after the best relayout, and the layout after
        it.
        """
        key = (node, i, result)
        if key not in self.after_relayout:
            self.after_relayout[key] = self._converting(node, i, result)
        return self.after_relayout[key]

    def _converting(self, node: Node, i: int, result: Choice) -> tuple[float, Choice]:
        value = node.inputs[i]
        change = self.policy.relayout(value)
        costs = {
            other: change + self.policy.reading(node, i, other, result)
            for other in self.by_rank.get(value.type.rank, {None: None})
        }
        best = min(costs, key=costs.__getitem__)
        return costs[best], plain(best, value)

    def read_in(self, node: Node, i: int, layout: Choice, result: Choice) -> Choice:
        """The layout in which `node` reads operand i, whose own layout is `layout`."""
        _, cheapest = self.read(node, i, layout, result)
        _, other = self.converting(node, i, result)
        if not 0 < self.policy.reading(node, i, layout, result) < math.inf or other == layout:
            return cheapest
        value = node.inputs[i]
        about = [n for n in (self.graph.producer.get(value), node) if n is not None]
        changes = self.choose(f"relayout_{i}", about, (False, True), cheapest != layout)
        return other if changes else layout

    # applying the choices

    def lay_out(self, node: Node) -> None:
        choice = self.chosen[node]
        inputs = [self.now.get(v, v) for v in node.inputs]
        operands = self.fixed[node].operands if node in self.fixed else {}
        for i, v in enumerate(node.inputs):
            if v in self.graph.constant:
                wanted = operands.get(i)
                if wanted is None and node not in self.fixed and choice is not None:
                    wanted = plain(choice, v) if choice.rank == v.type.rank else None
                if wanted is not None and v.layout is None and not wanted.is_row_major:
                    inputs[i] = self.pack(v, wanted)
                continue
            layout = self.read_in(node, i, inputs[i].layout, choice)
            if layout != inputs[i].layout:
                inputs[i] = self.relayout(inputs[i], layout, node.loc)
        outputs = []
        for v, layout in zip(node.outputs, self.layouts_of(node, choice), strict=True):
            if layout != v.layout:
                self.now[v] = replace(v, layout=layout)
            outputs.append(self.now.get(v, v))
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True)) and not any(
            v in self.now for v in node.outputs
        )
        self.nodes.append(
            node if same else replace(node, inputs=tuple(inputs), outputs=tuple(outputs))
        )

    def pack(self, value: Value, layout: Layout) -> Value:
        key = (value, layout)
        if key not in self.packed:
            self.packed[key] = pack(self.graph.constant[value], layout)
        return self.packed[key].value

    def relayout(self, value: Value, layout: Layout | None, loc: str) -> Value:
        key = (value, layout)
        if key not in self.converted:
            new = replace(value, layout=layout)
            op = Relayout(layout or Layout.row_major(value.type.rank))
            self.nodes.append(Node(op, (value,), (new,), loc))
            self.converted[key] = new
        return self.converted[key]

    def outputs(self) -> tuple[Value, ...]:
        results: list[Value] = []
        for v in self.graph.outputs:
            value = self.now.get(v, v)
            if self.is_body:
                lies = value.layout is None
                results.append(value if lies else self.relayout(value, None, ""))
                continue
            is_taken = (
                value in self.graph.inputs or value in self.graph.constant or value in results
            )
            if value.layout is not None or is_taken:  # outputs are separate and row-major
                copy = replace(value, layout=None)
                self.nodes.append(Node(_copy_of(value), (value,), (copy,)))
                value = copy
            results.append(value)
        return tuple(results)


def _copy_of(value: Value) -> Op:
    """The operator that copies a value to a separate output.  A value of a host type, such as a
    tensor of strings, is one number in native memory, so no kernel copies it.
    """
    if value.dtype.is_host:
        return Host("identity", "", (value.type,))
    return Relayout(Layout.row_major(value.type.rank))


def relayout_count(graph: Graph) -> int:
    """Number of relayouts in a graph, including those in fused groups."""
    count = 0
    for _, n in nodes_in(graph):
        if isinstance(n.op, Fused):
            count += relayout_count(n.op.body)
        else:
            count += isinstance(n.op, Relayout)
    return count


def pack(source: Constant, layout: Layout) -> Constant:
    """The constant `source` in another layout; its contents are made at the first use."""

    def load() -> np.ndarray:
        return layout.pack(source.data.read())

    def fill(out: np.ndarray) -> None:
        layout.pack(source.data.read(), out)

    return Constant(replace(source.value, layout=layout), Data(load, fill, source))


def plain(layout: Layout | None, value: Value) -> Layout | None:
    """`layout`; None if only axes of extent 1 move, since memory is then as for row-major."""
    if layout is None or layout.has_padding:
        return layout
    order = [d.axis for d in layout.dims if not same_dim(value.shape[d.axis], 1)]
    return None if order == sorted(order) else layout


def _name(layout: Choice) -> str:
    return "row-major" if layout is None else str(layout)
