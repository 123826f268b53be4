"""A small compiled program made by hand: y = relu(x + c) * 2, z = row sums, through an arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.codegen.emit import emit, emit_bare
from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.lower_main import lower_main
from tilesmith.codegen.targets import target
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.expr import Load, Var, const, maximum
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Allocate, Assert, Buffer, For, Func, Store, seq
from tilesmith.program.functions import ENTRY
from tilesmith.runtime.program import (
    Arg,
    Contents,
    KernelCall,
    Program,
    TensorSpec,
    pack_constants,
)

ROWS, COLS = 8, 24


def add_relu(dtype: DType = f32) -> Func:
    x, c, y = (
        Buffer(n, dtype, s) for n, s in (("x", (ROWS, COLS)), ("c", (COLS,)), ("y", (ROWS, COLS)))
    )
    i, j = Var("i"), Var("j")
    value = maximum(Load(x, (i * COLS + j,)) + Load(c, (j,)), const(0.0, dtype))
    inner = For(j, const(0), const(COLS), "serial", Store(y, (i * COLS + j,), value))
    return Func("add_relu", (x, c, y), (y,), For(i, const(0), const(ROWS), "parallel", inner))


def double_and_sum() -> Func:
    """Also needs a shared workspace and a private one."""
    x, y, z = (
        Buffer("x", f32, (ROWS, COLS)),
        Buffer("y", f32, (ROWS, COLS)),
        Buffer("z", f32, (ROWS,)),
    )
    t, u = Buffer("t", f32, (ROWS, COLS), "heap"), Buffer("u", f32, (1,), "heap")
    i, j, k, m = Var("i"), Var("j"), Var("k"), Var("m")
    twice = For(i, const(0), const(ROWS * COLS), "parallel", Store(t, (i,), Load(x, (i,)) * 2.0))
    zero = const(0)
    at = k * COLS + j
    add = seq(Store(u, (zero,), Load(u, (zero,)) + Load(t, (at,))), Store(y, (at,), Load(t, (at,))))
    row = seq(
        Store(u, (zero,), const(0.0)),
        For(j, zero, const(COLS), "serial", add),
        Store(z, (k,), Load(u, (zero,))),
    )
    rows = For(k, zero, const(ROWS), "parallel", Allocate(u, row))
    del m
    return Func("double_and_sum", (x, y, z), (y, z), Allocate(t, seq(twice, rows)))


def compiled(func: Func, target_name: str = "native") -> tuple[Kernel, bytes]:
    kernel = emit(func, target(target_name))
    return kernel, compile_object(kernel.text, target(target_name))


def program(target_name: str = "native") -> tuple[Program, np.ndarray]:
    """The program and its constant `c`."""
    first, second = compiled(add_relu(), target_name), compiled(double_and_sum(), target_name)
    c = np.linspace(-1, 1, COLS, dtype=np.float32)
    constants, (at,) = pack_constants([Contents.of(c)])
    size = ROWS * COLS * 4
    calls = [
        KernelCall(
            first[0].symbol, (Arg("input", 0), Arg("constant", at), Arg("arena", 0)), "first"
        ),
        KernelCall(
            second[0].symbol,
            (Arg("arena", 0), Arg("output", 0), Arg("output", 1)),
            "second",
            workspace=Arg("arena", size),
        ),
    ]
    made = linked(
        [TensorSpec("x", f32, (ROWS, COLS))],
        [TensorSpec("y", f32, (ROWS, COLS)), TensorSpec("z", f32, (ROWS,))],
        calls,
        size + second[0].workspace_bytes_shared,
        max(first[0].workspace_bytes_per_thread, second[0].workspace_bytes_per_thread),
        constants,
        {k.symbol: code for k, code in (first, second)},
        target(target_name),
        {"model": "tiny"},
    )
    return made, c


def linked(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    calls: Sequence[KernelCall],
    arena_bytes: int,
    scratch_bytes: int,
    constants: np.ndarray,
    kernels: Mapping[str, bytes],
    target: Target,
    metadata: Mapping[str, Any] | None = None,
) -> Program:
    """The program of the kernels, with its main function."""
    entry = lower_main(calls, arena_bytes=arena_bytes, scratch_bytes=scratch_bytes)
    text = emit_bare(entry, target)
    main = compile_object(text, target, opt=0)
    return Program(
        tuple(inputs),
        tuple(outputs),
        tuple(calls),
        arena_bytes,
        scratch_bytes,
        constants,
        {**kernels, ENTRY: main},
        target,
        metadata or {},
    )


def expected(x: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.maximum(x + c, 0) * 2
    return y, y.sum(axis=1)


def copy_program(dtype: DType, shape: tuple[int, ...]) -> Program:
    """y = x."""
    n = int(np.prod(shape, dtype=np.int64))
    x, y, i = Buffer("x", dtype, (n,)), Buffer("y", dtype, (n,)), Var("i")
    kernel, code = compiled(
        Func(
            "copy",
            (x, y),
            (y,),
            For(i, const(0), const(n), "serial", Store(y, (i,), Load(x, (i,)))),
        )
    )
    calls = [KernelCall(kernel.symbol, (Arg("input", 0), Arg("output", 0)))]
    specs = [TensorSpec("x", dtype, shape)], [TensorSpec("y", dtype, shape)]
    return linked(
        *specs, calls, 0, 0, pack_constants([])[0], {kernel.symbol: code}, target("native")
    )


def checked_program() -> Program:
    """y = x for numbers below 10; fails on others, in the second of two calls."""
    x, y, i = Buffer("x", i64, (4,)), Buffer("y", i64, (4,)), Var("i")
    value = Load(x, (i,))
    kernels = []
    for name, limit in (("wide", 100), ("narrow", 10)):
        body = seq(Assert(value < limit, f"number not below {limit}"), Store(y, (i,), value))
        kernels.append(
            compiled(Func(name, (x, y), (y,), For(i, const(0), const(4), "serial", body)))
        )
    calls = [
        KernelCall(
            k.symbol, (Arg("input", 0), Arg("output", 0)), f"node {k.symbol}", messages=k.messages
        )
        for k, _ in kernels
    ]
    specs = [TensorSpec("x", i64, (4,))], [TensorSpec("y", i64, (4,))]
    return linked(
        *specs,
        calls,
        0,
        0,
        pack_constants([])[0],
        {k.symbol: c for k, c in kernels},
        target("native"),
    )
