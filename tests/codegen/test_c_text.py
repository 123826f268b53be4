"""The text that the C writer makes, and what it says when it can't."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from common.c_library import CLibrary
from tilesmith import driver, te
from tilesmith.codegen.c import compiler
from tilesmith.codegen.c.emit import emit_bare, translation_unit, write
from tilesmith.codegen.lower_main import lower_main
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Let, Var, const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Allocate, Buffer, Func, Store, seq
from tilesmith.loop.parse import parse_func
from tilesmith.program.nodes import Arg, KernelCall
from tilesmith.support.errors import InternalError, ModelError, UsageError

MATMUL = """
def matmul(A: f32[10, 7], B: f32[7, 12], C: f32[10, 12]) -> C:
    for io in parallel(3):
        alloc acc: f32[4, 12] register
        for i in unrolled(4):
            for j in vectorized(12):
                acc[i, j] = 0.0
        for k in range(7):
            for i in unrolled(4):
                for j in vectorized(12):
                    if likely(io * 4 + i < 10):
                        acc[i, j] = acc[i, j] + A[io * 4 + i, k] * B[k, j]
        for i in unrolled(4):
            for j in vectorized(12):
                if likely(io * 4 + i < 10):
                    C[io * 4 + i, j] = max(acc[i, j], 0.0)
"""

MIXED = """
def mixed(x: f16[n], rows: i64[n], y: bf16[n], n: i64, small: i8) -> y:
    assert n < 100, "too long */ for us"
    alloc copy: f32[100] heap
    for i in range(n):
        copy[i] = f32(x[i]) * 2.0
    for i in range(1, extent=n - 1):
        let row: i64 = rows[i] + 9223372036854775807
        if 0 <= row:
            eval prefetch(copy[row])
            y[i] = bf16(select(row < n, copy[row] * copy[row], 0.5) + f32(small))
        else:
            y[i] = bf16(let(t, copy[i], t * t))
"""


SIBLINGS = """
def siblings(x: f32[4], y: f32[8]) -> y:
    block:
        alloc part: f32[4] stack
        for i in range(4):
            part[i] = x[i] + 1.0
        for i in range(4):
            y[i] = part[i] * part[3 - i]
    block:
        let k: i64 = 4
        for i in range(4):
            y[i + k] = let(t, y[i] + x[i], select(t < 2.0, t * t, x[3 - i] * t))
    alloc part: f32[4] stack
    for i in range(4):
        part[i] = y[i + 4]
    let k: i64 = 3
    y[0] = part[k] + x[k]
"""


def final(text: str) -> Func:
    return driver.lower_loops(parse_func(text), driver.Session.of(None, target="c"))


@pytest.mark.parametrize("text", (MATMUL, MIXED), ids=("matmul", "mixed"))
def test_text(text: str, golden: Callable[[str], None]) -> None:
    golden(translation_unit([write(final(text))]))


def test_mixed_runs_as_the_interpreter_does() -> None:
    func = final(MIXED)
    library = CLibrary({"mixed": func})
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20).astype(np.float16)
    rows = rng.integers(-5, 30, 20) + np.int64(-(2**63) + 1)
    found, wanted = (np.zeros(20, func.buffers[2].dtype.numpy) for _ in range(2))
    interpret(func, [x, rows, wanted, 20, -3])
    library.call("mixed", [x, rows, found, 20, -3])
    np.testing.assert_array_equal(found, wanted)
    many = np.zeros(120, np.float16), np.zeros(120, np.int64), np.zeros(120, found.dtype)
    with pytest.raises(ModelError, match=r"too long .* \(found 120\)"):
        library.call("mixed", [*many, 120, 0])


def test_siblings_have_names_of_their_own() -> None:
    """Copies of a statement share its buffers and variables; so do equal expressions."""
    t, y, x = Var("t", f32), Buffer("y", f32, (2,)), Buffer("x", f32, (2,))
    cube = Let(t, x[const(0)] + x[const(1)], t * t * t)
    copy = Buffer("copy", f32, (1,), "stack")
    keep = Allocate(
        copy,
        seq(Store(copy, (const(0),), cube), Store(y, (const(0),), copy[const(0)] + y[const(0)])),
    )
    again = Store(y, (const(1),), cube + 1.0)
    shared = Func("f", (x, y), (y,), seq(keep, again, keep, again))
    for func in (shared, final(SIBLINGS)):
        arrays = [np.arange(1, 1 + int(b.shape[0]), dtype=np.float32) for b in func.buffers]
        found = [a.copy() for a in arrays]
        interpret(func, arrays)
        CLibrary({"f": func}).call("f", found)
        np.testing.assert_array_equal(found[1], arrays[1])


def test_names_that_c_has_taken() -> None:
    func = final("def f(int: f32[4], exp: f32[4]) -> exp:\n    for y_1 in range(4):\n"
                 "        exp[y_1] = exp(int[y_1])\n")  # fmt: skip
    x, y = np.linspace(-1, 1, 4, dtype=np.float32), np.empty(4, np.float32)
    CLibrary({"f": func}).call("f", [x, y])
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_main_function(golden: Callable[[str], None]) -> None:
    a, b = Arg("input", 0), Arg("arena", 128)
    calls = [
        KernelCall(
            "k_1", (a, Arg("constant", 64), b), "conv", Arg("arena", 256), sources=("conv", "relu")
        ),
        KernelCall("k_2", (b, Arg("output", 0, 16), Arg("scalar", 3)), "sum", messages=("no",)),
        KernelCall("k_1", (a, Arg("constant", 0), Arg("output", 1)), "*/", messages=("x", "y")),
    ]
    text = emit_bare(lower_main(calls, arena_bytes=512), host())
    golden(text)
    compiler.compile_object(text)


def test_build_for_c() -> None:
    x = te.placeholder((4, 30), "f32", "x")
    i = te.reduce_axis(30, "i")
    y = te.compute((4,), lambda r: te.sum(x[r, i] * x[r, i], axis=i), "y")
    f = ts.build("auto", [x, y], target="c")
    data, found = np.arange(120, dtype=np.float32).reshape(4, 30) / 60, np.empty(4, np.float32)
    f(data, found)
    np.testing.assert_allclose(found, (data**2).sum(1), rtol=1e-6)
    assert "for (int64_t" in f.source and "main" in f.assembly


def test_vectors_are_refused() -> None:
    func = parse_func("def f(x: f32[8]) -> x:\n    x[ramp(0, 1, 8)] = broadcast(0.0, 8)\n")
    with pytest.raises(InternalError, match="C is written from scalars"):
        write(func)


def test_other_loops_are_refused() -> None:
    func = parse_func("def f(x: f32[8]) -> x:\n    for i in parallel(8):\n        x[i] = 0.0\n")
    with pytest.raises(InternalError, match="serial loops, found 'parallel'"):
        write(func)


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="a C compiler is needed: expected cc, gcc"):
        compiler.compile_object("")


def test_text_that_is_no_c_is_our_fault() -> None:
    with pytest.raises(InternalError, match="refuses the generated text"):
        compiler.compile_object("this is no C")


def test_ziglang_is_used_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    x = np.array([-(2**31), 5, -7], np.int32)
    found = np.empty_like(x)
    func = final("def f(x: i32[3], y: i32[3]) -> y:\n    for i in range(3):\n"
                 "        y[i] = x[i] * x[i] + x[i] // 3:i32\n")  # fmt: skip
    CLibrary({"f": func}).call("f", [x, found])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x * x + x // 3)
