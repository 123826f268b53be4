"""A stage of a schedule, with the schedule primitives as its methods.

Each method appends one step (`te.steps`).  It takes effect at once on the derived loop structure
(`te.state`), or raises ScheduleError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from tilesmith.ir.loop_tables import ForKind, Scope
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic, tensor_intrinsic
from tilesmith.ir.types import Dim
from tilesmith.support.arguments import checked_methods
from tilesmith.support.errors import ScheduleError

from . import steps as st
from .check import check
from .relations import Tail
from .state import Attach, StageState, State
from .steps import Step
from .tensor import IterVar, Operation, Tensor

_ELSEWHERE = {
    "thread_axis": "s[t].bind(axis, 'threadIdx.x') takes the name of the index itself",
    "env_threads": "s[t].bind(axis, 'threadIdx.x') gives a loop to threads",
    "decl_buffer": "a te.extern gets the buffers of its tensors",
    "size_var": "an extent that is known at run time is te.var(name)",
    "partition": "tails are peeled by the compiler",
    "bound": "extents are the shape that te.compute is given",
    "compute_with": "s[t].compute_at(s[u], axis) places a stage in loops of another one",
    "infer_bound": "te.lower(s, args) infers all bounds; print it",
}
"""Names of methods in TVM's and Halide's schedules, with their counterparts here."""


def word(where: str, name: str) -> str:
    """The message for a missing attribute.  For a name from TVM or Halide it includes the
    counterpart here.
    """
    ours = _ELSEWHERE.get(name)
    return f"there is no {where}.{name}" + (f": {ours}" if ours else "")


@checked_methods(ScheduleError)
class History:
    """The steps applied to a state, in order.

    state: the resulting structure, an immutable value.
    steps: all steps since the unscheduled state.
    """

    def __init__(self, state: State, steps: tuple[Step, ...] = ()) -> None:
        self._state = state
        self._steps = steps

    @property
    def state(self) -> State:
        return self._state

    @property
    def steps(self) -> tuple[Step, ...]:
        return self._steps

    def apply(self, step: Step) -> None:
        """Append one step.  Raises ScheduleError, and changes nothing, if it is illegal."""
        state = step.apply(self._state)
        check(state)
        self._state = state
        self._steps = (*self._steps, step)

    def checkpoint(self) -> tuple[State, tuple[Step, ...]]:
        """The current state and steps, to which `restore` returns."""
        return self._state, self._steps

    def restore(self, point: tuple[State, tuple[Step, ...]]) -> None:
        self._state, self._steps = point


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis of a stage.

    stage: name of the stage.
    name: name of the axis.
    extent: extent in the whole domain.  A stage attached inside another may run fewer iterations.
    is_reduce: whether the axis is reduced.
    """

    stage: str
    name: str
    extent: Dim = field(compare=False)
    is_reduce: bool = False

    def __str__(self) -> str:
        return self.name


AxisLike: TypeAlias = Axis | IterVar | str
TensorLike: TypeAlias = Tensor | Operation | str
"""A tensor, or the name of the stage whose first result it is."""


@checked_methods(ScheduleError)
class Stage:
    """One operation of a schedule, with the primitives that transform its loops."""

    __slots__ = ("_history", "name")

    def __init__(self, history: History, name: str) -> None:
        self._history = history
        self.name = name

    def __repr__(self) -> str:
        return f"<stage {self.name}: {', '.join(self.state.leaves)}>"

    def __getitem__(self, axis: AxisLike) -> Axis:
        """The axis called `axis`.  Raises ScheduleError if there is none."""
        return self._axes((self.axis_name(axis),))[0]

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(word("stage", name))

    @property
    def state(self) -> StageState:
        return self._history.state.stages[self.name]

    @property
    def op(self) -> Operation:
        """The current operation.  Rewrites such as cache_write and rfactor replace it."""
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
        """The kind of the loop of `axis`."""
        return self.state.kind(self.axis_name(axis))

    def _axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        stage = self.state
        extents, reduced = stage.extents(), stage.reduce_names()
        return tuple(Axis(self.name, n, extents[n], n in reduced) for n in names)

    def axis_name(self, axis: AxisLike) -> str:
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

    def _made(self, step: st.Step) -> tuple[Axis, ...]:
        """Apply `step`.  Returns the axes that it makes."""
        self._history.apply(step)
        return self._axes(self.state.relations[-1].made)

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

        factor: extent of the inner loop.
        nparts: extent of the outer loop, instead.
        tail: treatment of a split that does not divide: "peel" (a guard that peeling removes),
            "guard" (a guard that stays), "roundup" (compute past the end, into padded memory).

        The factor may be an expression, whose variables stand for numbers that are not chosen yet.
        Then the extents are expressions, too: the schedule is for analysis and can't be lowered.
        """
        outer, inner = self._made(st.Split(self.name, self.axis_name(axis), factor, nparts, tail))
        return outer, inner

    def fuse(self, *axes: AxisLike) -> Axis:
        """Fuse adjacent loops, given outermost first, into one.

        for i in 4:                  for ij in 20:
            for j in 5:         ->       C[ij // 5, ij % 5] = ...
                C[i, j] = ...
        """
        names = tuple(self.axis_name(a) for a in axes)
        if len(names) == 1:
            return self._axes(names)[0]
        return self._made(st.Fuse(self.name, names))[0]

    def tensorize(self, axis: AxisLike, intrinsic: TensorIntrinsic | str) -> None:
        """Let one call of a tensor intrinsic compute a loop and all loops inside it.

            for j in 8:                                  C[0:8] = dot(C[0:8], A[0:2], W[0:8, 0:2])
                for q in 2:                         ->
                    C[j] += i32(A[q]) * i32(W[j, q])

        intrinsic: a result of `te.decl_tensor_intrin`, or its name.

        Raises ScheduleError if the loops compute another expression; names of axes, the order of
        loops and the order of factors do not matter.  `te.lower` checks that the tiles have the
        memory layout that the instruction reads.
        """
        name = intrinsic if isinstance(intrinsic, str) else intrinsic.name
        if not isinstance(intrinsic, str) and tensor_intrinsic(name) is not intrinsic:
            raise ScheduleError(
                f"cannot tensorize {self.name}: {name} was declared once more since, as "
                f"{tensor_intrinsic(name)}; give each intrinsic a name of its own"
            )
        self._history.apply(st.TensorizeLoops(self.name, self.axis_name(axis), name))

    def skew(self, axis: AxisLike, by: AxisLike, factor: int, modulus: int) -> Axis:
        """Begin a loop `(by * factor) % modulus` later for each iteration of another loop.

            for i in 4:                  for i in 4:
                for j in 5:        ->        for js in 5 + 2:            # factor=1, modulus=3
                    C[i, j] = ...                if 0 <= js - i % 3 < 5:
                                                     C[i, js - i % 3] = ...

        This aligns rows whose length is no multiple of a cache line.  With the row length as the
        factor and the elements of a line as the modulus, each row begins at a line boundary.
        """
        name, other = self.axis_name(axis), self.axis_name(by)
        return self._made(st.Skew(self.name, name, other, factor, modulus))[0]

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
        before = self._history.checkpoint()
        try:
            xo, xi = self.split(x, x_factor, tail=tail)
            yo, yi = self.split(y, y_factor, tail=tail)
            self.reorder(xo, yo, xi, yi)
        except ScheduleError:
            self._history.restore(before)
            raise
        return xo, yo, xi, yi

    def reorder(self, *axes: AxisLike) -> None:
        """Put the named loops in this order, in the positions that they occupy now.

        for i: for k: C[i] += ...  ->  for k: for i: C[i] += ...
        """
        self._history.apply(st.Reorder(self.name, tuple(self.axis_name(a) for a in axes)))

    def vectorize(self, axis: AxisLike) -> None:
        """Run all iterations of a loop of constant extent at once.

        for ji in 16: C[ji] = A[ji]  ->  C[0:16] = A[0:16]
        """
        self._history.apply(st.Vectorize(self.name, self.axis_name(axis)))

    def unroll(self, axis: AxisLike) -> None:
        """Copy the body of a loop of constant extent.

        for ii in 2: C[ii] = A[ii]  ->  C[0] = A[0]; C[1] = A[1]
        """
        self._history.apply(st.Unroll(self.name, self.axis_name(axis)))

    def parallel(self, axis: AxisLike) -> None:
        """Share the iterations of a loop among threads.

        for i in 64: ...  ->  parallel for i in 64: ...
        """
        self._history.apply(st.Parallel(self.name, self.axis_name(axis)))

    def bind(self, axis: AxisLike, index: str, lanes: int = 1) -> None:
        """Divide the iterations of a loop among the blocks or threads of a device.  Iteration i
        runs in the block or thread with index i.

        for i in 64: ...  ->  threadIdx.x for i in 64: ...

        index: "blockIdx.x", "threadIdx.x", or one of those with y or z.  "vthread" makes the
            iterations virtual threads: each has its own copy of the memory of stages attached
            inside, and one thread may interleave them.

        A stage in "shared" memory inside such loops is computed by all threads of the block
        together, if its own loops are bound to the same indices.

        An axis that is reduced may be bound to threads.  Each thread adds up its terms in private
        memory (scope "register" or "stack"), and all threads get the complete result:

        for k in 64: s = s + x[k]  ->  for k in thread_x(64): s = s + x[k]
                                       let whole = wave_reduce(add, s, 32)
                                       ...

        lanes: number of neighbouring threads along x that exchange partial results by shuffles,
            which the target must have (`Device.shuffle_lanes`).  Results of different groups of
            lanes are exchanged in shared memory.  With `lanes` = 1, all results are exchanged
            there.

        Raises ScheduleError for an unknown index, or one to which another loop of the stage is
        bound.  Also raises it if a reduction axis is bound to blocks, or belongs to a reduction
        other than a sum, product, minimum or maximum.
        """
        self._history.apply(st.Bind(self.name, self.axis_name(axis), index, lanes))

    def serial(self, axis: AxisLike) -> None:
        """Undo vectorize, unroll, parallel or bind."""
        self._history.apply(st.Serial(self.name, self.axis_name(axis)))

    def compute_at(self, stage: StageLike, axis: AxisLike) -> None:
        """Compute the part of this stage that one iteration of a reader's loop needs, inside that
        loop.

        for i in 64: B[i] = f(i)             for i in 64:
        for i in 64: C[i] = B[i] + 1    ->       B[0] = f(i)
                                                 C[i] = B[0] + 1
        """
        target = stage_of(self._history, stage)
        self._history.apply(st.ComputeAt(self.name, target.name, target.axis_name(axis)))

    def store_at(self, stage: StageLike, axis: AxisLike) -> None:
        """Store the values of this stage in memory that is allocated inside `axis`, a loop further
        out than the loop at which the stage is computed.  Then each iteration of the loops between
        the two computes only values that no earlier iteration has computed (a sliding window).

            for y in 64:                         for y in -2 .. 63:
                for r in 3: B[r] = f(y + r)  ->      B[(y + 2) % 4] = f(y + 2)
                C[y] = B[0] + B[1] + B[2]            if y >= 0:
                                                         C[y] = B[y % 4] + ... + B[(y + 2) % 4]

        `axis` is a loop of the stage inside which this stage is computed (compute_at), or the loop
        at which that other stage is itself computed.  The loops between must run in sequence.
        Along the outermost of these loops only the window stays in memory, with its size rounded up
        to a power of two (`fold_storage` sets another size).  compute_at, compute_root and
        compute_inline move the memory back to the loop where the stage is computed.

        Raises ScheduleError if a loop between is parallel or vectorised.  Lowering raises it if the
        window moves along a dimension with several loops, or in no fixed direction.
        """
        target = stage_of(self._history, stage)
        self._history.apply(st.StoreAt(self.name, target.name, target.axis_name(axis)))

    def store_root(self) -> None:
        """Store the values as `store_at` does, but outside of all loops of the stage inside which
        this stage is computed.  That other stage must be at the root.
        """
        self._history.apply(st.StoreRoot(self.name))

    def fold_storage(self, axis: AxisLike, factor: int) -> None:
        """Keep `factor` indices of the dimension `axis` in memory, at index modulo `factor`.

            allocate B[4, 64]; B[y % 4, x]  ->  allocate B[3, 64]; B[y % 3, x]

        The dimension must be the one along which the outermost loop of `store_at` slides.  Lowering
        checks that `factor` is at least the size of the window.
        """
        self._history.apply(st.FoldStorage(self.name, self.axis_name(axis), factor))

    def compute_inline(self) -> None:
        """Compute each element where it is used.

        for i: B[i] = f(i)              for i: C[i] = f(i) + 1
        for i: C[i] = B[i] + 1    ->
        """
        self._history.apply(st.ComputeInline(self.name))

    def compute_root(self) -> None:
        """Compute the whole stage before its readers; undoes compute_at and compute_inline."""
        self._history.apply(st.ComputeRoot(self.name))

    def set_scope(self, scope: Scope) -> None:
        """Set the memory of the result: "heap" (workspace), "stack" (small), "register", or
        "shared", which the threads of a block (`bind`) share.

        allocate B[64] in heap  ->  allocate B[64] in register
        """
        self._history.apply(st.SetScope(self.name, scope))

    def prefetch(
        self,
        tensor: TensorLike,
        axis: AxisLike,
        offset: int = 1,
        over: AxisLike | None = None,
        parts: int = 1,
    ) -> None:
        """In each iteration of `axis`, prefetch the elements of `tensor` that are read `offset`
        iterations later.

            for io: body               ->  for io: prefetch(A[(io + offset)*8 ...]); body
            for io: for ii: body       ->  for io: for ii: prefetch(A[(io + offset)*8 + ii]); body

        axis: a loop of this stage, or of another stage inside which this stage is computed.  For a
            loop of another stage the memory must be contiguous, and the iterations of `over` divide
            the cache lines of this memory evenly.
        offset: the prefetch distance in iterations of `axis`.
        over: a loop inside `axis` over which the prefetches are spread.  None: they are issued at
            once.
        parts: for a loop of another stage, the number of successive iterations that read the same
            elements.  Each of these iterations prefetches one part.
        """
        source, value = self._history.state.resolve(tensor)
        place = "" if over is None else self.axis_name(over)
        of = axis.stage if isinstance(axis, Axis) and axis.stage != self.name else ""
        name = str(axis) if of else self.axis_name(axis)
        self._history.apply(st.Prefetch(self.name, source, value, name, offset, place, of, parts))

    def storage_align(self, axis: AxisLike, factor: int, offset: int = 0) -> None:
        """Pad memory so that the stride of dimension `axis`, in elements, is `offset` modulo
        `factor`.

            allocate B[64, 60]  ->  allocate B[64, 64]        # storage_align(i, 16)
        """
        self._history.apply(st.StorageAlign(self.name, self.axis_name(axis), factor, offset))

    def double_buffer(self) -> None:
        """Compute the next iteration's part of this stage before the current part is used, in two
        alternating buffers (software pipelining).

            for i: B[...] = f(i); use B    ->    B[0] = f(0)
                                                 for i: if i + 1 < n: B[(i+1) % 2] = f(i + 1)
                                                        use B[i % 2]
        """
        self._history.apply(st.DoubleBuffer(self.name))

    def pipeline(self, depth: int) -> None:
        """Compute `depth - 1` iterations ahead, in `depth` buffers used in turn (software
        pipelining).  `double_buffer()` is `pipeline(2)`.

        A stage in shared memory that a block's threads compute becomes a group of asynchronous
        copies.  Each iteration waits for its part, and one barrier follows:

            for i: B = A[i]; use B    ->    async: B[0] = A[0]
                                            for i: wait 0
                                                   barrier
                                                   async: if i + 1 < n: B[(i+1) % 2] = A[i + 1]
                                                   use B[i % 2]

        Stages in shared memory that are pipelined at one loop must have the same depth.  A stage
        that reads its own stores, such as a sum, is not a copy, so it is computed ahead
        synchronously.
        """
        self._history.apply(st.Pipeline(self.name, depth))

    def pragma(self, axis: AxisLike, key: str, value: str | int | bool = True) -> None:
        """Attach a note for code generation to a loop, as an attribute of the function.

        for io: ...  ->  func attrs ("pragma C.io key", "value")
        """
        self._history.apply(st.Pragma(self.name, self.axis_name(axis), key, str(value)))


StageLike: TypeAlias = Stage | Tensor | Operation | str


def stage_of(history: History, key: StageLike) -> Stage:
    """The stage that `key` denotes.  Raises ScheduleError if there is none."""
    if isinstance(key, Stage):
        return key
    return Stage(history, history.state.resolve(key)[0])
