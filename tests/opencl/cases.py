"""What runs on an OpenCL device: kernels against the interpreter, calls of the public functions.

`kernels` and `calls` give the cases by name, as functions that raise; `child.py` runs them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pass_models
import pytest
import test_c_arithmetic as arithmetic
import test_device as rules
import test_device_attention as device_attention
import test_pipelined_threads as pipelined
import test_threads as threads
from library import library

import tilesmith as ts
from tilesmith import te
from tilesmith.cli.explain_device import rows
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Load, Var, const
from tilesmith.ir.intrinsics import checked_index
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, Store, seq
from tilesmith.loop.parse import parse_func
from tilesmith.ops.gather import Gather
from tilesmith.ops.sort import TopK
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.opencl import opened
from tilesmith.strategy.device import RULES
from tilesmith.support.errors import DeviceError, InternalError, ModelError

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
                    arithmetic.same(got + zero, case.wanted + zero)
        except AssertionError as e:
            wrong.append(f"{case.name}: {e}")
    assert not wrong, "\n".join(wrong)


def kernels() -> dict[str, Callable[[], None]]:
    """The cases that are kernels, all of one program."""
    compared = {**texts(), **products(), **sums()}
    plain = [c for c in (*arithmetic.CASES, *arithmetic.SMOOTH) if len(c.wanted) == arithmetic.N]
    chosen = plain[::25]  # a kernel with all of them takes a driver long
    groups = [chosen[n : n + GROUP] for n in range(0, len(chosen), GROUP)]
    made = [operations(g) for g in groups]
    nests = {f"k{n}": c.func for n, c in enumerate(compared.values())}
    built = library(nests | {f"operations{n}": func for n, (func, _) in enumerate(made)})
    found: dict[str, Callable[[], None]] = {
        name: partial(c.check, built[f"k{n}"]) for n, (name, c) in enumerate(compared.items())
    }
    for n, (group, (_, given)) in enumerate(zip(groups, made, strict=True)):
        found[f"operations {n}"] = partial(check_operations, group, given, built[f"operations{n}"])
    return found


def by_rule() -> None:
    """Rules schedule a softmax: several launches, whose values lie in the workspace."""
    x = te.placeholder((7, 50), name="x")
    k, m = te.reduce_axis(50, "k"), te.reduce_axis(50, "m")
    most = te.compute((7,), lambda i: te.max(x[i, k], axis=k), "most")
    e = te.compute((7, 50), lambda i, j: te.exp(x[i, j] - most[i]), "e")
    total = te.compute((7,), lambda i: te.sum(e[i, m], axis=m), "total")
    y = te.compute((7, 50), lambda i, j: e[i, j] / total[i], "y")
    given = np.random.default_rng(2).random((7, 50), np.float32)
    found = np.empty_like(given)
    function = ts.build("auto", [x, y], target="opencl", name="softmax")
    bound = function.bind(given, found)
    for _ in range(2):
        bound()
        wanted = np.exp(given - given.max(1, keepdims=True))
        wanted /= wanted.sum(1, keepdims=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        given += found
    assert "__kernel" in function.source and function.assembly
    assert repr(function) == "<opencl function softmax(x, y)>"


def split_sums() -> None:
    """The device counts as one with 16 units, which few tiles do not fill."""
    gpu = target("opencl")
    assert gpu.device is not None
    args = rules.product(10, 12, 256)
    function = ts.build("auto", args, target=replace(gpu, device=replace(gpu.device, units=16)))
    rng = np.random.default_rng(9)
    given = [rng.integers(-4, 5, t.shape).astype(np.float32) for t in args]
    a, b, bias, found = given
    function(*given)
    np.testing.assert_array_equal(found, a @ b + bias)
    assert "C_rf" in function.source


def in_place() -> None:
    x = te.placeholder((300,), name="x")
    y = te.compute((300,), lambda i: x[i] + 1.0, "y")
    given = np.arange(300, dtype=np.float32)
    ts.build("auto", [x, y], target="opencl", in_place={y: x})(given)
    np.testing.assert_array_equal(given, np.arange(1, 301))


def sixteen_bits() -> None:
    x = te.placeholder((40,), "bf16", "x")
    y = te.compute((40,), lambda i: te.select(x[i] < x[39 - i], x[i], x[39 - i]), "y")
    given = np.random.default_rng(3).random(40).astype(to_dtype("bf16").numpy)
    found = np.empty_like(given)
    ts.build("auto", [x, y], target="opencl")(given, found)
    np.testing.assert_array_equal(found, np.minimum(given, given[::-1]))


def raises(error: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=message):
        call()


def failures() -> None:
    """Whatever fails, the process lives and the next call works."""
    x, at = te.placeholder((8,), name="x"), te.placeholder((4,), "i64", "at")
    y = te.compute((4,), lambda i: x[checked_index(at[i], 8, i)], "y")
    function = ts.build("auto", [x, at, y], target="opencl", name="taken")
    given, found = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    inside, outside = np.array([0, -1, 7, 3]), np.array([0, 1, 9, 2])
    wrong = r"taken: expected indices from -8 to 7, found 9 at position 2"
    raises(ModelError, wrong, lambda: function(given, outside, found))
    raises(
        ModelError,
        r"expected shape \(8,\), found \(9,\)",
        lambda: function(np.zeros(9, np.float32), inside, found),
    )
    device = opened(0)
    raises(InternalError, "refuses the generated text", lambda: device.build("__kernel int f("))
    total = device.device.global_mem_size
    raises(DeviceError, "has not enough memory|in one piece", lambda: device.empty(4 * total))
    raises(
        DeviceError, "expected an OpenCL device number 99, found 0: ", lambda: target("opencl:99")
    )
    function(given, inside, found)
    np.testing.assert_array_equal(found, [0, 7, 7, 3])


def model(graph: Graph) -> None:
    """A model on the device has the answers of the CPU, also from a file."""
    made = ts.compile(graph, target="opencl")
    rng = np.random.default_rng(4)
    given = [rng.standard_normal(s.static_shape, np.float32) for s in made.inputs]
    (wanted,) = evaluate(graph, given).values()
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "model.tsm"))
        again = ts.load(Path(folder, "model.tsm"))
    for exe in (made, made, again):
        np.testing.assert_allclose(exe(*given), wanted, rtol=1e-4, atol=1e-4)
    out = np.empty_like(wanted)
    assert made(*given, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    wrong = r"expected 1 inputs|input 'x'"
    raises(ModelError, wrong, lambda: made(np.zeros((1, 1), np.float32)))


def residual() -> None:
    graph = pass_models.residual()
    model(graph)
    checks = ts.check(graph, target="opencl")
    assert checks and all(c.passed for c in checks)
    made = ts.compile(graph, target="opencl")
    given = [np.zeros(s.static_shape, np.float32) for s in made.inputs]
    check_profile(made, given)


def check_profile(made: Executable, given: Sequence[np.ndarray]) -> None:
    """Every kernel has a time, an inf is none, and its work is known."""
    found = made.profile(*given, repeats=2)
    assert len(found) == len(made.program.calls) and found.machine is None
    assert all(0 < k.seconds < 60 and k.runs >= 1 for k in found) and found.whole > 0
    assert any(k.info is not None and k.info.work.flops > 0 for k in found)


def explain() -> None:
    """`tilesmith explain` shows where each kernel runs, and its blocks and threads."""
    graph = pass_models.residual()
    made = ts.compile(graph, target="opencl")
    given = [np.zeros(s.static_shape, np.float32) for s in made.inputs]
    for row in rows(made, made.profile(*given, repeats=1)):
        assert row["place"] == "opencl" and row["launches"] and row["ms"] > 0
        assert all(len(x["blocks"]) == len(x["threads"]) == 3 for x in row["launches"])


def attention() -> None:
    model(pass_models.attention())


def whole_attention() -> None:
    """Products and the softmax between them are one launch."""
    graph = device_attention.attention((2, 37, 20), 50, 13, mask=True)
    made = ts.compile(graph, target="opencl")
    assert len(made.program.kernels) == 1
    rng = np.random.default_rng(4)
    given = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs]
    (wanted,) = evaluate(graph, given).values()
    np.testing.assert_allclose(made(*given), wanted, rtol=1e-4, atol=1e-5)


def attention_in_chunks() -> None:
    """Scores that do not fit shared memory are computed in chunks of keys, in one launch."""
    gpu = target("opencl")
    assert gpu.device is not None
    small = replace(gpu, device=replace(gpu.device, shared_bytes=10 << 10))
    graph = device_attention.attention((2, 37, 20), 500, 13, mask=True)
    func = RULES.lower_group(graph, small, "in_chunks")
    assert "running" in str(func) and len(launches(func)) == 1
    rng = np.random.default_rng(5)
    given = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs]
    (wanted,) = evaluate(graph, given).values()
    found = np.full_like(wanted, np.nan)
    library({"in_chunks": func})["in_chunks"](*given, found)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def wrong_index() -> None:
    """A model reports an index that its data should not have; the next call works."""
    b = Builder("g")
    x, at = b.input("x", TensorType(f32, (5,))), b.input("at", TensorType(i64, (2,)))
    made = ts.compile(b.finish([b.add(Gather(0), x, at, loc="taken")]), target="opencl")
    given = np.arange(5, dtype=np.float32)
    raises(ModelError, "taken: expected indices", lambda: made(given, np.array([0, 7])))
    np.testing.assert_array_equal(made(given, np.array([4, -4])), [4, 1])


def irregular() -> None:
    """An operator written as loops: those that are independent are threads."""
    b = Builder("g")
    graph = b.finish(list(b.add(TopK(3), b.input("x", TensorType(f32, (6, 20))))))
    given = np.random.default_rng(6).random((6, 20), np.float32)
    found, wanted = ts.compile(graph, target="opencl")(given), evaluate(graph, [given])
    for x, y in zip(found, wanted.values(), strict=True):
        np.testing.assert_array_equal(x, y)


def calls() -> dict[str, Callable[[], None]]:
    """The cases that call public functions."""
    return {
        f.__name__: f
        for f in (
            by_rule,
            split_sums,
            in_place,
            sixteen_bits,
            failures,
            residual,
            explain,
            attention,
            whole_attention,
            attention_in_chunks,
            wrong_index,
            irregular,
        )
    }
