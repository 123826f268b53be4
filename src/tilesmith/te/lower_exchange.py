"""Lowering of reductions whose terms are divided among threads: the threads combine their partial
results.

    for k in thread_x(128): s[0] = s[0] + x[k]         # each thread's own s, in a register
    let w = wave_reduce(add, s[0], 32)                 # of 32 neighbours, by shuffles
    s[0] = w
    for t in thread_x(128):
        if t % 32 == 0: s_parts[t // 32] = s[0]        # shared memory
    for t in thread_x(128): s[0] = s_parts[t % 4]
    let w = wave_reduce(add, s[0], 4)
    s[0] = w                                           # the same in all threads

If a schedule uses no shuffles (`lanes` is 1), all partial results go through shared memory.
Barriers are added later, where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilesmith.ir.expr import Binary, Expr, Load, Var, compare, const
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, THREADS, ForKind
from tilesmith.loop.nodes import Allocate, Buffer, For, If, Stmt, Store, WaveReduce, seq
from tilesmith.support.errors import ScheduleError

from .lower_plan import StagePlan
from .lower_threads import is_launched, thread_sizes, threads_around
from .state import State
from .tensor import Reduce

_OUTWARDS = tuple(reversed(THREADS))
"""Thread indices as dimensions of memory, x last: neighbours along x are contiguous."""

ALONE = 16
"""Upper bound on the partial results that each thread combines alone, to save a barrier."""


def is_exchanged(plan: StagePlan) -> bool:
    """Whether the terms of the stage's reduction are divided among threads."""
    return bool(_shared_out(plan))


def _shared_out(plan: StagePlan) -> list[ForKind]:
    """The kinds of the loops that run over terms of a reduction and are bound to threads."""
    return [
        x.kind
        for x in plan.loops
        if x.is_reduce and not x.is_unit and LOOP_KINDS[x.kind].level == "thread"
    ]


def exchanged(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan, at: tuple[Expr, ...]
) -> Stmt:
    """The statement that combines the partial results of all threads for one element: the element
    of `plan` at the indices `at`.  Afterwards all threads have the complete element.

    Raises ScheduleError if the partial results are not in private memory, or if the stage is not
    computed inside a launch.
    """
    buffer = plan.buffers[0]
    if SCOPES[buffer.scope].owner != "thread":
        raise ScheduleError(
            f"the threads of a block share the terms of {plan.stage.name}, which is in "
            f"{buffer.scope} memory: expected scope 'register' or 'stack', where each thread has "
            "its own partial result (cache_write or set_scope)"
        )
    if not is_launched(state, plans, plan):
        raise ScheduleError(
            f"the threads of a block share the terms of {plan.stage.name}, which is computed at "
            f"{plan.stage.attach}: expected compute_at inside a loop that is bound to blocks"
        )
    reduce = plan.body[0]
    # `annotated` has checked this when it bound the loop to threads
    assert isinstance(reduce, Reduce) and reduce.reducer.operation is not None
    own = [
        x
        for x in plan.loops[: plan.first_reduce]
        if LOOP_KINDS[x.kind].level == "thread" and not x.is_unit
    ]
    around: dict[ForKind, Var] = {
        x.kind: x.var for x in (*threads_around(state, plans, plan).values(), *own)
    }
    block = _Block(thread_sizes(state, plans, plan), around)
    made = _Exchange(block, buffer, at, reduce.reducer.operation, plan.stage.lanes)
    return seq(*map(made.along, _shared_out(plan)))


@dataclass(frozen=True, slots=True)
class _Block:
    """The threads of a block.

    sizes: number of threads along each index.
    around: variables of the thread loops around the exchange, by thread index.
    """

    sizes: Mapping[ForKind, int]
    around: Mapping[ForKind, Var]

    def each(self, body: Callable[[Mapping[ForKind, Var]], Stmt]) -> Stmt:
        """The statement that each thread runs: `body` for the variables of its thread indices."""
        names: dict[ForKind, Var] = {
            k: self.around[k] if k in self.around else Var("t") for k in self.sizes
        }
        made = body(names)
        for kind, size in self.sizes.items():
            if kind not in self.around:
                made = For(names[kind], const(0), const(size), kind, made)
        return made


@dataclass(frozen=True, slots=True)
class _Writers:
    """The threads that hold partial results: every `distance`-th thread before number `end`."""

    distance: int
    end: int


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The exchange of the partial results of one element.

    buffer, at: the private buffer and indices at which each thread holds its partial result.
    op: operation that combines two partial results.
    lanes: upper bound on the threads that exchange values by shuffles.
    """

    block: _Block
    buffer: Buffer
    at: tuple[Expr, ...]
    op: str
    lanes: int

    @property
    def own(self) -> Expr:
        return Load(self.buffer, self.at)

    def keep(self, value: Expr) -> Stmt:
        return Store(self.buffer, self.at, value)

    def along(self, kind: ForKind) -> Stmt:
        """Combine the partial results of the threads along one index."""
        count = self.block.sizes[kind]
        lanes = self.lanes if kind == THREADS[0] else 1
        width = min(lanes, count & -count)  # the largest power of two that divides the count
        stmts = [self.shuffled(width)] if width > 1 else []
        parts, writers = count // width, _Writers(width, count)
        memory: list[Buffer] = []
        while parts > 1:
            shared = self.shared(kind, parts)
            memory.append(shared)
            stmts.append(self.written(shared, kind, writers))
            if parts <= lanes and parts & (parts - 1) == 0 and count % parts == 0:
                stmts += [self.read(shared, kind, parts), self.shuffled(parts)]
                break
            if parts <= ALONE:
                stmts.append(self.combined(shared, kind, parts, parts))
                break
            readers = 1 << ((parts - 1).bit_length() + 1) // 2
            stmts.append(self.combined(shared, kind, parts, -(-parts // readers), readers))
            parts, writers = readers, _Writers(1, readers)
        body = seq(*stmts)
        for shared in reversed(memory):
            body = Allocate(shared, body)
        return body

    def shuffled(self, lanes: int) -> Stmt:
        var = Var("whole", self.buffer.dtype)
        return WaveReduce(var, self.op, self.own, lanes, self.keep(var))

    def shared(self, kind: ForKind, parts: int) -> Buffer:
        """A buffer for `parts` results along `kind`.  Neighbours along x are contiguous, which
        avoids bank conflicts.
        """
        sizes = {**self.block.sizes, kind: parts}
        shape = tuple(sizes[k] for k in _OUTWARDS if k in sizes)
        return Buffer(f"{self.buffer.name}_parts", self.buffer.dtype, shape, "shared")

    def place(self, names: Mapping[ForKind, Var], kind: ForKind, last: Expr) -> tuple[Expr, ...]:
        indices: dict[ForKind, Expr] = {**names, kind: last}
        return tuple(indices[k] for k in _OUTWARDS if k in indices)

    def written(self, shared: Buffer, kind: ForKind, writers: _Writers) -> Stmt:
        """Let some of the threads store their values contiguously in `shared`.

        kind: the axis of the block on which these threads lie.
        writers: which indices on that axis write.
        """

        def body(names: Mapping[ForKind, Var]) -> Stmt:
            t = names[kind]
            first = t // writers.distance if writers.distance > 1 else t
            store = Store(shared, self.place(names, kind, first), self.own)
            if writers.distance > 1:
                return If(compare("eq", t % writers.distance, 0), store)
            return store if writers.end == self.block.sizes[kind] else If(t < writers.end, store)

        return self.block.each(body)

    def read(self, shared: Buffer, kind: ForKind, parts: int) -> Stmt:
        """Let the thread with index t along `kind` read value t % `parts`."""

        def body(names: Mapping[ForKind, Var]) -> Stmt:
            return self.keep(Load(shared, self.place(names, kind, names[kind] % parts)))

        return self.block.each(body)

    def combined(
        self, shared: Buffer, kind: ForKind, parts: int, each: int, readers: int = 1
    ) -> Stmt:
        """Let threads combine `each` of the `parts` values.  With one reader, every thread combines
        all values.  Otherwise each of the first `readers` threads combines every `readers`-th
        value.
        """

        def body(names: Mapping[ForKind, Var]) -> Stmt:
            t, n = names[kind], Var("n")
            first = t if readers > 1 else const(0)
            index = first + n * readers if readers > 1 else n
            value = Load(shared, self.place(names, kind, index))
            more: Stmt = self.keep(Binary(self.op, self.own, value))
            if parts % readers:
                more = If(index < parts, more)
            whole = seq(
                self.keep(Load(shared, self.place(names, kind, first))),
                For(n, const(1), const(each - 1), "serial", more),
            )
            return whole if readers == 1 else If(t < min(readers, parts), whole)

        return self.block.each(body)
