"""A fused group as tensor expressions: the starting point of every schedule."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.expr import const
from tilesmith.ir.layout import Layout
from tilesmith.ops.structure import stages
from tilesmith.te import tensor as te
from tilesmith.te.tensor import Compute, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Tensor expressions of a fused body.

    `args`: the kernel's parameters, inputs then outputs.  `layouts`: of the arguments that are not row-major.
    `stages`: the computes, producers first.  `constants`: inputs whose contents are known at compile time.
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

    def layout(self, tensor: Tensor) -> Layout:
        """The layout in which `tensor` is stored (row-major for values inside the group)."""
        return self.layouts.get(tensor) or Layout.row_major(tensor.rank)


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
    for c in body.constants:
        literal = const(c.data.array.reshape(()).item(), c.value.dtype)
        tensors[c.value] = te.compute(
            c.value.shape, lambda *_, literal=literal: literal, "literal",
            axis_names=[f"i{a}" for a in range(c.value.type.rank)],
        )  # fmt: skip
    for n in body.nodes:
        results = n.op.compute(*(tensors[v] for v in n.inputs))
        for v, t in zip(n.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            tensors[v] = t
    outputs = []
    for v in body.outputs:
        t = tensors[v]
        if isinstance(t.op, te.Placeholder) or t in outputs:  # an output that is an input: copy it
            t = te.compute(t.shape, lambda *i, t=t: t[i], "copy")
        outputs.append(t)
        if v.layout is not None:
            layouts[t] = v.layout
    return Group(tuple(inputs), tuple(outputs), stages(tuple(outputs)), layouts)
