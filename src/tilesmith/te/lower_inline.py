"""Lowering, first pass: inline stages by substituting their bodies for reads of their elements."""

from __future__ import annotations

from tilesmith.ir.expr import Expr, Load, substitute

from .rewrite import map_loads
from .state import State
from .tensor import Tensor

Read = tuple[str, int]


def inline(state: State) -> dict[str, tuple[Expr, ...]]:
    """Bodies of the stages that have loops.  Every Load reads the tensor of the stage that computes
    it.

    Stages that are not read any more are left out.
    """
    tensors: dict[Read, Tensor] = {}
    for name, stage in state.stages.items():
        for t in stage.op.outputs:
            tensors[name, t.index] = t
    inlined: dict[str, tuple[Expr, ...]] = {}
    bodies: dict[str, tuple[Expr, ...]] = {}

    def resolve(load: Load) -> Expr:
        assert isinstance(load.buffer, Tensor)
        read = state.tensors[load.buffer]
        body = inlined.get(read[0])
        if body is None:
            current = tensors[read]
            return load if current is load.buffer else Load(current, load.indices)
        axes = state.stages[read[0]].compute.axis
        return substitute(
            body[read[1]], {a.var: i for a, i in zip(axes, load.indices, strict=True)}
        )

    consumers = state.consumers()
    for name, stage in state.stages.items():
        if stage.is_placeholder or not (consumers[name] or stage.is_output):
            continue
        body = map_loads(stage.compute.body, resolve)
        (inlined if stage.attach == "inline" else bodies)[name] = body
    return bodies
