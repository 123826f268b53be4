"""Schedules: the execution of tensor expressions, as a list of steps that users apply by methods.

`create_schedule` makes one, and `s[tensor]` is a stage.  Each method of a stage or of the schedule
appends one step (`te.steps`).  It takes effect at once on the derived loop structure (`te.state`),
or raises ScheduleError and changes nothing.  Whatever steps are applied, the lowered kernel gives
the same answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilesmith.ir.expr import Binary, Const, Var
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import Scope
from tilesmith.support.arguments import checked, checked_methods
from tilesmith.support.errors import ScheduleError

from . import steps as st
from . import text
from .stage import AxisLike, History, Stage, StageLike, TensorLike, stage_of
from .state import State, initial
from .steps import Step, from_json
from .steps.winograd import WinogradStages
from .tensor import Compute, Operation, Placeholder, Tensor


@checked_methods(ScheduleError)
class Schedule(History):
    """The schedule of the operations `ops` and their producers.  `steps` defines it completely."""

    def __init__(
        self, ops: tuple[Compute, ...], state: State, steps: tuple[Step, ...] = ()
    ) -> None:
        super().__init__(state, steps)
        self.ops = ops

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, producers before consumers."""
        return tuple(Stage(self, n) for n in self.state.stages)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for op in self.ops for t in op.outputs)

    def __getitem__(self, key: StageLike) -> Stage:
        return stage_of(self, key)

    def _stages_made(self, step: Step) -> tuple[Tensor, ...]:
        """Apply `step`.  Returns the first tensor of each stage that it adds."""
        known = self.state.stages
        self.apply(step)
        new = (s for n, s in self.state.stages.items() if n not in known)
        return tuple(s.op.outputs[0] for s in new)

    def copy(self) -> Schedule:
        """An independent schedule with the same steps."""
        return Schedule(self.ops, self.state, self.steps)

    def cache_read(self, tensor: TensorLike, scope: Scope, readers: Sequence[StageLike]) -> Tensor:
        """Give `readers` of `tensor` a copy of it in `scope`.  Returns the copy.

        C[i] = A[i]...  ->  A_stack[i] = A[i]; C[i] = A_stack[i]...
        """
        stage, value = self.state.resolve(tensor)
        names = tuple(self[r].name for r in readers)
        (copy,) = self._stages_made(st.CacheRead(stage, value, scope, names))
        return copy

    def cache_write(self, tensor: TensorLike, scope: Scope) -> Tensor:
        """Compute `tensor` in memory `scope` and copy it out.  Returns the tensor in `scope`, whose
        stage has the reduction axes.

            C[i] = sum(...)  ->  C_register[i] = sum(...); C[i] = C_register[i]
        """
        stage, value = self.state.resolve(tensor)
        (copy,) = self._stages_made(st.CacheWrite(stage, scope))
        return copy.op.outputs[value]

    def rfactor(self, tensor: TensorLike, axis: AxisLike) -> Tensor:
        """Make reduction loop `axis` of `tensor` the leading spatial axis of a tensor of partial
        results.  Returns that tensor.

            C[i] += f(ko, ki)  ->  C_rf[ki, i] += f(ko, ki); C[i] += C_rf[ki, i]
        """
        stage, value = self.state.resolve(tensor)
        (partial,) = self._stages_made(st.RFactor(stage, self[stage].axis_name(axis)))
        return partial.op.outputs[value]

    def winograd(self, tensor: TensorLike, tile: int) -> WinogradStages:
        """Compute a convolution, a sum of products over a 3x3 window, by Winograd's minimal
        filtering with tiles of `tile` x `tile` results (2 or 4).  Returns the new stages.

            C[i, j, o] += A[i + p, j + q, k] * W[p, q, k, o]
            ->  A_tiles, W_tiles = the transforms of tiles of A and of W
                products[x, y, i/m, j/m, o] += A_tiles[x, y, i/m, j/m, k] * W_tiles[x, y, k, o]
                C[i, j, o] = the inverse transform

        Results differ by rounding (`te.interpolation`).
        """
        stage, _ = self.state.resolve(tensor)
        return WinogradStages(*self._stages_made(st.Winograd(stage, tile)))

    def flatten_axes(self, tensor: TensorLike, *axes: AxisLike) -> Tensor:
        """Merge adjacent axes of an intermediate tensor into one.  Returns the tensor of lower
        rank.

            T[i, j] = f(i, j); C = T[a, b]  ->  T[ij] = f(ij // J, ij % J); C = T[a*J + b]
        """
        stage, value = self.state.resolve(tensor)
        own = self[stage]
        self.apply(st.FlattenAxes(stage, tuple(own.axis_name(a) for a in axes)))
        return own.op.outputs[value]

    def unflatten_axis(self, tensor: TensorLike, axis: AxisLike, factor: int) -> Tensor:
        """Divide an axis of an intermediate tensor into two.  Returns the tensor of higher rank.

            T[i] = f(i); C = T[a]  ->  T[io, ii] = f(io*factor + ii); C = T[a // factor, a % factor]

        After that, a reader of every `factor`-th element needs one index along `ii`, instead of all
        elements between its first and its last one.
        """
        stage, value = self.state.resolve(tensor)
        own = self[stage]
        self.apply(st.UnflattenAxis(stage, own.axis_name(axis), factor))
        return own.op.outputs[value]

    def transform_layout(
        self, tensor: TensorLike, layout: Layout | str | Callable[..., Sequence[Any]]
    ) -> None:
        """Store `tensor` in `layout`: a Layout, its text, or a map from index variables to physical
        indices.

            B[n, k]  ->  B_physical[n // 16, k, n % 16]       # lambda n, k: (n // 16, k, n % 16)

        For a parameter this changes the kernel's signature: the kernel takes the physical array.
        """
        stage, value = self.state.resolve(tensor)
        if not isinstance(layout, (Layout, str)):
            layout = recognise_layout(layout, self[stage].op.outputs[value].rank)
        self.apply(st.TransformLayout(stage, str(layout)))

    def text(self) -> str:
        """The steps as Python, one call per line, for a schedule `s` of the same expressions.

            s['C'].split('i', factor=6)
            s['C'].vectorize('ii')

        Tensors and axes have the names that they have in the schedule.  The text of a split by an
        expression refers to the expression's variables by name.
        """
        return "\n".join(map(str, self.steps))

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> str:
        """The steps as a JSON list; `from_json` replays them on the same operations."""
        return json.dumps([s.to_json() for s in self.steps], separators=(",", ":"))

    @staticmethod
    def from_json(ops: Operation | Sequence[Operation], data: str) -> Schedule:
        """The schedule of `ops` with the steps in `data`.  Raises ScheduleError if `data` is no
        list of steps, or if a step is illegal.
        """
        try:
            records = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise ScheduleError(f"a schedule's JSON does not parse: {e}") from None
        if not isinstance(records, list):
            raise ScheduleError(
                f"a schedule's JSON is a list of steps, found {type(records).__name__}"
            )
        return Schedule.replay(ops, [from_json(r) for r in records])

    @staticmethod
    def replay(ops: Operation | Sequence[Operation], steps: Iterable[Step]) -> Schedule:
        """A new schedule of `ops` with `steps`.  Raises ScheduleError at the first illegal one."""
        s = create_schedule(ops)
        for step in steps:
            s.apply(step)
        return s

    def hash(self) -> str:
        """A digest of expressions and steps, the same for schedules that are equal in both."""
        digest = hashlib.sha256(text.canonical(self.ops).encode())
        digest.update(self.to_json().encode())
        return digest.hexdigest()


@checked(ScheduleError)
def create_schedule(
    results: Operation | Tensor | Sequence[Operation | Tensor],
) -> Schedule:
    """The schedule of `results` without steps: each stage has loops of its own.

    results: the outputs, as tensors or as the operations that make them (`tensor.op`).

    Raises ScheduleError for objects that te.compute did not make.
    """
    made = (results,) if isinstance(results, (Placeholder, Compute, Tensor)) else tuple(results)
    outputs: dict[Compute, None] = {}
    for result in made:
        op = result.op if isinstance(result, Tensor) else result
        if not isinstance(op, Compute):
            raise ScheduleError(
                "create_schedule takes tensors made by te.compute, or their operations "
                f"(tensor.op); found {result!r}"
            )
        outputs[op] = None
    if not outputs:
        raise ScheduleError("create_schedule needs at least one operation")
    return Schedule(tuple(outputs), initial(tuple(outputs)))


def recognise_layout(index_map: Callable[..., Sequence[Any]], rank: int) -> Layout:
    """The Layout of a map like `lambda n, c: (n, c // 16, c % 16)`.  Raises ScheduleError for other
    maps.
    """
    axes: Mapping[Any, int] = {Var(f"i{n}"): n for n in range(rank)}
    try:
        result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(
            f"transform_layout of a tensor of rank {rank}: the index map fails: {e}"
        ) from None
    dims: list[LayoutDim] = []
    for index in result if isinstance(result, (tuple, list)) else (result,):
        if index in axes:
            dims.append(LayoutDim(axes[index]))
        elif (
            isinstance(index, Binary)
            and index.op in ("floordiv", "floormod")
            and index.a in axes
            and isinstance(index.b, Const)
        ):
            part = "outer" if index.op == "floordiv" else "inner"
            dims.append(LayoutDim(axes[index.a], part, int(index.b.value)))
        else:
            raise ScheduleError(
                f"a layout's indices are v, v // c or v % c of the index variables; found {index}"
            )
    try:
        return Layout(tuple(dims))
    except ValueError as e:
        raise ScheduleError(f"transform_layout: {e}") from None
