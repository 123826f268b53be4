"""The step that replaces loops by a tensor intrinsic, if both provably compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilesmith.ir.expr import Expr, Load, Var, substitute, vars_of
from tilesmith.ir.loop_tables import ForKind
from tilesmith.ir.simplify import EMPTY, simplify
from tilesmith.ir.tensor_intrinsics import (
    Binding,
    TensorIntrinsic,
    assignments,
    matches,
    tensor_intrinsic,
)
from tilesmith.support.errors import ScheduleError, UsageError

from ..relations import axis_values
from ..state import At, StageState, State
from ..tensor import Reduce
from .base import Name, Quoted, Step, primitive
from .loops import leaf, scheduled


@primitive("tensorize")
class TensorizeLoops(Step):
    """Replaces loop `axis` and the loops inside it by `intrinsic`, which must compute the same."""

    axis: Name
    intrinsic: Quoted

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "tensorize")
        try:
            intrinsic = tensor_intrinsic(self.intrinsic)
        except UsageError as e:
            raise ScheduleError(f"cannot tensorize {stage.name}.{self.axis}: {e}") from None
        inside = stage.leaves[leaf(stage, self.axis, "tensorize") :]
        self._check_free(state, stage, inside)
        _prove(stage, inside, intrinsic, f"cannot tensorize {stage.name}.{self.axis}")
        kinds = dict(stage.kinds)
        kinds.update(_kinds_of_tails(stage, inside))
        tensorized = self.axis, intrinsic.name
        return state.with_stage(replace(stage, kinds=kinds, tensorized=tensorized))

    def _check_free(self, state: State, stage: StageState, inside: Sequence[str]) -> None:
        what = f"cannot tensorize {stage.name}.{self.axis}"
        for axis in inside:
            here = [s.name for s in state.stages.values() if s.attach == At(stage.name, axis)]
            if here:
                raise ScheduleError(
                    f"{what}: {', '.join(here)} is computed at {axis}, inside the loops of the "
                    "instruction; attach it further out"
                )
            if stage.kind(axis) != "serial":
                raise ScheduleError(
                    f"{what}: {axis} is {stage.kind(axis)}; the intrinsic says how the loops "
                    "inside run"
                )


def _kinds_of_tails(stage: StageState, inside: Sequence[str]) -> dict[str, ForKind]:
    """The kinds that the loops `inside` get in a tail, where the intrinsic can't be used.  With
    these kinds, results stay in registers.
    """
    spatial = [a for a in inside if a not in stage.reduce_names()]
    return {a: "vectorized" if a in spatial[-1:] else "unrolled" for a in inside}


def _prove(stage: StageState, inside: Sequence[str], intrinsic: TensorIntrinsic, what: str) -> None:
    """Raises ScheduleError unless the loops `inside` compute the behaviour of the intrinsic."""
    op = stage.compute
    root = op.body[0]
    is_sum = isinstance(root, Reduce) and root.reducer.operation == "add" and not root.dtype.is_bool
    term = root.sources[0] if isinstance(root, Reduce) else root
    extents, reduced = stage.extents(), stage.reduce_names()
    loops = {name: Var(name) for name in stage.leaves}
    condition, term = intrinsic.unfilled(term)
    shape = ", ".join(f"{a} in {extents[a]}" for a in inside)
    both = (
        f"\n  the intrinsic {intrinsic.name} computes {intrinsic}"
        f"\n  the loops compute {stage.name} {'+=' if is_sum else '='} {term} for {shape}"
    )
    if len(op.body) != 1 or is_sum != intrinsic.accumulates:
        wanted = "adds to its result" if intrinsic.accumulates else "stores its result"
        raise ScheduleError(f"{what}: the intrinsic {wanted}{both}")
    if intrinsic.result.shape and all(a in reduced for a in inside):
        raise ScheduleError(f"{what}: expected an axis of the result among {', '.join(inside)}")
    values = axis_values(stage.relations, extents, dict(loops)).values
    ctx = EMPTY
    for name in inside:
        ctx = ctx.with_var(loops[name], 0, extents[name] - 1)
    points: dict[Expr, Expr] = {
        a.var: values[name] for name, a in zip(stage.roots, stage.root_axes, strict=True)
    }
    sized = [(extents[a], a in reduced) for a in inside]
    orders = [
        order
        for order in assignments(intrinsic, [(n, r) for n, r in sized if isinstance(n, int)])
        if len(order) == len(inside)
    ]
    if not orders:
        raise ScheduleError(f"{what}: the loops have other extents; split and reorder them{both}")
    inner = [loops[a] for a in inside]

    def variables(values: Iterable[Expr]) -> set[Var]:
        """The variables of loops on which values at a point depend."""
        return vars_of(simplify(substitute(e, points), ctx) for e in values)

    def moving(load: Load) -> set[Var]:
        """The variables of loops on which the address of `load` depends."""
        return variables(load.indices)

    if variables((condition,)) & set(inner):
        raise ScheduleError(f"{what}: the condition {condition} differs inside the tile{both}")

    for binding in matches(intrinsic, term):
        for order in orders:
            if _reads_alike(intrinsic, binding, moving, [inner[n] for n in order]):
                return
    raise ScheduleError(f"{what}: the expressions differ{both}")


def _reads_alike(
    intrinsic: TensorIntrinsic,
    binding: Binding,
    moving: Callable[[Load], set[Var]],
    loops: Sequence[Var],
) -> bool:
    """Whether each operand's load depends on the same loops as the operand in the declaration."""
    for operand, load in binding.items():
        moved = moving(load)
        strides = intrinsic.strides(operand)
        if [v in moved for v in loops] != [stride != 0 for stride in strides]:
            return False
    return True
