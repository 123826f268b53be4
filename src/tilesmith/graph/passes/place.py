"""Values inside the memory of other values: concatenations and slices that need no code.

A kernel that computes an operand of a concatenation writes the operand directly into its part of
the result.  Every reader reads it there.  Some operands cannot be there and are copied: inputs,
constants, outputs, and values inside another result.  A result that is a strided window on its
operand's memory (slices, splits, reshapes) is read from this memory.  Such concatenations and
windows become `InPlace` nodes.  Their operands or results have layouts with spans, from which the
memory plan follows.  All values in one memory have the same halo, the widest that any of them
needs.

    %c = concat(%a, %b)             ->  %d = concat(%c, %n), %c inside %d
    %d = concat(%a, %b, %n)             (%a and %b are not copied a second time)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from tilesmith.graph.control import Control
from tilesmith.graph.measure import allocates
from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Value, with_values
from tilesmith.ir.extents import product
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops.elementwise import Identity
from tilesmith.ops.slicing import Concat, Split

from .choices import Choose, preferred

Windows = tuple[tuple[Layout, int], ...]
"""For each result of a group: its layout in the operand's memory, and the offset of its first
element there.
"""


def place(
    graph: Graph, windows: Callable[[Graph], Windows | None], choose: Choose = preferred
) -> Graph:
    """A fused `graph` with concatenations and views in place; the same object if there are none.

    windows: gives the windows of a fused body's results on the memory of its only operand.  None if
        some result does not consist of the elements in such a window.
    choose: decides whether a concatenation that can be in place becomes so.
    """
    return _Placement(graph, windows, choose).run()


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place inside the memory of another value.

    whole: the other value.
    axis: logical axis along which the parts of `whole` follow one another.
    start: first position on that axis.
    """

    whole: Value
    axis: int
    start: int


@dataclass(frozen=True, slots=True)
class _Needs:
    """Requirements of the values in one memory.

    halo: border of zeros (per axis, before and after).
    axes: axes along which values follow one another.  Along them there is no halo.
    """

    halo: tuple[tuple[int, int], ...]
    axes: frozenset[int] = frozenset()

    def joined(self, other: _Needs, axis: int) -> _Needs | None:
        """Requirements of the memory after the values of `other` are placed inside, along `axis`.
        None if that is impossible.
        """
        halo = tuple((max(a, c), max(b, d)) for (a, b), (c, d) in zip(self.halo, other.halo))
        axes = self.axes | other.axes | {axis}
        return None if any(any(halo[a]) for a in axes) else _Needs(halo, axes)


class _Placement:
    def __init__(
        self, graph: Graph, windows: Callable[[Graph], Windows | None], ask: Choose
    ) -> None:
        self.graph = graph
        self.ask = ask
        self.windows = windows
        self.outside = {*graph.inputs, *graph.outputs, *graph.constant}
        control = [n for n in graph.nodes if isinstance(n.op, Control)]
        self.dense = {v for n in control for v in (*n.inputs, *n.outputs)}
        """Operands and results of control flow, which are row-major without gaps."""
        self.operands: dict[Node, tuple[Value, ...]] = {}
        """Concatenation -> its operands.  A value that contains a run of them replaces the run."""
        self.slots: dict[Value, _Slot] = {}
        self.needs_of: dict[Value, _Needs] = {}
        self.layouts: dict[Value, Layout] = {}
        self.now: dict[Value, Value] = {}
        self.inside: set[Value] = set()
        """Values inside the memory of others."""

    def run(self) -> Graph:
        concats = [n for n in self.graph.nodes if _concat_axis(n) is not None]
        self.share(concats)
        for node in concats:
            self.choose(node)
        for node in reversed(concats):  # results before their operands
            self.lay_out(node)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.join(node) if node in self.operands else [self.rewritten(node)]
        if all(a is b for a, b in zip(nodes, self.graph.nodes)):
            return self.graph
        used = {v for n in nodes for v in n.inputs} | set(self.graph.outputs)
        constants = tuple(c for c in self.graph.constants if c.value in used)
        return replace(self.graph, nodes=tuple(nodes), constants=constants)

    def share(self, concats: list[Node]) -> None:
        """Replace runs of operands that are the parts of a known value: the result of an earlier
        concatenation, or the operand of a split.
        """
        known: dict[tuple[int, tuple[Value, ...]], Value] = {}
        for node in self.graph.nodes:
            axis = _split_axis(node)
            if axis is not None and len(node.outputs) > 1:
                known[axis, node.outputs] = node.inputs[0]
        for node in concats:
            axis, operands = _axis(node), node.inputs
            result: list[Value] = []
            first = 0
            while first < len(operands):
                ends = range(len(operands), first + 1, -1)
                end = next((e for e in ends if (axis, operands[first:e]) in known), first + 1)
                result.append(
                    known[axis, operands[first:end]] if end > first + 1 else operands[first]
                )
                first = end
            self.operands[node] = tuple(result)
            whole = node.outputs[0]
            if whole not in self.outside and len(operands) > 1:
                known[axis, operands] = whole

    def choose(self, node: Node) -> None:
        """Assign slots to the operands that can be inside the result.  Forget `node` if there
        are no such operands, or if `ask` decides against it.
        """
        axis, operands, whole = _axis(node), self.operands[node], node.outputs[0]
        starts = accumulate((_along(v, axis) for v in operands[:-1]), initial=0)
        slots = {
            v: slot
            for v, start in zip(operands, starts)
            if operands.count(v) == 1 and v not in self.slots
            if self.fits(v, slot := _Slot(whole, axis, start)) is not None
        }
        if not slots or not self.ask("in_place", self.about(node, slots), (True, False), True):
            del self.operands[node]
            return
        for v, slot in slots.items():
            needs = self.fits(v, slot)  # the answer may change after other operands are inside
            if needs is not None:
                self.slots[v] = slot
                self.inside.add(v)
                self.needs_of[whole] = needs

    def about(self, node: Node, values: Iterable[Value]) -> list[Node]:
        """The concatenation `node`, together with the nodes that compute `values`."""
        groups = [*(self.graph.producer[v] for v in values), node]
        return [g.op.body.nodes[-1] for g in groups if isinstance(g.op, Fused)]

    def fits(self, v: Value, slot: _Slot) -> _Needs | None:
        """The requirements of `slot.whole` with `v` inside; None if `v` cannot be there."""
        if v in self.outside or v in self.dense or any(same_dim(d, 0) for d in v.type.shape):
            return None
        if slot.whole in self.outside and not slot.whole.type.is_static:
            return None  # only a run knows the address and size of `whole`
        if v in self.graph.producer and allocates(self.graph.producer[v], v):
            return None
        ours, theirs = _layout(v), _layout(slot.whole)
        if any(d.part != "whole" for d in (*ours.dims, *theirs.dims)):
            return None
        if _order(ours, slot.whole) != _order(theirs, slot.whole):
            return None
        seen = _within(v, slot.whole, theirs)
        if not _is_readable(seen, v) or not isinstance(_stride(theirs, slot.whole, slot.axis), int):
            return None
        needs = self.needs(slot.whole).joined(self.needs(v), slot.axis)
        bare = slot.whole in self.outside or slot.whole in self.dense
        if bare and needs is not None and any(map(any, needs.halo)):
            return None  # the caller's array has no halo
        return needs

    def needs(self, v: Value) -> _Needs:
        if v not in self.needs_of:
            halo = {d.axis: (d.before, d.after) for d in _layout(v).dims}
            self.needs_of[v] = _Needs(tuple(halo[i] for i in range(v.type.rank)))
        return self.needs_of[v]

    def lay_out(self, node: Node) -> None:
        whole = node.outputs[0]
        if node not in self.operands:
            return
        if whole not in self.slots:
            self.layouts[whole] = _with_halo(_layout(whole), self.needs(whole).halo)
        for v in self.operands[node]:
            slot = self.slots.get(v)
            if slot is not None and slot.whole is whole:
                self.layouts[v] = _within(v, whole, self.layouts[whole])

    def value(self, v: Value) -> Value:
        """`v` with its current layout."""
        if v not in self.now:
            layout = self.layouts.get(v)
            if layout is not None and layout.is_row_major:
                layout = None
            self.now[v] = (
                v if v not in self.layouts or layout == v.layout else replace(v, layout=layout)
            )
        return self.now[v]

    def rewritten(self, node: Node) -> Node:
        """`node` with the current layouts.  `node` becomes a view if its results are in its
        operand's memory.
        """
        if isinstance(node.op, Control):
            return node
        assert isinstance(node.op, Fused)
        inputs = tuple(self.value(v) for v in node.inputs)
        body = _with_layouts(node.op.body, inputs, tuple(self.value(v) for v in node.outputs))
        windows = self.view(node, body)
        if windows is not None and node.outputs[0] in self.outside:
            self.inside.add(node.inputs[0])
            return replace(node, op=InPlace(body, (0,), joins=True), inputs=inputs)
        if windows is not None:
            self.inside.update(node.outputs)
            for v, (layout, _) in zip(node.outputs, windows):
                self.layouts[v] = layout
                self.now.pop(v, None)
            outputs = tuple(self.value(v) for v in node.outputs)
            body = _with_layouts(body, inputs, outputs)
            return replace(
                node,
                op=InPlace(body, tuple(offset for _, offset in windows)),
                inputs=inputs,
                outputs=outputs,
            )
        if body is node.op.body:
            return node
        outputs = tuple(self.value(v) for v in node.outputs)
        return replace(node, op=Fused(body), inputs=inputs, outputs=outputs)

    def view(self, node: Node, body: Graph) -> Windows | None:
        """The windows of the results of `node` on its operand's memory.

        None if there are no such windows.  A result of the program has memory of its own.  Its
        window is possible only if the operand can lie in this memory.
        """
        if len(node.inputs) != 1 or node.inputs[0] in self.graph.constant:
            return None
        if any(v in self.inside for v in node.outputs):
            return None
        views = self.windows(body)
        if views is None or not all(_is_readable(w, v) for v, (w, _) in zip(node.outputs, views)):
            return None
        if any(v in self.dense and not w.is_row_major for v, (w, _) in zip(node.outputs, views)):
            return None
        if any(v in self.outside for v in node.outputs):
            source, same = node.inputs[0], [(_layout(v), 0) for v in node.outputs]
            if source in self.outside or source in self.inside or list(views) != same:
                return None
            if allocates(self.graph.producer[source], source):
                return None
            before, after = (product(v[0].shape) for v in (body.inputs, body.outputs))
            if not same_dim(before, after):
                return None
            layout = _layout(body.inputs[0])
            return None if layout.has_padding or layout.dense != layout else views
        return views

    def join(self, node: Node) -> list[Node]:
        """The nodes of a concatenation in place: first the copies of operands that can't be inside,
        then the concatenation.
        """
        axis, whole = _axis(node), self.value(node.outputs[0])
        seen = _layout(whole)
        stride = _stride(seen, whole, axis)
        assert isinstance(stride, int)  # `fits` has checked this
        nodes, inputs, offsets = [], [], []
        position = 0
        for v in self.operands[node]:
            slot = self.slots.get(v)
            value = self.value(v)
            if slot is None or slot.whole is not node.outputs[0]:
                copy = replace(v, layout=_within(v, whole, seen))
                nodes.append(copy_of(value, copy, node.loc))
                value = copy
            inputs.append(value)
            offsets.append(position * stride)
            position += _along(v, axis)
        inside = tuple(replace(v, name=f"in{i}") for i, v in enumerate(inputs))
        out = replace(whole)
        body = Graph("fused", inside, (), (Node(Concat(axis), inside, (out,)),), (out,), ("out0",))
        op = InPlace(body, tuple(offsets), joins=True)
        return [*nodes, Node(op, tuple(inputs), (whole,), node.loc)]


def _only(node: Node) -> Node | None:
    """The only node of a group, if its inputs and outputs are exactly the group's; else None."""
    body = node.op.body if isinstance(node.op, Fused) else None
    if body is None or len(body.nodes) != 1 or isinstance(node.op, InPlace):
        return None
    inner = body.nodes[0]
    return inner if inner.inputs == body.inputs and inner.outputs == body.outputs else None


def _concat_axis(node: Node) -> int | None:
    """The axis of a group that is a concatenation, if extents along the axis are numbers; else
    None.
    """
    inner = _only(node)
    if inner is None or not isinstance(inner.op, Concat):
        return None
    axis = inner.op.axis % inner.outputs[0].type.rank
    # A sum of symbolic extents can be a constant: n % 8 and 8 - n % 8.
    extents = (v.type.shape[axis] for v in (*inner.inputs, *inner.outputs))
    return axis if all(isinstance(d, int) for d in extents) else None


def _split_axis(node: Node) -> int | None:
    """The axis of a group that is a split into parts of static shapes; else None."""
    inner = _only(node)
    if inner is None or not isinstance(inner.op, Split):
        return None
    if not all(v.type.is_static for v in inner.outputs):
        return None
    return inner.op.axis % inner.outputs[0].type.rank


def _along(v: Value, axis: int) -> int:
    """The extent of `v` along the axis of a concatenation, a number as `_concat_axis` requires."""
    extent = v.type.shape[axis]
    assert isinstance(extent, int)
    return extent


def _axis(node: Node) -> int:
    axis = _concat_axis(node)
    assert axis is not None
    return axis


def _layout(v: Value) -> Layout:
    return v.layout or Layout.row_major(v.type.rank)


def _order(layout: Layout, shape_of: Value) -> list[int]:
    return [d.axis for d in layout.dims if not same_dim(shape_of.shape[d.axis], 1)]


def _with_halo(layout: Layout, halo: tuple[tuple[int, int], ...]) -> Layout:
    dims = (replace(d, before=halo[d.axis][0], after=halo[d.axis][1]) for d in layout.dims)
    return Layout(tuple(dims))


def _within(part: Value, whole: Value, seen: Layout) -> Layout:
    """The layout of `part` in the memory of `whole`, whose own layout there is `seen`."""
    dims, alone = [], True
    for d, extent in zip(seen.dims, seen.physical_shape(whole.type.shape), strict=True):
        n = part.type.shape[d.axis]
        if isinstance(n, int) and isinstance(extent, int):
            n += d.before + d.after
            dims.append(replace(d, span=extent if n != extent and not alone else 0))
        else:  # a symbolic extent: parts have the extent of the whole
            dims.append(replace(d, span=0))
        alone = alone and same_dim(n, 1)
    return Layout(tuple(dims))


def _is_readable(layout: Layout, v: Value) -> bool:
    """Whether contiguous runs of `v` have at least a cache line, so that gaps cost kernels almost
    nothing.
    """
    spans = [i for i, d in enumerate(layout.dims) if d.span]
    if not spans:
        return True
    run = expected_size(v.type.shape[d.axis] for d in layout.dims[max(spans) :])
    return run * v.dtype.bytes >= LINE_BYTES  # at least one cache line


def _stride(layout: Layout, v: Value, axis: int) -> Dim:
    """Stride in elements along a logical `axis` that the layout does not split."""
    shape = layout.physical_shape(v.type.shape)
    number = next(i for i, d in enumerate(layout.dims) if d.axis == axis)
    return product(shape[number + 1 :])


def copy_of(source: Value, target: Value, loc: str = "") -> Node:
    """A group that copies `source` to `target`."""
    inner, out = replace(source, name="in0"), replace(target)
    body = Graph("fused", (inner,), (), (Node(Identity(), (inner,), (out,)),), (out,), ("out0",))
    return Node(Fused(body), (source,), (target,), loc)


def _with_layouts(body: Graph, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Graph:
    """`body` whose inputs and outputs have the layouts of the node's `inputs` and `outputs`."""
    fresh = {
        inner: replace(inner, layout=outer.layout)
        for inner, outer in zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True)
        if inner.layout != outer.layout
    }
    return with_values(body, fresh) if fresh else body
