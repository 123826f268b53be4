"""The sizes of a run: what a program computes from the extents that only the run knows.

    i32 @tilesmith_sizes(ptr extents, ptr values)

`extents` holds a number for each symbol, `values` takes the results: the bytes of the arena, the
bytes of scratch memory for each thread, the extents of the outputs, those of inputs that are
formulas of symbols, then what the main function uses itself.  Extents of outputs that only data
say are left out; behind the inputs' stands what they do not exceed, where that is known.  It
returns `Code.SIZES` if an extent is outside its range, or one that follows from it is negative, and
`Code.OVERFLOW` if a result does not fit 64 bits.  Nothing is allocated before it has returned 0, so
no size, however hostile, reaches memory unchecked.

Where a run measures extents (see `program.nodes`), the main function calls a function of the same
kind, which computes the values that depend on them from all extents known by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.ir.expr import Binary, Const, Expr, Unary, Var, as_expr, post_order
from tilesmith.ir.types import Dim
from tilesmith.support.errors import InternalError

from .context import Code
from .functions import SIZES


@dataclass(frozen=True, slots=True, eq=False)
class SizeProgram:
    """The sizes of a run.

    symbols: in the order of the extents.
    values: what is computed, by position.
    extents: of tensors of the program; they must not be negative.
    checks: whether the symbols' ranges are checked.
    """

    symbols: tuple[Var, ...]
    values: Mapping[int, Dim]
    extents: tuple[Dim, ...] = ()
    checks: bool = True


_CHECKED = {"add": "sadd", "sub": "ssub", "mul": "smul"}
_PLAIN = {"min": "smin", "max": "smax"}


def emit_sizes(program: SizeProgram, symbol: str = SIZES) -> str:
    """LLVM text of the function."""
    writer = _Writer(program.symbols)
    if program.checks:
        for var in program.symbols:
            writer.check(var)
    for extent in program.extents:
        writer.not_negative(as_expr(extent))
    writer.leave_if(writer.overflows, Code.OVERFLOW)
    writer.leave_if(writer.outside, Code.SIZES)
    writer.overflows = "false"
    for i, value in program.values.items():
        found = writer.value(as_expr(value))
        writer.line(f"%v{i} = getelementptr i64, ptr %values, i64 {i}")
        writer.line(f"store i64 {found}, ptr %v{i}, align 8")
    writer.leave_if(writer.overflows, Code.OVERFLOW)
    intrinsics = [
        *(
            f"declare {{ i64, i1 }} @llvm.{n}.with.overflow.i64(i64, i64)"
            for n in _CHECKED.values()
        ),
        *(f"declare i64 @llvm.{n}.i64(i64, i64)" for n in _PLAIN.values()),
    ]
    return "\n".join(
        [
            f"define i32 @{symbol}(ptr %extents, ptr %values) nounwind {{",
            "entry:",
            *writer.lines,
            "  ret i32 0",
            "}",
            "",
            *intrinsics,
        ]
    )


class _Writer:
    """The function's body; every expression is computed once."""

    def __init__(self, symbols: Sequence[Var]) -> None:
        self._symbols = {v: i for i, v in enumerate(symbols)}
        self.lines: list[str] = []
        self.outside = "false"  # whether an extent is outside its range
        self.overflows = "false"
        self._known: dict[Expr, str] = {}
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def name(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def emit(self, text: str) -> str:
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def check(self, var: Var) -> None:
        value = self.value(var)
        if var.sizes is not None:
            for test in (f"slt i64 {value}, {var.sizes.low}", f"sgt i64 {value}, {var.sizes.high}"):
                wrong = self.emit(f"icmp {test}")
                self.outside = self.emit(f"or i1 {self.outside}, {wrong}")

    def not_negative(self, extent: Expr) -> None:
        negative = self.emit(f"icmp slt i64 {self.value(extent)}, 0")
        self.outside = self.emit(f"or i1 {self.outside}, {negative}")

    def leave_if(self, condition: str, code: Code) -> None:
        if condition == "false":
            return
        label = f"l{len(self.lines)}"
        self.line(f"br i1 {condition}, label %{label}.leave, label %{label}.stay")
        self.lines += [f"{label}.leave:", f"  ret i32 {code:d}", f"{label}.stay:"]

    def value(self, e: Expr) -> str:
        for node in post_order(e, self._known):
            self._known[node] = self._node(node)
        return self._known[e]

    def _node(self, node: Expr) -> str:
        known = self._known
        if isinstance(node, Var):
            where = self.emit(f"getelementptr i64, ptr %extents, i64 {self._symbols[node]}")
            return self.emit(f"load i64, ptr {where}, align 8")
        if isinstance(node, Const):
            return str(int(node.value))
        if isinstance(node, Unary) and node.op == "neg":
            return self._checked("ssub", "0", known[node.a])
        if isinstance(node, Binary):
            a, b = known[node.a], known[node.b]
            if node.op in _CHECKED:
                return self._checked(_CHECKED[node.op], a, b)
            if node.op in _PLAIN:
                return self.emit(f"call i64 @llvm.{_PLAIN[node.op]}.i64(i64 {a}, i64 {b})")
            if node.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
                return self._divided(node.op, a, b)
        raise InternalError(f"the extent {node} is no arithmetic of symbols")

    def _checked(self, name: str, a: str, b: str) -> str:
        pair = self.emit(f"call {{ i64, i1 }} @llvm.{name}.with.overflow.i64(i64 {a}, i64 {b})")
        over = self.emit(f"extractvalue {{ i64, i1 }} {pair}, 1")
        self.overflows = self.emit(f"or i1 {self.overflows}, {over}")
        return self.emit(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def _divided(self, op: str, a: str, b: str) -> str:
        """Rounded down, or toward zero; a division by zero, or of the least number by -1, counts as
        an overflow.
        """
        zero = self.emit(f"icmp eq i64 {b}, 0")
        least = self.emit(f"icmp eq i64 {a}, {-(1 << 63)}")
        minus = self.emit(f"icmp eq i64 {b}, -1")
        both = self.emit(f"and i1 {least}, {minus}")
        bad = self.emit(f"or i1 {zero}, {both}")
        self.overflows = self.emit(f"or i1 {self.overflows}, {bad}")
        by = self.emit(f"select i1 {bad}, i64 1, i64 {b}")
        quotient = self.emit(f"sdiv i64 {a}, {by}")
        rest = self.emit(f"srem i64 {a}, {by}")
        if op in ("truncdiv", "truncmod"):
            return quotient if op == "truncdiv" else rest
        uneven = self.emit(f"icmp ne i64 {rest}, 0")
        signs = self.emit(f"xor i64 {rest}, {by}")
        negative = self.emit(f"icmp slt i64 {signs}, 0")
        down = self.emit(f"and i1 {uneven}, {negative}")
        if op == "floordiv":
            less = self.emit(f"add i64 {quotient}, -1")
            return self.emit(f"select i1 {down}, i64 {less}, i64 {quotient}")
        more = self.emit(f"add i64 {rest}, {by}")
        return self.emit(f"select i1 {down}, i64 {more}, i64 {rest}")
