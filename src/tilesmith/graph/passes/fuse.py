"""Fusion: divides the nodes into groups, each of which is compiled into one kernel.

A group grows from a seed (a contraction, else a reduction, else any node) through the consumers of
its results.  It may include both branches of a diamond.  It may end only where a single value is
needed outside.  So no path leaves a group and returns, and the graph of groups is acyclic.
Structure alone decides which nodes may join:

- A contraction or windowed reduction takes elementwise consumers of its shape (the epilogue).
- A reduction over whole axes also takes further reductions over the same axes, and elementwise
  nodes of the full or the reduced shape.  So softmax or a layer norm is one group.
- Elementwise and injective nodes form chains, as long as no costly element is computed more than
  once.

Attention is a separate kind of group and is formed first (`fuse_attention`).

Some fusions change the way a value is computed or read (attention, a costly epilogue, a prologue).
These are choices that measurements may overrule (`choices`).

A node that defines symbols is a barrier (`graph.measure`): the nodes of a group are all before it,
or all after it.

Finally nodes move into the group of their only reader.  Pure index maps move into a contraction,
elementwise producers into a reduction, and both kinds into an attention.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tilesmith.graph.control import Control
from tilesmith.graph.measure import symbols_defined
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Relayout, Value
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Elementwise
from tilesmith.ops.runtime_shape import Reinterpret
from tilesmith.ops.shape import Reshape
from tilesmith.ops.slicing import Concat
from tilesmith.ops.structure import Structure, structure

from .choices import Choose, preferred
from .fuse_attention import attention

MAX_NODES = 48
"""Upper bound on the nodes of a group, to limit code size and compile time."""

MAX_BRANCHES = 8
"""Upper bound on the selects in a group that read an element in only one branch.  The code for such
a read tests all conditions around it, and the number of tests may grow with the number of paths
through the selects.
"""


@dataclass(eq=False)
class _Group:
    """A group that is being formed.

    kind: contraction, reduction, rows (a reduction over whole axes), attention, injective or alone
        (never grows).
    nodes: its nodes, in order.
    shape: shape of the anchor's result (contraction, reduction) or of the full row domain (rows).
    reduced: axes of `shape` that are reduced (rows).
    outputs: values needed outside.
    costly: whether it computes a costly function.
    """

    kind: str
    nodes: list[Node]
    shape: tuple = ()
    reduced: frozenset[int] = frozenset()
    outputs: tuple[Value, ...] = ()
    costly: bool = field(default=False)


def fuse(graph: Graph, choose: Choose = preferred, join_attention: bool = True) -> Graph:
    """`graph` with every node inside a `Fused` node, except control flow; the same object if they
    are all fused already.

    join_attention: whether attention may be one group.  Its sums are then rescaled and reordered as
        the maxima of rows become known.
    """
    if all(isinstance(n.op, (Fused, Control)) for n in graph.nodes):
        return graph
    groups = _Fusion(graph, choose).groups(join_attention)
    order = {n: i for i, n in enumerate(graph.nodes)}
    groups.sort(key=lambda g: max(order[n] for n in g.nodes))
    nodes = tuple(_fused_node(graph, g, order) for g in groups)
    used = {v for n in nodes for v in n.inputs} | set(graph.outputs)
    constants = tuple(c for c in graph.constants if c.value in used)
    return replace(graph, nodes=nodes, constants=constants)


class _Fusion:
    def __init__(self, graph: Graph, choose: Choose) -> None:
        self.graph = graph
        self.choose = choose
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        self.segment = dict(
            zip(graph.nodes, accumulate(bool(symbols_defined(n)) for n in graph.nodes))
        )
        """Node -> the number of nodes up to it (inclusive) that define symbols."""
        self.group_of: dict[Node, _Group] = {}
        self.escapes = set(graph.outputs)

    def structure(self, node: Node) -> Structure:
        return node_structure(node)

    def branches(self, nodes: Iterable[Node]) -> int:
        return sum(self.structure(n).branches for n in nodes)

    def groups(self, join_attention: bool) -> list[_Group]:
        by_kind: dict[str, list[Node]] = {}
        for n in self.graph.nodes:
            by_kind.setdefault(self.structure(n).kind, []).append(n)
        for n in by_kind.get("contraction", []) if join_attention else ():
            members = attention(self.graph, n, self.order, self.structure, MAX_NODES)
            if members is None or any(m in self.group_of for m in members):
                continue
            if len({self.segment[m] for m in members}) > 1:
                continue
            if self.choose("attention", members, (True, False), True):
                (result,) = self.live(dict.fromkeys(members))
                group = _Group("attention", members, outputs=(result,))
                self.group_of |= dict.fromkeys(members, group)
        for kind in ("contraction", "reduction", "opaque", "elementwise", "injective"):
            if kind == "elementwise":  # one pass in program order handles both kinds
                seeds = sorted(
                    by_kind.get("elementwise", []) + by_kind.get("injective", []),
                    key=self.order.__getitem__,
                )
            else:
                seeds = by_kind.get(kind, []) if kind != "injective" else []
            for n in seeds:
                if n not in self.group_of:
                    self.grow(self.seed(n))
        self.merge_prologues()
        return list(dict.fromkeys(self.group_of.values()))

    def seed(self, node: Node) -> _Group:
        if isinstance(node.op, Control):
            return _Group("alone", [node], outputs=node.outputs)
        s = self.structure(node)
        kind, reduced = s.kind, frozenset[int]()
        shape = node.outputs[0].shape
        if isinstance(node.op, Concat) or len(node.outputs) != 1 or kind == "opaque":
            kind = "alone"
        elif kind == "elementwise":
            kind = "injective"
        elif s.reduced is not None and s.keeps_rank:
            kind, reduced, shape = "rows", s.reduced, node.inputs[0].shape
        return _Group(kind, [node], shape, reduced, node.outputs, s.is_costly)

    def live(self, members: dict[Node, None]) -> list[Value]:
        """The values defined by `members` that are needed outside."""
        consumers = self.graph.consumers
        return [
            v
            for n in members
            for v in n.outputs
            if v in self.escapes or any(c not in members for c in consumers.get(v, ()))
        ]

    def grow(self, group: _Group) -> None:
        members = dict.fromkeys(group.nodes)
        if group.kind != "alone":
            committed = list(members)
            live = self.live(members)
            while len(members) < MAX_NODES:
                following = {
                    c for v in live for c in self.graph.consumers.get(v, ()) if c not in members
                }
                if not following:
                    break
                node = min(following, key=self.order.__getitem__)
                if node in self.group_of or not self.joins(group, node, members):
                    break
                members[node] = None
                group.costly |= self.structure(node).is_costly
                live = self.live(members)
                if len(live) == 1:
                    committed, group.outputs = list(members), (live[0],)
            group.nodes = self.without_views(group, committed)
            group.costly = any(self.structure(n).is_costly for n in committed)
        for n in group.nodes:
            self.group_of[n] = group

    def without_views(self, group: _Group, nodes: list[Node]) -> list[Node]:
        """`nodes` without reshapes at the end that would need a division for each element.  A
        reshape outside of a group is a view without code (`place`).  The nodes before it stay one
        group.

        Reshapes that divide by constants stay, since the schedule can avoid these divisions.  But a
        reshape after copies of rows is left out: its indices need a remainder, since the copies of
        a row become one row.
        """
        if group.kind != "injective":
            return nodes
        while len(nodes) > 1 and isinstance(nodes[-1].op, (Reshape, Reinterpret)):
            *rest, last = nodes
            source, result = last.inputs[0], last.outputs[0]
            is_static = source.type.is_static and result.type.is_static
            if is_static and not _copies_rows(rest[-1]):
                break
            if is_static and (source.layout is not None or result.layout is not None):
                break
            if isinstance(last.op, Reshape) and not self.structure(last).divides:
                break
            if self.live(dict.fromkeys(rest)) != [source]:
                break
            nodes, group.outputs = rest, (source,)
        return nodes

    def joins(self, group: _Group, node: Node, members: dict[Node, None]) -> bool:
        s = self.structure(node)
        if len(node.outputs) != 1 or isinstance(node.op, Concat):
            return False
        if s.branches and self.branches(members) + s.branches > MAX_BRANCHES:
            return False
        if self.segment[node] != self.segment[group.nodes[0]]:
            return False
        if isinstance(node.op, Relayout) and group.kind != "injective":
            return False  # the kernel would need strided stores
        if isinstance(node.op, Relayout) and any(self.structure(m).samples for m in members):
            return False
        if s.samples and not self.samples_views(node, members):
            return False
        out = node.outputs[0].shape
        if group.kind in ("contraction", "reduction"):
            if s.kind != "elementwise" or not same_shape(out, group.shape):
                return False
            about = (group.nodes[0], node)
            return not s.is_costly or self.choose("epilogue", about, (True, False), True)
        if group.kind == "rows":
            if s.kind == "elementwise":
                narrow = tuple(1 if i in group.reduced else d for i, d in enumerate(group.shape))
                return same_shape(out, group.shape) or same_shape(out, narrow)
            same = s.kind == "reduction" and s.reduced == group.reduced and s.keeps_rank
            return same and same_shape(node.inputs[0].shape, group.shape)
        if s.kind not in ("elementwise", "injective"):
            return False
        if not group.costly:
            return True
        read = [v for v in node.inputs if v in {o for m in members for o in m.outputs}]
        return all(expected_size(out) <= 2 * expected_size(v.shape) for v in read)

    def samples_views(self, node: Node, members: Iterable[Node]) -> bool:
        """Whether all members that compute an operand which `node` reads several times per element
        are index maps.  A member of another kind would be computed, or copied into another order,
        once for each read.
        """
        read = {node.inputs[i] for i in self.structure(node).samples}
        for m in reversed(list(members)):
            if read.isdisjoint(m.outputs):
                continue
            if isinstance(m.op, Relayout) or not self.structure(m).is_index_map:
                return False
            read.update(m.inputs)
        return True

    def merge_prologues(self) -> None:
        operands: set[Node] = set()
        for node in reversed(self.graph.nodes):  # consumers before their producers
            group = self.group_of[node]
            if group.kind not in ("contraction", "rows", "attention"):
                continue
            if self.structure(node).kind == "contraction":
                operands.add(node)
            for value in node.inputs:
                producer = self.graph.producer.get(value)
                if producer is None or value in self.escapes:
                    continue
                feeder = self.group_of[producer]
                if feeder is group or feeder.kind != "injective" or len(feeder.nodes) > MAX_NODES:
                    continue
                if self.segment[producer] != self.segment[node]:
                    continue
                if self.branches((*feeder.nodes, *group.nodes)) > MAX_BRANCHES:
                    continue
                consumers = self.graph.consumers[value]
                if any(self.group_of[c] is not group for c in consumers):
                    continue
                if group.kind == "contraction" and self.feeds_epilogue(feeder, node):
                    self.merge(feeder, group)
                    continue
                if group.kind == "attention" and not operands.issuperset(consumers):
                    continue  # a mask's producers would run once per head
                about = (*feeder.nodes, node)
                if self.mergeable(feeder, group) and self.choose(
                    "prologue", about, (True, False), True
                ):
                    operands.update(feeder.nodes)
                    self.merge(feeder, group)

    def merge(self, feeder: _Group, group: _Group) -> None:
        """Move the nodes of `feeder` into `group`."""
        group.nodes = sorted(feeder.nodes + group.nodes, key=self.order.__getitem__)
        for n in feeder.nodes:
            self.group_of[n] = group

    def feeds_epilogue(self, feeder: _Group, reader: Node) -> bool:
        """Whether `reader` is elementwise, as in an epilogue, and `feeder` computes its operand
        elementwise in the same shape.  Inside the epilogue each element is computed once and never
        stored.
        """
        if self.structure(reader).kind != "elementwise":
            return False
        return all(
            isinstance(n.op, Elementwise)
            and not self.structure(n).is_costly
            and same_shape(n.outputs[0].shape, reader.outputs[0].shape)
            for n in feeder.nodes
        )

    def mergeable(self, feeder: _Group, group: _Group) -> bool:
        kinds = [self.structure(n) for n in feeder.nodes]
        if group.kind == "contraction":
            return all(s.is_index_map and not s.divides for s in kinds)
        if group.kind == "attention":
            return not any(s.is_costly for s in kinds)
        shapes = [n.outputs[0].shape for n in feeder.nodes]
        return all(s.kind == "elementwise" for s in kinds) and all(
            same_shape(d, group.shape) for d in shapes
        )


def _copies_rows(node: Node) -> bool:
    """Whether the result contains each row of the operand (along the last axis) several times."""
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return False
    before, after = node.inputs[0].shape, node.outputs[0].shape
    is_row = bool(before and after) and same_dim(before[-1], after[-1])
    return is_row and expected_size(before) < expected_size(after)


def node_structure(node: Node) -> Structure:
    """The structure of a node's operator on its input types."""
    return structure(node.op, tuple(v.type for v in node.inputs))


def _fused_node(graph: Graph, group: _Group, order: dict[Node, int]) -> Node:
    nodes = sorted(group.nodes, key=order.__getitem__)
    if isinstance(nodes[0].op, Control):
        return nodes[0]
    inside = {v for n in nodes for v in n.outputs}
    fresh: dict[Value, Value] = {}
    inputs: list[Value] = []
    constants: list[Constant] = []
    for n in nodes:
        for v in n.inputs:
            if v in inside or v in fresh:
                continue
            known = graph.constant.get(v)
            if known is not None and v.type.size == 1:
                fresh[v] = replace(v)
                constants.append(Constant(fresh[v], known.data))
            else:
                fresh[v] = replace(v, name=f"in{len(inputs)}")
                inputs.append(v)
    fresh |= {v: replace(v) for n in nodes for v in n.outputs}
    body = Graph(
        name="fused",
        inputs=tuple(fresh[v] for v in inputs),
        constants=tuple(constants),
        nodes=tuple(n.with_values(fresh) for n in nodes),
        outputs=tuple(fresh[v] for v in group.outputs),
        output_names=tuple(f"out{i}" for i in range(len(group.outputs))),
    )
    locs = list(dict.fromkeys(n.loc for n in nodes if n.loc))
    op: Op = Fused(body)
    return Node(op, tuple(inputs), group.outputs, "+".join(locs))
