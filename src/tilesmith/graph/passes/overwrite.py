"""Results written to the memory of operands that are not needed any more.

A scatter writes over its data, instead of a copy of them, if it is the last user of the data's
memory.  So its cost depends only on its updates, however large the tensor is.

An append (`graph.passes.append`) in a loop writes its rows after the end of the carried value.

A result of the program that is to live in an input (`Graph.in_place`) is written there directly in
two cases:

- The kernel that computes it is the last user of the input.  This kernel is a scatter, or it may
  write over its operand.
- All kernels that write it run after the last use of the input.

In all other cases the result is computed elsewhere and copied at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.graph.control import Loop
from tilesmith.graph.measure import allocates
from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Value
from tilesmith.ir.expr import index_of
from tilesmith.ops.base import Op
from tilesmith.ops.scatter import ScatterElements, ScatterNd, ScatterSorted
from tilesmith.ops.slicing import Append

from .memory_plan import homes_of
from .place import copy_of

LiesOver = Callable[[Graph, int, int], bool]
"""Whether the kernel of a fused body may write a result over an operand.  Arguments: the body, the
result's number, the operand's number.
"""


def overwrite(graph: Graph, lies_over: LiesOver) -> Graph:
    """A fused `graph` with results in the memory of operands; the same object if there are none."""
    graph = lengthen(graph)
    state = _Overwriting(graph, lies_over)
    for i, node in enumerate(graph.nodes):
        state.scatter(i, node)
    for out, home in graph.in_place:
        state.settle(out, home)
    return state.graph


def lengthen(graph: Graph) -> Graph:
    """A fused `graph` whose loops append to carried values in place; the same object if none
    can.
    """
    nodes = [_with_lengthened(n, n.op) if isinstance(n.op, Loop) else n for n in graph.nodes]
    same = all(a is b for a, b in zip(nodes, graph.nodes))
    return graph if same else replace(graph, nodes=tuple(nodes))


def _with_lengthened(node: Node, op: Loop) -> Node:
    body = op.body
    nodes = [*body.nodes]
    for k in range(op.carried):
        current, following = body.inputs[1 + k], body.outputs[op.conditional + k]
        made_by = body.producer.get(following)
        if made_by is None or [*body.consumers.get(current, ())] != [made_by]:
            continue
        inner = _single(made_by, Append)
        is_apart = current not in body.outputs and body.outputs.count(following) == 1
        if inner is None or not is_apart or current.layout is not None:
            continue
        assert isinstance(made_by.op, Fused) and isinstance(inner.op, Append)
        operand = made_by.op.body.inputs.index(inner.inputs[0])
        if made_by.inputs[operand] is current and not inner.op.in_place:
            inner = replace(inner, op=replace(inner.op, in_place=True))
            own = replace(made_by.op.body, nodes=(inner,), in_place=((0, operand),))
            nodes[index_of(body.nodes, made_by)] = replace(made_by, op=Fused(own))
    if all(a is b for a, b in zip(nodes, body.nodes)):
        return node
    return replace(node, op=replace(op, body=replace(body, nodes=tuple(nodes))))


class _Overwriting:
    """The graph in its current form, and the users of each piece of memory.

    home: value inside the memory of another value -> this other value.
    uses: value with its own memory -> the numbers of the nodes that read or write this memory.
    """

    def __init__(self, graph: Graph, lies_over: LiesOver) -> None:
        self.graph = graph
        self.lies_over = lies_over
        self.home = {v: home for v, (home, _) in homes_of(graph).items()}
        self.uses: dict[Value, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            for v in (*node.inputs, *node.outputs):
                self.uses.setdefault(self.of(v), []).append(i)
        self.given = {graph.outputs[o]: graph.inputs[i] for o, i in graph.in_place}
        """Result of the program that is to live in an input -> this input."""
        self.outside = {*graph.inputs, *graph.outputs, *graph.constant}

    def of(self, v: Value) -> Value:
        """The value in whose memory `v` is."""
        return self.home.get(v, v)

    def is_last(self, i: int, v: Value) -> bool:
        """Whether node `i` is the last user of the memory of `v`, and reads only `v` there."""
        used = [x for x in self.graph.nodes[i].inputs if self.of(x) is self.of(v)]
        return self.uses[self.of(v)][-1] == i and used == [v]

    def scatter(self, i: int, node: Node) -> None:
        """Let node `i` write over its data if it is a scatter for which this is allowed."""
        operand = _data(node)
        if operand is None:
            return
        data, result = node.inputs[operand], node.outputs[0]
        if data.layout != result.layout or self.of(result) is not result:
            return
        if not self.is_last(i, data) or not self.fits(i, data, result):
            return
        assert isinstance(node.op, Fused)
        body = node.op.body
        (inner,) = body.nodes
        inner = replace(inner, op=replace(inner.op, in_place=True))  # type: ignore[call-arg]  # a scatter
        self.change(i, replace(body, nodes=(inner,), in_place=((0, operand),)))
        home = self.of(data)
        if home not in self.outside:
            whole, part = (result, home) if result in self.outside else (home, result)
            self.home |= {v: whole for v, h in self.home.items() if h is part} | {part: whole}
            self.uses[whole] = sorted((*self.uses[whole], *self.uses.pop(part)))

    def fits(self, i: int, data: Value, result: Value) -> bool:
        """Whether `result`, computed by node `i`, can share memory with `data`, which node `i`
        overwrites.
        """
        home = self.of(data)
        if home in self.outside:
            return self.given.get(result) is data and self.uses[result][0] == i
        if result not in self.outside:
            return True
        if home is not data:
            return False  # the data are only a part of the memory
        if allocates(self.graph.producer[data], data):
            return False
        own = self.given.get(result)  # the data must not overwrite this input too early
        return own is None or own not in self.uses or self.uses[own][-1] < self.uses[data][0]

    def settle(self, out: int, home: int) -> None:
        """Write a result of the program directly to the memory of its input if this is possible;
        otherwise add a copy at the end.

        out, home: the numbers of the result and of the input.
        """
        value, target = self.graph.outputs[out], self.graph.inputs[home]
        if value is target:
            return
        first, last = self.uses.get(value, [-1])[0], self.uses.get(target, [-1])[-1]
        if value in self.graph.producer and (
            first > last or self.written_over(first, value, target)
        ):
            return
        copy = replace(value)
        nodes = (*self.graph.nodes, copy_of(value, copy))
        outputs = (*self.graph.outputs[:out], copy, *self.graph.outputs[out + 1 :])
        self.graph = replace(self.graph, nodes=nodes, outputs=outputs)

    def written_over(self, i: int, value: Value, given: Value) -> bool:
        """Whether node `i`, the first user of the memory of `value`, can write `value` over the
        input `given`.
        """
        node = self.graph.nodes[i]
        if value not in node.outputs or not self.is_last(i, given):
            return False
        if not isinstance(node.op, Fused) or isinstance(node.op, InPlace):
            return False
        pair = node.outputs.index(value), node.inputs.index(given)
        body = node.op.body
        if pair in body.in_place:
            return True
        if not self.lies_over(body, *pair):
            return False
        self.change(i, replace(body, in_place=(*body.in_place, pair)))
        return True

    def change(self, i: int, body: Graph) -> None:
        nodes = [*self.graph.nodes]
        nodes[i] = replace(nodes[i], op=Fused(body))
        self.graph = replace(self.graph, nodes=tuple(nodes))


def _data(node: Node) -> int | None:
    """The operand number of the data of a group that consists of a scatter; None for other
    nodes.
    """
    inner = _single(node, ScatterElements, ScatterNd, ScatterSorted)
    if inner is None or inner.op.attributes["in_place"]:
        return None
    assert isinstance(node.op, Fused)
    return node.op.body.inputs.index(inner.inputs[0])


def _single(node: Node, *kinds: type[Op]) -> Node | None:
    """The only node of a group, if its operator is one of `kinds`, its first operand is no
    constant, and no other operand is the same value; else None.  Such a node reads only those
    elements of its first operand that it writes over.
    """
    body = node.op.body if isinstance(node.op, Fused) else None
    if body is None or len(body.nodes) != 1:
        return None
    (inner,) = body.nodes
    if not isinstance(inner.op, kinds) or inner.inputs[0] in body.constant:
        return None
    return None if inner.inputs[0] in inner.inputs[1:] else inner
