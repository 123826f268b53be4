"""The native main function of a program: its kernels in order, in one call.

    i32 @tilesmith_main(ptr context)

It checks that the context fits, runs the kernels, and returns the code of the first failure, which
is recorded in the context (see `runtime/csrc/tilesmith.h`).  If some sizes are known to a run only,
it first computes them (see `codegen.sizes`), those that depend on data as soon as these are there.
Extents and sizes lie in two arrays of its own.  Branches and loops (see `codegen.steps`) are those
of the function itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from .context import Code, address
from .entry_checks import check_memory, checks, compute_sizes, declarations, find_host, load
from .sizes import ARENA, SCRATCH, SIZES
from .steps import (
    Arg,
    Branch,
    Copy,
    Grow,
    HostCall,
    KernelCall,
    Measurement,
    Repeat,
    Report,
    Step,
    args_of,
    calls_of,
    host_calls_of,
    measurements_of,
    slots_of,
)

ENTRY = "tilesmith_main"


def emit_entry(
    steps: Sequence[Step],
    symbol: str = ENTRY,
    times: int | None = None,
    clock: int = 0,
    *,
    arena_bytes: int = 0,
    scratch_bytes: int = 0,
    sizes: int = 0,
) -> str:
    """LLVM text of the main function for `steps`.

    times: number of the output, two i64 for each call, to which its nanoseconds by the C library's
        clock number `clock` and the number of its runs are added; None for no times.
    arena_bytes: bytes of the arena that the steps need.
    scratch_bytes: bytes of scratch memory that each thread needs.
    sizes: how many values `codegen.sizes` computes, of which the first then say how many bytes are
        needed; 0 if all sizes are numbers.
    """
    calls = list(calls_of(steps))
    measured = list(measurements_of(steps))
    known = min((m.first for m in measured), default=-1)  # extents of the inputs
    used = {(a.kind, a.index) for a in args_of(steps)}
    lines = [f"define i32 @{symbol}(ptr %context) nounwind {{", "entry:"]
    if times is not None:
        lines += ["  %now = alloca [2 x i64]", "  %last = alloca i64"]
    rooms = {
        "values": (sizes, "i64"),
        "measured": (max((m.first + len(m.extents) for m in measured), default=0), "i64"),
        "slots": (slots_of(steps), "ptr"),
    }
    for name, (count, type_) in rooms.items():
        lines += [f"  %{name} = alloca [{count} x {type_}], align 8"] if count else []
    lines += checks()
    needed = {"arena_bytes": str(arena_bytes), "scratch_bytes": str(scratch_bytes)}
    most = max((len(c.arguments) for c in host_calls_of(steps)), default=0)
    if most:
        lines += find_host(most)
    writer = _Writer(lines, clock if times is not None else None)
    if sizes and known != 0:
        lines += compute_sizes()
        needed = {"arena_bytes": writer.value(ARENA), "scratch_bytes": writer.value(SCRATCH)}
    if known > 0:
        given = f"ptr %measured, ptr %extents, i64 {8 * known}, i1 false"
        writer.write(f"call void @llvm.memcpy.p0.p0.i64({given})")
    if slots_of(steps):
        writer.begin_slots()
    for name, least in needed.items():
        lines += check_memory(name, least) if least != "0" else []
    for name in ("inputs", "outputs", "constants", "arena"):
        lines += load(name)
    for kind in ("input", "output"):
        for i in sorted(i for k, i in used if k == kind):
            lines.append(f"  %{kind}.p{i} = getelementptr ptr, ptr %{kind}s, i64 {i}")
            lines.append(f"  %{kind}{i} = load ptr, ptr %{kind}.p{i}, align 8")
    if times is not None:
        lines.append(f"  %times.p = getelementptr ptr, ptr %outputs, i64 {times}")
        lines.append("  %times = load ptr, ptr %times.p, align 8")
    writer.stamp(None)
    writer.steps(steps)
    lines += ["  ret i32 0", "}", "", *declarations(calls)]
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    if times is not None:
        lines.append("declare i32 @clock_gettime(i32, ptr)")
    functions = [SIZES] if sizes and known != 0 else []
    for name in dict.fromkeys([*functions, *(m.sizes for m in measured)]):
        lines.append(f"declare i32 @{name}(ptr, ptr)")
    return "\n".join(lines) + "\n"


class _Writer:
    """Appends steps to `lines`.  Calls are numbered in order, and all other values too.

    clock: number of the clock to read after each call; None for no times.
    """

    def __init__(self, lines: list[str], clock: int | None) -> None:
        self.lines = lines
        self.clock = clock
        self.call = 0
        self.host_call = 0
        self.measurement = 0
        self.count = 0
        self.values: dict[int, str] = {}  # the values of sizes that were read already

    def new(self, text: str) -> str:
        """A value of its own for an instruction."""
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def write(self, *lines: str) -> None:
        """Instructions; labels end in a colon."""
        self.lines += (line if line.endswith(":") else f"  {line}" for line in lines)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case KernelCall():
                    self.kernel(step)
                case HostCall():
                    self.host(step)
                case Copy():
                    self.copy(self.place(step.source), self.place(step.to), self.number(step.bytes))
                case Branch():
                    self.branch(step)
                case Repeat():
                    self.repeat(step)
                case Measurement():
                    self.measure(step)
                case Grow():
                    self.grow(step)
                case Report():
                    self.report(step)

    def inside(self, steps: Sequence[Step]) -> None:
        """Steps that may not run: what they read first, others read anew."""
        before = dict(self.values)
        self.steps(steps)
        self.values = before

    def value(self, number: int) -> str:
        """A value of the sizes."""
        if number not in self.values:
            at = self.new(f"getelementptr i64, ptr %values, i64 {number}")
            self.values[number] = self.new(f"load i64, ptr {at}, align 8")
        return self.values[number]

    def number(self, size: int | Arg) -> str:
        return self.value(size.index) if isinstance(size, Arg) else str(size)

    def place(self, arg: Arg) -> str:
        """The address of an argument that is memory."""
        if arg.kind in ("input", "output", "pointer"):
            base = f"%{arg.kind}{arg.index}"
            if not arg.offset:
                return base
            return self.new(f"getelementptr i8, ptr {base}, i64 {arg.offset}")
        base = "%constants" if arg.kind == "constant" else "%arena"
        if arg.slot is not None:
            base = self.new(f"load ptr, ptr {self.slot(arg.slot)}, align 8")
        if arg.kind != "place":
            return self.new(f"getelementptr i8, ptr {base}, i64 {arg.index}")
        at = self.new(f"getelementptr i8, ptr {base}, i64 {self.value(arg.index)}")
        return self.new(f"getelementptr i8, ptr {at}, i64 {arg.offset}") if arg.offset else at

    def operand(self, arg: Arg) -> str:
        if arg.kind == "scalar":
            return f"i64 {arg.index}"
        if arg.kind == "extent":
            return f"i64 {self.value(arg.index)}"
        return f"ptr {self.place(arg)}"

    def kernel(self, call: KernelCall) -> None:
        n, self.call = self.call, self.call + 1
        operands = [self.operand(a) for a in (*call.args, call.workspace)]
        run = f"call i32 @{call.symbol}({', '.join([*operands, 'ptr %context'])})"
        if not call.messages:  # it can't fail
            self.write(run)
            self.stamp(n)
            return
        status = self.new(run)
        self.stamp(n)
        failed = self.new(f"icmp ne i32 {status}, 0")
        at = self.new(address("failure_call"))
        self.write(
            f"br i1 {failed}, label %fail{n}, label %ok{n}",
            f"fail{n}:",
            f"store i32 {n}, ptr {at}",
            f"ret i32 {status}",
            f"ok{n}:",
        )

    def host(self, call: HostCall) -> None:
        n, self.host_call = self.host_call, self.host_call + 1
        for i, a in enumerate(call.arguments):
            at = self.new(f"getelementptr ptr, ptr %host.args, i64 {i}")
            self.write(f"store {self.operand(a)}, ptr {at}")
        given = f"ptr %host_data, i64 {n}, ptr %host.args, i64 {len(call.arguments)}"
        status = self.new(f"call i32 %host({given})")
        self.stamp(None)
        failed = self.new(f"icmp ne i32 {status}, 0")
        code, at = self.new(address("failure_code")), self.new(address("failure_call"))
        self.write(
            f"br i1 {failed}, label %host{n}.failed, label %host{n}.done",
            f"host{n}.failed:",
            f"store i32 {Code.HOST:d}, ptr {code}",
            f"store i32 {n}, ptr {at}",
            f"ret i32 {Code.HOST:d}",
            f"host{n}.done:",
        )

    def copy(self, source: str, to: str, size: str) -> None:
        given = f"ptr {to}, ptr {source}, i64 {size}, i1 false"
        self.write(f"call void @llvm.memcpy.p0.p0.i64({given})")

    def truth(self, condition: Arg) -> str:
        byte = self.new(f"load i8, ptr {self.place(condition)}")
        return self.new(f"icmp ne i8 {byte}, 0")

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def branch(self, step: Branch) -> None:
        label = self.label()
        condition = self.truth(step.condition)
        self.write(f"br i1 {condition}, label %{label}.then, label %{label}.else")
        for name, steps in (("then", step.then), ("else", step.otherwise)):
            self.write(f"{label}.{name}:")
            self.inside(steps)
            self.write(f"br label %{label}.end")
        self.write(f"{label}.end:")

    def repeat(self, step: Repeat) -> None:
        label = self.label()
        before, latch = f"%{label}.before", f"%{label}.latch"
        self.write(f"br label {before}", f"{before[1:]}:")
        if isinstance(step.count, Arg) and step.count.kind != "extent":
            count = self.new(f"load i64, ptr {self.place(step.count)}, align 8")
        else:
            count = self.number(step.count)
        starts = [self.place(c.first) for c in step.carried]
        memory = [
            None if c.other is None else (self.place(c.end), self.place(c.other))
            for c in step.carried
        ]
        if step.is_even:
            memory = [m and (m[1], m[0]) for m in memory]  # the last one is written to its end
        bases = [self.place(s.first) for s in step.slices]
        going = self.truth(step.first) if step.first is not None else ""
        self.write(f"br label %{label}.head", f"{label}.head:")
        i, following = f"%{label}.i", f"%{label}.next"
        self.write(f"{i} = phi i64 [ 0, {before} ], [ {following}, {latch} ]")
        for c, start, turns in zip(step.carried, starts, memory, strict=True):
            p = f"%pointer{c.pointer}"
            self.write(f"{p} = phi ptr [ {start}, {before} ], [ {p}.next, {latch} ]")
            if turns is not None:
                t = f"%pointer{c.target}"
                self.write(f"{t} = phi ptr [ {turns[0]}, {before} ], [ {t}.next, {latch} ]")
        if going:
            self.write(f"%{label}.go = phi i1 [ {going}, {before} ], [ %{label}.again, {latch} ]")
        more = self.new(f"icmp slt i64 {i}, {count}")
        if going:
            more = self.new(f"and i1 {more}, %{label}.go")
        self.write(f"br i1 {more}, label %{label}.body, label %{label}.done", f"{label}.body:")
        before = dict(self.values)
        self.write(f"{following} = add i64 {i}, 1")
        for s, base in zip(step.slices, bases, strict=True):
            at = self.new(f"sub i64 {count}, {following}") if s.backward else i
            distance = self.new(f"mul i64 {at}, {self.number(s.stride)}")
            self.write(f"%pointer{s.pointer} = getelementptr i8, ptr {base}, i64 {distance}")
        if step.number is not None:
            self.write(f"store i64 {i}, ptr {self.place(step.number)}")
        self.steps(step.body)
        self.write(f"br label {latch}", f"{latch[1:]}:")
        for c, turns in zip(step.carried, memory, strict=True):
            at = self.place(c.following)
            self.write(f"%pointer{c.pointer}.next = getelementptr i8, ptr {at}, i64 0")
            if turns is not None:
                t = f"%pointer{c.target}"
                is_first = self.new(f"icmp eq ptr {t}, {turns[0]}")
                self.write(f"{t}.next = select i1 {is_first}, ptr {turns[1]}, ptr {turns[0]}")
        if step.again is not None:
            byte = self.new(f"load i8, ptr {self.place(step.again)}")
            self.write(f"%{label}.again = icmp ne i8 {byte}, 0")
        self.write(f"br label %{label}.head", f"{label}.done:")
        self.values = before
        for c in step.carried:
            self.settle(f"%pointer{c.pointer}", self.place(c.end), c.bytes)

    def settle(self, at: str, end: str, size: int | Arg) -> None:
        """Bring a value to its end, unless it is there."""
        label = self.label()
        there = self.new(f"icmp eq ptr {at}, {end}")
        number = self.number(size)
        self.write(f"br i1 {there}, label %{label}.there, label %{label}.copy", f"{label}.copy:")
        self.copy(at, end, number)
        self.write(f"br label %{label}.there", f"{label}.there:")

    def begin_slots(self) -> None:
        """Leave if there is nobody to ask for memory."""
        self.lines += [*load("grow"), *load("memory")]
        self.leave_if(self.new("icmp eq ptr %grow, null"), Code.GROWTH, 0, ("0", "0"))

    def slot(self, number: int) -> str:
        return self.new(f"getelementptr ptr, ptr %slots, i64 {number}")

    def leave_if(self, wrong: str, code: Code, call: int, values: Sequence[str]) -> None:
        """Return with a failure."""
        label = self.label()
        self.write(f"br i1 {wrong}, label %{label}.fail, label %{label}.ok", f"{label}.fail:")
        fields = {"failure_code": f"{code:d}", "failure_call": str(call)}
        for name, value in {**fields, "failure_count": str(len(values))}.items():
            self.write(f"store i32 {value}, ptr {self.new(address(name))}")
        for i, value in enumerate(values):
            self.write(f"store i64 {value}, ptr {self.new(address('failure_values', i))}")
        self.write(f"ret i32 {code:d}", f"{label}.ok:")

    def measure(self, step: Measurement) -> None:
        n, self.measurement = self.measurement, self.measurement + 1
        source = self.place(step.source)
        for i, e in enumerate(step.extents):
            at = self.new(f"getelementptr i64, ptr {source}, i64 {i}")
            found = self.new(f"load i64, ptr {at}, align 8")
            high = self.number(e.high)
            less = self.new(f"icmp slt i64 {found}, {e.low}")
            more = self.new(f"icmp sgt i64 {found}, {high}")
            wrong = self.new(f"or i1 {less}, {more}")
            self.leave_if(wrong, Code.EXTENT, n, (str(i), found, str(e.low), high))
            to = self.new(f"getelementptr i64, ptr %measured, i64 {step.first + i}")
            self.write(f"store i64 {found}, ptr {to}, align 8")
        code = self.new(f"call i32 @{step.sizes}(ptr %measured, ptr %values)")
        self.leave_if(self.new(f"icmp ne i32 {code}, 0"), Code.EXTENT, n, ())

    def grow(self, step: Grow) -> None:
        size, slot = self.number(step.bytes), str(step.slot)
        if not step.for_threads:
            self.take(slot, size)
            return
        least = self.new(f"load i64, ptr {self.new(address('scratch_bytes'))}")
        label = self.label()
        more = self.new(f"icmp sgt i64 {size}, {least}")
        self.write(f"br i1 {more}, label %{label}.more, label %{label}.enough", f"{label}.more:")
        threads = self.new(f"load i64, ptr {self.new(address('threads'))}")
        whole = self.new(f"mul i64 {size}, {threads}")
        huge = self.new(f"icmp sgt i64 {size}, {1 << 46}")  # the product may not fit
        given = self.take(slot, self.new(f"select i1 {huge}, i64 {1 << 62}, i64 {whole}"))
        self.write(
            f"store ptr {given}, ptr {self.new(address('scratch'))}, align 8",
            f"store i64 {size}, ptr {self.new(address('scratch_bytes'))}, align 8",
            f"br label %{label}.enough",
            f"{label}.enough:",
        )

    def take(self, slot: str, size: str) -> str:
        """The memory that the context has for a slot."""
        given = self.new(f"call ptr %grow(ptr %memory, i64 {slot}, i64 {size}, i64 0)")
        self.leave_if(self.new(f"icmp eq ptr {given}, null"), Code.GROWTH, 0, (size, slot))
        self.write(f"store ptr {given}, ptr {self.slot(int(slot))}, align 8")
        return given

    def report(self, step: Report) -> None:
        at = self.new(f"getelementptr ptr, ptr %outputs, i64 {step.to}")
        to = self.new(f"load ptr, ptr {at}, align 8")
        for i, extent in enumerate(d for _, shape in step.shapes for d in shape):
            at = self.new(f"getelementptr i64, ptr {to}, i64 {i}")
            self.write(f"store i64 {self.number(extent)}, ptr {at}, align 8")

    def stamp(self, call: int | None) -> None:
        """Add the time since the last stamp to that of a call, if any."""
        if self.clock is None:
            return
        self.write(f"call i32 @clock_gettime(i32 {self.clock}, ptr %now)")
        seconds = self.new("load i64, ptr %now, align 8")
        rest = self.new("getelementptr i8, ptr %now, i64 8")
        nanoseconds = self.new(f"load i64, ptr {rest}, align 8")
        scaled = self.new(f"mul i64 {seconds}, 1000000000")
        now = self.new(f"add i64 {scaled}, {nanoseconds}")
        if call is not None:
            last = self.new("load i64, ptr %last, align 8")
            passed = self.new(f"sub i64 {now}, {last}")
            for word, more in ((2 * call, passed), (2 * call + 1, "1")):
                at = self.new(f"getelementptr i64, ptr %times, i64 {word}")
                before = self.new(f"load i64, ptr {at}, align 8")
                total = self.new(f"add i64 {before}, {more}")
                self.write(f"store i64 {total}, ptr {at}, align 8")
        self.write(f"store i64 {now}, ptr %last, align 8")
