"""Translation of loop IR statements to LLVM text, one function at a time: the kernel, and its
parallel loops.

A parallel loop becomes a function over a range of iterations.  The values that it captures are
passed in a struct, its environment.  The context's `parallel_for` calls the function with ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var, const, type_text
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.loop.passes.workspace import buffer_bytes
from tilesmith.loop.visit import bound_vars
from tilesmith.support.errors import InternalError

from . import calls
from .arithmetic import Arithmetic
from .builder import Builder, ValueScope
from .builder import Code as Lines
from .checks import Checks
from .context import address
from .environment import Environment
from .hooks import CPU, Hooks
from .kernel import check_unbound
from .lane_loads import reach
from .llvm_text import memory_type, value_type
from .math import expand, has_expansion, scales
from .memory import Memory
from .module import Module
from .registers import Registers
from .streaming import whole_lines
from .tensor_calls import TensorCalls
from .values import Mask, Values


class Statements:
    """Writer of the statements of an LLVM function: a kernel, or a parallel loop in `parent`."""

    def __init__(
        self, module: Module, hooks: Hooks = CPU, parent: Statements | None = None
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.parent = parent
        self.b = Builder()
        self.emit = self.b.emit
        self.env = Environment(self.b, module, parent and parent.env)
        self.ops = Arithmetic(self.b, module.target, module.strict, module.libm)
        self.values = Values(self.b, self.env, self.ops, module)
        self.value = self.values.value
        self.registers = Registers(self.b)
        self.memory = Memory(self.values, self.registers, module, hooks)
        self.tensors = TensorCalls(self.memory, module, hooks)
        self.checks = Checks(self.values, module, "ret void" if parent else hooks.stop)
        further = {ir.Load: self.memory.load, ir.TensorCall: self.tensors.call, ir.Call: self._call}
        self.values.rules |= further
        # Statements to be written after the current one, which keeps the recursion shallow.
        self._next: list[Stmt] = []
        self._plain: dict[type[Stmt], Callable[[Any], None]] = {
            nodes.For: self._for, nodes.If: self._if, nodes.Store: self._store,
            nodes.Allocate: self._allocate, nodes.LetStmt: self._let_statement,
            nodes.Seq: self._seq, nodes.Evaluate: self._evaluate,
            nodes.Assert: self.checks.assertion, nodes.Return: self._return,
            nodes.Reinterpret: self._reinterpret, nodes.CopyBytes: self._copy_bytes,
            nodes.While: self._while,
            **{kind: partial(self._outside, result) for kind, result in calls.RESULTS.items()},
            nodes.Locate: self._locate,
            nodes.Point: lambda s: calls.point(self.memory, s),
        }  # fmt: skip
        own = {kind: partial(write, self) for kind, write in hooks.statements.items()}
        self._rules = self._plain | own
        self._one_store = self._rules[nodes.Store]
        self._rules[nodes.Store] = lambda s: self._stores([s])

    def statement(self, s: Stmt) -> None:
        """Write `s`."""
        outside = self._next, self.b.scope
        self._next = [s]
        while self._next:
            then = self._next.pop()
            self.b.scope.fleeting.clear()
            self.tensors.tiles.clear()
            self._rules[type(then)](then)
        self._next, self.b.scope = outside

    def plain(self, s: Stmt) -> None:
        """Write `s` without the target's own writers."""
        self._plain[type(s)](s)

    def _call(self, e: ir.Call, mask: Mask | None) -> str:
        if e.name == "check_index":
            return self.checks.index(e, mask)
        if has_expansion(e):
            return self._outlined(e, self.value(e.args[0], mask))
        return self.values.call(e, mask)

    def _outlined(self, e: ir.Call, x: str) -> str:
        """A call of a mathematical function.  The first call adds the function to the module."""
        module, type_ = self.module, value_type(e.dtype, e.lanes)
        symbol = module.outlined.get((e.name, e.lanes))
        if symbol is None:
            symbol = module.outlined[e.name, e.lanes] = f"{module.symbol}.{e.name}.{e.lanes}"
            inner, v = Statements(module), Var("x", e.dtype, e.lanes)
            inner.env.bind(v, "%x")
            body = expand(ir.Call(e.name, (v,), e.dtype), scales(module.target))
            inner.b.do(f"ret {type_} {inner.values.value(body)}")
            head = f"internal {type_} @{symbol}({type_} %x) noinline memory(none)"
            module.functions.append(inner.b.function(head))
        return self.emit(f"call {type_} @{symbol}({type_} {x})")

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
            self._next.append(last)

    def _stores(self, stores: list[nodes.Store]) -> None:
        """Write consecutive stores that all run unconditionally."""
        memory, streamed = self.memory, self.module.streamed
        memory.reach = reach(stores)
        memory.whole = whole_lines(stores, streamed) if streamed else {}
        for s in stores:
            self.b.scope.fleeting.clear()
            self._one_store(s)
        memory.reach, memory.whole = {}, {}

    def _store(self, s: nodes.Store) -> None:
        self.memory.store(s)
        if s.buffer not in self.registers.slots:
            self.tensors.tiles.clear()

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
            with self.b.nested():
                self.bind_loop(s, start)
                self.statement(s.body)
        elif s.kind == "parallel" and self.parent is None and self.hooks.has_threads:
            self._parallel(s)
        else:
            start = self.value(s.start)
            end = self.value(ir.Binary("add", s.start, s.extent))
            nonempty = "" if extent is not None else self.emit(f"icmp slt i64 {start}, {end}")
            self.b.scope.fleeting.clear()
            self._loop(s, start, end, nonempty)

    def bind_loop(self, s: nodes.For, value: str) -> None:
        """Bind a loop's variable to a value."""
        if self.env.is_nonnegative(s.start):
            self.env.nonnegative.add(s.var)
        self.env.bind(s.var, value)

    def _loop(self, s: nodes.For, start: str, end: str, nonempty: str) -> None:
        """A counted loop with its test at the end.

        nonempty: operand of the condition that guards the loop; "" if the loop runs at least once.
        """
        head, leave = self.b.label("loop"), self.b.label("exit")
        code = Lines(head)
        var, following = self.b.name("i"), self.b.name("n")
        with self.b.nested(code, surely=not nonempty):
            self.bind_loop(s, var)
            self.statement(s.body)
            self.tensors.keep_alive(s, var, start)
            latch = code.label
            self.b.do(f"{following} = add nsw i64 {var}, 1")
            more = self.emit(f"icmp slt i64 {following}, {end}")
            self.b.branch(more, head, leave)
        before = self.b.scope.code.label  # values moved out of the loop may end the block
        if nonempty:
            self.b.branch(nonempty, head, leave)
        else:
            self.b.jump(head)
        lines = self.b.scope.code.lines
        lines.append(f"{head}:")
        lines.append(f"  {var} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        lines.extend(code.lines)
        self.b.start_block(leave)

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
        self.b.scope.fleeting.clear()
        yes, join = self.b.label("then"), self.b.label("join")
        no = self.b.label("else") if s.otherwise is not None else join
        self.b.branch(cond, yes, no)
        for label, part in ((yes, s.then), (no, s.otherwise)):
            if part is not None:
                self.b.start_block(label)
                with self.b.nested():
                    self.statement(part)
                    self.b.jump(join)
        self.b.start_block(join)

    def _let_statement(self, s: nodes.LetStmt) -> None:
        value = self.value(s.value)
        if s.value.lanes == 1 and s.value.dtype is i64 and self.env.is_nonnegative(s.value):
            self.env.nonnegative.add(s.var)
        self._named(s.var, value, s.body)

    def _named(self, var: Var, value: str, body: Stmt) -> None:
        """Bind a variable to a value in the statements of `body`, which are written next."""
        self.b.scope.fleeting.clear()
        self.b.scope = ValueScope(self.b.scope, self.b.scope.code, is_loop=False)
        self.env.bind(var, value)
        self._next.append(body)

    def _allocate(self, s: nodes.Allocate) -> None:
        buffer = s.buffer
        if buffer.scope == "register":
            survey = self.module.survey
            as_stored = buffer not in survey.computed
            accesses = survey.accesses.get(buffer, set())
            self.registers.make_slots(buffer, accesses, as_stored, buffer in survey.windows)
        elif buffer.scope == "stack":
            count = buffer_bytes(buffer) // buffer.dtype.bytes
            name = self.b.alloca("stack", f"[{count} x {memory_type(buffer.dtype)}]")
            self.env.pointers[buffer] = name
        elif buffer.scope == "heap":
            self.env.pointers[buffer] = self.memory.heap(buffer)
        else:
            raise InternalError(
                f"allocation of {buffer.name}: expected scope heap, stack or register, found "
                f"{buffer.scope}"
            )
        self._next.append(s.body)

    def _evaluate(self, s: nodes.Evaluate) -> None:
        e = s.value
        if not (isinstance(e, ir.Call) and e.name == "prefetch"):
            self.value(e)  # it has no effect; evaluating it may raise an error
            return
        location = e.args[0]
        if not isinstance(location, ir.Load) or location.lanes != 1:
            raise InternalError("prefetch takes one load of a scalar: the element to prefetch")
        assert isinstance(location.buffer, Buffer)
        index = location.indices[0] if location.indices else const(0)
        where = self.memory.address(location.buffer, index)
        self.b.do(f"call void @llvm.prefetch(ptr {where}, i32 0, i32 3, i32 1)")

    def _while(self, s: nodes.While) -> None:
        head, body, leave = (self.b.label(stem) for stem in ("while", "body", "exit"))
        self.b.jump(head)
        self.b.start_block(head)
        with self.b.nested():
            self.b.branch(self.value(s.cond), body, leave)
            self.b.start_block(body)
            self.statement(s.body)
            self.b.jump(head)
        self.b.start_block(leave)

    def _reinterpret(self, s: nodes.Reinterpret) -> None:
        self.env.pointers[s.buffer] = self.memory.place(s.place)
        self._next.append(s.body)

    def _copy_bytes(self, s: nodes.CopyBytes) -> None:
        to, source = self.memory.place(s.to), self.memory.place(s.source)
        count = self.value(s.count)

        def copy() -> None:
            operands = f"ptr {to}, ptr {source}, i64 {count}, i1 false"
            self.b.do(f"call void @llvm.memcpy.p0.p0.i64({operands})")

        self.b.guarded(self.emit(f"icmp ne ptr {to}, {source}"), copy)

    def _outside(self, result: Callable[[Memory, Any], str], s: Any) -> None:
        (name,) = bound_vars(s)
        self._named(name, result(self.memory, s), s.body)

    def _locate(self, s: nodes.Locate) -> None:
        self.env.pointers[s.buffer] = calls.address(self.memory, s.table, s.number)
        self._next.append(s.body)

    def _return(self, s: nodes.Return) -> None:
        self.settle()
        self.b.do(f"ret i32 {self.value(s.code)}")
        self.b.start_block(self.b.label("after"))  # the code in this block never runs

    # Parallel loops

    def _parallel(self, s: nodes.For) -> None:
        """Write a parallel loop as a function over a range of iterations, and the call that
        distributes the iterations.
        """
        module = self.module
        start, extent = self.value(s.start), self.value(s.extent)
        self.b.scope.fleeting.clear()
        body = Statements(module, self.hooks, self)
        number = len(module.functions) // 2
        inner, outer = f"{module.symbol}.loop{number}", f"{module.symbol}.range{number}"
        first = last = ""
        if not (isinstance(s.start, ir.Const) and s.start.value == 0):
            shift = body.env.capture("i64", start)
            first, last = (body.emit(f"add i64 {shift}, {x}") for x in ("%begin", "%end"))
        if self.env.is_nonnegative(s.start):
            body.env.nonnegative.add(s.var)
        body._loop(s, first or "%begin", last or "%end", "")
        body.settle()
        body.b.do("ret void")
        module.streams = module.streams or body.memory.streams
        params = [f"{c.type} {c.inside}" for c in body.env.captures]
        params += ["i64 %begin", "i64 %end", "i64 %thread"]
        head = f"internal void @{inner}({', '.join(params)}) noinline"
        module.functions.append(body.b.function(head))
        self._call_parallel(body, inner, outer, extent)

    def _call_parallel(self, body: Statements, inner: str, outer: str, extent: str) -> None:
        """Make the environment, a struct of the captured values, and call `parallel_for`."""
        captures = body.env.captures
        types = [c.type.split(" ")[0] if c.type.startswith("ptr") else c.type for c in captures]
        struct = "{ " + ", ".join(types) + " }"
        env = self.b.alloca("env", struct)
        unpack: list[str] = []
        args: list[str] = []
        for i, (c, t) in enumerate(zip(captures, types, strict=True)):
            field_ = self.emit(f"getelementptr {struct}, ptr {env}, i64 0, i32 {i}")
            self.b.do(f"store {t} {c.outside}, ptr {field_}")
            unpack.append(f"  %p{i} = getelementptr {struct}, ptr %env, i64 0, i32 {i}")
            unpack.append(f"  %a{i} = load {t}, ptr %p{i}")
            args.append(f"{t} %a{i}")
        args += ["i64 %begin", "i64 %end", "i64 %thread"]
        head = f"define internal void @{outer}(ptr %env, i64 %begin, i64 %end, i64 %thread) #0 {{"
        call = f"  call void @{inner}({', '.join(args)})"
        self.module.functions.append("\n".join([head, "entry:", *unpack, call, "  ret void", "}"]))
        run = self.env.field("parallel_for")
        self.b.do(f"call void {run}(ptr %context, ptr @{outer}, ptr {env}, i64 {extent})")
        if not self.module.survey.asserts:
            return
        where = self.emit(address("failure_code"))
        code = self.emit(f"load i32, ptr {where}, align 4")
        failed = self.emit(f"icmp ne i32 {code}, 0")
        stop, fine = self.b.label("stop"), self.b.label("ok")
        self.b.branch(failed, stop, fine)
        self.b.start_block(stop)
        self.b.do(f"ret i32 {code}")
        self.b.start_block(fine)

    def settle(self) -> None:
        """Write a fence if there were streaming stores, which are weakly ordered."""
        if self.memory.streams:
            self.b.do("fence seq_cst")
