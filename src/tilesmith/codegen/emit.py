"""Loop IR to LLVM text.

`emit` turns a `Func` in its final stage into one LLVM module with the function

    i32 @symbol(ptr buffers..., i64 scalars..., ptr workspace, ptr rt)

which returns 0, or 1 + the number of the assertion that failed.  `workspace` is 64-byte aligned;
`rt` is the `tilesmith_rt` of `runtime/csrc/tilesmith.h`.  Buffers need only the alignment of their
elements and must not overlap where one of them is written.  A parallel loop becomes a function of
its own that the runtime calls with ranges of iterations; parallel loops inside it run serially.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby

from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.expr import Binary, Call, Const, Expr, Load, Var, const, type_text
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.loop.nodes import (
    Allocate,
    Assert,
    Buffer,
    Evaluate,
    For,
    Func,
    If,
    LetStmt,
    Seq,
    Stmt,
    Store,
)
from tilesmith.loop.passes.workspace import (
    Workspace,
    buffer_bytes,
    constant_extent,
    plan_workspace,
)
from tilesmith.support.errors import InternalError

from .builder import Code
from .emit_memory import MemoryEmitter
from .lane_loads import reach
from .llvm_text import NONTEMPORAL_NODE, memory_type, value_type
from .streaming import streamed, whole_lines
from .survey import Survey

SCRATCH_OFFSET = 16
"""Offset of `scratch` in `tilesmith_rt`."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled function as text, and what a caller must know of it.

    `workspace_bytes_shared`: bytes behind the workspace argument.  `workspace_bytes_per_thread`:
    bytes that each thread needs in the runtime's scratch.  `messages`: of the assertions, in order.
    """

    symbol: str
    llvm_text: str
    workspace_bytes_shared: int
    workspace_bytes_per_thread: int
    messages: tuple[str, ...]


@dataclass(slots=True)
class _Module:
    """What the functions of one kernel share."""

    symbol: str
    target: Target
    survey: Survey
    workspace: Workspace
    overlapping: frozenset[Buffer]
    streamed: frozenset[Buffer] = frozenset()
    functions: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    libm: set[tuple[str, str, int]] = field(default_factory=set)
    is_parallel: bool = False
    streams: bool = False


class _FuncEmitter(MemoryEmitter):
    """Statements of one LLVM function: the kernel, or a parallel loop inside it (`parent`)."""

    def __init__(self, module: _Module, parent: _FuncEmitter | None = None) -> None:
        super().__init__(module.target, frozenset(module.survey.written))
        self.may_stop = module.survey.asserts
        self.module = module
        self.parent = parent
        self.captures: list[
            tuple[str, str, str]
        ] = []  # (type and attributes, text outside, name here)
        self.scratch = ""
        self._rules_of_statements = {
            For: self._for,
            If: self._if,
            Store: self._store,
            Allocate: self._allocate,
            LetStmt: self._let_statement,
            Seq: self._seq,
            Evaluate: self._evaluate,
            Assert: self._assert,
        }

    def statement(self, s: Stmt) -> None:
        self.scope.fleeting.clear()
        self._rules_of_statements[type(s)](s)

    # what the body of a parallel loop takes from outside

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.pointers and self.parent is not None:
            outside = self.parent.pointer(buffer)
            self.pointers[buffer] = self._capture(self._pointer_type(buffer), outside)
        return super().pointer(buffer)

    def variable(self, v: Var) -> str:
        if v not in self.vars and self.parent is not None:
            outside = self.parent.variable(v)
            self.vars[v] = self._capture(value_type(v.type, v.size), outside)
            self.var_depth[v] = 0
            if v in self.parent.nonnegative:
                self.nonnegative.add(v)
        return super().variable(v)

    def is_nonnegative(self, e: Expr) -> bool:
        if isinstance(e, Var) and e not in self.vars and self.parent is not None:
            return self.parent.is_nonnegative(e)
        return super().is_nonnegative(e)

    def _capture(self, type_: str, outside: str) -> str:
        name = f"%c{len(self.captures)}"
        self.captures.append((type_, outside, name))
        return name

    def _pointer_type(self, buffer: Buffer) -> str:
        """`ptr` with what is known of the buffer."""
        words = ["ptr"]
        if buffer not in self.module.overlapping:
            words.append("noalias")
        if buffer not in self.module.survey.written:
            words.append("readonly")
        if all(isinstance(d, (int, Const)) for d in buffer.shape):
            size = buffer.dtype.bytes
            for d in buffer.shape:
                size *= constant_extent(d, buffer)
            if size:
                words.append(f"dereferenceable({size})")
        return " ".join(words)

    # statements

    def _seq(self, s: Seq) -> None:
        for are_stores, parts in groupby(s.stmts, lambda part: isinstance(part, Store)):
            if are_stores:
                self._stores([p for p in parts if isinstance(p, Store)])
            else:
                for part in parts:
                    self.statement(part)

    def _store(self, s: Store) -> None:
        self._stores([s])

    def _stores(self, stores: list[Store]) -> None:
        """Stores that run one after the other, whatever happens."""
        self.reach = reach(stores)
        self.whole = whole_lines(stores, self.module.streamed) if self.module.streamed else {}
        for s in stores:
            self.scope.fleeting.clear()
            self.store(s)
        self.reach, self.whole = {}, {}

    def _for(self, s: For) -> None:
        if s.kind in ("vectorized", "unrolled"):
            raise InternalError(
                f"loop {s.var.name} is still {s.kind} at code generation: run the vectorize and "
                "unroll passes"
            )
        extent = s.extent.value if isinstance(s.extent, Const) else None
        if extent is not None and extent <= 0:
            return
        if extent == 1:
            start = self.value(s.start)
            with self.nested():
                self._bind_loop(s, start)
                self.statement(s.body)
        elif s.kind == "parallel" and self.parent is None:
            self._parallel(s)
        else:
            start, end = self.value(s.start), self.value(Binary("add", s.start, s.extent))
            nonempty = "" if extent is not None else self.emit(f"icmp slt i64 {start}, {end}")
            self.scope.fleeting.clear()
            self._loop(s, start, end, nonempty)

    def _bind_loop(self, s: For, value: str) -> None:
        if self.is_nonnegative(s.start):
            self.nonnegative.add(s.var)
        self.bind(s.var, value)

    def _loop(self, s: For, start: str, end: str, nonempty: str) -> None:
        """A counted loop with its test at the end; `nonempty` guards it unless it surely runs."""
        head, leave = self.label("loop"), self.label("exit")
        code = Code(head)
        var, following = self.name("i"), self.name("n")
        with self.nested(code, surely=not nonempty):
            self._bind_loop(s, var)
            self.statement(s.body)
            latch = code.label
            self.do(f"{following} = add nsw i64 {var}, 1")
            more = self.emit(f"icmp slt i64 {following}, {end}")
            self.branch(more, head, leave)
        before = (
            self.scope.code.label
        )  # values of the loop moved out of it may have ended a block since
        if nonempty:
            self.branch(nonempty, head, leave)
        else:
            self.jump(head)
        lines = self.scope.code.lines
        lines.append(f"{head}:")
        lines.append(f"  {var} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        lines.extend(code.lines)
        self.start_block(leave)

    def _if(self, s: If) -> None:
        if s.cond.lanes != 1:
            raise InternalError(
                f"an if needs a scalar condition at code generation, found {type_text(s.cond)}"
            )
        if isinstance(s.cond, Const):
            chosen = s.then if s.cond.value else s.otherwise
            if chosen is not None:
                self.statement(chosen)
            return
        cond = self.value(s.cond)
        self.scope.fleeting.clear()
        yes, join = self.label("then"), self.label("join")
        no = self.label("else") if s.otherwise is not None else join
        self.branch(cond, yes, no)
        for label, part in ((yes, s.then), (no, s.otherwise)):
            if part is not None:
                self.start_block(label)
                with self.nested():
                    self.statement(part)
                    self.jump(join)
        self.start_block(join)

    def _let_statement(self, s: LetStmt) -> None:
        value = self.value(s.value)
        if s.value.lanes == 1 and s.value.dtype is i64 and self.is_nonnegative(s.value):
            self.nonnegative.add(s.var)
        self.scope.fleeting.clear()
        with self.nested():
            self.bind(s.var, value)
            self.statement(s.body)

    def _allocate(self, s: Allocate) -> None:
        buffer = s.buffer
        if buffer.scope == "register":
            survey = self.module.survey
            as_stored = buffer not in survey.computed
            accesses = survey.accesses.get(buffer, set())
            self.make_slots(buffer, accesses, as_stored, buffer in survey.windows)
        elif buffer.scope == "stack":
            name = self.name("stack")
            count = buffer_bytes(buffer) // buffer.dtype.bytes
            self.allocas.append(
                f"  {name} = alloca [{count} x {memory_type(buffer.dtype)}], align 64"
            )
            self.pointers[buffer] = name
        elif buffer.scope == "heap":
            self.pointers[buffer] = self._heap(buffer)
        else:
            raise InternalError(
                f"allocation of {buffer.name}: expected scope heap, stack or register, found "
                f"{buffer.scope}"
            )
        self.statement(s.body)

    def _heap(self, buffer: Buffer) -> str:
        plan = self.module.workspace
        offset = plan.offsets[buffer]
        root = self.scope
        while root.parent is not None:
            root = root.parent
        if buffer not in plan.per_thread:
            with self.writing_in(root):
                return self.emit(f"getelementptr i8, ptr %workspace, i64 {offset}")
        if self.parent is None:  # its parallel loop has one iteration: it runs here, as thread 0
            if not self.scratch:
                self.scratch = self._load_scratch()
            base = self.scratch
        else:
            if not self.scratch:
                if not self.parent.scratch:
                    self.parent.scratch = self.parent._load_scratch()
                all_threads = self._capture("ptr", self.parent.scratch)
                with self.writing_in(root):
                    mine = self.emit(f"mul i64 %thread, {plan.per_thread_bytes}")
                    self.scratch = self.emit(f"getelementptr i8, ptr {all_threads}, i64 {mine}")
            base = self.scratch
        with self.writing_in(root):
            return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _load_scratch(self) -> str:
        root = self.scope
        while root.parent is not None:
            root = root.parent
        # in the prologue: the first use may stand in a branch
        where, scratch = self.name("rt"), self.name("scratch")
        self.allocas.append(f"  {where} = getelementptr i8, ptr %rt, i64 {SCRATCH_OFFSET}")
        self.allocas.append(f"  {scratch} = load ptr, ptr {where}, align 8")
        return scratch

    def _evaluate(self, s: Evaluate) -> None:
        e = s.value
        if not (isinstance(e, Call) and e.name == "prefetch"):
            self.value(e)  # pure: kept only for the errors it may raise
            return
        location = e.args[0]
        if not isinstance(location, Load) or location.lanes != 1:
            raise InternalError("prefetch takes one load of a scalar: the element to prefetch")
        assert isinstance(location.buffer, Buffer)
        index = location.indices[0] if location.indices else const(0)
        self.do(
            f"call void @llvm.prefetch(ptr {self.address(location.buffer, index)}, i32 0, i32 "
            "3, i32 1)"
        )

    def _assert(self, s: Assert) -> None:
        if s.message not in self.module.messages:
            self.module.messages.append(s.message)
        code = self.module.messages.index(s.message) + 1
        fine, fail = self.label("ok"), self.label("fail")
        self.branch(self.value(s.cond), fine, fail)
        self.start_block(fail)
        if self.parent is None:
            self.do(f"ret i32 {code}")
        else:
            self.do(f"store atomic i32 {code}, ptr %status monotonic, align 4")
            self.do("ret void")
        self.start_block(fine)

    # parallel loops

    def _parallel(self, s: For) -> None:
        """The loop as a function over a range of iterations, and the call that spreads it."""
        module = self.module
        module.is_parallel = True
        start, extent = self.value(s.start), self.value(s.extent)
        self.scope.fleeting.clear()
        body = _FuncEmitter(module, self)
        number = len(module.functions) // 2
        inner, outer = f"{module.symbol}.loop{number}", f"{module.symbol}.range{number}"
        first = last = ""
        if not (isinstance(s.start, Const) and s.start.value == 0):
            shift = body._capture("i64", start)
            first, last = body.emit(f"add i64 {shift}, %begin"), body.emit(f"add i64 {shift}, %end")
        if self.is_nonnegative(s.start):
            body.nonnegative.add(s.var)
        body._loop(s, first or "%begin", last or "%end", "")
        body.settle()
        body.do("ret void")
        module.libm |= body.libm
        module.streams = module.streams or body.streams
        params = [f"{t} {n}" for t, _, n in body.captures]
        params += ["ptr %status", "i64 %begin", "i64 %end", "i64 %thread"]
        module.functions.append(
            body.function(f"internal void @{inner}({', '.join(params)}) noinline")
        )
        self._call_parallel(body, inner, outer, extent)

    def _call_parallel(self, body: _FuncEmitter, inner: str, outer: str, extent: str) -> None:
        """The environment: a struct of the status and the captured values."""
        types = [
            "i32",
            *(t.split(" ")[0] if t.startswith("ptr") else t for t, _, _ in body.captures),
        ]
        struct = "{ " + ", ".join(types) + " }"
        env = self.name("env")
        self.allocas.append(f"  {env} = alloca {struct}, align 64")
        self.do(f"store i32 0, ptr {env}, align 4")
        unpack: list[str] = []
        args: list[str] = []
        for i, ((_, outside, _), t) in enumerate(zip(body.captures, types[1:], strict=True), 1):
            field_ = self.emit(f"getelementptr {struct}, ptr {env}, i64 0, i32 {i}")
            self.do(f"store {t} {outside}, ptr {field_}")
            unpack.append(f"  %p{i} = getelementptr {struct}, ptr %env, i64 0, i32 {i}")
            unpack.append(f"  %a{i} = load {t}, ptr %p{i}")
            args.append(f"{t} %a{i}")
        args += ["ptr %env", "i64 %begin", "i64 %end", "i64 %thread"]
        head = f"define internal void @{outer}(ptr %env, i64 %begin, i64 %end, i64 %thread) #0 {{"
        call = f"  call void @{inner}({', '.join(args)})"
        self.module.functions.append("\n".join([head, "entry:", *unpack, call, "  ret void", "}"]))
        self.do(
            f"call void @tilesmith_parallel_for(ptr %rt, ptr @{outer}, ptr {env}, i64 {extent})"
        )
        status = self.emit(f"load i32, ptr {env}, align 4")
        failed = self.emit(f"icmp ne i32 {status}, 0")
        stop, fine = self.label("stop"), self.label("ok")
        self.branch(failed, stop, fine)
        self.start_block(stop)
        self.do(f"ret i32 {status}")
        self.start_block(fine)

    def settle(self) -> None:
        """Streaming stores wait for nothing by themselves: whoever runs next must find them."""
        if self.streams:
            self.do("fence seq_cst")

    def function(self, head: str) -> str:
        """The whole definition."""
        return "\n".join(
            [f"define {head} #0 {{", "entry:", *self.allocas, *self.scope.code.lines, "}"]
        )


def emit(func: Func, target: Target, symbol: str | None = None) -> Kernel:
    """LLVM text of `func` (stage "final", mathematics expanded) for `target`.

    `symbol` defaults to the function's name, made safe.  Raises InternalError for forms that an
    earlier pass should have removed.
    """
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    survey = Survey()
    survey.statement(func.body)
    workspace = plan_workspace(func)
    module = _Module(symbol, target, survey, workspace, workspace.overlapping())
    large = streamed(func, survey.loaded, target)
    definitions = _definitions(func, module, large)
    parts = [
        f"; {func.name}",
        *module.functions,
        *definitions,
        *_declarations(module),
        _attributes(target),
        *([NONTEMPORAL_NODE] if module.streams else []),
    ]
    return Kernel(
        symbol,
        "\n\n".join(parts) + "\n",
        workspace.shared_bytes,
        workspace.per_thread_bytes,
        tuple(module.messages),
    )


def _definitions(func: Func, module: _Module, large: frozenset[Buffer]) -> list[str]:
    """The function of the kernel.  If it streams to the buffers `large`, then it has two forms, and
    takes the one that streams when all of them start a cache line.
    """
    symbol = module.symbol
    first = _body(func, module, large)
    params = _params(func, first)
    given = ", ".join(f"{t} {n}" for t, n in params)
    if not module.streams:
        return [first.function(f"i32 @{symbol}({given})")]
    forms = {"streaming": first, "plain": _body(func, module, frozenset())}
    definitions = [
        top.function(f"internal i32 @{symbol}.{form}({given})") for form, top in forms.items()
    ]
    chooser = _FuncEmitter(module)
    places = [
        chooser.emit(f"ptrtoint ptr {first.pointers[b]} to i64") for b in func.buffers if b in large
    ]
    together = places[0]
    for p in places[1:]:
        together = chooser.emit(f"or i64 {together}, {p}")
    rest = chooser.emit(f"and i64 {together}, {LINE_BYTES - 1}")
    chooser.branch(chooser.emit(f"icmp eq i64 {rest}, 0"), *forms)
    passed = ", ".join(f"{t.split(' ')[0]} {n}" for t, n in params)
    for form in forms:
        chooser.start_block(form)
        status = chooser.emit(f"call i32 @{symbol}.{form}({passed})")
        chooser.do(f"ret i32 {status}")
    return [*definitions, chooser.function(f"i32 @{symbol}({given})")]


def _body(func: Func, module: _Module, large: frozenset[Buffer]) -> _FuncEmitter:
    """The statements of the whole kernel; the functions of its parallel loops join the module."""
    module.streamed = large
    top = _FuncEmitter(module)
    params = _params(func, top)
    for buffer, (_, name) in zip(func.buffers, params, strict=False):
        top.pointers[buffer] = name
    scalars = [p for p in func.params if isinstance(p, Var)]
    for v, (_, name) in zip(scalars, params[len(func.buffers) :], strict=False):
        _bind_scalar(top, v, name)
    top.statement(func.body)
    top.settle()
    top.do("ret i32 0")
    module.libm |= top.libm
    module.streams = module.streams or top.streams
    return top


def _params(func: Func, top: _FuncEmitter) -> list[tuple[str, str]]:
    """Type with attributes, and name, of each parameter."""
    params: list[tuple[str, str]] = []
    for i, buffer in enumerate(func.buffers):
        name = "%" + (re.sub(r"[^A-Za-z0-9_]", "_", buffer.name) or "p") + f".{i}"
        params.append((top._pointer_type(buffer), name))
    scalars = sum(isinstance(p, Var) for p in func.params)
    params += [("i64", f"%s{i}") for i in range(scalars)]
    return [*params, ("ptr noalias", "%workspace"), ("ptr", "%rt")]


def _bind_scalar(top: _FuncEmitter, v: Var, name: str) -> None:
    """Scalars arrive as i64."""
    if v.type is i64:
        top.bind(v, name)
    elif v.type is bool_ or v.type.is_int:
        top.bind(v, top.cast(i64, v.type, 1, name))
    else:
        raise InternalError(
            f"scalar parameter {v.name}: expected an integer or bool, found {v.type}"
        )


def _declarations(module: _Module) -> list[str]:
    lines = []
    if module.is_parallel:
        lines.append("declare void @tilesmith_parallel_for(ptr, ptr, ptr, i64)")
    lines += [
        f"declare {t} @{name}({', '.join([t] * n)}) memory(none)"
        for name, t, n in sorted(module.libm)
    ]
    return lines


def _attributes(target: Target) -> str:
    words = ["nounwind", f'"tune-cpu"="{target.cpu}"']
    if target.vector_bits >= 256:  # or LLVM may prefer narrower registers than the vectors we chose
        words += [
            f'"prefer-vector-width"="{target.vector_bits}"',
            f'"min-legal-vector-width"="{target.vector_bits}"',
        ]
    return f"attributes #0 = {{ {' '.join(words)} }}"
