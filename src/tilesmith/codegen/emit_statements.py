"""Statements of loop IR to LLVM text, one function at a time: the kernel, and its parallel loops.

A parallel loop becomes a function over a range of iterations.  Its captured values travel in a
struct, its environment.  The context's `parallel_for` calls it with ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var, as_expr, const, type_text
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.loop.passes.workspace import buffer_bytes, constant_extent, is_constant
from tilesmith.support.errors import InternalError

from .assertions import INDEX, compared
from .builder import Code as Lines
from .context import BY_NAME, VALUES, Code, address
from .emit_expr import Mask
from .emit_tensor import TensorEmitter
from .kernel import check_unbound
from .lane_loads import reach
from .llvm_text import literal, memory_type, value_type, vector
from .math import expand, scales
from .module import Module
from .streaming import whole_lines


class FuncEmitter(TensorEmitter):
    """Statements of one LLVM function: the kernel, or a parallel loop inside it (`parent`)."""

    def __init__(self, module: Module, parent: FuncEmitter | None = None) -> None:
        super().__init__(module)
        self.parent = parent
        self.captures: list[
            tuple[str, str, str]
        ] = []  # (type and attributes, text outside, name here)
        self.context = "" if parent else "%context"
        self.scratch = ""
        self.breaks = parent.breaks if parent else self.breaks
        self._fields: dict[str, str] = {}
        self.next: list[Stmt] = []
        """What the rule of a statement leaves to be written behind it; so depth is no limit."""
        self.rules_of_statements: dict[type[Stmt], Callable[[Any], None]] = {
            nodes.For: self._for,
            nodes.If: self._if,
            nodes.Store: self._store,
            nodes.Allocate: self._allocate,
            nodes.LetStmt: self._let_statement,
            nodes.Seq: self._seq,
            nodes.Evaluate: self._evaluate,
            nodes.Assert: self._assert,
        }

    def statement(self, s: Stmt) -> None:
        outside, self.next = self.next, [s]
        while self.next:
            then = self.next.pop()
            self.scope.fleeting.clear()
            self.tiles.clear()
            self.rules_of_statements[type(then)](then)
        self.next = outside

    def outlined(self, e: ir.Call, x: str) -> str:
        type_ = value_type(e.dtype, e.lanes)
        key = e.name, e.lanes
        symbol = self.module.outlined.get(key)
        if symbol is None:
            symbol = self.module.outlined[key] = f"{self.module.symbol}.{e.name}.{e.lanes}"
            inner, v = FuncEmitter(self.module), Var("x", e.dtype, e.lanes)
            inner.bind(v, "%x")
            value = inner.value(expand(ir.Call(e.name, (v,), e.dtype), scales(self.target)))
            inner.do(f"ret {type_} {value}")
            head = f"internal {type_} @{symbol}({type_} %x) noinline memory(none)"
            self.module.functions.append(inner.function(head))
        return self.emit(f"call {type_} @{symbol}({type_} {x})")

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
        """`ptr` with the known attributes of the buffer."""
        words = ["ptr"]
        if buffer not in self.module.overlapping:
            words.append("noalias")
        if buffer not in self.module.survey.written:
            words.append("readonly")
        if is_constant(buffer):
            size = buffer.dtype.bytes
            for d in buffer.shape:
                size *= constant_extent(d, buffer)
            if size:
                words.append(f"dereferenceable({size})")
        return " ".join(words)

    # statements

    def _seq(self, s: nodes.Seq) -> None:
        last = s.stmts[-1] if s.stmts and not isinstance(s.stmts[-1], nodes.Store) else None
        first = s.stmts if last is None else s.stmts[:-1]
        for are_stores, parts in groupby(first, lambda part: isinstance(part, nodes.Store)):
            if are_stores:
                self._stores([p for p in parts if isinstance(p, nodes.Store)])
            else:
                for part in parts:
                    self.statement(part)
        if last is not None:
            self.next.append(last)

    def _store(self, s: nodes.Store) -> None:
        self._stores([s])

    def _stores(self, stores: list[nodes.Store]) -> None:
        """Consecutive stores that all run unconditionally."""
        self.reach = reach(stores)
        self.whole = whole_lines(stores, self.module.streamed) if self.module.streamed else {}
        for s in stores:
            self.scope.fleeting.clear()
            self.store(s)
        self.reach, self.whole = {}, {}

    def _for(self, s: nodes.For) -> None:
        check_unbound(s)
        if LOOP_KINDS[s.kind].is_expanded:
            raise InternalError(
                f"loop {s.var.name} is still {s.kind} at code generation: run the vectorize and "
                "unroll passes"
            )
        extent = s.extent.value if isinstance(s.extent, ir.Const) else None
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
            start, end = self.value(s.start), self.value(ir.Binary("add", s.start, s.extent))
            nonempty = "" if extent is not None else self.emit(f"icmp slt i64 {start}, {end}")
            self.scope.fleeting.clear()
            self._loop(s, start, end, nonempty)

    def _bind_loop(self, s: nodes.For, value: str) -> None:
        if self.is_nonnegative(s.start):
            self.nonnegative.add(s.var)
        self.bind(s.var, value)

    def _loop(self, s: nodes.For, start: str, end: str, nonempty: str) -> None:
        """A counted loop with its test at the end; `nonempty` guards it unless it
        certainly runs.
        """
        head, leave = self.label("loop"), self.label("exit")
        code = Lines(head)
        var, following = self.name("i"), self.name("n")
        with self.nested(code, surely=not nonempty):
            self._bind_loop(s, var)
            self.statement(s.body)
            self.keep_alive(s, var, start)
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

    def _if(self, s: nodes.If) -> None:
        if s.cond.lanes != 1:
            raise InternalError(
                f"an if needs a scalar condition at code generation, found {type_text(s.cond)}"
            )
        if isinstance(s.cond, ir.Const):
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

    def _let_statement(self, s: nodes.LetStmt) -> None:
        value = self.value(s.value)
        if s.value.lanes == 1 and s.value.dtype is i64 and self.is_nonnegative(s.value):
            self.nonnegative.add(s.var)
        self.scope.fleeting.clear()
        with self.nested():
            self.bind(s.var, value)
            self.statement(s.body)

    def _allocate(self, s: nodes.Allocate) -> None:
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
            self.pointers[buffer] = self.heap(buffer)
        else:
            raise InternalError(
                f"allocation of {buffer.name}: expected scope heap, stack or register, found "
                f"{buffer.scope}"
            )
        self.next.append(s.body)

    def heap(self, buffer: Buffer) -> str:
        plan = self.module.workspace
        offset = plan.offsets[buffer]
        outside = self.home(0)  # of loops, not of branches: what is written here is known in one
        if buffer not in plan.per_thread:
            with self.writing_in(outside):
                at = self.value(as_expr(offset))
                return self.emit(f"getelementptr i8, ptr %workspace, i64 {at}")
        if self.parent is None:  # its parallel loop has one iteration: it runs here, as thread 0
            base = self._field("scratch")
        else:
            base = self.scratch
            if not base:
                all_threads = self._capture("ptr", self.parent._field("scratch"))
                size = self._capture("i64", self.parent._field("scratch_bytes"))
                with self.writing_in(outside):
                    mine = self.emit(f"mul i64 %thread, {size}")
                    base = self.emit(f"getelementptr i8, ptr {all_threads}, i64 {mine}")
                if outside.parent is None:
                    self.scratch = base
        with self.writing_in(outside):
            at = self.value(as_expr(offset))
            return self.emit(f"getelementptr i8, ptr {base}, i64 {at}")

    def _field(self, name: str) -> str:
        """A field of the context, in the kernel itself.  It is loaded in the prologue, since the
        first use may be in a branch.
        """
        if name not in self._fields:
            type_ = "ptr" if BY_NAME[name].type == "ptr" else BY_NAME[name].type.replace("u", "i")
            where, value = self.name("p"), self.name(name)
            self.allocas.append(f"  {where} = {address(name)}")
            self.allocas.append(f"  {value} = load {type_}, ptr {where}, align 8")
            self._fields[name] = value
        return self._fields[name]

    def _evaluate(self, s: nodes.Evaluate) -> None:
        e = s.value
        if not (isinstance(e, ir.Call) and e.name == "prefetch"):
            self.value(e)  # pure: kept only for the errors it may raise
            return
        location = e.args[0]
        if not isinstance(location, ir.Load) or location.lanes != 1:
            raise InternalError("prefetch takes one load of a scalar: the element to prefetch")
        assert isinstance(location.buffer, Buffer)
        index = location.indices[0] if location.indices else const(0)
        self.do(
            f"call void @llvm.prefetch(ptr {self.address(location.buffer, index)}, i32 0, i32 "
            "3, i32 1)"
        )

    def check_index(self, e: ir.Call, mask: Mask | None) -> str:
        """A comparison and a branch that is never taken: what is reported is found out there."""
        index, extent, position = e.args
        lanes, type_ = e.lanes, value_type(e.type, e.lanes)
        value, limit = self.value(index, mask), self.value(extent)
        zero, one = (literal(n, e.type, lanes) for n in (0, 1))
        # In range if neither `above` nor `below` is negative, which is one test of a sign.
        above = self.emit(f"add {type_} {value}, {limit}")
        last = self.emit(f"sub {type_} {limit}, {one}")
        below = self.emit(f"sub {type_} {last}, {value}")
        signs = self.emit(f"or {type_} {above}, {below}")
        wrong = self.emit(f"icmp slt {type_} {signs}, {zero}")
        bools = vector("i1", lanes)
        negative = self.emit(f"icmp slt {type_} {value}, {zero}")
        wrapped = self.emit(f"select {bools} {negative}, {type_} {above}, {type_} {value}")
        result = self.emit(f"select {bools} {wrong}, {type_} {zero}, {type_} {wrapped}")
        if lanes == 1:
            self.guarded(wrong, lambda: self._fail(INDEX, [value, self.value(position), limit]))
            return result
        if mask is not None:
            wrong = self.emit(f"and {bools} {wrong}, {mask.text}")
        bits = self.emit(f"bitcast {bools} {wrong} to i{lanes}")

        def report() -> None:
            lane = self.emit(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 true)")
            parts = (value, self.value(position), limit)
            self._fail(
                INDEX, [self.emit(f"extractelement {type_} {v}, i{lanes} {lane}") for v in parts]
            )

        self.guarded(self.emit(f"icmp ne i{lanes} {bits}, 0"), report)
        return result

    def _fail(self, message: str, values: list[str]) -> None:
        """Record a failure with up to `VALUES` values of type i64."""
        messages = self.module.messages
        if message not in messages:
            messages.append(message)
        if not self.context:
            self.context = self._capture("ptr", "%context")
        head = f"ptr {self.context}, i32 {messages.index(message)}, i32 {len(values)}"
        args = [f"i64 {v}" for v in [*values, *["0"] * (VALUES - len(values))]]
        self.do(f"call void @{self.module.symbol}.fail({head}, {', '.join(args)})")

    def stop(self) -> None:
        """Leave the function where an assertion fails."""
        self.do("ret void" if self.parent else f"ret i32 {Code.ASSERTION:d}")

    def _assert(self, s: nodes.Assert) -> None:
        integers = compared(s.cond)[:VALUES]
        values = [self.value(e) for e in integers]
        fine, fail = self.label("ok"), self.label("fail")
        self.branch(self.value(s.cond), fine, fail)
        self.start_block(fail)
        wide = [self.ops.cast(e.dtype, i64, 1, v) for e, v in zip(integers, values, strict=True)]
        self._fail(s.message, wide)
        self.stop()
        self.start_block(fine)

    # parallel loops

    def _parallel(self, s: nodes.For) -> None:
        """The loop as a function over a range of iterations, and the call that distributes it."""
        module = self.module
        start, extent = self.value(s.start), self.value(s.extent)
        self.scope.fleeting.clear()
        body = FuncEmitter(module, self)
        number = len(module.functions) // 2
        inner, outer = f"{module.symbol}.loop{number}", f"{module.symbol}.range{number}"
        first = last = ""
        if not (isinstance(s.start, ir.Const) and s.start.value == 0):
            shift = body._capture("i64", start)
            first, last = body.emit(f"add i64 {shift}, %begin"), body.emit(f"add i64 {shift}, %end")
        if self.is_nonnegative(s.start):
            body.nonnegative.add(s.var)
        body._loop(s, first or "%begin", last or "%end", "")
        body.settle()
        body.do("ret void")
        module.streams = module.streams or body.streams
        params = [f"{t} {n}" for t, _, n in body.captures]
        params += ["i64 %begin", "i64 %end", "i64 %thread"]
        module.functions.append(
            body.function(f"internal void @{inner}({', '.join(params)}) noinline")
        )
        self._call_parallel(body, inner, outer, extent)

    def _call_parallel(self, body: FuncEmitter, inner: str, outer: str, extent: str) -> None:
        """Make the environment, a struct of the captured values, and call `parallel_for`."""
        types = [t.split(" ")[0] if t.startswith("ptr") else t for t, _, _ in body.captures]
        struct = "{ " + ", ".join(types) + " }"
        env = self.name("env")
        self.allocas.append(f"  {env} = alloca {struct}, align 64")
        unpack: list[str] = []
        args: list[str] = []
        for i, ((_, outside, _), t) in enumerate(zip(body.captures, types, strict=True)):
            field_ = self.emit(f"getelementptr {struct}, ptr {env}, i64 0, i32 {i}")
            self.do(f"store {t} {outside}, ptr {field_}")
            unpack.append(f"  %p{i} = getelementptr {struct}, ptr %env, i64 0, i32 {i}")
            unpack.append(f"  %a{i} = load {t}, ptr %p{i}")
            args.append(f"{t} %a{i}")
        args += ["i64 %begin", "i64 %end", "i64 %thread"]
        head = f"define internal void @{outer}(ptr %env, i64 %begin, i64 %end, i64 %thread) #0 {{"
        call = f"  call void @{inner}({', '.join(args)})"
        self.module.functions.append("\n".join([head, "entry:", *unpack, call, "  ret void", "}"]))
        run = self._field("parallel_for")
        self.do(f"call void {run}(ptr %context, ptr @{outer}, ptr {env}, i64 {extent})")
        if not self.may_stop:
            return
        where = self.emit(address("failure_code"))
        code = self.emit(f"load i32, ptr {where}, align 4")
        failed = self.emit(f"icmp ne i32 {code}, 0")
        stop, fine = self.label("stop"), self.label("ok")
        self.branch(failed, stop, fine)
        self.start_block(stop)
        self.do(f"ret i32 {code}")
        self.start_block(fine)

    def settle(self) -> None:
        """Fence after streaming stores, which are weakly ordered."""
        if self.streams:
            self.do("fence seq_cst")

    def function(self, head: str) -> str:
        """The whole definition."""
        return "\n".join(
            [f"define {head} #0 {{", "entry:", *self.allocas, *self.scope.code.lines, "}"]
        )
