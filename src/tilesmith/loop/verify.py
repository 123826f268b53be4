"""The verifier of loop IR: checks the invariants of a stage before the next pass relies on them.

`loop.nodes` describes the stages.  An error is a bug of the preceding pass, which the message
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NoReturn

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import bool_, i32, i64, u8
from tilesmith.ir.expr import Expr, Var, free_vars, post_order, reads_memory, symbols, type_text
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.loop_tables import (
    ALLOCATED,
    LOOP_KINDS,
    MOST_LANES,
    SCOPES,
    THREADS,
    WAVE_OPERATIONS,
    LoopKind,
)
from tilesmith.ir.operations import REDUCTIONS
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.support.errors import UsageError, VerifyError

from . import nodes as loop
from .nodes import Buffer, Func, Stmt
from .text import head
from .visit import bound_vars, declared, own_exprs, walk

Stage = Literal["nest", "flat", "final"]
STAGES: tuple[Stage, ...] = ("nest", "flat", "final")


def verify(func: Func, stage: Stage, after: str = "", is_users: bool = False) -> None:
    """Raises VerifyError if `func` is not well formed for `stage`.

    after: the preceding pass.
    is_users: whether a user wrote the function: then an error is not a bug of a pass.
    """
    _Verifier(func, stage, after, is_users).run()


class _Verifier:
    def __init__(self, func: Func, stage: Stage, after: str, is_users: bool) -> None:
        self.func, self.stage, self.after, self.is_users = func, stage, after, is_users
        self.vars: set[Var] = set()
        self.buffers: set[Buffer] = set()
        self.writable: set[Buffer] = set(func.outputs)
        self.well_formed: set[Expr] = set()  # checked expressions
        self.where: Stmt | None = None
        self.around: list[str] = []  # kinds of the enclosing loops, outermost first
        self.in_group = False
        self.along_x = 0  # number of threads along x in a block
        self.varying: set[Var] = set()  # variables that differ between threads along x
        # The condition under which threads along x reach the current statement, if it differs
        # between them.
        self.only = ""

    def fail(self, what: str, e: Expr | None = None) -> NoReturn:
        place = f" in '{self.func.name}'"
        if e is not None:
            place += f", expression '{e}'"
        if self.where is not None:
            place += f", statement '{head(self.where)}'"
        if self.is_users:
            raise VerifyError(f"{what}{place}")
        made = f" after {self.after}" if self.after else ""
        raise VerifyError(
            f"loop IR{made} is not valid at stage '{self.stage}': {what}{place}; "
            "this is a bug of the pass that ran last, please report it"
        )

    def run(self) -> None:
        func = self.func
        for p in func.params:
            if p in self.vars or p in self.buffers:
                self.fail(f"parameter '{p.name}' appears twice")
            if isinstance(p, Var):
                self.vars.add(p)
            else:
                self.buffers.add(p)
                if p.scope != "param":
                    self.fail(f"parameter '{p.name}' has scope '{p.scope}', expected 'param'")
        for b in func.buffers:
            self.shape(b)
        for b in func.outputs:
            if b not in set(func.params):
                self.fail(f"output '{b.name}' is not a parameter")
        self.stmt(func.body)

    def shape(self, b: Buffer) -> None:
        if self.stage != "nest" and len(b.shape) != 1:
            self.fail(f"buffer '{b.name}' has rank {len(b.shape)}, expected 1")
        for extent in b.shape:
            if isinstance(extent, Expr):
                self.expr(extent)
                if extent.dtype is not i64 or extent.lanes != 1:
                    self.fail(
                        f"an extent of '{b.name}' is {type_text(extent)}, expected i64", extent
                    )
            elif extent < 0:
                self.fail(f"buffer '{b.name}' has a negative extent {extent}")

    # --- statements ---

    def stmt(self, s: Stmt) -> None:
        """Checks `s`.  Names declared in a block, however many, need no recursion."""
        waiting: list[Stmt | Callable[[], None]] = [s]
        while waiting:
            t = waiting.pop()
            if not isinstance(t, Stmt):
                t()
                continue
            rule = _STATEMENTS.get(type(t))
            if rule is None:
                self.fail(f"{type(t).__name__} is not a statement")
            if isinstance(t, loop.Seq):
                waiting += reversed(t.stmts)
                continue
            outer, self.where = self.where, t
            rule(self, t)
            if isinstance(t, _NAMING):
                waiting += (partial(self.left, t, outer), t.body)
            else:
                self.where = outer

    def left(self, s: Stmt, outer: Stmt | None) -> None:
        """Ends the scope of a name; `outer` is the statement around it."""
        for name in declared(s):
            self.vars.discard(name)
            self.buffers.discard(name)
            self.writable.discard(name)
        self.where = outer

    def bind(self, var: Var) -> None:
        if var in self.vars:
            self.fail(f"'{var.name}' is bound again inside its own scope")
        self.vars.add(var)

    def for_(self, s: loop.For) -> None:
        kind = LOOP_KINDS.get(s.kind)
        if kind is None:
            self.fail(f"unknown kind of loop '{s.kind}'")
        if self.stage == "final" and kind.is_expanded:
            self.fail(f"a loop of kind '{s.kind}' is left")
        for e in (s.start, s.extent):
            self.expr(e)
            if e.dtype is not s.var.dtype or e.lanes != 1 or not e.dtype.is_int:
                self.fail(
                    f"loop variable '{s.var.name}' is {type_text(s.var)}, its range {type_text(e)}",
                    e,
                )
        if kind.is_expanded and type(s.extent) is not ir.Const:
            self.fail(f"the extent of a loop of kind '{s.kind}' must be a literal", s.extent)
        outer, along_x = self.only, self.along_x
        if kind.level:
            self.bound(s, kind)
        elif self.varies(s.start, s.extent):
            self.only = head(s)
        self.bind(s.var)
        self.around.append(s.kind)
        self.stmt(s.body)
        self.around.pop()
        self.only, self.along_x = outer, along_x
        self.vars.discard(s.var)

    def bound(self, s: loop.For, kind: LoopKind) -> None:
        """Checks a loop over the blocks of a launch, or over the threads of a block."""
        if s.kind in self.around:
            self.fail(f"a loop over {s.kind} inside another one")
        if kind.level == "block" and any(LOOP_KINDS[k].level != "block" for k in self.around):
            self.fail(f"a loop over {s.kind} inside one that is not over blocks")
        if kind.level == "thread" and type(s.extent) is not ir.Const:
            self.fail(f"the number of threads along {s.kind} must be a literal", s.extent)
        if not self.in_launch:
            self.along_x = max(map(_along_x, walk(s)))
        if s.kind == THREADS[0]:
            self.varying.add(s.var)
            self.only = self.only or (head(s) if _along_x(s) < self.along_x else "")

    def varies(self, *values: Expr) -> bool:
        """Whether the values may differ between threads along x because they depend on the threads'
        index.  Loaded values are not considered: the interpreter checks those.
        """
        return any(free_vars(e) & self.varying and not reads_memory(e) for e in values)

    @property
    def in_launch(self) -> bool:
        return any(LOOP_KINDS[k].level for k in self.around)

    def barrier(self, s: loop.Barrier) -> None:
        if not self.in_launch:
            self.fail("a barrier stands outside of blocks of threads")
        if self.in_group:
            self.fail("a barrier stands inside of a group of asynchronous copies")

    def async_group(self, s: loop.AsyncGroup) -> None:
        if not self.in_launch:
            self.fail("asynchronous copies stand outside of blocks of threads")
        if self.in_group:
            self.fail("a group of asynchronous copies stands inside of another one")
        self.in_group = True
        self.stmt(s.body)
        self.in_group = False

    def wait(self, s: loop.Wait) -> None:
        if s.pending < 0:
            self.fail(f"expected a number of pending groups, found {s.pending}")
        if not self.in_launch or self.in_group:
            self.fail("a wait stands outside of blocks of threads, or in a group")

    def wave_reduce(self, s: loop.WaveReduce) -> None:
        self.expr(s.value)
        if not self.in_launch or self.in_group:
            self.fail("threads exchange values outside of blocks of threads, or in a group")
        if self.only:
            self.fail(f"only some threads of a group come here: '{self.only}' stands around")
        if s.op not in WAVE_OPERATIONS or s.value.dtype.is_storage or s.value.lanes != 1:
            self.fail(f"'{s.op}' of {type_text(s.value)} across threads", s.value)
        if s.lanes < 2 or s.lanes & (s.lanes - 1) or self.along_x % s.lanes:
            self.fail(
                f"groups of {s.lanes} threads exchange values, and a block has {self.along_x} "
                "along x: expected a power of two that divides them"
            )
        if s.var.dtype is not s.value.dtype or s.var.lanes != 1:
            self.fail(
                f"'{s.var.name}' is {type_text(s.var)}, its value {type_text(s.value)}", s.value
            )
        self.bind(s.var)
        self.varying.add(s.var)
        self.stmt(s.body)
        self.vars.discard(s.var)

    def tensorize(self, s: loop.Tensorize) -> None:
        if self.stage == "final":
            self.fail(f"the loops of '{s.intrinsic}' are left")
        try:
            tensor_intrinsic(s.intrinsic)
        except UsageError as e:
            self.fail(str(e))
        self.stmt(s.body)

    def condition(self, cond: Expr) -> None:
        self.expr(cond)
        if cond.dtype is not bool_ or cond.lanes != 1:
            self.fail(f"the condition is {type_text(cond)}, expected bool", cond)

    def if_(self, s: loop.If) -> None:
        self.condition(s.cond)
        outer = self.only
        if self.varies(s.cond):
            self.only = self.only or head(s)
        self.stmt(s.then)
        if s.otherwise is not None:
            self.stmt(s.otherwise)
        self.only = outer

    def store(self, s: loop.Store) -> None:
        if s.buffer not in self.buffers:
            self.fail(f"buffer '{s.buffer.name}' is not in scope")
        if s.buffer not in self.writable:
            self.fail(f"'{s.buffer.name}' is neither an output nor allocated here, it is only read")
        lanes = self.access(s.buffer, s.indices, s.mask)
        self.expr(s.value)
        if s.value.dtype is not s.buffer.dtype or s.value.lanes != lanes:
            self.fail(
                f"'{s.buffer.name}' of {s.buffer.dtype} at {lanes} indices gets a value of type "
                f"{type_text(s.value)}"
            )

    def allocate(self, s: loop.Allocate) -> None:
        b = s.buffer
        if b.scope not in ALLOCATED:
            self.fail(f"'{b.name}' has scope '{b.scope}', expected one of {', '.join(ALLOCATED)}")
        if SCOPES[b.scope].owner in ("block", "warp") and not self.in_launch:
            self.fail(f"'{b.name}' is shared by the threads of a block, and stands outside of one")
        if not SCOPES[b.scope].owner and self.in_launch:
            self.fail(f"'{b.name}' is allocated on the heap inside a block of threads")
        if b in self.buffers:
            self.fail(f"'{b.name}' is allocated again inside its own scope")
        self.shape(b)
        if not SCOPES[b.scope].is_addressed and not all(
            isinstance(n, int) or type(n) is ir.Const for n in b.shape
        ):
            self.fail(f"'{b.name}' is in registers, its shape must be constant")
        self.buffers.add(b)
        self.writable.add(b)

    def bytes_from(self, place: Expr) -> Buffer:
        """The buffer of bytes that contains a place in memory."""
        self.expr(place)
        if not isinstance(place, ir.Load) or place.dtype is not u8 or place.lanes != 1:
            self.fail(f"expected an element of bytes (u8), found {type_text(place)}", place)
        if self.stage != "final" or self.in_launch:
            self.fail("bytes are moved or read as another type inside of a launch, or too early")
        assert isinstance(place.buffer, Buffer)
        return place.buffer

    def reinterpret(self, s: loop.Reinterpret) -> None:
        whole = self.bytes_from(s.place)
        if s.buffer.scope != "heap" or s.buffer in self.buffers:
            self.fail(f"'{s.buffer.name}' has scope '{s.buffer.scope}', or a name already")
        self.shape(s.buffer)
        self.buffers.add(s.buffer)
        if whole in self.writable:
            self.writable.add(s.buffer)

    def copy_bytes(self, s: loop.CopyBytes) -> None:
        self.bytes_from(s.source)
        if self.bytes_from(s.to) not in self.writable:
            self.fail("bytes are copied to a buffer that is only read", s.to)
        self.expr(s.count)
        if s.count.dtype is not i64 or s.count.lanes != 1:
            self.fail(f"the number of bytes is {type_text(s.count)}, expected i64", s.count)

    def let(self, s: loop.LetStmt) -> None:
        self.expr(s.value)
        if s.var.dtype is not s.value.dtype or s.var.lanes != s.value.lanes:
            self.fail(
                f"'{s.var.name}' is {type_text(s.var)}, its value {type_text(s.value)}", s.value
            )
        self.bind(s.var)
        if self.varies(s.value):
            self.varying.add(s.var)

    def evaluate(self, s: loop.Evaluate) -> None:
        if not (isinstance(s.value, ir.Call) and s.value.name == "prefetch"):
            self.fail("only a call of 'prefetch' has an effect", s.value)
        for a in s.value.args:
            self.expr(a)

    def assert_(self, s: loop.Assert) -> None:
        self.condition(s.cond)

    def return_(self, s: loop.Return) -> None:
        if any(kind != "serial" for kind in self.around):
            self.fail("the function returns inside of a loop whose iterations run together")
        self.expr(s.code)
        if not isinstance(s.code, (ir.Const, Var)) or s.code.dtype is not i32:
            self.fail("the result is no literal or variable of type i32", s.code)

    def calls(self, s: loop.CallFunction | loop.CallHost | loop.Grow | loop.Has) -> None:
        """Checks a call that names its result, or a `Has`."""
        for e in own_exprs(s):
            self.expr(e)
            if e.lanes != 1:
                self.fail(f"{type_text(e)} is passed to other code, expected a scalar", e)
        if self.stage != "final" or self.in_launch:
            self.fail("other code is called inside of a launch, or too early")
        if not isinstance(s, loop.CallFunction):
            self.bytes_from(s.table if isinstance(s, (loop.Grow, loop.Has)) else s.context)
        (name,) = bound_vars(s)
        dtype = i32 if isinstance(s, (loop.CallFunction, loop.CallHost)) else bool_
        if name.dtype is not dtype or name.lanes != 1:
            self.fail(f"'{name.name}' is {type_text(name)}, expected {dtype}")
        self.bind(name)

    def locate(self, s: loop.Locate) -> None:
        self.bytes_from(s.table)
        b = s.buffer
        if b.scope != "heap" or b.dtype is not u8 or b.shape != (0,) or b in self.buffers:
            self.fail(f"'{b.name}' is no u8[0] heap, or has a name already")
        self.buffers.add(b)
        self.writable.add(b)

    def point(self, s: loop.Point) -> None:
        self.bytes_from(s.place)
        if self.bytes_from(s.table) not in self.writable:
            self.fail("an address is written to a table that is only read", s.table)

    def while_(self, s: loop.While) -> None:
        self.condition(s.cond)
        if self.around:
            self.fail("a loop with a condition inside of a counted loop")
        self.stmt(s.body)

    # --- expressions ---

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None) -> int:
        """Check the indices and mask of a load or store.  Returns its lanes."""
        if len(indices) != len(buffer.shape):
            self.fail(
                f"'{buffer.name}' has rank {len(buffer.shape)}, "
                f"accessed with {len(indices)} indices"
            )
        lanes = max((i.lanes for i in indices), default=1)
        for i in indices:
            self.expr(i)
            if i.dtype is not i64 or i.lanes not in (1, lanes):
                self.fail(f"an index of '{buffer.name}' is {type_text(i)}, expected i64", i)
        if mask is not None:
            self.expr(mask)
            if mask.dtype is not bool_ or mask.lanes != lanes:
                self.fail(f"a mask for {lanes} lanes is {type_text(mask)}", mask)
        return lanes

    def expr(self, e: Expr) -> None:
        """Check that `e` is well formed and that all its names are in scope."""
        for symbol in symbols(e):
            if symbol not in self.vars and symbol not in self.buffers:
                kind = "variable" if isinstance(symbol, Var) else "buffer"
                self.fail(f"{kind} '{symbol.name}' is not in scope", e)
        for n in post_order(e, self.well_formed):
            self.well_formed.add(n)
            self.node(n)

    def node(self, n: Expr) -> None:
        if not type(n).is_read:
            self.fail(f"{type(n).__name__} does not belong in loop IR", n)
        if n.lanes > MOST_LANES:
            self.fail(f"a vector of {n.lanes} lanes, more than {MOST_LANES}", n)
        if self.stage == "nest" and n.lanes != 1:
            self.fail(f"a vector ({type_text(n)}) before vectorising", n)
        check = _EXPRESSIONS.get(type(n))
        if check is not None:
            check(self, n)

    def _unary(self, n: ir.Unary) -> None:
        self._operand(ir.UNARY_OPS, n.op, n)

    def _binary(self, n: ir.Binary) -> None:
        self._operand(ir.BINARY_OPS, n.op, n)

    def _operand(self, known: Mapping[str, tuple[str, ...]], op: str, n: Expr) -> None:
        if op not in known:
            self.fail(f"unknown operation '{op}'", n)
        if n.dtype.kind not in known[op] or n.dtype.is_storage:
            self.fail(f"'{op}' of {n.dtype}", n)

    def _load(self, n: ir.Load) -> None:
        assert isinstance(n.buffer, Buffer)
        self.access(n.buffer, n.indices, n.mask)

    def _call(self, n: ir.Call) -> None:
        intrinsic = INTRINSICS.get(n.name)
        if intrinsic is None:
            self.fail(f"unknown function '{n.name}'", n)
        if len(n.args) != intrinsic.arity:
            self.fail(f"'{n.name}' takes {intrinsic.arity} arguments, got {len(n.args)}", n)
        if len({(a.dtype, a.lanes) for a in n.args}) > 1:
            self.fail(f"the arguments of '{n.name}' have several types", n)
        if not intrinsic.takes(n.args[0].dtype):
            self.fail(f"'{n.name}' is not defined on {n.args[0].dtype}", n)
        if n.name != "bitcast" and n.type is not (
            bool_ if intrinsic.returns_bool else n.args[0].dtype
        ):
            self.fail(f"'{n.name}' of {n.args[0].dtype} gives {n.type}", n)
        if n.name == "bitcast" and n.type.bytes != n.args[0].dtype.bytes:
            self.fail(f"bitcast from {n.args[0].dtype} to {n.type} changes the size", n)

    def _tensor_call(self, n: ir.TensorCall) -> None:
        try:
            intrinsic = tensor_intrinsic(n.name)
        except UsageError as e:
            self.fail(str(e), n)
        wanted = [f"{t} x {lanes}" for t, lanes in intrinsic.types()]
        types = [f"{a.dtype} x {a.lanes}" for a in n.args]
        if wanted != types:
            self.fail(f"'{n.name}' takes {', '.join(wanted)}, got {', '.join(types)}", n)
        if (n.type, n.size) != (intrinsic.result.dtype, intrinsic.result.size):
            self.fail(f"'{n.name}' gives {intrinsic.result}, found {type_text(n)}", n)

    def _ramp(self, n: ir.Ramp) -> None:
        if n.base.lanes != 1 or n.stride.lanes != 1 or n.base.dtype is not n.stride.dtype:
            self.fail("base and stride of a ramp must be scalars of one type", n)
        if not n.dtype.is_int:
            self.fail(f"a ramp of {n.dtype}", n)

    def _broadcast(self, n: ir.Broadcast) -> None:
        if n.value.lanes != 1:
            self.fail("a broadcast of a vector", n)

    def _let(self, n: ir.Let) -> None:
        if n.var.dtype is not n.value.dtype or n.var.lanes != n.value.lanes:
            self.fail(f"'{n.var.name}' is {type_text(n.var)}, its value {type_text(n.value)}", n)

    def _vector_reduce(self, n: ir.VectorReduce) -> None:
        if n.a.lanes % n.size or n.op not in REDUCTIONS:
            self.fail(f"'{n.op}' of {n.a.lanes} lanes to {n.size}", n)
        if (n.op in ("and", "or") and n.dtype.is_float) or (
            n.dtype.is_bool and n.op in ("add", "mul")
        ):
            self.fail(f"'{n.op}' of {n.dtype}", n)


def _along_x(s: Stmt) -> int:
    """The number of threads along x of a loop over them; 1 for other statements."""
    is_loop = isinstance(s, loop.For) and s.kind == THREADS[0] and type(s.extent) is ir.Const
    return int(s.extent.value) if is_loop else 1  # type: ignore[attr-defined]  # it is a loop


_STATEMENTS: dict[type, Callable] = {
    loop.For: _Verifier.for_, loop.If: _Verifier.if_, loop.Store: _Verifier.store,
    loop.Allocate: _Verifier.allocate, loop.LetStmt: _Verifier.let,
    loop.Tensorize: _Verifier.tensorize, loop.Barrier: _Verifier.barrier,
    loop.AsyncGroup: _Verifier.async_group, loop.Wait: _Verifier.wait,
    loop.WaveReduce: _Verifier.wave_reduce,
    loop.Evaluate: _Verifier.evaluate, loop.Assert: _Verifier.assert_, loop.Seq: _Verifier.stmt,
    loop.Return: _Verifier.return_, loop.Reinterpret: _Verifier.reinterpret,
    loop.CopyBytes: _Verifier.copy_bytes, loop.CallFunction: _Verifier.calls,
    loop.CallHost: _Verifier.calls, loop.Grow: _Verifier.calls, loop.Has: _Verifier.calls,
    loop.Locate: _Verifier.locate, loop.Point: _Verifier.point, loop.While: _Verifier.while_,
}  # fmt: skip

_NAMING = (
    loop.Allocate, loop.LetStmt, loop.Reinterpret, loop.Locate, loop.CallFunction, loop.CallHost,
    loop.Grow, loop.Has,
)  # fmt: skip
"""The kinds of statements that declare names for the rest of their block."""

_EXPRESSIONS: dict[type, Callable] = {
    ir.Unary: _Verifier._unary, ir.Binary: _Verifier._binary, ir.Load: _Verifier._load,
    ir.Call: _Verifier._call, ir.Ramp: _Verifier._ramp,
    ir.Broadcast: _Verifier._broadcast, ir.Let: _Verifier._let,
    ir.VectorReduce: _Verifier._vector_reduce, ir.TensorCall: _Verifier._tensor_call,
}  # fmt: skip
