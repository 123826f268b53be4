"""Expressions to LLVM instructions.

`value(e)` returns the operand text for `e`.  The memory that `e` reads determines the scope in
which the value of `e` is written and reused:

- `e` reads no memory: in the outermost scope that has the variables of `e`.
- `e` is a checked index, or an integer read unconditionally from a buffer that nobody writes (an
  index): in the outermost scope that has the variables of `e`, without leaving a branch or a loop
  that may not run.
- `e` reads other elements of buffers that nobody writes: in the current scope.
- `e` reads written buffers: in the current scope, for one statement.

`mask` is the vector of active lanes, for operands of a lane-wise `Select` that load or check
indices.  Other expressions ignore it, because nothing in them can trap or report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Const, Expr, Var, type_text
from tilesmith.ir.intrinsics import checks_index
from tilesmith.ir.storage import converted
from tilesmith.support.errors import InternalError

from . import high_products, saturate
from .arithmetic import Arithmetic
from .builder import Builder, ValueScope
from .environment import Environment
from .lane_loads import known_lanes
from .llvm_text import lane_numbers, literal, memory_type, value_type, vector
from .module import Module


@dataclass(frozen=True, slots=True)
class Mask:
    """The active lanes.

    text: operand text of a bool vector.
    lanes: number of lanes.
    known: for each lane, whether it is active; None if not known at compile time.
    outer: a mask whose active lanes include those of this one; None for all lanes.
    """

    text: str
    lanes: int
    known: tuple[bool, ...] | None = None
    outer: Mask | None = field(default=None, compare=False)


Rule = Callable[[Any, Mask | None], str]
"""A function that writes the expressions of one class for the active lanes.  It returns the
operand.
"""


_DEEP = 32
"""Scope depth up to which an expression's value is searched in all scopes around it.  In deeper
scopes the search ends at the innermost scope that binds a variable of the expression.
"""


class Values:
    """Writer of expressions.  An expression whose value is known in the current scope, or in a
    scope around it, is not written again.

    rules: writers by class of expression.  `Statements` adds those of loads and calls.
    """

    def __init__(self, b: Builder, env: Environment, ops: Arithmetic, module: Module) -> None:
        self.b = b
        self.emit = b.emit
        self.env = env
        self.ops = ops
        self.module = module
        self._memory: dict[frozenset[Var | ir.BufferLike], tuple[bool, bool]] = {}
        self._checks: dict[Expr, bool] = {}
        self.rules: dict[type[Expr], Rule] = {
            ir.Unary: self._unary, ir.Binary: self._binary, ir.Compare: self._compare,
            ir.Select: self._select, ir.Cast: self._cast, ir.Call: self.call, ir.Let: self._let,
            ir.Ramp: self._ramp, ir.Broadcast: self._broadcast,
            ir.VectorReduce: self._vector_reduce,
        }  # fmt: skip

    # analysis

    def needs_guard(self, e: Expr) -> tuple[bool, bool]:
        """Whether `e` reads memory or checks an index, and whether the kernel writes to this
        memory.  If the first result is true, `e` may be evaluated only under the conditions around
        it.
        """
        depends = ir.symbols(e)
        reads = self._memory.get(depends)
        if reads is None:
            written = self.module.survey.written
            buffers = [s for s in depends if not isinstance(s, Var)]
            reads = self._memory[depends] = bool(buffers), any(s in written for s in buffers)
        return (True, False) if not reads[0] and self._has_check(e) else reads

    def _has_check(self, e: Expr) -> bool:
        if not self.module.survey.checks:
            return False
        known = self._checks.get(e)
        if known is None:
            known = self._checks[e] = checks_index(e)
        return known

    # values

    def value(self, e: Expr, mask: Mask | None = None) -> str:
        """Operand text of `e`."""
        if isinstance(e, Const):
            return literal(e.value, e.type)
        if isinstance(e, Var):
            return self.env.variable(e)
        guarded, fleeting = self.needs_guard(e)
        if not guarded:
            mask = None
        known = self._known(e, mask, fleeting)
        if known is not None:
            return known
        if isinstance(e, ir.Broadcast) and isinstance(e.value, Const):
            return literal(e.value.value, e.value.type, e.size)
        home = self.b.scope if mask is not None else self.home_of(e)
        with self.b.writing_in(home):
            result = self.rules[type(e)](e, mask)
        (home.fleeting if fleeting else home.values)[_key(e, mask)] = result
        return result

    def _known(self, e: Expr, mask: Mask | None, fleeting: bool) -> str | None:
        """The operand of `e`, if `e` was already written for all active lanes, else None."""
        least = self.env.level(e) if self.b.scope.depth > _DEEP else 0
        while True:
            key = _key(e, mask)
            scope: ValueScope | None = self.b.scope
            while scope is not None and scope.depth >= least:
                known = scope.values.get(key) or (scope.fleeting.get(key) if fleeting else None)
                if known is not None:
                    return known
                scope = scope.parent
            if mask is None:
                return None
            mask = mask.outer

    def home_of(self, e: Expr) -> ValueScope:
        """The scope in which `e` is written."""
        guarded, fleeting = self.needs_guard(e)
        if not guarded:
            return self.b.home(self.env.level(e))
        if fleeting or self.module.survey.asserts or e.lanes != 1 or not e.dtype.is_int:
            return self.b.scope
        return self.b.home(self.env.level(e), surely=True)

    def _let(self, e: ir.Let, mask: Mask | None) -> str:
        value = self.value(e.value, mask)
        with self.b.nested():  # values that use the variable must stay in its scope
            self.env.bind(e.var, value)
            return self.value(e.body, mask)

    def when_any(self, mask: Mask, e: Expr) -> str:
        """The value of `e` if any lane is active, else 0, since `e` must not read memory for
        inactive lanes.
        """
        active = self.emit(f"call i1 @llvm.vector.reduce.or(<{mask.lanes} x i1> {mask.text})")
        type_, zero = value_type(e.dtype, e.lanes), self.ops.zero(e.dtype, e.lanes)
        return self.b.diamond(active, type_, lambda: self.value(e), lambda: zero)

    # one method per node

    def _unary(self, e: ir.Unary, mask: Mask | None) -> str:
        return self.ops.unary(e.op, e.dtype, e.lanes, self.value(e.a, mask))

    def _binary(self, e: ir.Binary, mask: Mask | None) -> str:
        a, b = self.value(e.a, mask), self.value(e.b, mask)
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            divisor = e.b.value if isinstance(e.b, ir.Broadcast) else e.b
            known = divisor.value if isinstance(divisor, Const) else None
            plain = self.env.is_nonnegative(e.a) and self.env.is_nonnegative(e.b)
            return self.ops.division(e.op, e.dtype, e.lanes, a, b, known, plain)
        if e.op in ("shl", "shr"):
            amount = e.b.value if isinstance(e.b, ir.Broadcast) else e.b
            in_range = isinstance(amount, Const) and 0 <= amount.value < e.dtype.bits
            return self.ops.shift(e.op, e.dtype, e.lanes, a, b, in_range)
        finite = None
        if e.op in ("min", "max") and e.dtype.is_float:
            finite = next((s for s, x in ((b, e.b), (a, e.a)) if _is_number(x)), None)
        return self.ops.binary(e.op, e.dtype, e.lanes, a, b, finite)

    def _compare(self, e: ir.Compare, mask: Mask | None) -> str:
        narrow = self._tail_mask(e)
        if narrow is not None:
            return narrow
        a, b = self.value(e.a, mask), self.value(e.b, mask)
        return self.ops.compare(e.op, e.a.dtype, e.lanes, a, b)

    def _tail_mask(self, e: ir.Compare) -> str | None:
        """The mask `Ramp(base, 1, n) < Broadcast(limit)` of a tail, compared in 32-bit lanes.  The
        number of active lanes is clamped before it is narrowed to 32 bits.  None for other
        comparisons.
        """
        a, b = e.a, e.b
        if e.op not in ("lt", "le") or a.dtype is not i64:
            return None
        if not isinstance(a, ir.Ramp) or not isinstance(b, ir.Broadcast):
            return None
        if not isinstance(a.stride, Const) or a.stride.value != 1:
            return None
        room = self.value(ir.Binary("sub", b.value if e.op == "lt" else b.value + 1, a.base))
        low = self.emit(f"call i64 @llvm.smax(i64 {room}, i64 0)")
        count = self.emit(f"call i64 @llvm.smin(i64 {low}, i64 {e.lanes})")
        many = self.b.splat("i32", self.emit(f"trunc i64 {count} to i32"), e.lanes)
        return self.emit(f"icmp slt <{e.lanes} x i32> {lane_numbers('i32', e.lanes)}, {many}")

    def _select(self, e: ir.Select, mask: Mask | None) -> str:
        lanes, type_ = e.lanes, value_type(e.dtype, e.lanes)
        cond = self.value(e.cond, mask) if e.cond.lanes > 1 else self._uniform(e.cond, mask)
        guarded = self.needs_guard(e.if_true)[0] or self.needs_guard(e.if_false)[0]
        if e.cond.lanes == 1:
            if guarded:
                yes, no = (lambda x=x: self.value(x, mask) for x in (e.if_true, e.if_false))
                return self.b.diamond(cond, type_, yes, no)
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
        """The value of a scalar expression inside a vector expression."""
        return self.when_any(mask, e) if mask and self.needs_guard(e)[0] else self.value(e)

    def _cast(self, e: ir.Cast, mask: Mask | None) -> str:
        if e.a.dtype.is_storage or e.type.is_storage:
            return self.value(converted(e), mask)
        product = high_products.high_product(e, self.module.target)
        if product is not None:
            factors = [self.value(v, mask) for v in (product.a, product.b)]
            return high_products.write(self.b, product, e.lanes, *factors)
        if not self.module.strict:
            whole = saturate.rounded(e.a) if isinstance(e.a, ir.Cast) and e.type is f32 else None
            if isinstance(e.a, ir.Cast) and whole is not None:
                values = self.value(whole.x, mask), self.value(e.a.a, mask)
                return saturate.as_floats(self.ops, e.lanes, *values)
            is_x86 = self.module.target.triple.startswith("x86_64")
            clipped = saturate.rounded(e) if is_x86 else None
            if clipped is not None:
                x = self.value(clipped.x, mask)
                return saturate.write(self.ops, clipped, e.type, e.lanes, x)
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
            stride = self.b.splat(element, self._uniform(e.stride, mask), lanes)
            steps = self.emit(f"mul <{lanes} x {element}> {stride}, {lane_numbers(element, lanes)}")
        base = self._uniform(e.base, mask)
        if isinstance(e.base, Const):
            start = literal(e.base.value, e.dtype, lanes)
        else:
            start = self.b.splat(element, base, lanes)
        return self.emit(f"add <{lanes} x {element}> {start}, {steps}")

    def _broadcast(self, e: ir.Broadcast, mask: Mask | None) -> str:
        value = self._uniform(e.value, mask)
        if e.size == 1:
            return value
        return self.b.splat(value_type(e.dtype), value, e.size)

    def _vector_reduce(self, e: ir.VectorReduce, mask: Mask | None) -> str:
        if mask:
            return self.when_any(mask, e)
        return self.ops.vector_reduce(e.op, e.dtype, e.a.lanes, e.size, self.value(e.a))

    def call(self, e: ir.Call, mask: Mask | None) -> str:
        """An intrinsic function of values."""
        args = [self.value(a, mask) for a in e.args]
        if e.name == "bitcast":
            return self._bitcast(e, args[0])
        return self.ops.call(e.name, e.args[0].dtype, e.lanes, args)

    def _bitcast(self, e: ir.Call, value: str) -> str:
        source, result = e.args[0].dtype, e.type
        if source.bytes != result.bytes:
            raise InternalError(
                f"bitcast from {type_text(e.args[0])} to {result}: the sizes differ"
            )
        stored = self.ops.to_memory(source, e.lanes, value)
        a, b = memory_type(source, e.lanes), memory_type(result, e.lanes)
        bits = stored if a == b else self.emit(f"bitcast {a} {stored} to {b}")
        return self.ops.from_memory(result, e.lanes, bits)


def _key(e: Expr, mask: Mask | None) -> object:
    """The key under which a scope stores the operand of `e`."""
    return e if mask is None else (e, mask)


def _is_number(e: Expr) -> bool:
    """True for a literal that is not NaN."""
    inner = e.value if isinstance(e, ir.Broadcast) else e
    return isinstance(inner, Const) and inner.value == inner.value
