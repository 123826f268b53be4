"""Kernels for devices with their arguments, compared with the interpreter."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common import arithmetic_cases as arithmetic
from common import blocks_of_threads as threads
from common import pipelined_blocks as pipelined
from common.arithmetic import same
from tilesmith import te
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Load, Var, const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, Store, seq
from tilesmith.loop.parse import parse_func
from tilesmith.runtime.device_function import DeviceFunction

GROUP = 15
"""Operations in one kernel: as many arguments as every device takes."""


@dataclass(frozen=True)
class KernelCase:
    """A kernel, and arguments: arrays, of which the last is the result, and integers."""

    func: Func
    given: Sequence[np.ndarray | int]

    def check(self, function: DeviceFunction) -> None:
        """Compare a run on the device with the interpreter."""
        wanted, found = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in self.given]
                         for _ in range(2))  # fmt: skip
        interpret(self.func, wanted)
        function(*found[: len(function.arguments.buffers)],
                 *found[len(found) - len(function.arguments.given) :])  # fmt: skip
        for a, b in zip(found, wanted, strict=True):
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
                np.testing.assert_allclose(
                    a.astype(np.float64), b.astype(np.float64), rtol=2e-6, atol=1e-6
                )


TEXTS = {
    "rows in reverse": """def main(x: f32[2, 8], y: f32[2, 8]) -> y:
    for b in block_x(2):
        alloc t: f32[8] shared
        for i in thread_x(8):
            t[i] = x[b, i]
            barrier
            y[b, i] = t[7 - i]
""",
    "fewer iterations than threads": """def main(x: f32[3, 8], y: f32[3, 8]) -> y:
    for b in block_y(3):
        alloc t: f32[4] shared
        for i in thread_x(4):
            t[i] = x[b, i]
        barrier
        for j in thread_x(8):
            y[b, j] = t[j // 2] + x[b, j]
""",
    "threads read what others wrote to global memory": """def main(x: f32[8], y: f32[8]) -> y:
    alloc t: f32[8] heap
    for i in thread_x(8):
        t[i] = x[i] * 2.0
        barrier
        y[i] = t[7 - i]
""",
    "launches and one thread": """def main(x: f32[2, 8], y: f32[2, 8]) -> y:
    alloc t: f32[16] heap
    for b in block_x(2):
        for i in thread_x(8):
            t[b * 8 + i] = x[b, i] + 1.0
    t[3] = 7.0
    for b in block_x(2):
        for i in thread_x(8):
            y[b, i] = t[15 - b * 8 - i]
""",
    "sizes of a run": """def main(x: f32[n], y: f32[n], n: i64, k: i64) -> y:
    if k < 3:
        for b in block_x((n + 15) // 16):
            for i in thread_x(16):
                if b * 16 + i < n:
                    y[b * 16 + i] = x[b * 16 + i] * f32(k)
    else:
        for b in block_x(n):
            y[b] = x[b] + 1.0
""",
    "copies ahead with zeros": """def main(x: f32[40], y: f32[16]) -> y:
    for i in thread_x(16):
        alloc t: f32[64] shared
        alloc u: f32[48] shared
        async:
            for v in range(4):
                t[i * 4 + v] = select(i < 9, x[i * 4 + v], 0.0)
            u[i] = select(i < 9, x[i + 3], 1.0)
        async:
            u[i + 16] = select(i < 9, x[i + 3], 0.0)
            u[i + 32] = x[i] + 1.0
        wait 1
        barrier
        y[i] = t[63 - i] + u[15 - i]
        wait 0
        barrier
        y[i] = y[i] + t[15 - i] + u[31 - i] + u[47 - i]
""",
    "loops that do not begin at zero": """def main(x: f32[12], y: f32[12]) -> y:
    for i in thread_x(2):
        y[i] = x[i]
    for b in block_x(2, extent=3):
        for i in thread_x(2):
            y[b * 2 + i] = x[b * 2 + i] * 3.0
    for j in range(10, extent=2):
        y[j] = 0.0
""",
}


def texts() -> dict[str, KernelCase]:
    found: dict[str, KernelCase] = {}
    for name, text in TEXTS.items():
        func = parse_func(text)
        numbers = [77, 2] if name == "sizes of a run" else []
        sizes = {"n": 77}
        shapes = [
            [sizes.get(str(d)) if isinstance(d, Var) else int(str(d)) for d in b.shape]
            for b in func.buffers
        ]
        x = np.random.default_rng(0).random(shapes[0], np.float32)
        found[name] = KernelCase(func, [x, np.zeros(shapes[1], np.float32), *numbers])
        if numbers:
            found[f"{name}, the other way"] = KernelCase(
                func, [x, np.zeros(shapes[1], np.float32), 77, 5]
            )
    return found


def products() -> dict[str, KernelCase]:
    rng = random.Random(5)
    found: dict[str, KernelCase] = {}
    for n, tail in enumerate(("guard", "peel", "roundup")):
        shape = tuple(rng.randint(5, 14) for _ in range(3))
        cached = (("A", "B"), ("A",), ("B",))[n]
        func = threads.blocked(shape, (6, 4), (2, 4), 3, tail, cached, "stack")
        rows, columns, depth = shape
        values = np.random.default_rng(n)
        a, b = values.random((rows, depth), np.float32), values.random((depth, columns), np.float32)
        c = np.zeros((rows, columns), np.float32)
        found[f"product {shape}, {tail}"] = KernelCase(func, [a, b, c])
        ahead = pipelined.pipelined(n + 2, shape, (6, 4), (2, 4), 3, tail)
        found[f"product {shape}, {n + 2} buffers"] = KernelCase(ahead, [a, b, c])
    return found


def sums() -> dict[str, KernelCase]:
    """The threads of a block add up a row through shared memory, in two steps."""
    x = te.placeholder((5, 96), name="x")
    k = te.reduce_axis(96, "k")
    y = te.compute((5,), lambda i: te.sum(x[i, k], axis=k), "y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(s[y].op.reduce_axis[0], factor=16)
    first = s.rfactor(y, inner)
    row, own = s[y].split(s[y].op.axis[0], factor=1)
    s[y].bind(row, "blockIdx.x")
    s[y].bind(own, "threadIdx.x")
    s[first].compute_at(s[y], row)
    s[first].set_scope("shared")
    (axis,) = (a for a in s[first].axis if a.extent == 16)
    s[first].bind(axis, "threadIdx.x")
    func = te.lower(s, [x, y])
    return {"sums": KernelCase(func, [np.random.default_rng(1).random((5, 96), np.float32),
                                      np.zeros(5, np.float32)])}  # fmt: skip


def operations(cases: Sequence[arithmetic.Case]) -> tuple[Func, list[np.ndarray]]:
    """Several operations on elements, each with a result of its own, in one kernel."""
    i, stores, inputs, outputs = Var("i"), list[Stmt](), list[Buffer](), list[Buffer]()
    for n, case in enumerate(cases):
        own = [Buffer(f"x{n}_{m}", to_dtype(a.dtype), (len(a),))
               for m, a in enumerate(case.inputs)]  # fmt: skip
        y = Buffer(f"y{n}", to_dtype(case.wanted.dtype), (len(case.wanted),))
        stores.append(Store(y, (i,), case.compute(*(Load(b, (i,)) for b in own))))
        inputs += own
        outputs.append(y)
    body = For(i, const(0), const(arithmetic.N), "threadIdx.x", seq(*stores))
    func = Func("f", (*inputs, *outputs), tuple(outputs), body)
    return func, [a for c in cases for a in c.inputs]


def check_operations(
    cases: Sequence[arithmetic.Case], given: list[np.ndarray], function: DeviceFunction
) -> None:
    found = [np.empty_like(c.wanted) for c in cases]
    function(*given, *found)
    wrong: list[str] = []
    for case, got in zip(cases, found, strict=True):
        zero = np.zeros(1, got.dtype)
        try:
            if case in arithmetic.SMOOTH:  # OpenCL allows 16 units in the last place
                np.testing.assert_allclose(got, case.wanted, rtol=16 * np.finfo(got.dtype).eps)
            else:
                with np.errstate(all="ignore"):
                    same(got + zero, case.wanted + zero)
        except AssertionError as e:
            wrong.append(f"{case.name}: {e}")
    assert not wrong, "\n".join(wrong)
