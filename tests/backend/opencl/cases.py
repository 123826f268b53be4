"""What runs on an OpenCL device: kernels against the interpreter, calls of the public functions.

`kernels` and `calls` give the cases by name, as functions that raise; `child.py` runs them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from library import library

import tilesmith as ts
from common import arithmetic_cases as arithmetic
from common import device_groups as device_attention
from common import device_groups as rules
from common import pass_models
from common.device_kernels import GROUP, check_operations, operations, products, sums, texts
from tilesmith import te
from tilesmith.cli.explain_device import rows
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.intrinsics import checked_index
from tilesmith.ir.types import TensorType
from tilesmith.loop.launches import launches
from tilesmith.ops.gather import Gather
from tilesmith.ops.sort import TopK
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.opencl import opened
from tilesmith.strategy.device import RULES
from tilesmith.support.errors import DeviceError, InternalError, ModelError


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
