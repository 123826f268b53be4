"""Appending in place to carried values that each iteration of a loop makes longer.

    y = concat(a, rows)  ->  y = append(a, rows)     # a: a carried value, y: the next iteration's

A concatenation copies the whole value in each iteration.  `overwrite` lets an append write only the
new rows, to memory that the loop enlarges (see `driver.assembly`).

The longer value must begin with the bytes of the shorter one.  If a value grows along a later axis,
as a cache of keys [heads, tokens, width] does, the loop carries it with this axis first.  Other
nodes read it through a transposition, which is fused into their reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.graph.control import Loop
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import index_of
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.ops.shape import Transpose
from tilesmith.ops.slicing import Append, Concat


def append(graph: Graph) -> Graph:
    """`graph` with appends in its loops; the same object if no carried value is lengthened."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _in_loop(node, node.op) if isinstance(node.op, Loop) else [node]
    same = len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes))
    return graph if same else replace(graph, nodes=tuple(nodes))


def _in_loop(node: Node, op: Loop) -> list[Node]:
    """The loop with appends, and the transpositions before and after it."""
    before: list[Node] = []
    behind: list[Node] = []
    for k in range(op.carried):
        joint = _lengthened(op, k)
        if joint is None:
            continue
        assert isinstance(joint.op, Concat)
        axis = joint.op.axis % joint.outputs[0].type.rank
        perm = _in_front(joint.outputs[0].type, axis)
        op = _with_append(op, k, joint, perm)
        if perm is None:
            node = replace(node, op=op)
            continue
        number = op.leading + k
        carried, result = node.inputs[number], node.outputs[k]
        first, last = _transposed(carried, perm), _transposed(result, perm)
        before.append(Node(Transpose(perm), (carried,), (first,), node.loc))
        behind.append(Node(Transpose(_inverse(perm)), (last,), (result,), node.loc))
        if op.results:
            types = (*op.results[:k], last.type, *op.results[k + 1 :])
            op = replace(op, results=types)
        inputs = (*node.inputs[:number], first, *node.inputs[number + 1 :])
        node = replace(
            node, op=op, inputs=inputs, outputs=(*node.outputs[:k], last, *node.outputs[k + 1 :])
        )
    return [*before, node, *behind]


def _lengthened(op: Loop, k: int) -> Node | None:
    """The concatenation that appends rows to carried value `k`.  None if there is none, or if other
    nodes also read the carried value.
    """
    body = op.body
    current, following = body.inputs[1 + k], body.outputs[op.conditional + k]
    node = body.producer.get(following)
    if node is None or not isinstance(node.op, Concat) or node.inputs.count(current) != 1:
        return None
    if node.inputs[0] is not current or [*body.consumers.get(current, ())] != [node]:
        return None
    if current in body.outputs or body.outputs.count(following) != 1 or current.dtype.is_host:
        return None
    axis = node.op.axis
    return None if same_dim(current.shape[axis], following.shape[axis]) else node


def _in_front(type: TensorType, axis: int) -> tuple[int, ...] | None:
    """The permutation that moves `axis` to the front; None if all axes before it have extent 1."""
    if all(same_dim(d, 1) for d in type.shape[:axis]):
        return None
    return (axis, *(a for a in range(type.rank) if a != axis))


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(perm.index(a) for a in range(len(perm)))


def _transposed(value: Value, perm: Sequence[int]) -> Value:
    shape = tuple(value.shape[p] for p in perm)
    return replace(value, type=TensorType(value.dtype, shape))


def _with_append(op: Loop, k: int, joint: Node, perm: tuple[int, ...] | None) -> Loop:
    """The loop whose body appends in place of the concatenation `joint`."""
    body = op.body
    current, following = joint.inputs[0], joint.outputs[0]
    made: list[Node] = []

    def through(value: Value) -> Value:
        if perm is None:
            return value
        made.append(Node(Transpose(perm), (value,), (_transposed(value, perm),), joint.loc))
        return made[-1].outputs[0]

    rows = joint.inputs[1]
    axis = joint.op.attributes["axis"] % following.type.rank
    if len(joint.inputs) > 2:
        made.append(_joined(joint, axis))
        rows = made[0].outputs[0]
    rows = through(rows)
    shorter, longer = current, following
    if perm is not None:
        shorter, longer, axis = _transposed(current, perm), _transposed(following, perm), 0
    made.append(Node(Append(axis), (shorter, rows), (longer,), joint.loc))
    if perm is not None and following in body.consumers:
        made.append(Node(Transpose(_inverse(perm)), (longer,), (following,), joint.loc))
    number = index_of(body.nodes, joint)
    end = op.conditional + k
    return replace(
        op,
        body=replace(
            body,
            inputs=(*body.inputs[: 1 + k], shorter, *body.inputs[2 + k :]),
            nodes=(*body.nodes[:number], *made, *body.nodes[number + 1 :]),
            outputs=(*body.outputs[:end], longer, *body.outputs[end + 1 :]),
        ),
    )


def _joined(joint: Node, axis: int) -> Node:
    """The node that joins the appended values into one."""
    rows = joint.inputs[1:]
    type_ = Concat(axis).infer(*(v.type for v in rows))[0]
    return Node(Concat(axis), rows, (Value("", type_),), joint.loc)
