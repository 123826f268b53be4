"""Choice of instructions for operations on scalars and vectors, by element type.

No generated instruction traps.  Integer division is guarded against zero divisors and overflow,
unless the divisor is a constant other than 0 and -1.  `min` and `max` return NaN if either operand
is NaN; x86's instructions do not.
"""

from __future__ import annotations

from tilesmith.ir.dtypes import DType, f32, i32, i64, u32, u64
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.target import Target
from tilesmith.support.errors import InternalError

from . import narrow_floats
from .builder import Builder
from .llvm_text import is_narrow, literal, value_type, vector
from .scale import scalef

_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_OPS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_BOOL_OPS = {
    "and": "and", "or": "or", "xor": "xor", "add": "or", "mul": "and", "min": "and", "max": "or",
}  # fmt: skip
_COMPARE = {
    "float": {"eq": "fcmp oeq", "ne": "fcmp une", "lt": "fcmp olt", "le": "fcmp ole"},
    "int": {"eq": "icmp eq", "ne": "icmp ne", "lt": "icmp slt", "le": "icmp sle"},
    "uint": {"eq": "icmp eq", "ne": "icmp ne", "lt": "icmp ult", "le": "icmp ule"},
    "bool": {"eq": "icmp eq", "ne": "icmp ne", "lt": "icmp ult", "le": "icmp ule"},
}

_LLVM_FLOAT = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "abs": "fabs",
}  # fmt: skip
_LLVM_OVERFLOW = {f"{op}_overflows": f"s{op}" for op in ("add", "sub", "mul")}
_EXACT = frozenset({"floor", "ceil", "trunc", "round", "abs"})
"""Functions that map a 16-bit float to a number that the same type represents exactly."""

_LIBM = {i.name: i.libm for i in INTRINSICS.values() if i.libm and i.name not in _LLVM_FLOAT}
"""C library functions, called once for each lane, for intrinsics that `codegen.math` does not
expand.
"""


class Arithmetic:
    """Writer of operations on operands; instructions go to a builder.

    strict: whether results must equal the interpreter's bit for bit (see `emit`).
    libm: set that receives each called C library function, as (symbol, type, number of arguments).
    """

    def __init__(
        self, b: Builder, target: Target, strict: bool, libm: set[tuple[str, str, int]]
    ) -> None:
        self.b = b
        self.emit = b.emit
        self.target = target
        self.strict = strict
        self.libm = libm

    def round(self, dtype: DType, lanes: int, value: str) -> str:
        """Round `value` to `dtype` if that is a 16-bit float, as is done after every operation.
        Values of other types stay unchanged.
        """
        if is_narrow(dtype):
            return narrow_floats.rounded(self.b, self.target, dtype, value, lanes)
        return value

    @staticmethod
    def zero(dtype: DType, lanes: int) -> str:
        return literal(0.0 if dtype.is_float else 0, dtype) if lanes == 1 else "zeroinitializer"

    def to_memory(self, dtype: DType, lanes: int, value: str) -> str:
        """Convert a value to its memory type."""
        if dtype.is_bool:
            return self.emit(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")
        if is_narrow(dtype):
            return narrow_floats.narrow(self.b, self.target, dtype, value, lanes)
        return value

    def from_memory(self, dtype: DType, lanes: int, stored: str) -> str:
        """The value of a stored element."""
        if dtype.is_bool:
            zero = "0" if lanes == 1 else "zeroinitializer"
            return self.emit(f"icmp ne {vector('i8', lanes)} {stored}, {zero}")
        if is_narrow(dtype):
            return narrow_floats.widen(self.b, self.target, dtype, stored, lanes)
        return stored

    def unary(self, op: str, dtype: DType, lanes: int, a: str) -> str:
        type_ = value_type(dtype, lanes)
        if op == "neg" and dtype.is_float:
            return self.emit(f"fneg {type_} {a}")
        if op == "neg":
            return self.emit(f"sub {type_} {self._const(0, dtype, lanes)}, {a}")
        ones = self._const(1 if dtype.is_bool else -1, dtype, lanes)
        return self.emit(f"xor {type_} {a}, {ones}")

    def binary(
        self, op: str, dtype: DType, lanes: int, a: str, b: str, number: str | None = None
    ) -> str:
        """Any binary operation except divisions and shifts.

        number: for `min` and `max`, the float operand that is known not to be NaN, if there is one.
        """
        type_ = value_type(dtype, lanes)
        if dtype.is_bool:
            name = _BOOL_OPS.get(op)
        elif op in ("min", "max"):
            return self._min_max(op, dtype, type_, lanes, a, b, number)
        else:
            name = (_FLOAT_OPS if dtype.is_float else _INT_OPS).get(op)
        if name is None:
            raise InternalError(f"{op} is not defined on {dtype}")
        if self.strict:
            name = name.removesuffix(" contract")
        result = self.emit(f"{name} {type_} {a}, {b}")
        return self.round(dtype, lanes, result)

    def _min_max(
        self, op: str, dtype: DType, type_: str, lanes: int, a: str, b: str, number: str | None
    ) -> str:
        if not dtype.is_float:
            sign = "u" if dtype.kind == "uint" else "s"
            return self.emit(f"call {type_} @llvm.{sign}{op}({type_} {a}, {type_} {b})")
        bools = vector("i1", lanes)
        if self.strict:  # the result is the first operand if both are zeros or both are NaN
            order = "ole" if op == "min" else "oge"
            ordered = self.emit(f"fcmp {order} {type_} {a}, {b}")
            first = self.emit(f"or {bools} {ordered}, {self.emit(f'fcmp uno {type_} {a}, {a}')}")
            return self.emit(f"select {bools} {first}, {type_} {a}, {type_} {b}")
        if number is not None and number != a:
            # `number` goes first: a comparison with NaN is false, which selects the second operand.
            a, b = b, a
        order = "olt" if op == "min" else "ogt"
        if number is not None:
            ordered = self.emit(f"fcmp {order} {type_} {a}, {b}")
            return self.emit(f"select {bools} {ordered}, {type_} {a}, {type_} {b}")
        # The instructions test their first operand for NaN, too.  So `b` comes first: the value of
        # `a` is ready late if `a` is an accumulator.
        return self.emit(f"call nsz {type_} @llvm.{op}imum({type_} {b}, {type_} {a})")

    def compare(self, op: str, dtype: DType, lanes: int, a: str, b: str) -> str:
        return self.emit(f"{_COMPARE[dtype.kind][op]} {value_type(dtype, lanes)} {a}, {b}")

    def division(
        self,
        op: str,
        dtype: DType,
        lanes: int,
        a: str,
        b: str,
        divisor: int | bool | float | None,
        plain: bool,
    ) -> str:
        """Any of the four divisions: quotient or remainder, rounded down or towards zero.

        divisor: the value of `b` if it is constant, else None.
        plain: whether both operands are known not to be negative.
        """
        type_ = value_type(dtype, lanes)
        if dtype.is_float:
            return self.round(dtype, lanes, self._float_division(op, dtype, lanes, a, b))
        if dtype.is_bool:
            raise InternalError(f"{op} is not defined on bool")
        if divisor is None or divisor in (0, -1):
            return self._guarded_division(op, dtype, lanes, a, b)
        if plain or dtype.kind == "uint":
            return self.emit(f"{'udiv' if op.endswith('div') else 'urem'} {type_} {a}, {b}")
        if op.startswith("trunc"):
            return self.emit(f"{'sdiv' if op == 'truncdiv' else 'srem'} {type_} {a}, {b}")
        d = int(divisor)
        if d > 0 and d & (d - 1) == 0:
            name, amount = ("ashr", d.bit_length() - 1) if op == "floordiv" else ("and", d - 1)
            return self.emit(f"{name} {type_} {a}, {self._const(amount, dtype, lanes)}")
        return self._floor(op, dtype, lanes, a, b)

    def _floor(self, op: str, dtype: DType, lanes: int, a: str, b: str) -> str:
        """Division rounded down: truncating division, corrected if the signs of remainder and
        divisor differ.
        """
        type_, bools = value_type(dtype, lanes), vector("i1", lanes)
        zero = self._const(0, dtype, lanes)
        rest = self.emit(f"srem {type_} {a}, {b}")
        signs = self.emit(f"xor {type_} {rest}, {b}")
        differ = self.emit(f"icmp slt {type_} {signs}, {zero}")
        wrong = self.emit(f"and {bools} {differ}, {self.emit(f'icmp ne {type_} {rest}, {zero}')}")
        if op == "floordiv":
            quotient = self.emit(f"sdiv {type_} {a}, {b}")
            one = self.emit(f"zext {bools} {wrong} to {type_}")
            return self.emit(f"sub {type_} {quotient}, {one}")
        missing = self.emit(f"select {bools} {wrong}, {type_} {b}, {type_} {zero}")
        return self.emit(f"add {type_} {rest}, {missing}")

    def _guarded_division(self, op: str, dtype: DType, lanes: int, a: str, b: str) -> str:
        """Division by any value.  Division by zero gives 0.  The smallest integer divided by -1
        wraps.  The machine's own instruction would trap in both cases.
        """
        type_, bools = value_type(dtype, lanes), vector("i1", lanes)
        zero, one = self._const(0, dtype, lanes), self._const(1, dtype, lanes)
        is_zero = self.emit(f"icmp eq {type_} {b}, {zero}")
        bad = is_zero
        is_minus = ""
        if dtype.kind == "int":
            is_minus = self.emit(f"icmp eq {type_} {b}, {self._const(-1, dtype, lanes)}")
            bad = self.emit(f"or {bools} {is_zero}, {is_minus}")
        safe = self.emit(f"select {bools} {bad}, {type_} {one}, {type_} {b}")
        if dtype.kind == "uint":
            result = self.emit(f"{'udiv' if op.endswith('div') else 'urem'} {type_} {a}, {safe}")
        elif op.startswith("trunc"):
            result = self.emit(f"{'sdiv' if op == 'truncdiv' else 'srem'} {type_} {a}, {safe}")
        else:
            result = self._floor(op, dtype, lanes, a, safe)
        if is_minus and op.endswith("div"):
            negative = self.emit(f"sub {type_} {zero}, {a}")
            result = self.emit(f"select {bools} {is_minus}, {type_} {negative}, {type_} {result}")
        return self.emit(f"select {bools} {is_zero}, {type_} {zero}, {type_} {result}")

    def _float_division(self, op: str, dtype: DType, lanes: int, a: str, b: str) -> str:
        type_ = value_type(dtype, lanes)
        if op in ("floordiv", "truncdiv"):
            quotient = self.round(dtype, lanes, self.emit(f"fdiv {type_} {a}, {b}"))
            name = "floor" if op == "floordiv" else "trunc"
            return self.emit(f"call {type_} @llvm.{name}({type_} {quotient})")
        rest = self.emit(f"frem {type_} {a}, {b}")
        if op == "truncmod":
            return rest
        bools, zero = vector("i1", lanes), "0.0" if lanes == 1 else "zeroinitializer"
        negative_rest = self.emit(f"fcmp olt {type_} {rest}, {zero}")
        negative_b = self.emit(f"fcmp olt {type_} {b}, {zero}")
        differ = self.emit(f"xor {bools} {negative_rest}, {negative_b}")
        wrong = self.emit(f"and {bools} {differ}, {self.emit(f'fcmp une {type_} {rest}, {zero}')}")
        more = self.emit(f"fadd {type_} {rest}, {b}")
        return self.emit(f"select {bools} {wrong}, {type_} {more}, {type_} {rest}")

    def shift(self, op: str, dtype: DType, lanes: int, a: str, b: str, in_range: bool) -> str:
        """A shift.  An amount of at least the width shifts out all bits: the result is 0, or -1 for
        a right shift of a negative number.

        in_range: whether the amount is known to be less than the width.
        """
        type_, bools = value_type(dtype, lanes), vector("i1", lanes)
        name = "shl" if op == "shl" else "lshr" if dtype.kind == "uint" else "ashr"
        if in_range:
            return self.emit(f"{name} {type_} {a}, {b}")
        last = self._const(dtype.bits - 1, dtype, lanes)
        inside = self.emit(f"icmp ule {type_} {b}, {last}")
        amount = self.emit(f"select {bools} {inside}, {type_} {b}, {type_} {last}")
        result = self.emit(f"{name} {type_} {a}, {amount}")
        if name == "ashr":
            return result
        zero = self._const(0, dtype, lanes)
        return self.emit(f"select {bools} {inside}, {type_} {result}, {type_} {zero}")

    def cast(self, source: DType, to: DType, lanes: int, a: str) -> str:
        if source is to:
            return a
        here, there = value_type(source, lanes), value_type(to, lanes)
        if to.is_bool:
            zero = self._const(0, source, lanes)
            return self.emit(f"{'fcmp une' if source.is_float else 'icmp ne'} {here} {a}, {zero}")
        if source.is_float:
            if to.is_int:
                return self._to_integer(source, to, lanes, a)
            if source.bits == 64:
                if is_narrow(to):
                    return self.round(to, lanes, narrow_floats.to_odd(self.b, a, lanes))
                return self.emit(f"fptrunc {here} {a} to {there}")
            if to.bits == 64:
                return self.emit(f"fpext {here} {a} to {there}")
            return self.round(to, lanes, a) if is_narrow(to) else a
        if to.is_float:
            op = "sitofp" if source.kind == "int" else "uitofp"
            return self.round(to, lanes, self.emit(f"{op} {here} {a} to {there}"))
        if to.bits == source.bits:
            return a
        if to.bits < source.bits:
            return self.emit(f"trunc {here} {a} to {there}")
        return self.emit(f"{'sext' if source.kind == 'int' else 'zext'} {here} {a} to {there}")

    def _to_integer(self, source: DType, to: DType, lanes: int, a: str) -> str:
        """A float converted as `ir.storage.truncated` does.

        `fptosi` gives poison if the integer type can't hold the result.  So a float out of range is
        first replaced by the smallest integer, which every float type represents exactly.
        """
        type_, bools = value_type(source, lanes), vector("i1", lanes)
        wide = i64 if to.bits == 64 else i32
        integers = value_type(wide, lanes)
        half, least = (self._const(s * 2.0 ** (wide.bits - 1), source, lanes) for s in (1, -1))
        above = ""
        if to in (u32, u64):
            above = self.emit(f"fcmp oge {type_} {a}, {half}")
            lower = self.emit(f"fsub {type_} {a}, {half}")
            a = self.emit(f"select {bools} {above}, {type_} {lower}, {type_} {a}")
        magnitude = self.emit(f"call {type_} @llvm.fabs({type_} {a})")
        inside = self.emit(f"fcmp olt {type_} {magnitude}, {half}")
        a = self.emit(f"select {bools} {inside}, {type_} {a}, {type_} {least}")
        result = self.emit(f"fptosi {type_} {a} to {integers}")
        if above:
            high, zero = (self._const(n, wide, lanes) for n in (int(wide.min), 0))
            moved = self.emit(f"select {bools} {above}, {integers} {high}, {integers} {zero}")
            result = self.emit(f"xor {integers} {result}, {moved}")
        if to.bits == wide.bits:
            return result
        return self.emit(f"trunc {integers} {result} to {value_type(to, lanes)}")

    def call(self, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        """An intrinsic of `ir.intrinsics` on arguments of `dtype`."""
        type_ = value_type(dtype, lanes)
        a = args[0]
        if name == "fma":
            if dtype.is_float and self.target.has_fma and not is_narrow(dtype) and not self.strict:
                operands = f"{type_} {a}, {type_} {args[1]}, {type_} {args[2]}"
                return self.emit(f"call {type_} @llvm.fma({operands})")
            product = self.binary("mul", dtype, lanes, a, args[1])
            return self.binary("add", dtype, lanes, product, args[2])
        if name == "scalef":
            return scalef(self.b, lanes, a, args[1])
        if name in _LLVM_OVERFLOW:
            pair = f"{{ {type_}, {vector('i1', lanes)} }}"
            operation = f"@llvm.{_LLVM_OVERFLOW[name]}.with.overflow"
            both = self.emit(f"call {pair} {operation}({type_} {a}, {type_} {args[1]})")
            return self.emit(f"extractvalue {pair} {both}, 1")
        if not dtype.is_float:
            return self._int_call(name, dtype, lanes, a)
        if name in _LLVM_FLOAT:
            result = self.emit(f"call {type_} @llvm.{_LLVM_FLOAT[name]}({type_} {a})")
            return result if name in _EXACT else self.round(dtype, lanes, result)
        if name == "rsqrt":
            root = self.emit(f"call {type_} @llvm.sqrt({type_} {a})")
            one = self._const(1, dtype, lanes)
            return self.round(dtype, lanes, self.emit(f"fdiv {type_} {one}, {root}"))
        if name == "isnan":
            return self.emit(f"fcmp uno {type_} {a}, {a}")
        if name == "isinf":
            magnitude = self.emit(f"call {type_} @llvm.fabs({type_} {a})")
            infinity = self._const(float("inf"), dtype, lanes)
            return self.emit(f"fcmp oeq {type_} {magnitude}, {infinity}")
        if name in _LIBM:
            return self.round(dtype, lanes, self._libm_call(name, dtype, lanes, args))
        raise InternalError(f"code generation does not know the intrinsic {name!r} on {dtype}")

    def _int_call(self, name: str, dtype: DType, lanes: int, a: str) -> str:
        type_ = value_type(dtype, lanes)
        if name == "abs" and dtype.kind == "int":
            return self.emit(f"call {type_} @llvm.abs({type_} {a}, i1 false)")
        if name in ("floor", "ceil", "trunc", "round", "abs"):
            return a
        if name in ("isnan", "isinf"):
            return "false" if lanes == 1 else "zeroinitializer"
        raise InternalError(f"code generation does not know the intrinsic {name!r} on {dtype}")

    def _libm_call(self, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        element = "double" if dtype.bits == 64 else "float"
        symbol = _LIBM[name] if element == "double" else _LIBM[name] + "f"
        self.libm.add((symbol, element, len(args)))

        def call(operands: list[str]) -> str:
            arguments = ", ".join(f"{element} {x}" for x in operands)
            return self.emit(f"call {element} @{symbol}({arguments})")

        if lanes == 1:
            return call(args)
        type_, result = vector(element, lanes), "poison"
        for i in range(lanes):
            one = call([self.emit(f"extractelement {type_} {a}, i64 {i}") for a in args])
            result = self.emit(f"insertelement {type_} {result}, {element} {one}, i64 {i}")
        return result

    def vector_reduce(self, op: str, dtype: DType, lanes: int, groups: int, a: str) -> str:
        """Reduce a vector to `groups` lanes, each from a run of adjacent lanes."""
        if lanes == groups:
            return a
        if lanes % groups:
            raise InternalError(f"a reduction of {lanes} lanes to {groups} does not divide")
        element = value_type(dtype)
        fast = self._reduce_intrinsic(op, dtype, lanes, a) if groups == 1 else None
        if fast is not None:
            return self.round(dtype, 1, fast)
        run = lanes // groups
        while run > 1:
            type_ = vector(element, groups * run)
            if run % 2 == 0:  # pair the first half of every run with its second half
                run //= 2
                first = tuple(2 * g * run + i for g in range(groups) for i in range(run))
                second = tuple(i + run for i in first)
                x, y = (self._pick(type_, a, picks) for picks in (first, second))
                a = self._pair(op, dtype, groups * run, x, y)
            else:  # in every run, combine the last lane with the first one, then drop the last lane
                short = run - 1
                keep = tuple(g * run + i for g in range(groups) for i in range(short))
                rest = self._pick(type_, a, keep)
                last = self._pick(type_, a, tuple(g * run + short for g in range(groups)))
                heads = rest
                if short > 1:
                    every = tuple(g * short for g in range(groups))
                    heads = self._pick(vector(element, groups * short), rest, every)
                a = self._pair(op, dtype, groups, heads, last)
                if short > 1:
                    a = self._put_heads(element, groups, short, rest, a)
                run = short
        return self._finish(element, groups, a)

    def _reduce_intrinsic(self, op: str, dtype: DType, lanes: int, a: str) -> str | None:
        type_, element = value_type(dtype, lanes), value_type(dtype)
        if dtype.is_float:
            start = {"add": -0.0, "mul": 1.0}.get(op)
            if start is None:
                return None
            name = "fadd" if op == "add" else "fmul"
            flags = "" if self.strict else "reassoc "
            return self.emit(
                f"call {flags}{element} @llvm.vector.reduce.{name}({element} "
                f"{literal(start, f32)}, {type_} {a})"
            )
        if dtype.is_bool:
            name = _BOOL_OPS.get(op)
        elif op in ("min", "max"):
            name = ("u" if dtype.kind == "uint" else "s") + op
        else:
            name = _INT_OPS.get(op)
        return name and self.emit(f"call {element} @llvm.vector.reduce.{name}({type_} {a})")

    def _pick(self, type_: str, a: str, lanes: tuple[int, ...]) -> str:
        return self.b.shuffle(type_, a, "poison", lanes)

    def _pair(self, op: str, dtype: DType, lanes: int, x: str, y: str) -> str:
        """Combine two vectors lane by lane.  The result is a vector, even of one lane."""
        if lanes > 1:
            return self.binary(op, dtype, lanes, x, y)
        type_ = f"<1 x {value_type(dtype)}>"
        a, b = (self.emit(f"extractelement {type_} {v}, i64 0") for v in (x, y))
        both = self.binary(op, dtype, 1, a, b)
        return self.emit(f"insertelement {type_} poison, {value_type(dtype)} {both}, i64 0")

    def _put_heads(self, element: str, groups: int, run: int, a: str, heads: str) -> str:
        for g in range(groups):
            one = self.emit(f"extractelement <{groups} x {element}> {heads}, i64 {g}")
            a = self.emit(
                f"insertelement <{groups * run} x {element}> {a}, {element} {one}, i64 {g * run}"
            )
        return a

    def _finish(self, element: str, groups: int, a: str) -> str:
        return self.emit(f"extractelement <1 x {element}> {a}, i64 0") if groups == 1 else a

    def _const(self, value: int | float, dtype: DType, lanes: int) -> str:
        return literal(float(value) if dtype.is_float else value, dtype, lanes)
