"""Vector expressions as C text, in the vector extensions of GCC and Clang.

A vector of n lanes is a `ts_<element>x<m>`, where m is n rounded up to a power of two.  Lanes after
the first n are never read.  A vector of bools is a mask: 0 or -1 in each lane of a vector of
integers, as wide as the compared values (`mask_bits`).  Arithmetic is written with C's operators on
vectors.  Other operations become loops over the lanes with scalar code: functions, gathers,
saturating conversions, and selects that guard memory accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tilesmith.codegen.lane_loads import known_lanes
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import Const, Expr, Var, const
from tilesmith.ir.simplify import simplify
from tilesmith.ir.tensor_intrinsics import called
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import InternalError

from .expressions import ATOM, UNARY, Expressions
from .prelude import VALUE_TYPES, is_narrow
from .vector_forms import (
    contiguous,
    holds,
    holds_everywhere,
    is_below,
    is_safe,
    padded,
    value_bits,
    value_name,
)

_SUM, _PRODUCT = 12, 13  # precedences
_ARITHMETIC = {"add": ("+", _SUM), "sub": ("-", _SUM), "mul": ("*", _PRODUCT)}
_LOGIC = {
    "and": "&", "or": "|", "xor": "^", "mul": "&", "min": "&", "add": "|", "max": "|",
}  # fmt: skip
"""Operations on masks."""
_BITWISE = ("and", "or", "xor")
_RELATIONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
LANE, NEXT = "lane", "next"  # variables of loops over lanes


class Vectors:
    """Writer of vector expressions.  It adds rules to `Expressions`, the writer of scalar
    expressions.

    written: buffers that the kernel stores to.
    types: the vector types that the text names.
    """

    def __init__(self, values: Expressions, written: Collection[Buffer]) -> None:
        self.b = values.b
        self.names = values.names
        self.values = values
        self.text = values.text
        self.written = written
        self.types: set[tuple[str, int]] = set()
        self._bits_of: dict[Expr, int] = {}  # widths in bits of the masks that operators compute
        # for each vector variable, the scalar variable for its element in the current loop over
        # lanes
        self._elements: dict[Var, Var] = {}
        values.rules[ir.VectorReduce] = self._reduced
        values.vector_type = self.vector_type
        values.vector_rules = {
            Var: values.var, ir.Let: values.let, ir.Unary: self._unary, ir.Binary: self._binary,
            ir.Compare: self._compare, ir.Select: self._select, ir.Cast: self._cast,
            ir.Load: self._load, ir.Call: self._call, ir.Ramp: self._ramp,
            ir.Broadcast: self._broadcast, ir.VectorReduce: self._reduced,
        }  # fmt: skip

    # types

    def vector_type(self, e: Expr) -> str:
        """The C type of a vector expression's value."""
        if e.dtype.is_bool:
            return self.vector(f"i{self.mask_bits(e)}", e.lanes)
        return self.vector(value_name(e.dtype), e.lanes)

    def vector(self, element: str, lanes: int) -> str:
        """The name of the vector type with this element type and number of lanes."""
        self.types.add((element, padded(lanes)))
        return f"ts_{element}x{padded(lanes)}"

    def mask_bits(self, e: Expr) -> int:
        """The width in bits of each lane of `e`, a vector of bools."""
        if isinstance(e, Var):
            return self.mask_bits(self.values.bound[e]) if e in self.values.bound else 32
        if isinstance(e, ir.Compare):
            return self.mask_bits(e.a) if e.a.dtype.is_bool else value_bits(e.a.dtype)
        if not isinstance(e, (ir.Unary, ir.Binary)):
            return 32
        bits = self._bits_of.get(e)
        if bits is None:
            bits = self._bits_of[e] = max(self.mask_bits(c) for c in e.children)
        return bits

    def mask(self, e: Expr, bits: int) -> str:
        """The text of a mask with lanes of the given width."""
        text = self.text(e, UNARY)
        if self.mask_bits(e) == bits:
            return text
        return f"__builtin_convertvector({text}, {self.vector(f'i{bits}', e.lanes)})"

    def _integers(self, e: Expr, kind: str = "i") -> str:
        """The type of integer vectors with lanes as wide as those of `e`."""
        bits = self.mask_bits(e) if e.dtype.is_bool else value_bits(e.dtype)
        return self.vector(f"{kind}{bits}", e.lanes)

    # operands

    def name(self, e: Expr) -> str:
        """A name for the value of `e`, so that `e` is evaluated only once."""
        name = self.text(e)
        if not name.isidentifier():
            name = self.b.constant(self.values.type_of(e), "v", name)
        self.values.named[e] = name
        return name

    def _operand(self, e: Expr, other: Expr, least: int) -> str:
        """An operand of a binary operation.  A broadcast is written as its scalar, which C repeats
        in all lanes, unless both operands are broadcasts.
        """
        if isinstance(e, ir.Broadcast) and not isinstance(other, ir.Broadcast):
            return self._scalar(e.value, least)
        return self.text(e, least)

    def _scalar(self, e: Expr, least: int) -> str:
        if e.dtype.is_int and e.dtype.bits != 64:  # C promotes narrower integers to int
            return f"({VALUE_TYPES[e.dtype.name]}){self.text(e, UNARY)}"
        return self.text(e, least)

    # rules

    def _broadcast(self, e: ir.Broadcast) -> tuple[str, int]:
        type_ = self.vector_type(e)
        if e.dtype.is_bool:
            return f"({type_}){{0}} - ({self.text(e.value, UNARY)} ? 1 : 0)", _SUM
        if isinstance(e.value, Const) and e.value.value == 0 and str(e.value.value)[:1] != "-":
            return f"({type_}){{0}}", UNARY
        # x - 0 is x for every float x, but -0 + 0 is 0
        if e.dtype.is_float:
            return f"{self.text(e.value, _SUM)} - ({type_}){{0}}", _SUM
        return f"({type_}){{0}} + {self._scalar(e.value, _PRODUCT)}", _SUM

    def _ramp(self, e: ir.Ramp) -> tuple[str, int]:
        steps = ", ".join(map(str, range(e.lanes)))
        text = f"({self.vector_type(e)}){{{steps}}}"
        if not (isinstance(e.stride, Const) and e.stride.value == 1):
            text = f"{text} * {self._scalar(e.stride, UNARY)}"
        return f"{text} + {self._scalar(e.base, _PRODUCT)}", _SUM

    def _unary(self, e: ir.Unary) -> tuple[str, int]:
        a = self.text(e.a, UNARY)
        if e.op == "not":
            return f"~{a}", UNARY
        if e.dtype.is_float:
            return f"-{a}", UNARY
        return f"({self.vector_type(e)})-({self._integers(e, 'u')}){a}", UNARY

    def _binary(self, e: ir.Binary) -> tuple[str, int]:
        op, dtype = e.op, e.dtype
        if dtype.is_bool:
            bits = self.mask_bits(e)
            return f"{self.mask(e.a, bits)} {_LOGIC[op]} {self.mask(e.b, bits)}", 0
        if is_narrow(dtype):  # each result is rounded
            return self._in_lanes(e)
        if op in ("min", "max"):
            return self._extreme(e)
        if dtype.is_float and (op in _ARITHMETIC or op == "div"):
            symbol, precedence = _ARITHMETIC.get(op, ("/", _PRODUCT))
            a = self._operand(e.a, e.b, precedence)
            return f"{a} {symbol} {self._operand(e.b, e.a, precedence + 1)}", precedence
        if dtype.is_int and op in _ARITHMETIC:
            unsigned = self._integers(e, "u")
            a, b = self.text(e.a, UNARY), self.text(e.b, UNARY)
            symbol, _ = _ARITHMETIC[op]
            return f"({self.vector_type(e)})(({unsigned}){a} {symbol} ({unsigned}){b})", UNARY
        if dtype.is_int and op in _BITWISE:
            return f"{self.text(e.a, UNARY)} {_LOGIC[op]} {self.text(e.b, UNARY)}", 0
        if op in ("shl", "shr") and is_below(e.b, dtype.bits):
            symbol = "<<" if op == "shl" else ">>"
            kept = self._integers(e, "u") if op == "shl" else self.vector_type(e)
            shifted = f"({kept}){self.text(e.a, UNARY)} {symbol} {self.text(e.b, UNARY)}"
            return f"({self.vector_type(e)})({shifted})", UNARY
        return self._in_lanes(e)

    def _extreme(self, e: ir.Binary) -> tuple[str, int]:
        """The minimum or maximum: the first operand if both are equal, NaN if either is NaN."""
        a, b = self.name(e.a), self.name(e.b)
        keep, leave = ("<=", ">") if e.op == "min" else (">=", "<")
        known = e.b.value if isinstance(e.b, ir.Broadcast) else None
        integers = self._integers(e)
        if e.dtype.is_int or (isinstance(known, Const) and known.value == known.value):
            chosen = f"~({integers})({a} {leave} {b})"
        else:
            chosen = f"({integers})({a} {keep} {b}) | ({integers})({a} != {a})"
        return self.blend(chosen, a, b, e)

    def blend(self, mask: str, yes: str, no: str, e: Expr) -> tuple[str, int]:
        integers = self._integers(e)
        name = self.b.constant(integers, "m", mask)
        chosen = f"({name} & ({integers}){yes}) | (~{name} & ({integers}){no})"
        return f"({self.vector_type(e)})({chosen})", UNARY

    def _compare(self, e: ir.Compare) -> tuple[str, int]:
        if e.a.dtype.is_bool:
            if e.op not in ("eq", "ne"):
                return self._in_lanes(e)
            bits = self.mask_bits(e)
            differ = f"{self.mask(e.a, bits)} ^ {self.mask(e.b, bits)}"
            return (differ, 0) if e.op == "ne" else (f"~({differ})", UNARY)
        a, b = self.text(e.a, _SUM), self.text(e.b, _SUM)
        return f"({self.vector_type(e)})({a} {_RELATIONS[e.op]} {b})", UNARY

    def _select(self, e: ir.Select) -> tuple[str, int]:
        if e.cond.lanes == 1:
            cond, branch = self.text(e.cond), self.values.branch
            return self.values.chosen(e, cond, branch(e.if_true), branch(e.if_false))
        if not (is_safe(e.if_true, e.cond) and is_safe(e.if_false, None)):
            return self._in_lanes(e)
        if e.dtype.is_bool:
            bits = self.mask_bits(e)
            yes, no = self.mask(e.if_true, bits), self.mask(e.if_false, bits)
        else:
            bits = value_bits(e.dtype)
            yes, no = self.text(e.if_true, UNARY), self.text(e.if_false, UNARY)
        return self.blend(self.mask(e.cond, bits), yes, no, e)

    def _cast(self, e: ir.Cast) -> tuple[str, int]:
        source, to = e.a.dtype, e.type
        plain = not (source.is_storage or to.is_storage or is_narrow(to) or to.is_bool)
        if not plain or (source.is_float and to.is_int):
            return self._in_lanes(e)
        type_ = self.vector_type(e)
        a = f"{self.text(e.a, UNARY)} & 1" if source.is_bool else self.text(e.a)
        return f"__builtin_convertvector({a}, {type_})", ATOM

    def _call(self, e: ir.Call) -> tuple[str, int]:
        args, dtype = e.args, e.args[0].dtype
        if is_narrow(dtype) or e.type.is_bool:
            return self._in_lanes(e)
        if e.name == "fma":
            return self.values.term(args[0] * args[1] + args[2])
        if e.name == "bitcast" and not (dtype.is_storage or e.type.is_storage):
            return f"({self.vector_type(e)}){self.text(args[0], UNARY)}", UNARY
        if e.name == "abs" and dtype.is_float:
            integers, most = self._integers(e), (1 << dtype.bits - 1) - 1
            kept = f"({integers}){self.text(args[0], UNARY)} & INT{dtype.bits}_C({most})"
            return f"({self.vector_type(e)})({kept})", UNARY
        return self._in_lanes(e)

    def _load(self, e: ir.Load) -> tuple[str, int]:
        slot = self.values.slot(e.buffer, e.indices, e.lanes)
        if slot is not None:
            if e.mask is None or holds(e.mask):
                return slot, ATOM
            zero = f"({self.vector_type(e)}){{0}}"
            return self.blend(self.mask(e.mask, e.dtype.bits), slot, zero, e)
        start = contiguous(e.indices)
        mask = known_lanes(e.mask)
        is_plain = not (is_narrow(e.dtype) or e.dtype.is_bool or e.dtype.is_storage)
        if start is None or not is_plain:
            return self._in_lanes(e)
        if e.mask is not None and mask is None:
            return self._tail(e, e.mask, start)
        if (e.mask is not None and not all(mask or ())) or padded(e.lanes) != e.lanes:
            on = mask or (True,) * e.lanes
            elements = [
                self.values.element(e.buffer, (start + i,)) if active else "0"
                for i, active in enumerate(on)
            ]
            return f"({self.vector_type(e)}){{{', '.join(elements)}}}", UNARY
        return self.at(e.buffer, start, e.lanes), UNARY

    def _tail(self, e: ir.Load, mask: Expr, start: Expr) -> tuple[str, int]:
        """A load under a mask that is known only at run time.  If the mask holds in all lanes, the
        whole vector is loaded at once, else lane by lane.
        """
        holds = holds_everywhere(mask)
        if holds is None or padded(e.lanes) != e.lanes:
            return self._in_lanes(e)
        name, whole = self.names.fresh("t"), self.at(e.buffer, start, e.lanes)
        self.b.line(f"{self.values.type_of(e)} {name} = {{0}};")
        self.either(
            holds,
            lambda: self.b.line(f"{name} = {whole};"),
            lambda: self.loop_over_lanes(e.lanes, lambda lane: self._assign(name, e, lane)),
        )
        return name, ATOM

    def either(self, cond: Expr, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Write an `if` with the lines of `then`, and an `else` with the lines of `otherwise`."""
        self.b.line(f"if ({self.text(cond)}) {{")
        for last, write in (("} else {", then), ("}", otherwise)):
            with self.values.nested() as lines:
                write()
            self.b.lines += lines
            self.b.line(last)

    def at(self, buffer: ir.BufferLike, start: Expr, lanes: int) -> str:
        """Contiguous elements of a buffer in memory, as an lvalue."""
        type_ = self.vector(value_name(buffer.dtype), lanes)
        const_ = "" if buffer in self.written else "const "
        where = self.text(start, _SUM)
        offset = "" if where == "0" else f" + {where}"
        return f"*({const_}{type_}_u *)({self.names(buffer)}{offset})"

    # lane by lane

    def _in_lanes(self, e: Expr) -> tuple[str, int]:
        """Write a loop over the lanes of `e` that computes its value.

        Vector operands are evaluated before the loop, unless `e` is a select or reads memory.  In
        that case, some lanes of the operands must not be evaluated.
        """
        if not (isinstance(e, ir.Select) or self.values.reads(e)):
            for c in e.children:
                if c.lanes > 1 and not isinstance(c, (ir.Ramp, ir.Broadcast)):
                    self.name(c)
        name = self.names.fresh("t")
        self.b.line(f"{self.values.type_of(e)} {name} = {{0}};")
        self.loop_over_lanes(e.lanes, lambda lane: self._assign(name, e, lane))
        return name, ATOM

    def _assign(self, name: str, e: Expr, lane: Var) -> None:
        element = self.lane_of(e, lane)
        self.values.count((element,))
        text = self.text(element, UNARY)
        value = f"-({text} ? 1 : 0)" if e.dtype.is_bool else text
        self.b.line(f"{name}[{LANE}] = {value};")

    def loop_over_lanes(self, lanes: int, body: Callable[[Var], None]) -> None:
        """Write a loop over lanes.  Names that the loop's body defines end with the loop."""
        lane = Var(LANE, i64)
        self.names.alias(lane, LANE)
        with self.values.nested() as inside:
            known = self.values.context.with_var(lane, const(0), const(lanes - 1))
            self.values.context = known
            body(lane)
        self.b.line(f"for (int {LANE} = 0; {LANE} < {lanes}; {LANE}++) {{")
        self.b.lines += inside
        self.b.line("}")

    def lane_of(self, e: Expr, lane: Var) -> Expr:
        """One lane of `e` as a scalar expression."""
        return self._lane_of(e, lane, {})

    def _lane_of(self, e: Expr, lane: Var, done: dict[Expr, Expr]) -> Expr:
        """One lane of `e` as a scalar expression.

        done: the lane of each subexpression that was already visited; subexpressions may be shared.
        """
        if e not in done:
            done[e] = self._new_lane_of(e, lane, done)
        return done[e]

    def _new_lane_of(self, e: Expr, lane: Var, done: dict[Expr, Expr]) -> Expr:
        if e.lanes == 1:
            return e
        if isinstance(e, ir.Broadcast):
            return e.value
        if isinstance(e, ir.Ramp):
            return simplify(e.base + e.stride * ir.cast(lane, e.dtype))
        if isinstance(e, Var) and e in self._elements:
            return self._elements[e]
        if isinstance(e, Var) or e in self.values.named or self._is_whole(e):
            return self._stand_in(e.dtype, f"{self.name(e)}[{LANE}]")
        if isinstance(e, ir.Let):
            value = self._lane_of(e.value, lane, done)
            self._elements[e.var] = Var(e.var.name, e.var.dtype)
            return ir.Let(self._elements[e.var], value, self._lane_of(e.body, lane, done))
        return e.with_children(tuple(self._lane_of(c, lane, done) for c in e.children))

    def _is_whole(self, e: Expr) -> bool:
        """Whether `e` is written as a whole, not lane by lane."""
        if isinstance(e, ir.Load):
            return self.values.slot(e.buffer, e.indices, e.lanes) is not None
        return isinstance(e, ir.VectorReduce) or called(e) is not None

    def _stand_in(self, dtype: DType, text: str) -> Var:
        """A variable that is written as `text`, an element of a named vector."""
        element = Var(text, dtype)
        self.values.wrapping.add(element)
        self.names.alias(element, f"({text} != 0)" if dtype.is_bool else text)
        return element

    # reductions

    def _reduced(self, e: ir.VectorReduce) -> tuple[str, int]:
        if e.a.lanes % e.size:
            raise InternalError(f"{e.a.lanes} lanes can't be reduced to {e.size}")
        source = self.name(e.a)
        if e.size == 1 and padded(e.a.lanes) == e.a.lanes and not e.dtype.is_bool:
            return self._halved(e, source), ATOM
        group = e.a.lanes // e.size
        name = self.names.fresh("r")
        self.b.line(f"{self.values.type_of(e)} {name}{' = {0}' if e.size > 1 else ''};")
        to = name if e.size == 1 else f"{name}[{LANE}]"
        self.b.line(f"for (int {LANE} = 0; {LANE} < {e.size}; {LANE}++) {{")
        self.b.line(f"    {to} = {source}[{LANE} * {group}];")
        self.b.line(f"    for (int {NEXT} = 1; {NEXT} < {group}; {NEXT}++)")
        texts = to, f"{source}[{LANE} * {group} + {NEXT}]"
        text = self.text(ir.Binary(e.op, *(self._stand_in(e.dtype, t) for t in texts)))
        value = f"-({text} ? 1 : 0)" if e.dtype.is_bool and e.size > 1 else text
        self.b.line(f"        {to} = {value};")
        self.b.line("}")
        return (f"({name} != 0)" if e.dtype.is_bool and e.size == 1 else name), ATOM

    def _halved(self, e: ir.VectorReduce, source: str) -> str:
        """Combine the two halves of a vector, repeatedly until one lane is left.  Returns the name
        of the result.
        """
        lanes = e.a.lanes
        while lanes > 1:
            lanes //= 2
            name = self.names.fresh("r")
            halves = ("[0]", "[1]") if lanes == 1 else (f"[{LANE}]", f"[{LANE} + {lanes}]")
            a, b = (self._stand_in(e.dtype, source + half) for half in halves)
            text = self.text(ir.Binary(e.op, a, b))
            if lanes == 1:
                self.b.line(f"const {VALUE_TYPES[e.dtype.name]} {name} = {text};")
            else:
                self.b.line(f"{self.vector(value_name(e.dtype), lanes)} {name} = {{0}};")
                self.b.line(f"for (int {LANE} = 0; {LANE} < {lanes}; {LANE}++)")
                self.b.line(f"    {name}[{LANE}] = {text};")
            source = name
        return source
