"""A fused group as tensor expressions, from which every schedule starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.expr import Const, Expr, Load, const, post_order
from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import Scope
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import product_of_loads, stages, zero_padding
from tilesmith.te import tensor as te
from tilesmith.te.rewrite import map_loads
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.stage import Stage, StageLike
from tilesmith.te.tensor import Compute, Tensor, producers_first

STEP = "schedule"
"""Key of the function attributes that hold the kernel's schedule, one step each."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Tensor expressions of a fused body.

    inputs: parameters that the kernel reads, in order.
    outputs: parameters that the kernel writes, after the inputs.
    stages: the compute stages, producers first.
    layouts: layouts of the parameters that are not row-major.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stages: tuple[Compute, ...]
    layouts: dict[Tensor, Layout]

    @property
    def args(self) -> tuple[Tensor, ...]:
        return self.inputs + self.outputs

    def consumers(self, op: Compute) -> tuple[Compute, ...]:
        """The stages that read a result of `op`."""
        return tuple(s for s in self.stages if any(t.op is op for t in s.inputs))

    @property
    def products(self) -> tuple[Compute, ...]:
        """The stages that sum a product of two reads."""
        return tuple(s for s in self.stages if product_of_loads(s))

    def schedule(self) -> Schedule:
        """A schedule whose only steps give the parameters their layouts."""
        s = create_schedule([t.op for t in self.outputs])
        for tensor, layout in self.layouts.items():
            s.transform_layout(tensor, layout)
        return s

    def layout(self, tensor: Tensor) -> Layout:
        """The layout in which `tensor` is stored.  Values inside the group are row-major."""
        return self.layouts.get(tensor) or Layout.row_major(tensor.rank)

    def innermost(self, op: Compute) -> int | None:
        """Number of the innermost axis of more than one element, in the memory order of the result
        of `op`; None if there is none.
        """
        dims = self.layout(op.outputs[0]).dims
        return next((d.axis for d in reversed(dims) if not same_dim(op.shape[d.axis], 1)), None)

    def with_tensor(
        self, old: Tensor, new: Tensor, read: Callable[[Load], Expr] | None = None
    ) -> Group:
        """The group with `old` replaced by `new`.

        read: the replacement of a read of `old`.  None: the read of `new` at the same index.
        """
        mapping = {old: new}

        def renamed(load: Load) -> Expr:
            if read is not None and load.buffer is old:
                return read(load)
            return Load(mapping.get(load.buffer, load.buffer), load.indices, load.mask)  # type: ignore[arg-type]

        for stage in self.stages:
            if any(t in mapping for t in stage.inputs):
                body = map_loads(stage.body, renamed)
                op = Compute(stage.name, stage.axis, body, stage.reduce_axis)
                mapping |= dict(zip(stage.outputs, op.outputs, strict=True))
        outputs = tuple(mapping.get(t, t) for t in self.outputs)
        layouts = {mapping.get(t, t): layout for t, layout in self.layouts.items()}
        return replace(self, outputs=outputs, layouts=layouts, stages=stages(outputs))


def upstream(op: Compute) -> set[Compute]:
    """The stages that `op` depends on."""
    behind = producers_first(t.op for t in op.inputs)
    return {producer for producer in behind if isinstance(producer, Compute)}


def accumulator(s: Schedule, sums: StageLike, out: StageLike, scope: Scope) -> Stage:
    """The stage that accumulates the reduction `sums` in `scope`, inside the loops of `out`, which
    is `sums` or its elementwise reader.
    """
    stage = s[sums]
    if stage.name == s[out].name:
        return s[s.cache_write(stage.op.outputs[0], scope)]
    stage.set_scope(scope)
    return stage


def constant_literals(body: Graph) -> dict[Value, Const]:
    """The one-element constants inside a fused body, as expressions."""
    return {
        c.value: const(logical_array(c).reshape(()).item(), c.value.dtype) for c in body.constants
    }


def group_tensors(body: Graph) -> Group:
    """Tensor expressions for a fused body; constants inside it become literals."""
    tensors: dict[Value, Tensor] = {}
    layouts: dict[Tensor, Layout] = {}
    inputs = []
    for i, v in enumerate(body.inputs):
        t = te.placeholder(v.shape, v.dtype, f"in{i}")
        tensors[v] = t
        inputs.append(t)
        if v.layout is not None:
            layouts[t] = v.layout
    for v, literal in constant_literals(body).items():
        tensors[v] = te.compute(
            v.shape, lambda *_, literal=literal: literal, "literal",
            axis_names=[f"i{a}" for a in range(v.type.rank)],
        )  # fmt: skip
    for n in body.nodes:
        results = n.op.compute(*(tensors[v] for v in n.inputs))
        results = results if isinstance(results, tuple) else (results,)
        tensors.update(zip(n.outputs, results, strict=True))
    outputs = []
    for v in body.outputs:
        t = tensors[v]
        if isinstance(t.op, te.Placeholder) or t in set(
            outputs
        ):  # an input that is also an output is copied
            t = te.compute(t.shape, lambda *i, t=t: t[i], "copy")
        outputs.append(t)
        if v.layout is not None:
            layouts[t] = v.layout
    results = _without_padding(tuple(outputs), layouts)
    layouts = {
        **layouts,
        **{r: layouts[t] for t, r in zip(outputs, results, strict=True) if t in layouts},
    }
    known = {*inputs, *results}
    layouts = {t: layout for t, layout in layouts.items() if t in known}
    return Group(tuple(inputs), results, stages(results), layouts)


def _without_padding(
    outputs: tuple[Tensor, ...], layouts: dict[Tensor, Layout]
) -> tuple[Tensor, ...]:
    """The same tensors, where reads of the operand's halo replace zero padding if the halo is wide
    enough.
    """
    new: dict[Tensor, Tensor] = {}
    for op in stages(outputs):
        padding = zero_padding(op)
        if padding is not None and _covers(layouts.get(padding[0].buffer), padding[1]):  # type: ignore[arg-type]
            rebuilt = Compute(op.name, op.axis, (padding[0],))
        else:
            changed = {
                n: Load(new[n.buffer], n.indices, n.mask)  # type: ignore[index]  # a tensor
                for b in op.body
                for n in post_order(b)
                if isinstance(n, Load) and n.buffer in new
            }
            if not changed:
                continue
            body = tuple(_replace_loads(b, changed) for b in op.body)
            rebuilt = Compute(op.name, op.axis, body, op.reduce_axis)
        new |= dict(zip(op.outputs, rebuilt.outputs, strict=True))
    return tuple(new.get(t, t) for t in outputs)


def _replace_loads(e: Expr, changed: dict[Load, Load]) -> Expr:
    done: dict[Expr, Expr] = {}
    for node in post_order(e):
        children = tuple(done[c] for c in node.children)
        rebuilt = node.with_children(children) if children else node
        if isinstance(node, Load) and node in changed:
            assert isinstance(rebuilt, Load)
            rebuilt = Load(changed[node].buffer, rebuilt.indices, rebuilt.mask)
        done[node] = rebuilt
    return done[e]


def _covers(layout: Layout | None, pads: tuple[tuple[int, int], ...]) -> bool:
    """Whether a halo is at least as wide as `pads` on every side."""
    if layout is None:
        return False
    room = {d.axis: (d.before, d.after) for d in layout.dims}
    return all(
        before <= room[axis][0] and after <= room[axis][1]
        for axis, (before, after) in enumerate(pads)
    )
