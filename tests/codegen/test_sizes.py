"""The functions that compute sizes: machine code, C and the interpreter against exact integers."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from tilesmith.codegen.c import compiler as c
from tilesmith.codegen.c.emit import emit_bare as emit_c
from tilesmith.codegen.context import Code
from tilesmith.codegen.emit import emit_bare
from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.sizes import SizeProgram, sizes_function
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Expr, Select, Unary, Var, as_expr, binary, const, post_order
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import symbol
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.verify import verify
from tilesmith.support.errors import InternalError

EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "min": min, "max": max,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "truncmod": lambda a, b: a - EXACT["truncdiv"](a, b) * b,
}  # fmt: skip
EDGES = (0, 1, 2, 3, 7, 64, -1, -2, -5, 1 << 31, (1 << 31) + 1, 1 << 62, i64.max, i64.min, -i64.max)

Run = Callable[[Sequence[int]], tuple[int, list[int]]]


def machine_code(text: bytes, name: str, count: int) -> Run:
    """The function of an object."""
    library = Library([text], [name])
    pointers = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    function = pointers(library.address(name))

    def run(extents: Sequence[int]) -> tuple[int, list[int]]:
        assert library is not None  # it owns the code
        given, found = (ctypes.c_int64 * len(extents))(*extents), (ctypes.c_int64 * count)()
        return function(given, found), [*found]

    return run


def runs(func: Func) -> Iterator[Run]:
    """All ways to run a function for sizes."""
    count = func.buffers[1].shape[0]
    assert isinstance(count, int)

    def interpreted(extents: Sequence[int]) -> tuple[int, list[int]]:
        values = np.zeros(count, np.int64)
        code = interpret(func, [np.array(extents, np.int64), values])
        return code, values.tolist()

    yield interpreted
    texts = [compile_object(emit_bare(func, host()), host(), 0)]
    if c.find_compiler() is not None:
        texts.append(c.compile_object(emit_c(func, host()), host(), 0))
    yield from (machine_code(text, func.name, count) for text in texts)


def expected(program: SizeProgram, extents: Sequence[int]) -> tuple[int, list[int]]:
    """The code and, if it is 0, the values, by exact integers."""
    known: dict[Expr, int] = dict(zip(program.symbols, extents, strict=True))

    def value(e: Expr) -> int:
        for node in post_order(e, known):
            if isinstance(node, Const):
                known[node] = int(node.value)
                continue
            a, *rest = (known[child] for child in node.children)
            known[node] = EXACT[node.op](a, *rest) if rest else -a  # type: ignore[attr-defined]  # arithmetic
            if not i64.min <= known[node] <= i64.max:
                raise OverflowError
            if rest and "div" in node.op and (a, *rest) == (i64.min, -1):  # type: ignore[attr-defined]  # arithmetic
                raise OverflowError
        return known[e]

    try:
        outside = [value(as_expr(d)) < 0 for d in program.extents]
    except (OverflowError, ZeroDivisionError):
        return Code.OVERFLOW, []
    for v, n in zip(program.symbols, extents, strict=True):
        outside += [v.sizes is not None and not v.sizes.low <= n <= v.sizes.high]
    if any(outside):
        return Code.SIZES, []
    try:
        return Code.OK, [value(as_expr(d)) for d in program.values.values()]
    except (OverflowError, ZeroDivisionError):
        return Code.OVERFLOW, []


def drawn(draw: random.Random, symbols: Sequence[Var]) -> list[Expr]:
    """Expressions that share parts."""
    pool: list[Expr] = [*symbols]
    for _ in range(12):
        a = draw.choice(pool)
        b = draw.choice([*pool, const(draw.choice(EDGES))])
        op = draw.choice(["neg", "mul", "add", "sub", *EXACT])
        pool.append(Unary("neg", a) if op == "neg" else binary(op, a, b))
    return pool[len(symbols) :]


@pytest.mark.parametrize("seed", range(6))
def test_sizes_are_exact_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    symbols = [symbol(n, low, high, 9) for n, low, high in (("a", 0, 1 << 20), ("b", 1, LARGEST))]
    symbols.append(Var("measured", i64))
    found = drawn(draw, symbols)
    values = dict(enumerate([*draw.sample(found, 6), 40]))
    program = SizeProgram(tuple(symbols), values, tuple(draw.sample(found, 3)))
    func = sizes_function(program)
    verify(func, "final")
    assert structural_equal(parse_func(str(func)), func)
    cases = [[draw.choice(EDGES) for _ in symbols] for _ in range(60)]
    cases += [[draw.randrange(1, 1 << 10) for _ in symbols] for _ in range(60)]
    for number, run in enumerate(runs(func)):
        for extents in cases:
            code, wanted = expected(program, extents)
            assert (number, run(extents)[0]) == (number, code), (seed, extents, str(func))
            assert not wanted or run(extents)[1] == wanted, (seed, extents, str(func))


def test_sizes_are_divided_toward_zero() -> None:
    a, b = symbol("a", 0, 1 << 20, 9), symbol("b", 0, 1 << 20, 9)
    names = ("truncdiv", "truncmod", "floordiv", "floormod")
    program = SizeProgram((a, b), {i: binary(op, a - 50, b - 3) for i, op in enumerate(names)})
    for run in runs(sizes_function(program)):
        for x in (0, 1, 43, 44, 49, 50, 51, 57, 101):
            for y in (0, 1, 2, 3, 4, 5, 10):
                code, wanted = expected(program, (x, y))
                assert run((x, y))[0] == code
                assert not wanted or run((x, y))[1] == wanted


def test_deep_sizes_are_divided() -> None:
    """Offsets of many values are sums of sums; no writer nests as deep."""
    n, total = symbol("n", 0, 1 << 20, 9), as_expr(0)
    values: dict[int, Expr] = {}
    for i in range(1000):
        total = total + n // (i + 1)
        if i % 100 == 99:
            values[i // 100] = total
    func = sizes_function(SizeProgram((n,), values))
    assert str(parse_func(str(func))) == str(func)
    wanted = [sum(1000 // (i + 1) for i in range(100 * k)) for k in range(1, 11)]
    for run in runs(func):
        assert run([1000]) == (0, wanted)


def test_sizes_are_arithmetic() -> None:
    n = symbol("n", 0, 9, 9)
    with pytest.raises(InternalError, match="no arithmetic of symbols"):
        sizes_function(SizeProgram((n,), {0: Select(n < 3, n, const(1))}))
