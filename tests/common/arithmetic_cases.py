"""Operations on every element type, each applied to arrays element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from common.arithmetic import FLOATS, INTS, edges, floats, ints, reference_int
from tilesmith.ir.dtypes import ARITHMETIC, DType, bf16, f16, f32, f64, i32, i64, u32, u64
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Binary, Cast, Compare, Expr, Load, Select, Unary, Var, as_expr, const
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.intrinsics import call
from tilesmith.ir.storage import convert_array
from tilesmith.loop.nodes import Buffer, For, Func, Store

N = 112


FLOAT_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum, "floormod": np.mod, "truncmod": np.fmod,
    "floordiv": lambda a, b: np.floor(a / b), "truncdiv": lambda a, b: np.trunc(a / b),
}  # fmt: skip


INT_OPERATIONS = (
    "add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "and", "or",
    "xor", "shl", "shr",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """`compute` applied to `inputs` element by element gives `wanted`."""

    name: str
    compute: Callable[..., Expr]
    inputs: Sequence[np.ndarray]
    wanted: np.ndarray
    signed_zeros: bool = True

    def func(self) -> Func:
        n = len(self.inputs[0])
        buffers = [Buffer(f"x{i}", to_dtype(a.dtype), (n,)) for i, a in enumerate(self.inputs)]
        y, i = Buffer("y", to_dtype(self.wanted.dtype), (n,)), Var("i")
        body = Store(y, (i,), self.compute(*(Load(b, (i,)) for b in buffers)))
        return Func("f", (*buffers, y), (y,), For(i, const(0), const(n), "serial", body))


def _integers() -> Iterator[Case]:
    for dtype in INTS:
        a, b = ints(dtype, N, 1), ints(dtype, N, 2)
        b[::5] = b[::5] % 20  # shifts within the width too
        for op in INT_OPERATIONS:
            yield Case(f"{op} {dtype}", partial(Binary, op), [a, b], reference_int(op, a, b))
            if dtype.bits == 8:
                every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
                pairs = [np.repeat(every, 256), np.tile(every, 256)]
                wanted = reference_int(op, *pairs)
                yield Case(f"{op} {dtype}, all pairs", partial(Binary, op), pairs, wanted)
        for op in ("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr"):
            for value in (1, 3, 8, 0, *((-1, -3) if dtype.kind == "int" else ())):
                wanted = reference_int(op, a, np.full_like(a, value))
                by = partial(_by_constant, op, value)
                yield Case(f"{op} {dtype} by {value}", by, [a], wanted)
        with np.errstate(all="ignore"):
            yield Case(f"neg {dtype}", lambda x: -x, [a], -a)
            yield Case(f"abs {dtype}", lambda x: call("abs", x), [a], np.abs(a))
            small = a % 7
            yield Case(f"pow {dtype}", lambda x, y: call("pow", x, y), [a, small], a**small)
        yield Case(f"not {dtype}", lambda x: Unary("not", x), [a], ~a)
        yield Case(f"fma {dtype}", lambda x, y: call("fma", x, y, x), [a, b], a * b + a)


def _by_constant(op: str, value: int, x: Expr) -> Expr:
    return Binary(op, x, as_expr(value, x))


def _floats() -> Iterator[Case]:
    for dtype in FLOATS:
        a, b = floats(dtype, N, 1), floats(dtype, N, 2)
        wide = np.float32 if dtype.bits == 16 else dtype.numpy
        with np.errstate(all="ignore"):
            for op, f in FLOAT_OPERATIONS.items():
                wanted = f(a.astype(wide), b.astype(wide))
                if op.endswith("div") and op != "div" and dtype.bits == 16:  # rounded twice
                    continue
                signed = op not in ("min", "max", "floormod")
                found = wanted.astype(dtype.numpy)
                yield Case(f"{op} {dtype}", partial(Binary, op), [a, b], found, signed)
        yield Case(f"neg {dtype}", lambda x: -x, [a], -a)
        yield Case(f"isnan {dtype}", lambda x: call("isnan", x), [a], np.isnan(a))
        yield Case(f"isinf {dtype}", lambda x: call("isinf", x), [a], np.isinf(a))
        for name in ("abs", "floor", "ceil", "trunc", "round", "sqrt"):
            with np.errstate(all="ignore"):
                wanted = INTRINSICS[name].evaluate(a.astype(wide)).astype(dtype.numpy)
            yield Case(f"{name} {dtype}", partial(call, name), [a], wanted)


def _comparisons() -> Iterator[Case]:
    relations = (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal))
    for dtype in (*INTS, *FLOATS):
        make = floats if dtype.is_float else ints
        a, b = make(dtype, N, 1), make(dtype, N, 2)
        b[::3] = a[::3]
        for op, f in relations:
            with np.errstate(invalid="ignore"):
                yield Case(f"{op} {dtype}", partial(Compare, op), [a, b], f(a, b))
        with np.errstate(invalid="ignore"):
            wanted = np.where(a < b, a, b)
        yield Case(f"select {dtype}", lambda x, y: Select(x < y, x, y), [a, b], wanted)
    rng = np.random.default_rng(0)
    p, q = rng.random(N) < 0.5, rng.random(N) < 0.5
    for op, g in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor),
                  ("min", np.logical_and), ("max", np.logical_or)):  # fmt: skip
        yield Case(f"{op} bool", partial(Binary, op), [p, q], g(p, q))
    yield Case("not bool", lambda x: Unary("not", x), [p], ~p)


def _casts() -> Iterator[Case]:
    rng = np.random.default_rng(4)
    for source in ARITHMETIC:
        small = rng.integers(0, 100, N).astype(source.numpy)
        make = floats if source.is_float else ints
        a = small if source.is_bool else make(source, N, 5)
        if source.is_float:
            a = np.concatenate([a, edges(source)])
        for to in ARITHMETIC:
            with np.errstate(all="ignore"):
                wanted = convert_array(a, to)
                if to.is_float and to.bits == 16 and source.is_int:
                    wanted = a.astype(np.float32).astype(to.numpy)
            yield Case(f"{source} to {to}", lambda x, to=to: Cast(x, to), [a], wanted)


def _narrow() -> Iterator[Case]:
    for dtype in (f16, bf16):
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
        wide = every.astype(np.float32)
        yield Case(f"widen {dtype}", lambda x: Cast(x, f32), [every], wide)
        yield Case(f"narrow {dtype}", lambda x, to=dtype: Cast(x, to), [wide], every)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    every = np.sort(every[np.isfinite(every)])
    ties = (every[1:] + every[:-1]) / 2
    near = [ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)]
    for source in (f32, f64):
        a = np.concatenate(near).astype(source.numpy)
        yield Case(f"ties {source}", lambda x: Cast(x, f16), [a], a.astype(np.float16))


def _bits() -> Iterator[Case]:
    pairs = ((f32, i32), (f32, u32), (f64, i64), (f64, u64), (i32, u32))
    for a, b in (*pairs, *((d, to_dtype("u16")) for d in (f16, bf16))):
        for source, to in ((a, b), (b, a)):
            values = (floats if source.is_float else ints)(source, N, 7)
            wanted = values.view(to.numpy)
            bits = partial(call, "bitcast", dtype=to)
            yield Case(f"bits of {source} as {to}", bits, [values], wanted)
    words = [ints(u32, N, seed) for seed in range(4)]
    wanted = INTRINSICS["threefry"].evaluate(*words)
    yield Case("threefry", partial(call, "threefry"), words, wanted)


CASES = [*_integers(), *_floats(), *_comparisons(), *_casts(), *_narrow(), *_bits()]


FUNCTIONS = ("exp", "exp2", "log", "log1p", "rsqrt", "erf", "sin", "cos", "tan", "asin", "acos",
             "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")  # fmt: skip


def _function(name: str, dtype: DType) -> Case:
    a = np.random.default_rng(8).uniform(0.01, 0.99, N).astype(dtype.numpy)
    if name == "acosh":
        a += 1
    wanted = np.asarray(INTRINSICS[name].evaluate(a.astype(np.float64))).astype(dtype.numpy)
    return Case(f"{name} {dtype}", partial(call, name), [a], wanted)


SMOOTH = [_function(name, d) for name in FUNCTIONS for d in (f32, f64)]
