"""The native main function of a program: its kernels in order, in one call.

    i32 @tilesmith_main(ptr context)

It checks that the context fits, runs the kernels, and returns the code of the first failure, which
is recorded in the context (see `runtime/csrc/tilesmith.h`).  If some sizes are known to a run only,
it first computes them (see `codegen.sizes`), those that depend on data as soon as these are there.
Extents and sizes lie in two arrays of its own.  Branches and loops (see `program.nodes`) are those
of the function itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func, Seq
from tilesmith.loop.passes.workspace import plan_workspace
from tilesmith.program import nodes as kinds
from tilesmith.program.functions import ARENA, ENTRY, SCRATCH, SIZES
from tilesmith.program.nodes import Arg, Step
from tilesmith.program.visit import (
    args_of,
    host_calls_of,
    measurements_of,
    slots_of,
    steps_in,
)

from .context import Code, address
from .emit import declarations
from .entry_checks import check_memory, checks, compute_sizes, find_host, load
from .entry_writer import Writer
from .hooks import Hooks
from .lower_steps import CONTEXT, FAILURE, MEASURED, VALUES, Unlowered, lower_step
from .module import Module
from .statements import Statements
from .survey import Survey


def emit_entry(
    steps: Sequence[Step],
    target: Target,
    symbol: str = ENTRY,
    times: int | None = None,
    clock: int = 0,
    *,
    arena_bytes: int = 0,
    scratch_bytes: int = 0,
    sizes: int = 0,
) -> str:
    """LLVM text of the main function for `steps` on `target`.

    times: number of the output, two i64 for each call, to which the nanoseconds of the call by the
        C library's clock number `clock` and the number of its runs are added; None for no times.
    arena_bytes: bytes of the arena that the steps need.
    scratch_bytes: bytes of scratch memory that each thread needs.
    sizes: number of values that `codegen.sizes` computes, of which the first are those bytes
        instead; 0 if all sizes are numbers.
    """
    measured = list(measurements_of(steps))
    known = min((m.first for m in measured), default=-1)  # extents of the inputs
    used = {(a.kind, a.index) for a in args_of(steps)}
    written = (s.to for s in steps_in(steps) if isinstance(s, kinds.Report))
    used |= {("output", i) for i in written}
    grown = (s.target for s in steps_in(steps) if isinstance(s, kinds.Grow))
    targets = frozenset(t for t in grown if t is not None)
    writer = _Writer(symbol, target, clock if times is not None else None, targets)
    if times is not None:
        writer.write("%now = alloca [2 x i64]", "%last = alloca i64")
    rooms = {
        "values": (sizes, "i64"),
        "measured": (max((m.first + len(m.extents) for m in measured), default=0), "i64"),
        "slots": (slots_of(steps), "ptr"),
    }
    for name, (count, type_) in rooms.items():
        if count:
            writer.write(f"%{name} = alloca [{count} x {type_}], align 8")
    writer.write(*(f"%target{t} = alloca ptr, align 8" for t in sorted(targets)))
    writer.write(*checks())
    needed = {"arena_bytes": str(arena_bytes), "scratch_bytes": str(scratch_bytes)}
    most = max((len(c.arguments) for c in host_calls_of(steps)), default=0)
    if most:
        writer.write(*find_host(most))
    if sizes and known != 0:
        writer.write(*compute_sizes())
        needed = {"arena_bytes": writer.value(ARENA), "scratch_bytes": writer.value(SCRATCH)}
    if known > 0:
        operands = f"ptr %measured, ptr %extents, i64 {8 * known}, i1 false"
        writer.write(f"call void @llvm.memcpy.p0.p0.i64({operands})")
    if slots_of(steps):
        writer.begin_slots()
    for name, least in needed.items():
        writer.write(*(check_memory(name, least) if least != "0" else []))
    for name in ("inputs", "outputs", "constants", "arena"):
        writer.write(*load(name))
    for kind in ("input", "output"):
        for i in sorted(i for k, i in used if k == kind):
            writer.write(f"%{kind}.p{i} = getelementptr ptr, ptr %{kind}s, i64 {i}")
            writer.write(f"%{kind}{i} = load ptr, ptr %{kind}.p{i}, align 8")
    if times is not None:
        writer.write(f"%times.p = getelementptr ptr, ptr %outputs, i64 {times}")
        writer.write("%times = load ptr, ptr %times.p, align 8")
    writer.stamp(None)
    writer.steps(steps)
    lines = [f"define i32 @{symbol}(ptr %context) nounwind {{", "entry:"]
    lines += [*writer.b.scope.code.lines, "  ret i32 0", "}", ""]
    lines += declarations(writer.statements.module)
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    if times is not None:
        lines.append("declare i32 @clock_gettime(i32, ptr)")
    if sizes and known != 0:
        lines.append(f"declare i32 @{SIZES}(ptr, ptr)")
    return "\n".join(lines) + "\n"


class _Writer(Writer):
    """Appends steps; calls and measurements are numbered in order."""

    def __init__(
        self, symbol: str, target: Target, clock: int | None, targets: frozenset[int]
    ) -> None:
        nothing = plan_workspace(Func(symbol, (), (), Seq(())))
        self.survey = Survey({VALUES, MEASURED, CONTEXT, FAILURE})
        hooks = Hooks({Unlowered: lambda statements, s: self.step(s.step)})
        module = Module(symbol, target, self.survey, nothing, frozenset())
        super().__init__(Statements(module, hooks), clock, targets)
        pointers = {
            VALUES: "%values",
            MEASURED: "%measured",
            CONTEXT: "%context",
            FAILURE: "%code.p",
        }
        self.statements.env.pointers |= pointers
        self.call = 0
        self.host_call = 0
        self.measurement = 0

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case kinds.KernelCall():
                n, self.call = self.call, self.call + 1
                self.lowered(step, n)
                self.stamp(n)
            case kinds.HostCall():
                self.host(step)
            case kinds.Repeat():
                self.repeat(step)
            case kinds.Grow():
                self.grow(step)
            case kinds.Measurement():
                n, self.measurement = self.measurement, self.measurement + 1
                self.lowered(step, n)
            case _:
                self.lowered(step)

    def lowered(self, step: Step, number: int = 0) -> None:
        """Write a step as statements of loop IR."""
        lowered = lower_step(step, number)
        self.survey.written |= lowered.memory.keys()
        self.survey.statement(lowered.stmt)
        self.statements.env.pointers |= {b: self.base(arg) for b, arg in lowered.memory.items()}
        self.statements.statement(lowered.stmt)

    def host(self, call: kinds.HostCall) -> None:
        n, self.host_call = self.host_call, self.host_call + 1
        for i, a in enumerate(call.arguments):
            slot = self.new(f"getelementptr ptr, ptr %host.args, i64 {i}")
            self.write(f"store {self.operand(a)}, ptr {slot}")
        operands = f"ptr %host_data, i64 {n}, ptr %host.args, i64 {len(call.arguments)}"
        status = self.new(f"call i32 %host({operands})")
        self.stamp(None)
        failed = self.new(f"icmp ne i32 {status}, 0")
        code, number = self.new(address("failure_code")), self.new(address("failure_call"))
        self.write(
            f"br i1 {failed}, label %host{n}.failed, label %host{n}.done",
            f"host{n}.failed:",
            f"store i32 {Code.HOST:d}, ptr {code}",
            f"store i32 {n}, ptr {number}",
            f"ret i32 {Code.HOST:d}",
            f"host{n}.done:",
        )

    def repeat(self, step: kinds.Repeat) -> None:
        label = self.b.label("b")
        before, latch = f"%{label}.before", f"%{label}.latch"
        self.write(f"br label {before}", f"{before[1:]}:")
        if isinstance(step.count, Arg) and step.count.kind != "extent":
            count = self.new(f"load i64, ptr {self.place(step.count)}, align 8")
        else:
            count = self.number(step.count)
        starts = [self.place(c.first) for c in step.carried]
        turning: list[tuple[str, str, str] | None] = []  # a type, and two values that alternate
        for c in step.carried:
            turns = None
            if c.slot is not None:
                turns = ("i64", f"{c.slot}", f"{c.slot + 1}")
            elif c.end is not None and c.other is not None:
                turns = ("ptr", self.place(c.end), self.place(c.other))
                if step.is_even:
                    turns = (turns[0], turns[2], turns[1])  # the last iteration writes to its end
            turning.append(turns)
        bases = ["" if s.slot is not None else self.place(s.first) for s in step.slices]
        going = self.truth(step.first) if step.first is not None else ""
        self.write(f"br label %{label}.head", f"{label}.head:")
        i, following = f"%{label}.i", f"%{label}.next"
        self.write(f"{i} = phi i64 [ 0, {before} ], [ {following}, {latch} ]")
        for c, start, turns in zip(step.carried, starts, turning, strict=True):
            p = f"%pointer{c.pointer}"
            self.write(f"{p} = phi ptr [ {start}, {before} ], [ {p}.next, {latch} ]")
            if turns is not None:
                t, (type_, first, _) = self.turn(c), turns
                self.write(f"{t} = phi {type_} [ {first}, {before} ], [ {t}.next, {latch} ]")
        if going:
            self.write(f"%{label}.go = phi i1 [ {going}, {before} ], [ %{label}.again, {latch} ]")
        more = self.new(f"icmp slt i64 {i}, {count}")
        if going:
            more = self.new(f"and i1 {more}, %{label}.go")
        self.write(f"br i1 {more}, label %{label}.body, label %{label}.done", f"{label}.body:")
        self.write(f"{following} = add i64 {i}, 1")
        for s, base in zip(step.slices, bases, strict=True):
            if s.slot is not None:
                self.lengthen(s, i, following)
                continue
            turn = self.new(f"sub i64 {count}, {following}") if s.backward else i
            distance = self.new(f"mul i64 {turn}, {self.number(s.stride)}")
            self.write(f"%pointer{s.pointer} = getelementptr i8, ptr {base}, i64 {distance}")
        if step.number is not None:
            self.write(f"store i64 {i}, ptr {self.place(step.number)}")
        with self.b.nested():  # values computed inside are not available after the loop
            self.steps(step.body)
        self.write(f"br label {latch}", f"{latch[1:]}:")
        for c, turns in zip(step.carried, turning, strict=True):
            source = self.place(c.following)
            self.write(f"%pointer{c.pointer}.next = getelementptr i8, ptr {source}, i64 0")
            if turns is not None:
                t, (type_, first, second) = self.turn(c), turns
                is_first = self.new(f"icmp eq {type_} {t}, {first}")
                self.write(f"{t}.next = select i1 {is_first}, {type_} {second}, {type_} {first}")
        if step.again is not None:
            byte = self.new(f"load i8, ptr {self.place(step.again)}")
            self.write(f"%{label}.again = icmp ne i8 {byte}, 0")
        self.write(f"br label %{label}.head", f"{label}.done:")
        if step.ran is not None:
            self.write(f"store i64 {i}, ptr {self.place(step.ran)}, align 8")
        for c in step.carried:
            if c.end is not None and c.bytes is not None:
                self.lowered(kinds.Copy(Arg("pointer", c.pointer), c.end, c.bytes))

    def turn(self, c: kinds.Carried) -> str:
        """The one of two buffers or two slots that an iteration may write to."""
        return f"%pointer{c.target}" if c.slot is None else f"%turn{c.target}"

    def lengthen(self, s: kinds.Slice, iteration: str, following: str) -> None:
        """Memory for one more element after those of earlier iterations."""
        stride, slot = self.number(s.stride), str(s.slot)
        had = self.new(f"mul i64 {iteration}, {stride}")
        base = self.take(slot, self.new(f"mul i64 {following}, {stride}"), had)
        self.write(f"%pointer{s.pointer} = getelementptr i8, ptr {base}, i64 {had}")

    def grow(self, step: kinds.Grow) -> None:
        size, slot = self.number(step.bytes), str(step.slot)
        if step.target is not None:
            memory = self.taken(f"%turn{step.target}", size)
            self.write(f"store ptr {memory}, ptr %target{step.target}, align 8")
            return
        if not step.for_threads:
            self.take(slot, size, self.number(step.keep))
            return
        least = self.new(f"load i64, ptr {self.new(address('scratch_bytes'))}")
        label = self.b.label("b")
        more = self.new(f"icmp sgt i64 {size}, {least}")
        self.write(f"br i1 {more}, label %{label}.more, label %{label}.enough", f"{label}.more:")
        threads = self.new(f"load i64, ptr {self.new(address('threads'))}")
        whole = self.new(f"mul i64 {size}, {threads}")
        huge = self.new(f"icmp sgt i64 {size}, {1 << 46}")  # the product may overflow
        memory = self.take(slot, self.new(f"select i1 {huge}, i64 {1 << 62}, i64 {whole}"))
        self.write(
            f"store ptr {memory}, ptr {self.new(address('scratch'))}, align 8",
            f"store i64 {size}, ptr {self.new(address('scratch_bytes'))}, align 8",
            f"br label %{label}.enough",
            f"{label}.enough:",
        )
