"""Definitions of users' operators as text, for keys of caches and records.

The name of a user's operator doesn't determine its computation: tomorrow another class may have it.
So every key of a kernel, program or tuning record contains the `meanings` of the users' operators
in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from hashlib import blake2b

from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.base import Op
from tilesmith.te.text import canonical

from .builder import expansion, infer
from .control import nodes_in
from .nodes import Graph, Node
from .parse import parse_graph
from .text import print_graph


def has_custom(graph: Graph) -> bool:
    """True if an operator of a user is in `graph`."""
    return any(n.op.custom for n in graph.nodes)


def meanings(nodes: Iterable[Node]) -> str:
    """A line for each user's operator among `nodes`, with a hash of its computation for the node's
    input types.  Empty if there is no such operator.
    """
    return "".join(f"{n.op.name} {_meaning(n)}\n" for n in nodes if n.op.custom)


def _meaning(node: Node) -> str:
    op, types = node.op, tuple(v.type for v in node.inputs)
    results = ", ".join(map(str, infer(op, types)))
    attributes = ", ".join(f"{f.name}: {f.type}" for f in fields(op))
    text = f"{op.name}({attributes}) -> {results}\n{_definition(op, types)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _definition(op: Op, types: tuple[TensorType, ...]) -> str:
    if op.is_composite():
        parts = expansion(op, types)
        return print_graph(parts) + meanings(parts.nodes)
    if op.is_irregular():
        return print_func(op.loops(*types))
    made = op.tensors(*types)
    indices = [t.index for t in made.outputs]
    # The inputs come first: without them `x - y` and `y - x` would have one text.
    return f"{canonical([t.op for t in (*made.inputs, *made.outputs)])}{indices}"


def uses_of(graph: Graph) -> list[str]:
    """Each use of a user's operator in `graph`, as the text of a graph with this node only."""
    return sorted({_alone(n) for _, n in nodes_in(graph) if n.op.custom})


def _alone(node: Node) -> str:
    inputs = {v: replace(v, name=f"x{i}") for i, v in enumerate(dict.fromkeys(node.inputs))}
    outputs = tuple(replace(v, name=f"y{i}") for i, v in enumerate(node.outputs))
    single = Node(node.op, tuple(inputs[v] for v in node.inputs), outputs)
    names = tuple(v.name for v in outputs)
    return print_graph(Graph("use", tuple(inputs.values()), (), (single,), outputs, names))


def meanings_of_uses(uses: Iterable[str]) -> str:
    """The `meanings` of the operators in `uses` (made by `uses_of`), as they are registered now.

    Raises ParseError if an operator is not registered, ModelError if it does not accept the inputs.
    """
    return "".join(meanings(parse_graph(use).nodes) for use in uses)
