"""TVM's schedules: the same primitives, with TVM's arguments and its names of memories."""

# Parameters have TVM's names, not those of the methods here.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from tilesmith import te
from tilesmith.ir.loop_tables import SCOPES as MEMORIES
from tilesmith.ir.loop_tables import Scope
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.state import State
from tilesmith.te.steps import Step
from tilesmith.te.steps.loops import Tail
from tilesmith.te.tensor import Compute, Operation

Tensors: TypeAlias = "te.Tensor | Sequence[te.Tensor]"

SCOPES = {"": "heap", "global": "heap", "local": "stack", "shared": "shared"}
"""Tilesmith's names of TVM's memories."""

_FASTEST_FIRST: list[Scope] = sorted(
    (s.name for s in MEMORIES.values() if s.is_allocated and s.owner in ("", "thread")),
    key=lambda name: (MEMORIES[name].is_addressed, not MEMORIES[name].is_sized),
)
"""The memories of one thread, or of the whole kernel."""


class Stage(te.Stage):
    """The loops of one tensor.  Other methods are those of `tilesmith.te.Stage`."""

    def split(
        self,
        parent: Any,
        factor: Any = None,
        nparts: Any = None,
        disable_predication: bool = False,
        tail: Tail = "peel",
    ) -> tuple[te.Axis, te.Axis]:
        return super().split(parent, factor, nparts, tail)

    def tile(
        self, x_parent: Any, y_parent: Any, x_factor: int, y_factor: int
    ) -> tuple[te.Axis, te.Axis, te.Axis, te.Axis]:
        return super().tile(x_parent, y_parent, x_factor, y_factor)

    def bind(self, ivar: Any, thread_ivar: str) -> None:
        super().bind(ivar, thread_ivar)

    def compute_at(self, parent: Any, scope: Any) -> None:
        super().compute_at(parent, scope)

    def set_scope(self, scope: str) -> None:
        super().set_scope(_scope(scope))

    def pragma(self, var: Any, pragma_type: str, pragma_value: Any = None) -> None:
        """Unroll a loop for the pragma "unroll".  The pragmas in `_DECIDED` have no effect."""
        if pragma_type == "unroll":
            self.unroll(var)
        elif pragma_type not in _DECIDED:
            raise UsageError(
                f"pragma {pragma_type!r}: expected unroll, {', '.join(_DECIDED)}; tilesmith.te has "
                "a step for each effect on loops, such as tensorize"
            )

    def tensorize(self, var: Any, tensor_intrin: TensorIntrinsic | str) -> None:
        """As in `tilesmith.te`.  For an intrinsic without code of its own (`decl_tensor_intrin`)
        the loops are proved to compute its expression, and stay.
        """
        before = self._history.checkpoint()
        super().tensorize(var, tensor_intrin)
        if isinstance(tensor_intrin, TensorIntrinsic) and tensor_intrin.emit is no_code:
            self._history.restore(before)

    def set_store_predicate(self, predicate: Any) -> NoReturn:
        raise UsageError(
            "set_store_predicate: bind(axis, 'threadIdx.x', lanes=32) of a sum in scope "
            "'register' has one result for the threads"
        )

    def prefetch(self, tensor: te.Tensor, var: Any, offset: int) -> None:
        super().prefetch(tensor, var, offset)


def no_code(*_: Any) -> Any:
    """The code of an intrinsic that has none."""
    raise UsageError("expected an intrinsic of tilesmith.te, found one of TVM, which has no code")


_DECIDED = (
    "import_llvm",
    "auto_unroll_max_step",
    "unroll_explicit",
    "parallel_launch_point",
    "parallel_stride_pattern",
    "parallel_barrier_when_finish",
    "loop_partition_hint",
)
"""Pragmas without effect: the compiler's rules decide how to unroll and how to use threads, and
make the code of tensor intrinsics.
"""


class Schedule(te.Schedule):
    """The schedule of operations and their producers.

    placed: names of stages whose memory TVM names only as "global" or "local".  Lowering puts them
        in registers if their indices allow it.
    """

    def __init__(
        self, ops: tuple[Compute, ...], state: State, steps: tuple[Step, ...] = ()
    ) -> None:
        super().__init__(ops, state, steps)
        self.placed: list[str] = []

    def __getitem__(self, key: Any) -> Stage:
        return Stage(self, super().__getitem__(key).name)

    def cache_read(self, tensor: te.Tensor, scope: str, readers: Any) -> te.Tensor:
        made = super().cache_read(tensor, _scope(scope), _several(readers))
        self._note(made, scope)
        return made

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """The tensor computed in `scope`; a list for a list of tensors of one operation."""
        if isinstance(tensor, (tuple, list)):
            first = self.cache_write(tensor[0], scope)
            return [first.op.outputs[t.index] for t in tensor]
        made = super().cache_write(tensor, _scope(scope))
        self._note(made, scope)
        return made

    def rfactor(self, tensor: Any, axis: Any, factor_axis: int = 0) -> te.Tensor:
        if factor_axis != 0:
            raise UsageError(
                f"rfactor: the new axis is the first one here, expected factor_axis=0, found "
                f"{factor_axis}; reorder the loops of the partial results instead"
            )
        return super().rfactor(tensor, axis)

    def normalize(self) -> Schedule:
        """This schedule.  Its loops begin at 0, so there is nothing to normalize."""
        return self

    def copy(self) -> Schedule:
        made = Schedule(self.ops, self.state, self.steps)
        made.placed = [*self.placed]
        return made

    def _note(self, tensor: te.Tensor, scope: str) -> None:
        if scope != "shared":
            self.placed.append(te.Schedule.__getitem__(self, tensor).name)

    def in_memory(self, lowers: Any) -> Schedule:
        """A copy with each of `placed` in the fastest memory for which the schedule can be lowered.

        lowers: lowers a schedule.  Raises ScheduleError if that is not possible.
        """
        made = self.copy()
        for name in self.placed:
            for scope in _FASTEST_FIRST:
                trial = made.copy()
                te.Schedule.__getitem__(trial, name).set_scope(scope)
                try:
                    lowers(trial)
                except ScheduleError:
                    continue
                made = trial
                break
        return made


def create_schedule(ops: Operation | te.Tensor | Sequence[Any]) -> Schedule:
    """The schedule of operations, each with loops of its own."""
    made = te.create_schedule(ops)
    return Schedule(made.ops, made.state)


def _scope(scope: str) -> Any:
    if scope not in SCOPES:
        raise ScheduleError(
            f"expected one of TVM's memories {', '.join(filter(None, SCOPES))}, found {scope!r}"
        )
    return SCOPES[scope]


def _several(readers: Any) -> Sequence[Any]:
    return readers if isinstance(readers, (tuple, list)) else (readers,)
