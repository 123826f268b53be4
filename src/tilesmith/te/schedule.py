"""Schedules: *how* a tensor expression runs, as a list of steps that users write through stage
objects.

`create_schedule` makes one, `s[tensor]` is a stage, and each method of a stage or of the schedule
appends one step (`te.steps`), which takes effect at once on the derived loop structure (`te.stage`)
or raises ScheduleError and changes nothing.  Whatever steps are applied, the lowered kernel gives
the same answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import ForKind, Scope
from tilesmith.support.errors import ScheduleError

from . import steps as st
from . import text
from .stage import Attach, StageState, State, initial
from .stage_apply import apply, fused_name, skewed_name, split_names
from .stage_winograd import WinogradStages
from .steps import Step, Tail
from .tensor import Compute, IterVar, Operation, Placeholder, Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis of a stage.  `extent` is that of the whole domain; a stage attached inside
    another may run less.
    """

    stage: str
    name: str
    extent: Dim
    is_reduce: bool = False

    def __str__(self) -> str:
        return self.name


AxisLike: TypeAlias = "Axis | IterVar | str"
StageLike: TypeAlias = "Stage | Tensor | Operation | str"


class Stage:
    """One operation of a schedule and the primitives that say how its loops run."""

    __slots__ = ("_schedule", "name")

    def __init__(self, schedule: Schedule, name: str) -> None:
        self._schedule = schedule
        self.name = name

    def __repr__(self) -> str:
        return f"<stage {self.name}: {', '.join(self.state.leaves)}>"

    @property
    def state(self) -> StageState:
        return self._schedule.state.stages[self.name]

    @property
    def op(self) -> Operation:
        """The operation as it is now (cache_write, rfactor and flatten_axes replace it)."""
        return self.state.op

    @property
    def axis(self) -> tuple[Axis, ...]:
        """The root spatial axes."""
        n = len(self.state.compute.axis)
        return self._axes(self.state.roots[:n])

    @property
    def reduce_axis(self) -> tuple[Axis, ...]:
        """The root reduction axes."""
        n = len(self.state.compute.axis)
        return self._axes(self.state.roots[n:])

    @property
    def leaf_axes(self) -> tuple[Axis, ...]:
        """The loops, outermost first."""
        return self._axes(self.state.leaves)

    @property
    def scope(self) -> Scope | None:
        return self.state.scope

    @property
    def attach(self) -> Attach:
        return self.state.attach

    def kind(self, axis: AxisLike) -> ForKind:
        """How the loop of `axis` runs."""
        return self.state.kind(self._name(axis))

    def _axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        stage = self.state
        extents, reduced = stage.extents(), stage.reduce_names()
        return tuple(Axis(self.name, n, extents[n], n in reduced) for n in names)

    def _name(self, axis: AxisLike) -> str:
        """The name of `axis`, which must belong to this stage."""
        stage = self.state
        if isinstance(axis, Axis):
            if axis.stage != self.name:
                raise ScheduleError(
                    f"axis {axis.name} belongs to stage {axis.stage}, not to {self.name}"
                )
            return axis.name
        if isinstance(axis, IterVar):
            for name, own in zip(stage.roots, stage.root_axes, strict=True):
                if own is axis:
                    return name
            raise ScheduleError(
                f"{axis!r} is no axis of {self.name}, whose axes are "
                f"{', '.join(stage.roots) or 'none'}; after "
                "cache_write or rfactor take the axes from s[tensor].op"
            )
        if axis not in stage.axis_names():
            raise ScheduleError(
                f"{self.name} has no axis {axis!r}; its loops are "
                f"{', '.join(stage.leaves) or 'none'}"
            )
        return axis

    def split(
        self,
        axis: AxisLike,
        factor: Dim | None = None,
        nparts: Dim | None = None,
        tail: Tail = "peel",
    ) -> tuple[Axis, Axis]:
        """Split a loop in two; returns (outer, inner).

            for i in 100:          for io in 13:
                C[i] = ...    ->       for ii in 8:            # factor=8
                                           if io*8 + ii < 100:
                                               C[io*8 + ii] = ...

        `nparts` gives the extent of the outer loop instead.  Where it does not divide, `tail` says:
        "peel" (the guard is one that peeling removes), "guard" (it stays), "roundup" (computes past
        the end, into padded memory).

        The factor may be an expression of variables that stand for numbers yet to be chosen.  Such
        a schedule has extents that are expressions, for analysis; it can't be lowered.
        """
        name = self._name(axis)
        stage = self.state
        outer, inner = split_names(stage, name)
        self._schedule.apply(st.Split(self.name, name, factor, nparts, tail))
        result = self._axes((outer, inner))
        return result[0], result[1]

    def fuse(self, *axes: AxisLike) -> Axis:
        """Make one loop of neighbouring loops, given outermost first.

        for i in 4:                  for ij in 20:
            for j in 5:         ->       C[ij // 5, ij % 5] = ...
                C[i, j] = ...
        """
        names = tuple(self._name(a) for a in axes)
        if len(names) == 1:
            return self._axes(names)[0]
        fused = fused_name(self.state, names)
        self._schedule.apply(st.Fuse(self.name, names))
        return self._axes((fused,))[0]

    def skew(self, axis: AxisLike, by: AxisLike, factor: int, modulus: int) -> Axis:
        """Begin a loop `(by * factor) % modulus` later for each iteration of another.

        for i in 4:                  for i in 4:
            for j in 5:        ->        for js in 5 + 2:            # factor=1, modulus=3
                C[i, j] = ...                if 0 <= js - i % 3 < 5:
                                                 C[i, js - i % 3] = ...

        Rows of a length that no cache line divides then are in step with the lines: with the length
        as the factor and the elements of a line as the modulus, each begins at a whole line.
        """
        name = self._name(axis)
        skewed = skewed_name(self.state, name)
        self._schedule.apply(st.Skew(self.name, name, self._name(by), factor, modulus))
        return self._axes((skewed,))[0]

    def tile(
        self, x: AxisLike, y: AxisLike, x_factor: int, y_factor: int, tail: Tail = "peel"
    ) -> tuple[Axis, Axis, Axis, Axis]:
        """Split two loops and bring the inner parts together; returns (x outer, y outer, x inner, y
        inner).

        for i in 60:                 for io in 10:
            for j in 64:        ->       for jo in 2:
                C[i, j] = ...                for ii in 6:
                                                 for ji in 32:
                                                     C[io*6 + ii, jo*32 + ji] = ...
        """
        before = self._schedule.checkpoint()
        try:
            xo, xi = self.split(x, x_factor, tail=tail)
            yo, yi = self.split(y, y_factor, tail=tail)
            self.reorder(xo, yo, xi, yi)
        except ScheduleError:
            self._schedule.restore(before)
            raise
        return xo, yo, xi, yi

    def reorder(self, *axes: AxisLike) -> None:
        """Put the named loops in this order, in the places that they take up now.

        for i: for k: C[i] += ...  ->  for k: for i: C[i] += ...
        """
        self._schedule.apply(st.Reorder(self.name, tuple(self._name(a) for a in axes)))

    def vectorize(self, axis: AxisLike) -> None:
        """Run all iterations of a loop of constant extent at once.

        for ji in 16: C[ji] = A[ji]  ->  C[0:16] = A[0:16]
        """
        self._schedule.apply(st.Annotate(self.name, self._name(axis), "vectorize"))

    def unroll(self, axis: AxisLike) -> None:
        """Copy the body of a loop of constant extent.

        for ii in 2: C[ii] = A[ii]  ->  C[0] = A[0]; C[1] = A[1]
        """
        self._schedule.apply(st.Annotate(self.name, self._name(axis), "unroll"))

    def parallel(self, axis: AxisLike) -> None:
        """Share the iterations of a loop among threads.

        for i in 64: ...  ->  parallel for i in 64: ...
        """
        self._schedule.apply(st.Annotate(self.name, self._name(axis), "parallel"))

    def serial(self, axis: AxisLike) -> None:
        """Undo vectorize, unroll or parallel."""
        self._schedule.apply(st.Annotate(self.name, self._name(axis), "serial"))

    def compute_at(self, stage: StageLike, axis: AxisLike) -> None:
        """Compute what one iteration of a reader's loop needs inside that loop.

        for i in 64: B[i] = f(i)             for i in 64:
        for i in 64: C[i] = B[i] + 1    ->       B[0] = f(i)
                                                 C[i] = B[0] + 1
        """
        target = self._schedule[stage]
        self._schedule.apply(st.ComputeAt(self.name, target.name, target._name(axis)))

    def compute_inline(self) -> None:
        """Compute each element where it is used.

        for i: B[i] = f(i)              for i: C[i] = f(i) + 1
        for i: C[i] = B[i] + 1    ->
        """
        self._schedule.apply(st.ComputeInline(self.name))

    def compute_root(self) -> None:
        """Compute the whole stage before its readers: undoes compute_at and compute_inline."""
        self._schedule.apply(st.ComputeRoot(self.name))

    def set_scope(self, scope: Scope) -> None:
        """Keep the result in "heap" (workspace), "stack" (small) or "register" memory.

        allocate B[64] in heap  ->  allocate B[64] in register
        """
        self._schedule.apply(st.SetScope(self.name, scope))

    def prefetch(
        self, tensor: Tensor, axis: AxisLike, offset: int = 1, over: AxisLike | None = None
    ) -> None:
        """Ask the cache for what iteration `axis + offset` reads of `tensor`: at once, or a part in
        each iteration of the loop `over` inside it.  `axis` may be a loop of another stage in which
        this one is computed: then what is asked for must be one piece of memory, and each iteration
        of `over` asks for a line of it until all are.

        for io: body               ->  for io: prefetch(A[(io + offset)*8 ...]); body
        for io: for ii: body       ->  for io: for ii: prefetch(A[(io + offset)*8 + ii]); body
        """
        source, value = self._schedule.resolve(tensor)
        place = "" if over is None else self._name(over)
        of = axis.stage if isinstance(axis, Axis) and axis.stage != self.name else ""
        name = str(axis) if of else self._name(axis)
        self._schedule.apply(st.Prefetch(self.name, source, value, name, offset, place, of))

    def storage_align(self, axis: AxisLike, factor: int, offset: int = 0) -> None:
        """Pad memory so that the stride of dimension `axis`, in elements, is `offset` modulo
        `factor`.

        allocate B[64, 60]  ->  allocate B[64, 64]        # storage_align(i, 16)
        """
        self._schedule.apply(st.StorageAlign(self.name, self._name(axis), factor, offset))

    def double_buffer(self) -> None:
        """Compute the next iteration's part before this one's is used, in two buffers taken in
        turn.

        for i: B[...] = f(i); use B    ->    B[0] = f(0)
                                             for i: if i + 1 < n: B[(i+1) % 2] = f(i + 1)
                                                    use B[i % 2]
        """
        self._schedule.apply(st.DoubleBuffer(self.name))

    def pragma(self, axis: AxisLike, key: str, value: str | int | bool = True) -> None:
        """Attach a note for code generation to a loop; it becomes an attribute of the function.

        for io: ...  ->  func attrs ("pragma C.io key", "value")
        """
        self._schedule.apply(st.Pragma(self.name, self._name(axis), key, str(value)))


class Schedule:
    """How the operations `ops` and all they need are computed.  `steps` is the whole of it."""

    def __init__(
        self, ops: tuple[Compute, ...], state: State, steps: tuple[Step, ...] = ()
    ) -> None:
        self.ops = ops
        self._state = state
        self._steps = steps

    @property
    def state(self) -> State:
        """The derived structure, an immutable value."""
        return self._state

    @property
    def steps(self) -> tuple[Step, ...]:
        return self._steps

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, producers before consumers."""
        return tuple(Stage(self, n) for n in self._state.stages)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for op in self.ops for t in op.outputs)

    def __getitem__(self, key: StageLike) -> Stage:
        if isinstance(key, Stage):
            return key
        return Stage(
            self, self._state.stage(key).name if isinstance(key, str) else self.resolve(key)[0]
        )

    def resolve(self, key: Tensor | Operation | Any) -> tuple[str, int]:
        """The stage and value number that a tensor or operation stands for."""
        tensor = key.outputs[0] if isinstance(key, (Placeholder, Compute)) else key
        if isinstance(tensor, Tensor):
            found = self._state.tensors.get(tensor)
            if found is not None:
                return found
        raise ScheduleError(
            f"{key!r} is not part of this schedule, whose stages are "
            f"{', '.join(self._state.stages)}"
        )

    def apply(self, step: Step) -> None:
        """Append one step.  Raises ScheduleError, and changes nothing, when it is illegal."""
        self._state = apply(self._state, step)
        self._steps = (*self._steps, step)

    def checkpoint(self) -> tuple[State, tuple[Step, ...]]:
        """What `restore` needs to come back to this point."""
        return self._state, self._steps

    def restore(self, point: tuple[State, tuple[Step, ...]]) -> None:
        self._state, self._steps = point

    def copy(self) -> Schedule:
        """An independent schedule with the same steps."""
        return Schedule(self.ops, self._state, self._steps)

    def cache_read(self, tensor: Tensor, scope: Scope, readers: Sequence[StageLike]) -> Tensor:
        """Give `readers` of `tensor` a copy of it in `scope`; returns the copy.

        C[i] = A[i]...  ->  A_stack[i] = A[i]; C[i] = A_stack[i]...
        """
        stage, value = self.resolve(tensor)
        names = tuple(self[r].name for r in readers)
        known = set(self._state.stages)
        self.apply(st.CacheRead(stage, value, scope, names))
        (name,) = set(self._state.stages) - known
        return self._state.stages[name].op.outputs[0]

    def cache_write(self, tensor: Tensor, scope: Scope) -> Tensor:
        """Compute `tensor` in `scope` and copy it out; returns the copy that is computed, with the
        reduction axes.

        C[i] = sum(...)  ->  C_register[i] = sum(...); C[i] = C_register[i]
        """
        stage, value = self.resolve(tensor)
        known = set(self._state.stages)
        self.apply(st.CacheWrite(stage, scope))
        (name,) = set(self._state.stages) - known
        return self._state.stages[name].op.outputs[value]

    def rfactor(self, tensor: Tensor, axis: AxisLike) -> Tensor:
        """Make reduction loop `axis` of `tensor` a leading spatial axis of partial results; returns
        those.

        C[i] += f(ko, ki)  ->  C_rf[ki, i] += f(ko, ki); C[i] += C_rf[ki, i]
        """
        stage, value = self.resolve(tensor)
        known = set(self._state.stages)
        self.apply(st.RFactor(stage, self[stage]._name(axis)))
        (name,) = set(self._state.stages) - known
        return self._state.stages[name].op.outputs[value]

    def winograd(self, tensor: Tensor, tile: int) -> WinogradStages:
        """Compute a convolution with a 3x3 window, a sum of products, by Winograd's minimal
        filtering with tiles of `tile` x `tile` results (2 or 4); returns the stages there are now.

        C[i, j, o] += A[i + p, j + q, k] * W[p, q, k, o]  ->  of tiles of A and of W the transforms,
        products[x, y, i / m, j / m, o] += A_tiles[x, y, i / m, j / m, k] * W_tiles[x, y, k, o],
        C[i, j, o] = the inverse transform.  Results differ by roundings (`te.interpolation`).
        """
        stage, _ = self.resolve(tensor)
        before = tuple(self._state.stages)
        self.apply(st.Winograd(stage, tile))
        new = [n for n in self._state.stages if n not in before]
        return WinogradStages(*(self._state.stages[n].op.outputs[0] for n in new))

    def flatten_axes(self, tensor: Tensor, *axes: AxisLike) -> Tensor:
        """Merge neighbouring axes of an intermediate tensor into one; returns the tensor of lower
        rank.

        T[i, j] = f(i, j); C = T[a, b]  ->  T[ij] = f(ij // J, ij % J); C = T[a*J + b]
        """
        stage, value = self.resolve(tensor)
        own = self[stage]
        self.apply(st.FlattenAxes(stage, tuple(own._name(a) for a in axes)))
        return own.op.outputs[value]

    def transform_layout(
        self, tensor: Tensor, layout: Layout | str | Callable[..., Sequence[Any]]
    ) -> None:
        """Store `tensor` in `layout`: a Layout, its text, or a map of index variables to physical
        indices.

            B[n, k]  ->  B_physical[n // 16, k, n % 16]       # lambda n, k: (n // 16, k, n % 16)

        Of an argument this changes the kernel's signature: it takes the physical array.
        """
        stage, _ = self.resolve(tensor)
        if isinstance(layout, Layout):
            text_form = str(layout)
        else:
            text_form = (
                layout if isinstance(layout, str) else str(recognise_layout(layout, tensor.rank))
            )
        self.apply(st.TransformLayout(stage, text_form))

    def text(self) -> str:
        """The steps, one call a line."""
        return "\n".join(st.print_step(s) for s in self._steps)

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> str:
        """The steps as a JSON list; `from_json` replays them on the same operations."""
        return json.dumps([st.to_json(s) for s in self._steps], separators=(",", ":"))

    @staticmethod
    def from_json(ops: Operation | Sequence[Operation], data: str) -> Schedule:
        """The schedule of `ops` with the steps in `data`.  Raises ScheduleError."""
        try:
            records = json.loads(data)
        except ValueError as e:
            raise ScheduleError(f"a schedule's JSON does not parse: {e}") from None
        if not isinstance(records, list):
            raise ScheduleError(
                f"a schedule's JSON is a list of steps, found {type(records).__name__}"
            )
        return Schedule.replay(ops, [st.from_json(r) for r in records])

    @staticmethod
    def replay(ops: Operation | Sequence[Operation], steps: Iterable[Step]) -> Schedule:
        """A new schedule of `ops` with `steps` applied.  Raises ScheduleError at the first illegal
        one.
        """
        s = create_schedule(ops)
        for step in steps:
            s.apply(step)
        return s

    def hash(self) -> str:
        """A digest of what is computed and how, equal for equal expressions and steps whoever made
        them.
        """
        digest = hashlib.sha256(text.canonical(self.ops).encode())
        digest.update(self.to_json().encode())
        return digest.hexdigest()


def create_schedule(ops: Operation | Sequence[Operation]) -> Schedule:
    """The schedule of `ops` (the operations whose tensors are the outputs) before any step: each
    stage on its own.
    """
    given = (ops,) if isinstance(ops, (Placeholder, Compute)) else tuple(ops)
    outputs: dict[Compute, None] = {}
    for op in given:
        if not isinstance(op, Compute):
            raise ScheduleError(
                f"create_schedule takes operations made by te.compute (tensor.op), found {op!r}"
            )
        outputs[op] = None
    if not outputs:
        raise ScheduleError("create_schedule needs at least one operation")
    return Schedule(tuple(outputs), initial(tuple(outputs)))


def recognise_layout(index_map: Callable[..., Sequence[Any]], rank: int) -> Layout:
    """The Layout that an index map like `lambda n, c: (n, c // 16, c % 16)` stands for.  Raises
    ScheduleError.
    """
    axes: Mapping[Expr, int] = {Var(f"i{n}"): n for n in range(rank)}
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
