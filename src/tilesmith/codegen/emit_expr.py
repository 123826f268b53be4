"""Expressions to LLVM instructions.

`value(e)` returns the operand text for `e`.  Where a value is written and how long it can be reused
depends on its memory reads:

- Without reads: in the outermost scope that has its variables.
- Integers read unconditionally from buffers that nobody writes (indices), and checked indices:
  likewise, but never where they are not wanted.
- Other reads of such buffers: kept in their scope.
- Reads of written buffers: kept within one statement.

`mask` is the vector of active lanes where a lane-wise `Select` protects loads and checks of
indices.  Other expressions ignore it, because nothing in them can trap or report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.expr import Const, Expr, Var, type_text
from tilesmith.ir.intrinsics import checks_index
from tilesmith.ir.storage import converted
from tilesmith.support.errors import InternalError

from . import narrow_floats, saturate
from .arithmetic import Arithmetic
from .builder import Builder, ValueScope
from .lane_loads import known_lanes
from .llvm_text import is_narrow, lane_numbers, literal, memory_type, value_type, vector
from .math import has_expansion
from .module import Module


@dataclass(frozen=True, slots=True)
class Mask:
    """The active lanes.

    text: operand text of a bool vector.
    lanes: their number.
    known: which lanes are active, if that is known.
    outer: the mask of which this one is a part; None if it is part of all lanes.
    """

    text: str
    lanes: int
    known: tuple[bool, ...] | None = None
    outer: Mask | None = field(default=None, compare=False)


class ExprEmitter(Builder):
    """Needs `writable(buffer)` and `load(...)` from a subclass that knows memory."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module
        self.target = module.target
        self.strict = module.strict
        self.ops = Arithmetic(self, module.target, module.strict, module.libm)
        self.vars: dict[Var, str] = {}
        self.var_depth: dict[Var | ir.BufferLike, int] = {}
        self.nonnegative: set[Var] = set()
        self.may_stop = module.survey.asserts  # before what follows the assertion
        self._memory: dict[frozenset[Var | ir.BufferLike], tuple[bool, bool]] = {}
        self._checks: dict[Expr, bool] = {}
        self._signs: dict[Expr, bool] = {}
        self._rules: dict[type, Callable[..., str]] = {
            ir.Unary: self._unary,
            ir.Binary: self._binary,
            ir.Compare: self._compare,
            ir.Select: self._select,
            ir.Cast: self._cast,
            ir.Load: self.load,
            ir.Call: self._call,
            ir.Let: self._let,
            ir.Ramp: self._ramp,
            ir.Broadcast: self._broadcast,
            ir.VectorReduce: self._vector_reduce,
            ir.TensorCall: self.tensor_call,
        }

    # what the memory layer supplies

    def load(self, e: ir.Load, mask: Mask | None) -> str:
        raise NotImplementedError

    def is_written(self, buffer: ir.BufferLike) -> bool:
        raise NotImplementedError

    # analysis

    def needs_guard(self, e: Expr) -> tuple[bool, bool]:
        """Whether `e` may be evaluated only where it is wanted, since it reads memory or checks an
        index, and whether the kernel also writes that memory.
        """
        depends = ir.symbols(e)
        found = self._memory.get(depends)
        if found is None:
            buffers = [s for s in depends if not isinstance(s, Var)]
            found = self._memory[depends] = bool(buffers), any(map(self.is_written, buffers))
        return (True, False) if not found[0] and self._has_check(e) else found

    def _has_check(self, e: Expr) -> bool:
        if not self.module.survey.checks:
            return False
        found = self._checks.get(e)
        if found is None:
            found = self._checks[e] = checks_index(e)
        return found

    def level(self, e: Expr) -> int:
        """Depth of the innermost scope that binds a variable of `e`."""
        depths = self.var_depth
        return max([depths.get(s, 0) for s in ir.symbols(e)], default=0)

    def is_nonnegative(self, e: Expr) -> bool:
        """True if the integer `e` is certainly not negative (a cheap, partial answer)."""
        found = self._signs.get(e)
        if found is None:
            found = self._signs[e] = self._sign(e)
        return found

    def _sign(self, e: Expr) -> bool:
        if isinstance(e, Const):
            return e.value >= 0
        if isinstance(e, Var):
            return e in self.nonnegative
        if isinstance(e, ir.Binary):
            if e.op in ("add", "mul", "floordiv", "truncdiv", "min", "truncmod"):
                return self.is_nonnegative(e.a) and self.is_nonnegative(e.b)
            if e.op == "floormod":
                return self.is_nonnegative(e.b)
            return e.op == "max" and (self.is_nonnegative(e.a) or self.is_nonnegative(e.b))
        if isinstance(e, ir.Ramp):
            return self.is_nonnegative(e.base) and self.is_nonnegative(e.stride)
        return isinstance(e, ir.Broadcast) and self.is_nonnegative(e.value)

    # values

    def value(self, e: Expr, mask: Mask | None = None) -> str:
        """Operand text of `e`."""
        if isinstance(e, Const):
            return literal(e.value, e.type)
        if isinstance(e, Var):
            return self.variable(e)
        guarded, fleeting = self.needs_guard(e)
        if not guarded:
            mask = None
        found = self._known(e, mask, fleeting)
        if found is not None:
            return found
        if isinstance(e, ir.Broadcast) and isinstance(e.value, Const):
            return literal(e.value.value, e.value.type, e.size)
        home = self.scope if mask is not None else self.home_of(e)
        with self.writing_in(home):
            result = self._rules[type(e)](e, mask)
        (home.fleeting if fleeting else home.values)[_key(e, mask)] = result
        return result

    def _known(self, e: Expr, mask: Mask | None, fleeting: bool) -> str | None:
        """The operand of `e` if it was written for the active lanes, or for more of them."""
        while True:
            key = _key(e, mask)
            scope: ValueScope | None = self.scope
            while scope is not None:
                found = scope.values.get(key) or (scope.fleeting.get(key) if fleeting else None)
                if found is not None:
                    return found
                scope = scope.parent
            if mask is None:
                return None
            mask = mask.outer

    def home_of(self, e: Expr) -> ValueScope:
        """The scope in which `e` is written."""
        guarded, fleeting = self.needs_guard(e)
        if not guarded:
            return self.home(self.level(e))
        if fleeting or self.may_stop or e.lanes != 1 or not e.dtype.is_int:
            return self.scope
        return self.home(self.level(e), surely=True)

    def variable(self, v: Var) -> str:
        try:
            return self.vars[v]
        except KeyError:
            raise InternalError(
                f"variable {v.name} is used outside the statement that binds it"
            ) from None

    def bind(self, v: Var, value: str) -> None:
        """Let `v` stand for `value` in the current scope."""
        self.vars[v] = value
        self.var_depth[v] = self.scope.depth

    def _let(self, e: ir.Let, mask: Mask | None) -> str:
        value = self.value(e.value, mask)
        with self.nested():  # nothing that uses the variable may be written further out
            self.bind(e.var, value)
            return self.value(e.body, mask)

    def diamond(
        self, cond: str, type_: str, if_true: Callable[[], str], if_false: Callable[[], str]
    ) -> str:
        """Both ways of a branch, joined by a phi."""
        yes, no, join = self.label("then"), self.label("else"), self.label("join")
        self.branch(cond, yes, no)
        self.start_block(yes)
        with self.nested():
            a = if_true()
            from_yes = self.scope.code.label
            self.jump(join)
        self.start_block(no)
        with self.nested():
            b = if_false()
            from_no = self.scope.code.label
            self.jump(join)
        self.start_block(join)
        return self.emit(f"phi {type_} [ {a}, %{from_yes} ], [ {b}, %{from_no} ]")

    def when_any(self, mask: Mask, e: Expr) -> str:
        """`e` if any lane is active, else 0.  Without the mask it would read memory in inactive
        lanes.
        """
        active = self.emit(f"call i1 @llvm.vector.reduce.or(<{mask.lanes} x i1> {mask.text})")
        zero = self.zero(e.dtype, e.lanes)
        return self.diamond(
            active, value_type(e.dtype, e.lanes), lambda: self.value(e), lambda: zero
        )

    @staticmethod
    def zero(dtype: DType, lanes: int) -> str:
        return literal(0.0 if dtype.is_float else 0, dtype) if lanes == 1 else "zeroinitializer"

    # one method per node

    def _unary(self, e: ir.Unary, mask: Mask | None) -> str:
        return self.ops.unary(e.op, e.dtype, e.lanes, self.value(e.a, mask))

    def _binary(self, e: ir.Binary, mask: Mask | None) -> str:
        a, b = self.value(e.a, mask), self.value(e.b, mask)
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            divisor = e.b.value if isinstance(e.b, ir.Broadcast) else e.b
            known = (
                divisor.value if isinstance(divisor, Const) and not divisor.type.is_float else None
            )
            plain = self.is_nonnegative(e.a) and self.is_nonnegative(e.b)
            return self.ops.division(e.op, e.dtype, e.lanes, a, b, known, plain)
        if e.op in ("shl", "shr"):
            amount = e.b.value if isinstance(e.b, ir.Broadcast) else e.b
            return self.ops.shift(
                e.op,
                e.dtype,
                e.lanes,
                a,
                b,
                isinstance(amount, Const) and 0 <= amount.value < e.dtype.bits,
            )
        finite = None
        if e.op in ("min", "max") and e.dtype.is_float:
            finite = next((s for s, x in ((b, e.b), (a, e.a)) if _is_number(x)), None)
        return self.ops.binary(e.op, e.dtype, e.lanes, a, b, finite)

    def _compare(self, e: ir.Compare, mask: Mask | None) -> str:
        narrow = self._tail_mask(e)
        if narrow is not None:
            return narrow
        return self.ops.compare(
            e.op, e.a.dtype, e.lanes, self.value(e.a, mask), self.value(e.b, mask)
        )

    def _tail_mask(self, e: ir.Compare) -> str | None:
        """`Ramp(base, 1, n) < Broadcast(limit)` in 32-bit lanes: the count is clamped first."""
        a, b = e.a, e.b
        if (
            e.op not in ("lt", "le")
            or a.dtype is not i64
            or not isinstance(a, ir.Ramp)
            or not isinstance(b, ir.Broadcast)
        ):
            return None
        if not (isinstance(a.stride, Const) and a.stride.value == 1):
            return None
        room = self.value(
            ir.Binary("sub", b.value, a.base)
            if e.op == "lt"
            else ir.Binary("sub", b.value + 1, a.base)
        )
        low = self.emit(f"call i64 @llvm.smax(i64 {room}, i64 0)")
        count = self.emit(
            f"trunc i64 {self.emit(f'call i64 @llvm.smin(i64 {low}, i64 {e.lanes})')} to i32"
        )
        many = self.splat("i32", count, e.lanes)
        return self.emit(f"icmp slt <{e.lanes} x i32> {lane_numbers('i32', e.lanes)}, {many}")

    def _select(self, e: ir.Select, mask: Mask | None) -> str:
        lanes, type_ = e.lanes, value_type(e.dtype, e.lanes)
        cond = self.value(e.cond, mask) if e.cond.lanes > 1 else self._uniform(e.cond, mask)
        guarded = self.needs_guard(e.if_true)[0] or self.needs_guard(e.if_false)[0]
        if e.cond.lanes == 1:
            if guarded:
                return self.diamond(
                    cond,
                    type_,
                    lambda: self.value(e.if_true, mask),
                    lambda: self.value(e.if_false, mask),
                )
            a, b = self.value(e.if_true), self.value(e.if_false)
            return self.emit(f"select i1 {cond}, {type_} {a}, {type_} {b}")
        if guarded:
            bools = vector("i1", lanes)
            other = self.emit(f"xor {bools} {cond}, splat (i1 true)")
            known = known_lanes(e.cond)
            opposite = None if known is None else tuple(not k for k in known)
            a = self.value(e.if_true, self.both(mask, Mask(cond, lanes, known)))
            b = self.value(e.if_false, self.both(mask, Mask(other, lanes, opposite)))
        else:
            a, b = self.value(e.if_true), self.value(e.if_false)
        return self.emit(f"select {vector('i1', lanes)} {cond}, {type_} {a}, {type_} {b}")

    def both(self, a: Mask | None, b: Mask) -> Mask:
        """The lanes that are active in both."""
        if a is None:
            return b
        text = self.emit(f"and {vector('i1', b.lanes)} {a.text}, {b.text}")
        if a.known is None or b.known is None:
            return Mask(text, b.lanes, outer=a)
        known = tuple(x and y for x, y in zip(a.known, b.known, strict=True))
        return Mask(text, b.lanes, known, outer=a)

    def _uniform(self, e: Expr, mask: Mask | None) -> str:
        """A scalar inside a vector expression."""
        return self.when_any(mask, e) if mask and self.needs_guard(e)[0] else self.value(e)

    def _cast(self, e: ir.Cast, mask: Mask | None) -> str:
        if e.a.dtype.is_storage or e.type.is_storage:
            return self.value(converted(e), mask)
        if not self.strict:
            whole = saturate.rounded(e.a) if isinstance(e.a, ir.Cast) and e.type is f32 else None
            if isinstance(e.a, ir.Cast) and whole is not None:
                values = self.value(whole.x, mask), self.value(e.a.a, mask)
                return saturate.as_floats(self.ops, e.lanes, *values)
            clipped = saturate.rounded(e) if self.target.triple.startswith("x86_64") else None
            if clipped is not None:
                return saturate.write(
                    self.ops, clipped, e.type, e.lanes, self.value(clipped.x, mask)
                )
        return self.ops.cast(e.a.dtype, e.type, e.lanes, self.value(e.a, mask))

    def _ramp(self, e: ir.Ramp, mask: Mask | None) -> str:
        lanes, element = e.size, value_type(e.dtype)
        if lanes == 1:
            return self.value(e.base)
        if isinstance(e.stride, Const):
            steps = lane_numbers(element, lanes, int(e.stride.value))
            if isinstance(e.base, Const) and e.base.value == 0:
                return steps
        else:
            stride = self.splat(element, self._uniform(e.stride, mask), lanes)
            steps = self.emit(f"mul <{lanes} x {element}> {stride}, {lane_numbers(element, lanes)}")
        base = self._uniform(e.base, mask)
        start = (
            literal(e.base.value, e.dtype, lanes)
            if isinstance(e.base, Const)
            else self.splat(element, base, lanes)
        )
        return self.emit(f"add <{lanes} x {element}> {start}, {steps}")

    def _broadcast(self, e: ir.Broadcast, mask: Mask | None) -> str:
        value = self._uniform(e.value, mask)
        if e.size == 1:
            return value
        return self.splat(value_type(e.dtype), value, e.size)

    def _vector_reduce(self, e: ir.VectorReduce, mask: Mask | None) -> str:
        if mask:
            return self.when_any(mask, e)
        return self.ops.vector_reduce(e.op, e.dtype, e.a.lanes, e.size, self.value(e.a))

    def check_index(self, e: ir.Call, mask: Mask | None) -> str:
        """The index, which is reported where it is out of range."""
        raise NotImplementedError

    def outlined(self, e: ir.Call, x: str) -> str:
        """The function `e` of `x`, which `expand_math` left as a call."""
        raise NotImplementedError

    def _call(self, e: ir.Call, mask: Mask | None) -> str:
        if e.name == "check_index":
            return self.check_index(e, mask)
        args = [self.value(a, mask) for a in e.args]
        if has_expansion(e):
            return self.outlined(e, args[0])
        if e.name == "bitcast":
            return self._bitcast(e, args[0])
        return self.ops.call(e.name, e.args[0].dtype, e.lanes, args)

    def tensor_call(self, e: ir.TensorCall, mask: Mask | None) -> str:
        """A call of a tensor intrinsic."""
        raise NotImplementedError

    def stored(self, e: Expr, mask: Mask | None) -> str:
        """The value of `e` in its memory type."""
        return self.to_memory(e.dtype, e.lanes, self.value(e, mask))

    def _bitcast(self, e: ir.Call, value: str) -> str:
        source, result = e.args[0].dtype, e.type
        if source.bytes != result.bytes:
            raise InternalError(
                f"bitcast from {type_text(e.args[0])} to {result}: the sizes differ"
            )
        stored = self.to_memory(source, e.lanes, value)
        a, b = memory_type(source, e.lanes), memory_type(result, e.lanes)
        bits = stored if a == b else self.emit(f"bitcast {a} {stored} to {b}")
        return self.from_memory(result, e.lanes, bits)

    # memory form of values

    def to_memory(self, dtype: DType, lanes: int, value: str) -> str:
        if dtype.is_bool:
            return self.emit(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")
        return (
            narrow_floats.narrow(self, self.target, dtype, value, lanes)
            if is_narrow(dtype)
            else value
        )

    def from_memory(self, dtype: DType, lanes: int, stored: str) -> str:
        if dtype.is_bool:
            zero = "0" if lanes == 1 else "zeroinitializer"
            return self.emit(f"icmp ne {vector('i8', lanes)} {stored}, {zero}")
        return (
            narrow_floats.widen(self, self.target, dtype, stored, lanes)
            if is_narrow(dtype)
            else stored
        )


def _key(e: Expr, mask: Mask | None) -> object:
    """The key by which the operand of `e` is kept."""
    return e if mask is None else (e, mask)


def _is_number(e: Expr) -> bool:
    """True for a literal that is not NaN."""
    inner = e.value if isinstance(e, ir.Broadcast) else e
    return isinstance(inner, Const) and inner.value == inner.value
