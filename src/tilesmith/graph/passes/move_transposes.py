"""Operators between two transposes are moved before or after both, so that the transposes cancel.

Models with images [N, H, W, C] have transposes around each convolution:

    relu(transpose(conv(a)) + transpose(conv(b))), transposed back and read by another convolution

A region is a set of connected nodes that don't depend on the order of axes: elementwise operators,
joins, slices, pads, reductions, lookups in a list.  It is computed on transposed values if this
lowers the number of elements that are transposed at its border.  Constants are transposed at
compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tilesmith.graph.builder import infer
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add, Cast
from tilesmith.ops.elementwise.base import Elementwise
from tilesmith.ops.gather import Gather
from tilesmith.ops.reduce import ArgMax, ArgMin, Reduction
from tilesmith.ops.resample import Resample
from tilesmith.ops.rules import normalize_axes
from tilesmith.ops.shape import Expand, Reshape, Transpose
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice, Split, Tile

Perm: TypeAlias = "tuple[int, ...]"


def move_transposes(graph: Graph) -> Graph:
    """`graph` with fewer transposed elements; the same object if no region is moved."""
    for perm in _perms(graph):
        moved = _Regions(graph, perm).run()
        # If regions share a transpose at their borders, its gain is counted for each region.
        if moved is not graph and _transposed_elements(moved) < _transposed_elements(graph):
            graph = moved
    return graph


def _transposed_elements(graph: Graph) -> int:
    """The number of elements that the transposes of a graph move, at expected sizes."""
    transposes = (n for n in graph.nodes if isinstance(n.op, Transpose))
    return sum(expected_size(n.inputs[0].type.shape) for n in transposes)


def _perm(node: Node) -> Perm:
    assert isinstance(node.op, Transpose)
    return tuple(p % len(node.op.perm) for p in node.op.perm)


def _inverse(perm: Perm) -> Perm:
    return tuple(perm.index(a) for a in range(len(perm)))


def _perms(graph: Graph) -> list[Perm]:
    """The permutations of transposes in the graph that another transpose in the graph undoes."""
    perms = [_perm(n) for n in graph.nodes if isinstance(n.op, Transpose)]
    return [
        p
        for p in dict.fromkeys(perms)
        if _inverse(p) in perms and (_inverse(p) != p or perms.count(p) > 1)
    ]


class _Regions:
    """The regions of a graph for one permutation.  A value `v` of a moved region is replaced by `w`
    with `v = transpose(w)`.
    """

    def __init__(self, graph: Graph, perm: Perm) -> None:
        self._graph, self._perm, self._inverse = graph, perm, _inverse(perm)
        self._outputs = set(graph.outputs)
        self._region: dict[Node, Node] = {}
        """Movable node -> a node nearer to the root of its region (union-find)."""

    def run(self) -> Graph:
        movable = [n for n in self._graph.nodes if self._moved(n) is not None]
        self._region = {n: n for n in movable}
        for node in movable:
            for v in self._placed(node):
                above = self._graph.producer.get(v)
                if above in self._region and self._is_of_rank(v):
                    self._region[self._root(above)] = self._root(node)
        regions: dict[Node, list[Node]] = {}
        for node in movable:
            regions.setdefault(self._root(node), []).append(node)
        chosen = [n for nodes in regions.values() if self._gain(nodes) > 0 for n in nodes]
        return self._rewritten(set(chosen)) if chosen else self._graph

    def _root(self, node: Node) -> Node:
        while self._region[node] is not node:
            node = self._region[node]
        return node

    def _is_of_rank(self, v: Value) -> bool:
        return v.type.rank == len(self._perm)

    def _moved(self, node: Node) -> Op | None:
        """The operator on transposed operands; None for a node that can't be moved.

        Results of the permutation's rank are then transposed too; other results stay the same.
        """
        if any(v.layout is not None or v.dtype.is_host for v in (*node.inputs, *node.outputs)):
            return None
        rank = len(self._perm)
        ranks = {v.type.rank for v in self._placed(node)}
        if max(ranks, default=0) != rank:
            return None
        if isinstance(node.op, Elementwise) or self._is_lookup(node):
            return node.op
        rule = next((r for kind, r in _RULES.items() if isinstance(node.op, kind)), None)
        return None if rule is None or ranks != {rank} else rule(node.op, self._perm)

    def _placed(self, node: Node) -> tuple[Value, ...]:
        """The operands with the same order of axes as the result: all operands except the list of a
        lookup.
        """
        return node.inputs[1:] if self._is_lookup(node) else node.inputs

    def _is_lookup(self, node: Node) -> bool:
        """Whether a node looks each element up in a list that has an entry for each value of the
        elements' type.  A lookup that may fail stays where it is: its error states a position.
        """
        if not isinstance(node.op, Gather) or node.inputs[0].type.rank != 1:
            return False
        (count,), place, first = node.inputs[0].shape, node.inputs[1], 0
        maker = self._graph.producer.get(place)
        if maker is not None and isinstance(maker.op, Add):
            place, by = maker.inputs
            constant = self._graph.constant.get(by)
            if constant is None or by.type.size != 1:
                return False
            first = int(constant.data.read().item())
            maker = self._graph.producer.get(place)
        if maker is not None and isinstance(maker.op, Cast):
            place = min(place, maker.inputs[0], key=lambda v: v.dtype.bits)
        if not place.dtype.is_int or not isinstance(count, int):
            return False
        return place.dtype.min + first >= 0 and place.dtype.max + first < count

    def _gain(self, region: Sequence[Node]) -> int:
        """The elements that are no longer transposed if a region is moved, minus those that are
        transposed in addition.
        """
        inside = set(region)
        made = {v for n in region for v in n.outputs if self._is_of_rank(v)}
        read = dict.fromkeys(v for n in region for v in self._placed(n) if v not in made)
        gain = 0
        for v in read:
            size = expected_size(v.type.shape)
            if v in self._graph.constant:
                continue
            if self._is_transposed(v) and self._graph.producer[v].inputs[0] in made:
                gain -= size  # the operand of `v` must be transposed back
            elif self._is_transposed(v):
                readers = self._graph.consumers[v]
                is_last = inside.issuperset(readers) and v not in self._outputs
                gain += size if is_last else 0
            else:
                gain -= size
        for v in made:
            size = expected_size(v.type.shape)
            outside = [n for n in self._graph.consumers.get(v, ()) if n not in inside]
            undone = [n for n in outside if self._undoes(n)]
            gain += size * len({_perm(n) for n in undone})
            if len(undone) < len(outside) or v in self._outputs:
                gain -= size
        return gain

    def _is_transposed(self, v: Value) -> bool:
        node = self._graph.producer.get(v)
        return node is not None and isinstance(node.op, Transpose) and _perm(node) == self._perm

    def _undoes(self, node: Node) -> bool:
        return isinstance(node.op, Transpose) and _perm(node) == self._inverse

    def _rewritten(self, chosen: set[Node]) -> Graph:
        """The graph in which the chosen nodes work on transposed values."""
        graph = self._graph
        constants, nodes = list(graph.constants), list[Node]()
        twins: dict[Value, Value] = {}
        restored: dict[Value, Value] = {}

        def add(op: Op, *inputs: Value) -> Value:
            (type_,) = infer(op, tuple(v.type for v in inputs))
            nodes.append(Node(op, inputs, (Value(inputs[0].name, type_),), loc))
            return nodes[-1].outputs[0]

        def twin(v: Value) -> Value:
            """The value `w` with `v = transpose(w)`; `v` itself if it broadcasts equally in any
            order of axes.
            """
            if v not in twins:
                twins[v] = made_twin(v)
            return twins[v]

        def made_twin(v: Value) -> Value:
            if v.type.rank == 0:
                return v
            if (constant := graph.constant.get(v)) is not None:
                constants.append(_transposed(constant, self._inverse))
                return constants[-1].value
            if self._is_transposed(v):
                source = graph.producer[v].inputs[0]
                return restored.get(source, source)
            if not self._is_of_rank(v):
                ones = [1] * (len(self._perm) - v.type.rank)
                v = add(Reshape((*ones, *v.type.shape)), v)
            return add(Transpose(self._inverse), v)

        for node in graph.nodes:
            loc = node.loc
            if node not in chosen:
                if self._undoes(node) and node.inputs[0] in twins:
                    restored[node.outputs[0]] = twins[node.inputs[0]]
                else:
                    nodes.append(node.with_values(restored))
                continue
            op = self._moved(node)
            assert op is not None
            placed = self._placed(node)
            inputs = tuple(
                twin(w) if v in placed else w for v in node.inputs for w in (restored.get(v, v),)
            )
            outputs = []
            for v, type_ in zip(
                node.outputs, infer(op, tuple(v.type for v in inputs)), strict=True
            ):
                outputs.append(Value(v.name, type_) if self._is_of_rank(v) else v)
            nodes.append(Node(op, inputs, tuple(outputs), loc))
            for old, new in zip(node.outputs, outputs, strict=True):
                if new is not old:
                    twins[old] = new
                    # This node is dead unless a node outside of the regions reads its result.
                    nodes.append(Node(Transpose(self._perm), (new,), (old,), loc))
        moved = replace(
            graph,
            constants=tuple(constants),
            nodes=tuple(nodes),
            outputs=tuple(restored.get(v, v) for v in graph.outputs),
        )
        return dce(moved)


def _transposed(constant: Constant, perm: Perm) -> Constant:
    """A constant transposed by `perm`.  A constant of lower rank first gets leading axes of extent
    1.
    """
    shape = constant.value.type.static_shape
    shape = (*[1] * (len(perm) - len(shape)), *shape)
    type_ = TensorType(constant.value.dtype, tuple(shape[p] for p in perm))
    data = Data(lambda: constant.data.read().reshape(shape).transpose(perm))
    return Constant(Value(constant.value.name, type_), data)


# Each rule replaces an operator on v = transpose(w) by one on w.  Axis a of v is axis perm[a] of w.


def _on_axis(op: Any, perm: Perm) -> Op:
    return replace(op, axis=perm[op.axis])


def _on_axes(op: Any, perm: Perm) -> Op:
    return replace(op, axes=tuple(perm[a] for a in op.axes))


def _reduction(op: Any, perm: Perm) -> Op | None:
    """A reduction on transposed operands.  None if it would combine elements in another order, or
    if the order of the remaining axes would change.
    """
    gone = normalize_axes(op.name, op.axes, len(perm))
    moved = [perm[a] for a in gone]
    kept = [perm[a] for a in range(len(perm)) if a not in gone]
    if moved != sorted(moved) or (not op.keepdims and kept != sorted(kept)):
        return None
    return replace(op, axes=tuple(moved))


def _extreme_index(op: Any, perm: Perm) -> Op | None:
    kept = [perm[a] for a in range(len(perm)) if a != op.axis % len(perm)]
    return _on_axis(op, perm) if op.keepdims or kept == sorted(kept) else None


def _ordered(items: Iterable[Dim], perm: Perm) -> tuple[Dim, ...]:
    """`items`, one for each axis of v, in the order of w's axes."""
    by_axis = dict(zip(perm, items, strict=True))
    return tuple(by_axis[a] for a in range(len(perm)))


def _pad(op: Any, perm: Perm) -> Op:
    rank = len(perm)
    return replace(op, pads=(*_ordered(op.pads[:rank], perm), *_ordered(op.pads[rank:], perm)))


def _expand(op: Any, perm: Perm) -> Op | None:
    """The expansion on transposed operands.  The shape of `op` may have fewer axes than the
    operand.  None if it has more.
    """
    missing = len(perm) - len(op.shape)
    if missing < 0:
        return None
    return replace(op, shape=_ordered((*[1] * missing, *op.shape), perm))


_RULES: dict[type[Op] | tuple[type[Op], ...], Callable[[Any, Perm], Op | None]] = {
    (Concat, Split, Resample): _on_axis,
    (Slice, Flip): _on_axes,
    Reduction: _reduction,
    (ArgMax, ArgMin): _extreme_index,
    Pad: _pad,
    Expand: _expand,
    Tile: lambda op, perm: replace(op, repeats=_ordered(op.repeats, perm)),
}
