"""Scalar expressions as C text.

A subexpression that a statement uses several times becomes a local constant before the statement.
A `Select` whose branches load something evaluates only the chosen branch.  It becomes `?:`, or `if`
and `else` if a branch needs local constants.  Index arithmetic (`i64` computed from loop variables
and literals) can't overflow and is written with C's operators; other integers wrap by helper
functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilesmith.codegen.assertions import INDEX
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, f64, i64
from tilesmith.ir.expr import Expr, Var, const, count_uses, type_text
from tilesmith.ir.intrinsics import needs_guard
from tilesmith.ir.simplify import EMPTY, Context
from tilesmith.ir.storage import code_of, converted
from tilesmith.support.errors import InternalError

from .builder import MATH, Builder
from .dialect import Dialect
from .prelude import VALUE_TYPES, has_helper, has_tensor_helper, is_narrow
from .vector_forms import Access, constant_access

ATOM, UNARY, _COMPARE, _TERNARY, _ANY = 16, 15, 10, 3, 0
_OPERATORS: dict[str, tuple[str, int]] = {
    "mul": ("*", 13), "div": ("/", 13), "floordiv": ("/", 13), "truncdiv": ("/", 13),
    "floormod": ("%", 13), "truncmod": ("%", 13), "add": ("+", 12), "sub": ("-", 12),
    "shl": ("<<", 11), "shr": (">>", 11), "and": ("&", 8), "xor": ("^", 7), "or": ("|", 6),
}  # fmt: skip
"""C's operators and their precedence."""
_BOOL = {
    "and": ("&&", 5), "mul": ("&&", 5), "min": ("&&", 5),
    "or": ("||", 4), "add": ("||", 4), "max": ("||", 4), "xor": ("!=", 9),
}  # fmt: skip
_RELATIONS = {"lt": ("<", 10), "le": ("<=", 10), "eq": ("==", 9), "ne": ("!=", 9)}
_MIXED = frozenset((4, 6, 7, 8, 11))
"""Precedences of operators whose operands get parentheses that C does not need, for readability."""

_SHORT = 12  # longest text of index arithmetic that is repeated instead of named, in characters


Rule = Callable[[Any], tuple[str, int]]
"""A function that writes an expression of one class.  It returns the text and its precedence."""


class Expressions:
    """Writer of expressions.  `text(e)` is the C text of an expression.  Lines that must run before
    the expression are appended to the builder.

    context: facts about variables.
    wrapping: i64 variables that hold data, not index arithmetic.  Arithmetic on them may wrap.
    bound: for each variable that became a local constant, its value.
    named: for each expression of the current statement that became a local constant, its name.
    slots: for each register buffer, the C variables that hold its vectors.
    rules: writers of scalar expressions by class; each returns the text and its precedence.
    vector_rules: the same for vector expressions.
    vector_type: function from a vector expression to its C type.
    """

    def __init__(self, b: Builder, dialect: Dialect) -> None:
        self.b = b
        self.names = b.names
        self.dialect = dialect
        self.context: Context = EMPTY
        self.wrapping: set[Var] = set()
        self.bound: dict[Var, Expr] = {}
        self.named: dict[Expr, str] = {}
        self.slots: dict[ir.BufferLike, dict[Access, str]] = {}
        self._uses: dict[Expr, int] = {}
        self._is_index: dict[Expr, bool] = {}
        self._loads: dict[Expr, bool] = {}
        self.rules: dict[type[Expr], Rule] = {
            Var: self.var, ir.Const: self._const, ir.Unary: self._unary, ir.Binary: self._binary,
            ir.Compare: self._compare, ir.Select: self._select, ir.Cast: self._cast,
            ir.Load: self._load, ir.Call: self._call, ir.Let: self.let,
            ir.TensorCall: self._tensor_call,
        }  # fmt: skip
        self.vector_rules: dict[type[Expr], Rule] = {}
        self.vector_type: Callable[[Expr], str] = self.type_of

    def begin(self, exprs: Iterable[Expr]) -> None:
        """Start a statement that contains `exprs`, and count the uses of each subexpression."""
        self.named = {}
        self._uses = {}
        self.count(exprs)

    def count(self, exprs: Iterable[Expr]) -> None:
        """Count the subexpressions of further expressions of the statement."""
        count_uses(exprs, self._uses)

    @contextmanager
    def nested(self) -> Iterator[list[str]]:
        """Collect the lines of a nested block, which the caller then appends.  Names and facts of
        the block end with the block.
        """
        b, before = self.b, (self.b.lines, self.named, self.context)
        b.lines, self.named = [], dict(self.named)
        b.depth += 1
        try:
            yield b.lines
        finally:
            b.depth -= 1
            b.lines, self.named, self.context = before

    def text(self, e: Expr, least: int = _ANY) -> str:
        """C text of `e`, in parentheses if its precedence is below `least`."""
        text, precedence = self.term(e)
        return f"({text})" if precedence < least else text

    def term(self, e: Expr) -> tuple[str, int]:
        """The C text of `e`, and its precedence."""
        if e in self.named:
            return self.named[e], ATOM
        text, precedence = self._rule(e)(e)
        shared = self._uses.get(e, 0) > 1 and not isinstance(e, (Var, ir.Const))
        if shared and e not in self.named and not (len(text) <= _SHORT and self.is_index(e)):
            self.named[e] = name = self.b.constant(self.type_of(e), "t", text)
            return name, ATOM
        return text, precedence

    def _rule(self, e: Expr) -> Rule:
        """The writer of a node."""
        rule = (self.rules if e.lanes == 1 else self.vector_rules).get(type(e))
        if rule is None:
            raise InternalError(
                f"{self.dialect.name} is written from scalars, found {type_text(e)}: {e}"
            )
        return rule

    def type_of(self, e: Expr) -> str:
        """The C type of the value of `e`."""
        return VALUE_TYPES[e.dtype.name] if e.lanes == 1 else self.vector_type(e)

    def is_index(self, e: Expr) -> bool:
        """True when the i64 `e` can't overflow: it is computed from loop variables and literals."""
        known = self._is_index.get(e)
        if known is None:
            if isinstance(e, Var):
                return e.dtype is i64 and e not in self.wrapping
            if isinstance(e, ir.Const):
                known = e.dtype is i64 and abs(int(e.value)) < 1 << 40
            else:
                parts = e.children[isinstance(e, ir.Select) :]
                whole = isinstance(e, (ir.Binary, ir.Unary, ir.Select)) and e.dtype is i64
                known = whole and all(map(self.is_index, parts))
            self._is_index[e] = known
        return known

    def is_nonnegative(self, e: Expr) -> bool:
        """True when the integer `e` is certainly not negative."""
        if e.dtype.kind == "uint":
            return True
        low = self.context.interval(e).lo if self.is_index(e) else None
        return low is not None and low >= 0

    def reads(self, e: Expr) -> bool:
        """True when `e` loads something or checks an index."""
        known = self._loads.get(e)
        if known is None:
            known = needs_guard(e) or any(map(self.reads, e.children))
            self._loads[e] = known
        return known

    def call(self, helper: str, *args: Expr | str) -> tuple[str, int]:
        """A call of a function of `prelude`."""
        self.b.helpers.add(helper)
        shown = [a if isinstance(a, str) else self.text(a) for a in args]
        return f"{helper}({', '.join(shown)})", ATOM

    def rounded(self, dtype: DType, text: str, precedence: int) -> tuple[str, int]:
        """Round `text` to `dtype` if that is a 16-bit float, as is done after every operation."""
        return self.call(f"ts_round_{dtype}", text) if is_narrow(dtype) else (text, precedence)

    # one method per node; it returns the text and its precedence

    def var(self, e: Var) -> tuple[str, int]:
        return self.names(e), ATOM

    def _const(self, e: ir.Const) -> tuple[str, int]:
        return literal(e)

    def _unary(self, e: ir.Unary) -> tuple[str, int]:
        if e.op == "not":
            if e.dtype.is_bool:
                return f"!{self.text(e.a, UNARY)}", UNARY
            return f"({VALUE_TYPES[e.dtype.name]})~{self.text(e.a, UNARY)}", UNARY
        if e.dtype.is_float or self.is_index(e):
            return f"-{self.text(e.a, ATOM)}", UNARY
        return self.call(f"ts_neg_{e.dtype}", e.a)

    def _binary(self, e: ir.Binary) -> tuple[str, int]:
        op, dtype = e.op, e.dtype
        if dtype.is_bool:
            return self._infix(*_BOOL[op], e.a, e.b)
        if dtype.is_float:
            return self._float(e)
        plain = (
            op in ("and", "or", "xor")
            or (op in ("add", "sub", "mul") and (self.is_index(e) or dtype.name in ("u32", "u64")))
            or (op.endswith(("div", "mod")) and self._divides_plainly(e))
            or (op == "shr" and dtype.kind == "uint" and self._in_range(e.b))
        )
        if plain:
            return self._infix(*_OPERATORS[op], e.a, e.b)
        return self.call(f"ts_{op}_{dtype}", e.a, e.b)

    def _divides_plainly(self, e: ir.Binary) -> bool:
        """Whether C's `/` and `%` give the result of this division and can't trap."""
        positive = isinstance(e.b, ir.Const) and e.b.value > 0
        return positive and (e.op.startswith("trunc") or self.is_nonnegative(e.a))

    def _in_range(self, amount: Expr) -> bool:
        return isinstance(amount, ir.Const) and 0 <= amount.value < amount.dtype.bits

    def _float(self, e: ir.Binary) -> tuple[str, int]:
        op, dtype = e.op, e.dtype
        wide = f64 if dtype is f64 else f32
        if op in ("min", "max"):
            return self.call(f"ts_{op}_{wide}", e.a, e.b)
        if op in ("floordiv", "truncdiv"):
            quotient, _ = self.rounded(dtype, *self._infix("/", 13, e.a, e.b))
            function = self._math("floor" if op == "floordiv" else "trunc", wide)
            return self.rounded(dtype, f"{function}({quotient})", ATOM)
        if op == "floormod":
            return self.rounded(dtype, *self.call(f"ts_floormod_{wide}", e.a, e.b))
        if op == "truncmod":
            text = f"{self._math('fmod', wide)}({self.text(e.a)}, {self.text(e.b)})"
            return self.rounded(dtype, text, ATOM)
        return self.rounded(dtype, *self._infix(*_OPERATORS[op], e.a, e.b))

    def _infix(self, symbol: str, precedence: int, a: Expr, b: Expr) -> tuple[str, int]:
        left, right = precedence, precedence + 1
        if precedence in _MIXED:
            left = right = UNARY if precedence > 5 else _COMPARE - 1
        return f"{self.text(a, left)} {symbol} {self.text(b, right)}", precedence

    def _compare(self, e: ir.Compare) -> tuple[str, int]:
        symbol, precedence = _RELATIONS[e.op]
        a, b = self.text(e.a, precedence + 1), self.text(e.b, precedence + 1)
        return f"{a} {symbol} {b}", precedence

    def _select(self, e: ir.Select) -> tuple[str, int]:
        cond = self.text(e.cond, _TERNARY + 1)
        if not (self.reads(e.if_true) or self.reads(e.if_false)):
            yes, no = self.text(e.if_true, _TERNARY + 1), self.text(e.if_false, _TERNARY)
            return f"{cond} ? {yes} : {no}", _TERNARY
        (yes, before_yes), (no, before_no) = self.branch(e.if_true), self.branch(e.if_false)
        if not before_yes and not before_no:
            return f"{cond} ? {yes} : {no}", _TERNARY
        return self.chosen(e, cond, (yes, before_yes), (no, before_no))

    def chosen(
        self, e: ir.Select, cond: str, yes: tuple[str, list[str]], no: tuple[str, list[str]]
    ) -> tuple[str, int]:
        """Write a `Select` as `if` and `else`, each with the lines that its value needs."""
        name = self.names.fresh("t")
        self.b.line(f"{self.type_of(e)} {name};")
        self.b.line(f"if ({cond}) {{")
        self.b.lines += yes[1]
        self.b.line(f"    {name} = {yes[0]};")
        self.b.line("} else {")
        self.b.lines += no[1]
        self.b.line(f"    {name} = {no[0]};")
        self.b.line("}")
        self.named[e] = name
        return name, ATOM

    def branch(self, e: Expr) -> tuple[str, list[str]]:
        """The text of a branch, and the lines that must run before it.  Constants that these lines
        define are valid only in the branch.
        """
        with self.nested() as lines:
            return self.text(e, _TERNARY + 1), lines

    def _cast(self, e: ir.Cast) -> tuple[str, int]:
        source, to = e.a.dtype, e.type
        if source.is_storage or to.is_storage:
            arithmetic = converted(e)
            count_uses((arithmetic,), self._uses)
            return self.term(arithmetic)
        if to.is_bool:
            return f"{self.text(e.a, _COMPARE)} != 0", 9
        if is_narrow(to):
            if source is f64:
                return self.call(f"ts_round_{to}", self.call("ts_odd_f32", e.a)[0])
            wide = self.text(e.a) if source.is_float else f"(float){self.text(e.a, UNARY)}"
            return self.call(f"ts_round_{to}", wide)
        if source.is_float and to.is_int:
            return self.call(f"ts_to_{to}_{f64 if source is f64 else f32}", e.a)
        if VALUE_TYPES[source.name] == VALUE_TYPES[to.name]:
            return self.text(e.a, UNARY), UNARY
        return f"({VALUE_TYPES[to.name]}){self.text(e.a, UNARY)}", UNARY

    def _load(self, e: ir.Load) -> tuple[str, int]:
        if e.mask is not None:
            zero = const(0.0 if e.dtype.is_float else 0, e.dtype)
            return self._select(ir.Select(e.mask, ir.Load(e.buffer, e.indices), zero))
        element = self.element(e.buffer, e.indices)
        if is_narrow(e.dtype):
            return self.call(f"ts_load_{e.dtype}", element)
        return (f"{element} != 0", 9) if e.dtype.is_bool else (element, ATOM)

    def element(self, buffer: ir.BufferLike, indices: tuple[Expr, ...]) -> str:
        """An element of a flat buffer, as an lvalue."""
        if len(indices) > 1:
            raise InternalError(
                f"{self.dialect.name} is written from flat buffers, found {len(indices)} indices"
            )
        slot = self.slot(buffer, indices, 1)
        return slot or f"{self.names(buffer)}[{self.text(indices[0]) if indices else '0'}]"

    def slot(self, buffer: ir.BufferLike, indices: tuple[Expr, ...], lanes: int) -> str | None:
        """The variable that holds these elements of a register buffer; None if no variable does."""
        slots = self.slots.get(buffer)
        access = constant_access(indices, lanes) if slots else None
        return slots.get(access) if slots and access is not None else None

    def _tensor_call(self, e: ir.TensorCall) -> tuple[str, int]:
        """A call of the helper function for a tensor intrinsic with a scalar result."""
        if not has_tensor_helper(e.name) or e.lanes > 1:
            raise InternalError(f"{self.dialect.name} has no text for the instruction {e.name}")
        old, *tiles = e.args
        return self.call(f"ts_{e.name}", old, *(self._address(t) for t in tiles))

    def _address(self, tile: Expr) -> str:
        """The address of the first of a tile's elements, which are contiguous."""
        if not isinstance(tile, ir.Load) or not isinstance(tile.indices[0], ir.Ramp):
            raise InternalError(f"{self.dialect.name} reads tiles from dense memory, found {tile}")
        return f"&{self.element(tile.buffer, (tile.indices[0].base,))}"

    def let(self, e: ir.Let) -> tuple[str, int]:
        self.names.renew(e.var)  # another statement may contain the same expression
        self.local(e.var, e.value)
        return self.term(e.body)

    def local(self, var: Var, value: Expr) -> None:
        """Define `var` as a constant in the current block."""
        self.bound[var] = value
        text = self.text(value)
        if self.is_index(value):
            self.context = self.context.with_interval(var, self.context.interval(value))
        else:
            self.wrapping.add(var)
        self.b.line(f"const {self.type_of(value)} {self.names(var)} = {text};")

    def _math(self, name: str, dtype: DType) -> str:
        name = MATH.get(name, name)
        return name if dtype is f64 else f"{name}{self.dialect.float_suffix}"

    def _call(self, e: ir.Call) -> tuple[str, int]:
        name, args = e.name, e.args
        dtype = args[0].dtype
        if name == "threefry":
            return self.call("ts_threefry", *args)
        if name == "check_index":
            number = str(self.b.message(INDEX))
            return self.call("ts_check_index", "context", number, *args)
        if name == "bitcast":
            return self._bitcast(args[0], e.type)
        if name == "fma":
            return self.term(args[0] * args[1] + args[2])
        if not dtype.is_float:
            if name in ("isnan", "isinf"):
                return "false", ATOM
            if not has_helper(name, dtype):  # rounding leaves an integer as it is
                return self.term(args[0])
            return self.call(f"ts_{name}_{dtype}", *args)
        if name in ("isnan", "isinf"):
            return f"{name}({self.text(args[0])}) != 0", 9
        shown = ", ".join(map(self.text, args))
        if name == "rsqrt":
            one = "1.0" if dtype is f64 else "1.0f"
            return self.rounded(dtype, f"{one} / {self._math('sqrt', dtype)}({shown})", 13)
        if name not in MATH:
            raise InternalError(
                f"{self.dialect.name} has no text for the intrinsic {name!r} of {dtype}"
            )
        return self.rounded(dtype, f"{self._math(name, dtype)}({shown})", ATOM)

    def _bitcast(self, a: Expr, to: DType) -> tuple[str, int]:
        source = a.dtype
        text, bits = self.text(a), f"u{source.bytes * 8}"
        if is_narrow(source):
            text, _ = self.call(f"ts_store_{source}", text)
        elif source.is_float and not source.is_storage:
            text, _ = self.call(f"ts_{bits}_of_bits_{source}", text)
        if is_narrow(to):
            return self.call(f"ts_load_{to}", f"(uint16_t)({text})")
        if to.is_float and not to.is_storage:
            return self.call(f"ts_{to}_of_bits_{bits}", f"({VALUE_TYPES[bits]})({text})")
        return f"({VALUE_TYPES[to.name]})({text})", UNARY


def literal(e: ir.Const) -> tuple[str, int]:
    """A literal and its precedence.  A float gets the shortest text that reads back as the same
    number.
    """
    value, dtype = e.value, e.type
    if dtype.is_bool:
        return ("true" if value else "false"), ATOM
    if dtype.is_storage:
        return f"{code_of(value, dtype)}u", ATOM
    if dtype.is_float:
        number = float(value)
        if not math.isfinite(number):
            text = "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
        else:
            text = repr(number) if dtype is f64 else f"{np.float32(number)!s}f"
        return text, UNARY if text.startswith("-") else ATOM
    number = int(value)
    if dtype.kind == "uint":
        return (f"UINT64_C({number})" if dtype.bits == 64 else f"{number}u"), ATOM
    if number == dtype.min and dtype.bits >= 32:
        return f"INT{dtype.bits}_MIN", ATOM
    text = str(number) if abs(number) < 1 << 31 else f"INT64_C({number})"
    return text, UNARY if number < 0 else ATOM
