"""Simplification of control flow: fewer branches and loops, and less work in each iteration.

- A branch with a known condition is inlined into the graph, and so is a loop of at most one
  iteration.
- Constants move into the bodies that use them, where they are folded and packed.
- A carried value that no iteration changes becomes an ordinary input.  Inputs that no body reads
  and results without readers are removed.
- A node with the same result in every iteration is computed once, before the loop.  So is the
  transposition of a matrix for products in the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import numpy as np

from tilesmith.graph.bind import Binding
from tilesmith.graph.builder import array_type
from tilesmith.graph.control import Control, If, Loop
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value, with_values
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.symbols import bound, expected_size, symbols_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape, Transpose

T = TypeVar("T", Graph, Node, If, Loop)

GROWTH = 2
"""Upper bound on the ratio of result elements to operand elements of a node that moves out of a
loop.  It is cheaper to repeat a larger broadcast in each iteration.
"""

TRANSPOSED_ROWS = 128
"""Lower bound on the rows that all iterations of a loop multiply with a matrix that is transposed
before the loop.
"""


def control_flow(graph: Graph) -> Graph:
    """`graph` with its control flow simplified, bodies included; the same object if it has none."""
    if not any(isinstance(n.op, Control) for n in graph.nodes):
        return graph
    return _Simplification(graph).run()


class _Simplification:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[Value, Constant] = dict(graph.constant)
        self.nodes: list[Node] = []
        self.now: dict[Value, Value] = {}
        self.read = {*graph.outputs, *(v for n in graph.nodes for v in n.inputs)}
        self.extents: dict[Expr, Dim] = {}  # symbol of removed control flow -> its value

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.add(node.with_values(self.now))
        graph = self.graph
        if self.nodes == list(graph.nodes):
            return graph
        new = replace(
            graph,
            constants=tuple(self.constants.values()),
            nodes=tuple(self.nodes),
            outputs=self.current(graph.outputs),
        )
        return dce(Binding(self.extents).graph(new) if self.extents else new)

    def current(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self.now.get(v, v) for v in values)

    def array(self, value: Value) -> np.ndarray | None:
        constant = self.constants.get(value)
        return None if constant is None else logical_array(constant)

    def constant(self, array: np.ndarray) -> Value:
        value = Value("", array_type(array))
        self.constants[value] = Constant(value, Data.of(array))
        return value

    def add(self, node: Node) -> None:
        if isinstance(node.op, If):
            self.branch(node, node.op)
        elif isinstance(node.op, Loop):
            self.loop(node, node.op)
        else:
            self.nodes.append(node)

    def inline(self, body: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """The results of `body` for `inputs`; its nodes are added to the graph."""
        fresh: dict[Value, Value] = dict(zip(body.inputs, inputs, strict=True))
        for c in body.constants:
            fresh[c.value] = replace(c.value)
            self.constants[fresh[c.value]] = Constant(fresh[c.value], c.data)
        for n in body.nodes:
            read = tuple(self.now.get(fresh[v], fresh[v]) for v in n.inputs)
            fresh |= {v: replace(v) for v in n.outputs}
            self.read.update(fresh[v] for v in n.outputs)
            self.add(Node(n.op, read, tuple(fresh[v] for v in n.outputs), n.loc))
        return tuple(self.now.get(fresh[v], fresh[v]) for v in body.outputs)

    # Branches

    def branch(self, node: Node, op: If) -> None:
        condition = self.array(node.inputs[0])
        if condition is not None:
            chosen = op.then if condition else op.otherwise
            self.now.update(zip(node.outputs, self.inline(chosen, node.inputs[1:]), strict=True))
            if op.symbols:
                self.learn(op.extents(chosen))
            return
        own = {*op.symbols}
        kept = [
            i
            for i, v in enumerate(node.outputs)
            if v in self.read or not own.isdisjoint(symbols_of(v.shape))
        ]
        bodies = [
            control_flow(dce(_with_outputs(self.with_constants(b, node.inputs[1:]), kept)))
            for b in op.bodies
        ]
        passed = [
            i for i in range(len(node.inputs) - 1) if any(b.inputs[i] in _read(b) for b in bodies)
        ]
        then, otherwise = (_with(b, inputs=tuple(b.inputs[i] for i in passed)) for b in bodies)
        self.nodes.append(
            _with(
                node,
                op=_with(
                    op,
                    then=then,
                    otherwise=otherwise,
                    results=tuple(op.results[i] for i in kept) if op.results else (),
                ),
                inputs=(node.inputs[0], *(node.inputs[1 + i] for i in passed)),
                outputs=tuple(node.outputs[i] for i in kept),
            )
        )

    def learn(self, extents: Mapping[Var, Dim]) -> None:
        """Replace symbols by these extents in all later nodes."""
        self.extents |= {s: bound(d, self.extents) for s, d in extents.items()}

    def with_constants(self, body: Graph, given: Sequence[Value]) -> Graph:
        """`body` with constants in place of those inputs whose values are constants.

        given: the values of the body's last inputs, the only ones that are replaced.
        """
        formal = body.inputs[len(body.inputs) - len(given) :]
        sunk = {
            inner: replace(inner)
            for inner, outer in zip(formal, given, strict=True)
            if outer in self.constants
        }
        if not sunk:
            return body
        data = {i: self.constants[o].data for i, o in zip(formal, given) if i in sunk}
        constants = (*body.constants, *(Constant(new, data[old]) for old, new in sunk.items()))
        return replace(with_values(body, sunk), inputs=body.inputs, constants=constants)

    # Loops

    def loop(self, node: Node, op: Loop) -> None:
        steps = op.steps
        if steps is None and (known := self.array(node.inputs[0])) is not None:
            steps, node = max(int(known), 0), replace(node, inputs=node.inputs[1:])
            op = replace(op, steps=steps)
        if op.conditional and (known := self.array(node.inputs[op.leading - 1])) is not None:
            steps = steps if known else 0
        carried, sliced, same = op.split(node.inputs)
        if isinstance(steps, int) and steps == 0:
            self.learn(op.extents_after(carried, 0))
            types = map(Binding(self.extents).type, (v.type for v in node.outputs[op.carried :]))
            empty = (self.constant(_zeros(t)) for t in types)
            self.now.update(zip(node.outputs, (*carried, *empty), strict=True))
            return
        is_single = isinstance(steps, int) and steps == 1
        if is_single and not (op.conditional and self.array(node.inputs[op.leading - 1]) is None):
            first = self.constant(np.zeros((), np.int64))
            elements = (self.reshaped(v, v.shape[1:], node.loc) for v in sliced)
            inside: dict[Expr, Dim] = {**op.first_extents(carried)}
            body = Binding(inside).graph(op.body) if inside else op.body
            results = self.inline(body, (first, *carried, *elements, *same))[op.conditional :]
            self.learn(op.extents_after(carried, 1))
            ends = results[: op.carried]
            stacked = (self.reshaped(v, (1, *v.shape), node.loc) for v in results[op.carried :])
            self.now.update(zip(node.outputs, (*ends, *stacked), strict=True))
            return
        self.shrink(node, op)

    def reshaped(self, value: Value, shape: tuple[Dim, ...], loc: str) -> Value:
        result = Value("", TensorType(value.dtype, shape))
        self.nodes.append(Node(Reshape(shape), (value,), (result,), loc))
        return result

    def shrink(self, node: Node, op: Loop) -> None:
        """Add the loop with fewer carried values, and with fewer nodes in its body."""
        carried, sliced, same = op.split(node.inputs)
        body, head = op.body, op.conditional
        inner = body.inputs[1 : 1 + op.carried]
        own = {*op.inside}
        stays = [
            body.outputs[head + k] is v and own.isdisjoint(symbols_of(v.shape))
            for k, v in enumerate(inner)
        ]
        for k, s in enumerate(stays):
            if s:
                self.now[node.outputs[k]] = carried[k]
        moving = [k for k, s in enumerate(stays) if not s]
        collected = [
            i
            for i in range(len(op.collected))
            if node.outputs[op.carried + i] in self.read or op.ran is not None
        ]
        body = _with(
            body,
            inputs=(
                body.inputs[0],
                *(inner[k] for k in moving),
                *body.inputs[1 + op.carried :],
                *(inner[k] for k, s in enumerate(stays) if s),
            ),
        )
        kept = [*moving, *(op.carried + i for i in collected)]
        results = [*range(head), *(head + k for k in moving)]
        body = dce(_with_outputs(body, [*results, *(head + op.carried + i for i in collected)]))
        fixed_values = (*same, *(carried[k] for k, s in enumerate(stays) if s))
        body = self.with_constants(body, fixed_values)
        same_inside = body.inputs[len(body.inputs) - len(fixed_values) :]
        body = _with_plain_products(body, same_inside, op.steps)
        body, fixed_values = self.hoisted(body, fixed_values)
        body = control_flow(body)
        used = _read(body)
        first = 1 + len(moving)
        slices = [i for i in range(len(sliced)) if body.inputs[first + i] in used]
        fixed = body.inputs[first + len(sliced) :]
        inputs = (*body.inputs[:first], *(body.inputs[first + i] for i in slices))
        body = _with(body, inputs=(*inputs, *(v for v in fixed if v in used)))
        self.nodes.append(
            _with(
                node,
                op=_with(
                    op,
                    body=body,
                    carried=len(moving),
                    sliced=tuple(op.sliced[i] for i in slices),
                    collected=tuple(op.collected[i] for i in collected),
                    results=tuple(op.results[i] for i in kept) if op.results else (),
                ),
                inputs=(
                    *node.inputs[: op.leading],
                    *(carried[k] for k in moving),
                    *(sliced[i] for i in slices),
                    *(v for v, formal in zip(fixed_values, fixed, strict=True) if formal in used),
                ),
                outputs=tuple(node.outputs[i] for i in kept),
            )
        )

    def hoisted(self, body: Graph, given: tuple[Value, ...]) -> tuple[Graph, tuple[Value, ...]]:
        """Move nodes out of `body` that depend only on its last inputs, whose values are `given`.
        Returns the new body and the values of its last inputs.
        """
        outer = dict(zip(body.inputs[len(body.inputs) - len(given) :], given, strict=True))
        leaving: list[Node] = []
        made: dict[Value, Value] = {}
        for n in body.nodes:
            known = [v in outer or v in made or v in body.constant for v in n.inputs]
            if not all(known) or all(v in body.constant for v in n.inputs) or not _leaves(n):
                continue
            leaving.append(n)
            made |= {v: replace(v) for v in n.outputs}
        if not leaving:
            return body, given
        for c in body.constants:
            outer[c.value] = replace(c.value)
            self.constants[outer[c.value]] = Constant(outer[c.value], c.data)
        outer |= made
        for n in leaving:
            self.nodes.append(n.with_values(outer))
        taken = {v.name for v in body.inputs}
        formal = {v: replace(v, name=_fresh(v.name or "same", taken)) for v in made}
        nodes = tuple(n for n in body.nodes if n not in leaving)
        body = with_values(replace(body, nodes=nodes), formal)
        body = replace(body, inputs=(*body.inputs, *formal.values()))
        return body, (*given, *made.values())


def _fresh(name: str, taken: set[str]) -> str:
    """A name like `name` that is not in `taken`; it is added to `taken`."""
    fresh = next(n for i in count() if (n := f"{name}~{i}" if i else name) not in taken)
    taken.add(fresh)
    return fresh


def _leaves(node: Node) -> bool:
    """Whether a node whose inputs are the same in every iteration moves out of the loop."""
    values = (*node.inputs, *node.outputs)
    fixed = node.op.is_static and all(v.type.is_static for v in values)
    if not node.op.is_primitive() or not fixed:
        return False
    return sum(v.type.size for v in node.outputs) <= GROWTH * sum(v.type.size for v in node.inputs)


def _with_plain_products(body: Graph, same: Sequence[Value], steps: Dim | None) -> Graph:
    """`body` with an explicit transposition for products of rows with a transposed matrix.  The
    matrix must be one of the values `same`, which no iteration changes, such as a recurrent weight.
    So the transposition can move out of the loop.

    Vector lanes then run along the matrix's rows.  In the original product the lanes of a vector
    would be summed for each element.
    """
    nodes: list[Node] = []
    made: dict[Value, Value] = {}
    for n in body.nodes:
        if steps is None or not _reads_transposed(n, same, steps):
            nodes.append(n)
            continue
        op, (a, b) = n.op, n.inputs
        if b not in made:
            rank = b.type.rank
            order = (*range(rank - 2), rank - 1, rank - 2)
            made[b] = Value("", TensorType(b.dtype, tuple(b.shape[i] for i in order)))
            nodes.append(Node(Transpose(order), (b,), (made[b],), n.loc))
        assert isinstance(op, MatMul)
        nodes.append(replace(n, op=replace(op, transpose_b=False), inputs=(a, made[b])))
    return replace(body, nodes=tuple(nodes)) if made else body


def _reads_transposed(node: Node, same: Sequence[Value], steps: Dim) -> bool:
    """Whether a node multiplies rows with the transpose of one of the matrices `same`.  A
    transposition before the loop must be worthwhile: all `steps` together multiply enough rows.
    """
    if not isinstance(node.op, MatMul) or not node.op.transpose_b:
        return False
    a, b = node.inputs
    if b not in same or b.type.rank < 2 or not b.type.is_static:
        return False
    rows = expected_size(a.shape[b.type.rank - 2 : -1])
    return rows > 1 and rows * expected_size((steps,)) >= TRANSPOSED_ROWS


def _with(value: T, **fields: Any) -> T:
    """`value` with these fields replaced; the same object if they are equal already."""
    same = all(getattr(value, k) == v for k, v in fields.items())
    return value if same else replace(value, **fields)


def _read(body: Graph) -> set[Value]:
    return {*body.outputs, *(v for n in body.nodes for v in n.inputs)}


def _with_outputs(body: Graph, kept: Sequence[int]) -> Graph:
    return _with(
        body,
        outputs=tuple(body.outputs[i] for i in kept),
        output_names=tuple(body.output_names[i] for i in kept),
    )


def _zeros(type: TensorType) -> np.ndarray:
    return np.zeros(type.static_shape, type.dtype.numpy)
