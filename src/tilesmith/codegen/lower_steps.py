"""Steps of the main function as statements of loop IR (decision 118).

Memory is bytes.  The addresses of inputs, outputs, constants and the arena are read once.  Slots
(memory that grows) and pointers of loops move, so their addresses are in two tables, and each step
first reads the addresses that it uses.  The loop IR gives such memory the extent 0, because its
extent is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as own_field
from typing import Any

from tilesmith.ir.dtypes import bool_, i32, i64, u8
from tilesmith.ir.expr import Binary, Compare, Expr, Load, Select, Unary, Var, const
from tilesmith.loop.nodes import (
    Allocate,
    Buffer,
    CallFunction,
    CallHost,
    CopyBytes,
    Grow,
    If,
    LetStmt,
    Locate,
    Point,
    Reinterpret,
    Return,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)
from tilesmith.program import nodes as program
from tilesmith.program.nodes import Arg, Step
from tilesmith.program.visit import calls_of, measurements_of, slots_of, steps_in
from tilesmith.support.errors import InternalError

from .context import BY_NAME, Code

CONTEXT = Buffer("context", u8, (0,))
"""The context of the run (`codegen.context`)."""
FAILURE = Buffer("failure", i32, (4,), "heap")
"""The i32 fields of a failure in the context: code, call, assertion, number of values."""
_HUGE = 1 << 46
"""Upper bound on the scratch bytes of a thread.  Above this, the scratch bytes of all threads may
overflow 64 bits.
"""
_ADDRESS = 8
"""Bytes reserved for an address in the main function's own tables; 32-bit processors use fewer."""


@dataclass(slots=True)
class Steps:
    """The state of lowering one main function.

    values: the sizes that the functions of `codegen.sizes` compute.
    measured: the extents that a run has measured so far.
    slots: table of the addresses of memory that grows.
    pointers: table of the addresses that loops move.
    clock: number of the output for times, and number of the C library's clock; None: no times.
    fixed: the memory of each input, output, constant and arena that a step uses, by the `Arg` for
        its first byte.
    """

    values: Buffer
    measured: Buffer
    slots: Buffer
    pointers: Buffer
    clock: tuple[int, int] | None = None
    fixed: dict[Arg, Buffer] = own_field(default_factory=dict)
    _located: dict[Arg, Buffer] = own_field(default_factory=dict)
    _turns: dict[int, Load] = own_field(default_factory=dict)
    _counts: dict[type[Step], int] = own_field(default_factory=dict)
    _others: int = 0
    _clocks: tuple[Buffer, Buffer, Buffer] | None = None

    @staticmethod
    def of(steps: Sequence[Step], sizes: int, clock: tuple[int, int] | None = None) -> Steps:
        """The state before the first of `steps`.

        sizes: number of values that the functions of `codegen.sizes` compute.
        """
        ends = (m.first + len(m.extents) for m in measurements_of(steps))
        loops = [s for s in steps_in(steps) if isinstance(s, program.Repeat)]
        moved = [c for loop in loops for c in loop.carried]
        numbers = [p.pointer for loop in loops for p in (*loop.slices, *loop.carried)]
        numbers += [c.target for c in moved if c.target is not None]
        pointers = max(numbers, default=-1) + 1
        others = sum(c.other is not None for c in moved)
        made = Steps(
            Buffer("values", i64, (sizes,), "stack"),
            Buffer("measured", i64, (max(ends, default=0),), "stack"),
            Buffer("slots", u8, (_ADDRESS * slots_of(steps),), "stack"),
            Buffer("pointers", u8, (_ADDRESS * (pointers + others),), "stack"),
            clock,
        )
        made._others = pointers
        if clock is not None:
            count = 2 * sum(1 for _ in calls_of(steps))
            times = Buffer("times", i64, (count,), "heap")
            now, last = Buffer("now", i64, (2,), "stack"), Buffer("last", i64, (1,), "stack")
            made._clocks = times, now, last
        return made

    @property
    def rooms(self) -> tuple[Buffer, ...]:
        """The buffers on the stack that the main function needs."""
        mine = (self.values, self.measured, self.slots, self.pointers, *(self._clocks or ())[1:])
        return tuple(b for b in mine if b.shape != (0,))

    def whole(self, steps: Sequence[Step]) -> Stmt:
        """All steps, preceded by the reads of the addresses that stay the same."""
        body = seq(self.stamp(None), self.steps(steps))
        if self.clock is not None and self._clocks is not None:
            body = Reinterpret(self._clocks[0], self.place(Arg("output", self.clock[0])), body)
        tables: dict[str, Buffer] = {}
        for arg, memory in reversed(self.fixed.items()):
            if arg.kind in ("arena", "constant"):
                name = "arena" if arg.kind == "arena" else "constants"
                body = Locate(memory, field(name), 0, body)
            else:
                name = f"{arg.kind}s"
                table = tables.setdefault(name, Buffer(name, u8, (0,), "heap"))
                body = Locate(memory, table[const(0)], arg.index, body)
        for name, table in tables.items():
            body = Locate(table, field(name), 0, body)
        return body

    # --- memory and numbers ---

    def place(self, arg: Arg) -> Load:
        """The first byte of an argument in memory."""
        index: Expr = const(arg.offset)
        if arg.kind in ("arena", "constant"):
            index, base = const(arg.index), replace(arg, index=0)
        elif arg.kind == "place":
            start = self.values[const(arg.index)]
            index = start + arg.offset if arg.offset else start
            base = Arg("arena", 0, slot=arg.slot)
        else:
            base = replace(arg, offset=0)
        moves = base.slot is not None or base.kind == "pointer"
        memory = self._located if moves else self.fixed
        if base not in memory:
            name = f"{base.kind}{base.index}" if base.slot is None else f"slot{base.slot}"
            name = base.kind if base.kind in ("arena", "constant") and not moves else name
            memory[base] = Buffer(name, u8, (0,), "heap")
        return memory[base][index]

    def number(self, size: int | Arg) -> Expr:
        """The value of a size: the number itself, or the computed number of an "extent"."""
        return self.values[const(size.index)] if isinstance(size, Arg) else const(size)

    def located(self, make: Callable[[], Stmt]) -> Stmt:
        """A statement, preceded by reads of the addresses of slots and pointers that it uses."""
        outside, self._located = self._located, {}
        body = make()
        for base, memory in reversed(self._located.items()):
            if base.slot is not None:
                body = Locate(memory, self.slots[const(0)], base.slot, body)
            else:
                body = Locate(memory, self.pointers[const(0)], base.index, body)
        self._located = outside
        return body

    def passed(self, args: Iterable[Arg]) -> tuple[dict[Var, Expr], tuple[Expr, ...]]:
        """The arguments of a call, in which variables stand for computed sizes.  The first result
        has the values of these variables, the second one has the arguments.
        """
        named: dict[Var, Expr] = {}
        arguments: list[Expr] = []
        for a in args:
            if a.kind == "extent":
                n = Var("n")
                named[n] = self.number(a)
                arguments.append(n)
            else:
                arguments.append(const(a.index) if a.kind == "scalar" else self.place(a))
        return named, tuple(arguments)

    def point(self, pointer: int, to: Load) -> Stmt:
        """Move a pointer of a loop to an address."""
        return Point(self.pointers[const(0)], pointer, to)

    # --- steps ---

    def steps(self, steps: Iterable[Step]) -> Stmt:
        """Steps as statements in order."""
        return seq(*map(self.step, steps))

    def step(self, step: Step) -> Stmt:
        """A step as a statement."""
        return self.located(lambda: self._step(step))

    def _step(self, step: Step) -> Stmt:
        n = self._counts[type(step)] = self._counts.get(type(step), -1) + 1
        match step:
            case program.KernelCall():
                return seq(self.call(step, n), self.stamp(n))
            case program.HostCall():
                return seq(self.host(step, n), self.stamp(None))
            case program.Branch():
                condition = Compare("ne", self.place(step.condition), const(0, u8))
                return If(condition, self.steps(step.then), self.steps(step.otherwise))
            case program.Copy():
                to, source = self.place(step.to), self.place(step.source)
                return CopyBytes(to, source, self.number(step.bytes))
            case program.Store():
                return _stored(self.place(step.to), map(self.number, step.numbers))
            case program.Report():
                extents = (self.number(d) for _, shape in step.shapes for d in shape)
                return _stored(self.place(Arg("output", step.to)), extents)
            case program.Measurement():
                return self.measure(step, n)
            case program.Grow():
                return self.grow(step)
            case program.Repeat():
                return self.repeat(step)
        raise InternalError(f"the main function of a CPU has no {type(step).__name__}")

    def call(self, step: program.KernelCall, number: int) -> Stmt:
        """A call of a kernel.  The kernel records its own failure, and this code adds the call's
        number.
        """
        named, arguments = self.passed((*step.args, step.workspace))
        label = ", ".join(step.sources) or step.label
        arguments = (*arguments, CONTEXT[const(0)])

        def failed(code: Var) -> Stmt:
            return seq(noted("call", number), Return(code)) if step.messages else seq()

        return _let(named, called(failed, CallFunction, step.symbol, arguments, label))

    def host(self, step: program.HostCall, number: int) -> Stmt:
        """A call of a function of the host."""
        named, arguments = self.passed(step.arguments)
        label = step.label or step.operator or step.function
        failed = failure(Code.HOST, number, ())
        fields = number, CONTEXT[const(0)], arguments, label
        return _let(named, called(lambda code: failed, CallHost, *fields))

    def measure(self, step: program.Measurement, number: int) -> Stmt:
        """Check and store the extents of a measurement; compute the sizes that depend on them."""
        extents = Buffer("extents", i64, (len(step.extents),), "heap")
        stmts: list[Stmt] = []
        for i, e in enumerate(step.extents):
            extent, low, high = extents[const(i)], const(e.low), self.number(e.high)
            wrong = Binary("or", extent < low, extent > high)
            stmts.append(If(wrong, failure(Code.EXTENT, number, (const(i), extent, low, high))))
            stmts.append(Store(self.measured, (const(step.first + i),), extent))
        failed = failure(Code.EXTENT, number, ())
        places = self.measured[const(0)], self.values[const(0)]
        sizes = called(lambda code: failed, CallFunction, step.sizes, places, "")
        return seq(Reinterpret(extents, self.place(step.source), seq(*stmts)), sizes)

    def taken(self, table: Buffer, number: int, slot: Expr, size: Expr, keep: Expr) -> Stmt:
        """Request memory for a slot from the context, and store the address in a table.

        keep: number of bytes at the beginning whose contents stay.
        """
        bytes_, turn = Var("bytes"), Var("slot")
        failed = failure(Code.GROWTH, 0, (bytes_, turn))
        fields = table[const(0)], number, CONTEXT[const(0)], turn, bytes_, keep
        return _let({bytes_: size, turn: slot}, unless_there(failed, Grow, *fields))

    def grow(self, step: program.Grow) -> Stmt:
        """Grow the memory of a slot, of a loop's target, or of the threads' scratch memory."""
        size, slot = self.number(step.bytes), const(step.slot)
        if step.target is not None:
            return self.taken(self.pointers, step.target, self._turns[step.target], size, const(0))
        if not step.for_threads:
            return self.taken(self.slots, step.slot, slot, size, self.number(step.keep))
        each = Buffer("scratch_bytes", i64, (1,), "heap")
        threads = Buffer("threads", i64, (1,), "heap")
        all_bytes = Select(size > _HUGE, const(1 << 62), size * threads[const(0)])
        more = self.taken(self.slots, step.slot, slot, all_bytes, const(0))
        longer = seq(
            Reinterpret(threads, field("threads"), more),
            self.located(lambda: Point(field("scratch"), 0, self.place(arena_of(step.slot)))),
            Store(each, (const(0),), size),
        )
        return Reinterpret(each, field("scratch_bytes"), If(each[const(0)] < size, longer))

    # --- loops ---

    def repeat(self, step: program.Repeat) -> Stmt:
        """A loop.  Its iteration counter, its condition and its pointers are in memory."""
        done, go = Buffer("done", i64, (1,), "stack"), Buffer("go", u8, (1,), "stack")
        i, count = Var("i"), Var("count")
        rooms, others = [done], dict[int, int]()
        before: list[Stmt] = [Store(done, (const(0),), const(0))]
        more = Compare("lt", done[const(0)], count)
        if step.first is not None:
            rooms.append(go)
            before.append(Store(go, (const(0),), self.place(step.first)))
            more = Binary("and", more, Compare("ne", go[const(0)], const(0, u8)))
        for c in step.carried:
            before.append(self.point(c.pointer, self.place(c.first)))
            if c.target is not None and c.slot is not None:
                turn = Buffer("turn", i64, (1,), "stack")
                rooms.append(turn)
                self._turns[c.target] = turn[const(0)]
                before.append(Store(turn, (const(0),), const(c.slot)))
            elif c.target is not None and c.end is not None and c.other is not None:
                others[c.target], self._others = self._others, self._others + 1
                turns = [self.place(c.end), self.place(c.other)]
                if step.is_even:
                    turns.reverse()  # in this order the last iteration writes to `end`
                before += map(self.point, (c.target, others[c.target]), turns)
        inside = [self.slice(s, i, count) for s in step.slices]
        if step.number is not None:
            number = step.number
            inside.append(self.located(lambda: _stored(self.place(number), [i])))
        inside += [self.steps(step.body), self.located(lambda: self.next(step, go, others))]
        inside.append(Store(done, (const(0),), i + 1))
        loop: list[Stmt] = [*before, While(more, LetStmt(i, done[const(0)], seq(*inside)))]
        if step.ran is not None:
            ran = step.ran
            loop.append(self.located(lambda: _stored(self.place(ran), [done[const(0)]])))
        loop += (
            self.step(program.Copy(Arg("pointer", c.pointer), c.end, c.bytes))
            for c in step.carried
            if c.end is not None and c.bytes is not None
        )
        body = seq(*loop)
        if isinstance(step.count, int) or step.count.kind == "extent":
            body = LetStmt(count, self.number(step.count), body)
        else:
            words = Buffer("count", i64, (1,), "heap")
            body = LetStmt(count, words[const(0)], body)
            body = Reinterpret(words, self.place(step.count), body)
        for room in rooms:
            body = Allocate(room, body)
        return body

    def slice(self, s: program.Slice, i: Var, count: Var) -> Stmt:
        """Move a pointer to the element of iteration `i`.  If a slot holds the elements, the slot
        first grows to hold this one.
        """
        stride = self.number(s.stride)
        if s.slot is None:
            base = self.place(s.first)
            distance = (count - 1 - i if s.backward else i) * stride
            return self.point(s.pointer, Load(base.buffer, (base.indices[0] + distance,)))
        slot, place = s.slot, i * stride
        longer = self.taken(self.slots, slot, const(slot), (i + 1) * stride, place)
        memory = arena_of(slot)

        def moved() -> Stmt:
            return self.point(s.pointer, Load(self.place(memory).buffer, (place,)))

        return seq(longer, self.located(moved))

    def next(self, step: program.Repeat, go: Buffer, others: Mapping[int, int]) -> Stmt:
        """Store the condition of the next iteration, and move all pointers together."""
        stmts: list[Stmt] = []
        if step.again is not None and step.first is not None:
            stmts.append(Store(go, (const(0),), self.place(step.again)))
        for c in step.carried:
            stmts.append(self.point(c.pointer, self.place(c.following)))
            if c.target is None:
                continue
            if c.slot is not None:
                turn = self._turns[c.target]
                assert isinstance(turn.buffer, Buffer)
                stmts.append(Store(turn.buffer, turn.indices, const(2 * c.slot + 1) - turn))
            elif c.target in others:
                one, other = c.target, others[c.target]
                first, second = self.place(Arg("pointer", one)), self.place(Arg("pointer", other))
                stmts += self.point(one, second), self.point(other, first)
        return seq(*stmts)

    # --- times ---

    def stamp(self, call: int | None) -> Stmt:
        """Read the clock.  If `call` is not None, add the time since the previous reading to the
        time of `call`, and 1 to its count.
        """
        if self.clock is None or self._clocks is None:
            return seq()
        times, now, last = self._clocks
        t = Var("t")
        stmts: list[Stmt] = []
        if call is not None:
            for word, more in ((2 * call, t - last[const(0)]), (2 * call + 1, const(1))):
                stmts.append(Store(times, (const(word),), times[const(word)] + more))
        stmts.append(Store(last, (const(0),), t))
        nanoseconds = now[const(0)] * 1_000_000_000 + now[const(1)]
        arguments = const(self.clock[1], i32), now[const(0)]
        return seq(
            called(lambda code: seq(), CallFunction, "clock_gettime", arguments, ""),
            LetStmt(t, nanoseconds, seq(*stmts)),
        )


def arena_of(slot: int) -> Arg:
    """The argument for the memory of a slot."""
    return Arg("arena", 0, slot=slot)


def called(failed: Callable[[Var], Stmt], kind: Callable[..., Stmt], *fields: Any) -> Stmt:
    """A call of other code.  The statements `failed` run if the call returns a failure's code."""
    code = Var("code", i32)
    then = failed(code)
    is_fine = isinstance(then, Seq) and not then.stmts
    return kind(code, *fields, then if is_fine else If(Compare("ne", code, const(0, i32)), then))


def unless_there(failed: Stmt, kind: Callable[..., Stmt], *fields: Any) -> Stmt:
    """A statement that tests whether an address is there.  If not, the statements `failed` run."""
    there = Var("there", bool_)
    return kind(there, *fields, If(Unary("not", there), failed))


def _let(named: Mapping[Var, Expr], body: Stmt) -> Stmt:
    for var, value in reversed(list(named.items())):
        body = LetStmt(var, value, body)
    return body


def _stored(to: Load, numbers: Iterable[Expr]) -> Stmt:
    """Store numbers as consecutive i64."""
    values = tuple(numbers)
    words = Buffer("words", i64, (len(values),), "heap")
    stores = (Store(words, (const(i),), n) for i, n in enumerate(values))
    return Reinterpret(words, to, seq(*stores))


def failure(code: Code, call: int, values: Sequence[Expr]) -> Stmt:
    """Record a failure in the context and return from the function."""
    stmts = [noted("code", code), noted("call", call), noted("count", len(values))]
    if values:
        words = Buffer("failure_values", i64, (len(values),), "heap")
        stores = (Store(words, (const(i),), v) for i, v in enumerate(values))
        stmts.append(Reinterpret(words, field("failure_values"), seq(*stores)))
    return seq(*stmts, Return(const(code, i32)))


def noted(name: str, value: int) -> Stmt:
    """Store one number of a failure in the context."""
    word = (BY_NAME[f"failure_{name}"].offset - BY_NAME["failure_code"].offset) // i32.bytes
    return Store(FAILURE, (const(word),), const(value, i32))


def field(name: str) -> Load:
    """The first byte of a field of the context."""
    return CONTEXT[const(BY_NAME[name].offset)]
