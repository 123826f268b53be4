"""The results of a graph: the tensors that native code computes, and the values that Python makes
from them.

AOTAutograd recomputes results that are views of the caller's tensors.  For that it reads strides
and offsets of the graph's results, and two results may share memory.  So PyTorch makes the results
that are views, from inputs and from tensors that native code has written.  Results that are sizes
are Python numbers and need no native code either.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tilesmith.frontend.torch.sizes import is_symbolic


class Results:
    """The results of an FX graph of ATen operators.

    native: the nodes whose tensors native code computes, without duplicates.
    """

    def __init__(self, module: GraphModule) -> None:
        outputs = module.graph.output_node().args[0]
        self.is_single = not isinstance(outputs, (tuple, list))
        self._leaves: list[Any] = [outputs] if self.is_single else [*outputs]  # type: ignore[misc]
        inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.native, others = _sources(self._leaves)
        available = [*inputs, *self.native]
        self._places = _places(self._leaves, available)
        order = [-1 if i is None else i - len(inputs) for i, _ in self._places or [(None, None)]]
        self.computed_only = order if min(order, default=-1) >= 0 else None
        """For each result, the index of its tensor in `native`.  None if some result is not such a
        tensor.
        """
        self._finish: Callable[..., Any] | None = None
        if self._places is None:
            self._finish = _finish(module, available, others, self._leaves).forward

    def finished(self, inputs: Sequence[Any], computed: Sequence[Any]) -> Any:
        """The results, from the graph's inputs and the computed tensors of `native`."""
        available = (*inputs, *computed)
        if self._finish is not None:
            results = self._finish(*available)
        else:
            results = [x if i is None else available[i] for i, x in self._places or ()]
        return results[0] if self.is_single else results


def _sources(leaves: Sequence[Any]) -> tuple[list[Node], set[Node]]:
    """The nodes from which the results are made: first those that native code computes, then the
    views and sizes, which Python computes.
    """
    made: dict[Node, None] = {}
    waiting = [x for x in reversed(leaves) if isinstance(x, Node)]
    seen: set[Node] = set()
    while waiting:
        n = waiting.pop()
        if n in made or n in seen or n.op == "placeholder":
            continue
        if n.op == "get_attr" or is_view(n) or is_size(n):
            seen.add(n)
            waiting.extend(n.all_input_nodes)
        else:
            made[n] = None
    return [*made], seen


def _places(
    leaves: Sequence[Any], available: Sequence[Node]
) -> list[tuple[int | None, Any]] | None:
    """For each result, its index in `available` or its constant value.  None if some result must be
    computed from `available`.
    """
    order = {n: i for i, n in enumerate(available)}
    if any(isinstance(x, Node) and x not in order for x in leaves):
        return None
    return [(order[x], None) if isinstance(x, Node) else (None, x) for x in leaves]


def _finish(
    module: GraphModule, available: Sequence[Node], others: Collection[Node], leaves: Sequence[Any]
) -> GraphModule:
    """The graph that computes the results from `available` with copies of the nodes `others`."""
    graph = Graph()
    copies = {n: graph.placeholder(n.name) for n in available}
    for n in module.graph.nodes:
        if n in others:
            copies[n] = graph.node_copy(n, copies.__getitem__)
    graph.output([copies[x] if isinstance(x, Node) else x for x in leaves])
    return GraphModule(module, graph)


def is_view(node: Node) -> bool:
    """Whether a node returns views of its input."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def is_size(node: Node) -> bool:
    """Whether a node returns a Python number."""
    held = node.meta.get("val")
    return is_symbolic(held) or isinstance(held, (bool, int, float))
