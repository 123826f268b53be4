"""Kernels and models for NVIDIA's GPUs, run on this machine (see `emulated`)."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated import EmulatedDevice

import tilesmith as ts
from common import arithmetic_cases as arithmetic
from common import device_kernels as cases
from common import matrices, pass_models
from common import thread_reductions as reductions
from common.interpreted import OPTIONS, recorded
from common.part_models import branching, detector
from tilesmith import te
from tilesmith.backend import CUDA
from tilesmith.backend import cuda as backend
from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.codegen.packed import unpacked
from tilesmith.codegen.ptx import assemble
from tilesmith.codegen.ptx.emit import emit
from tilesmith.codegen.targets import target
from tilesmith.driver.entry import FallbackWarning
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32, i32, i64, u8
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise.binary import Sub
from tilesmith.ops.gather import Gather
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import InstanceNorm, LayerNorm, LogSoftmax, RmsNorm, Softmax
from tilesmith.ops.reduce import ReduceMean
from tilesmith.ops.scan import CumSum
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.select import NonZero
from tilesmith.ops.sort import TopK
from tilesmith.program.nodes import Results
from tilesmith.program.parse import parse_program
from tilesmith.program.text import print_program
from tilesmith.runtime import device_function, device_runner, parts_runner
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.runtime.executable import Executable
from tilesmith.strategy.device import default_schedule
from tilesmith.support.errors import ModelError

GPU = target("cuda-sm_80")
ALONE = ts.Options(use_cache=False, jobs=1)
"""What is compiled here is no PTX: no other process may make it, or find it."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "threads.so"
    flags = ["-shared", "-fPIC", "-w", "-O1", "-pthread"]
    source = str(Path(__file__).with_name("threads.c"))
    subprocess.run([*find_compiler(), *flags, source, "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(autouse=True)
def device(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = EmulatedDevice(library)
    for module in (device_function, device_runner):
        monkeypatch.setattr(module, "opened", lambda t: made)
    monkeypatch.setattr(device_runner, "is_there", lambda t: True)
    for module in (assemble, backend):
        monkeypatch.setattr(module, "ptx", lambda text, *rest: text)


def function(nest: Func) -> DeviceFunction:
    """A kernel, strict, as a function of arrays."""
    final = nest
    for p in CUDA.loop_passes:
        final = p.run(final)
    kernel = emit(CUDA.lower_intrinsics(final, GPU), GPU, "k", strict=True)
    return DeviceFunction(kernel, Arguments(nest), GPU)


COMPARED = {**cases.texts(), **cases.products(), **cases.sums()}


@pytest.mark.parametrize("name", COMPARED)
def test_kernels(name: str):
    case = COMPARED[name]
    case.check(function(case.func))


PLAIN = [
    c
    for c in (*arithmetic.CASES, *arithmetic.SMOOTH)
    if len(c.wanted) == arithmetic.N
]  # fmt: skip


@pytest.mark.parametrize("start", range(0, len(PLAIN[::4]), 6))
def test_operations(start: int):
    group = PLAIN[::4][start : start + 6]
    func, given = cases.operations(group)
    cases.check_operations(group, given, function(func))


FACTORS = [
    ("f16", "f16", "f32"), ("bf16", "bf16", "f32"),
    *((a, b, "i32") for a in ("i8", "u8") for b in ("i8", "u8")),
]  # fmt: skip


@pytest.mark.parametrize("types", [("f32", "f32", "f32"), *FACTORS[:3]], ids=lambda t: t[0])
def test_copies_ahead(types: tuple[str, str, str]):
    """They happen when their thread waits for them, as late as they may."""
    x, w, out, given = matrices.product(types, (40, 72, 256))
    found = np.empty(out.shape, out.dtype.numpy)
    assert GPU.device is not None
    small = replace(GPU, device=replace(GPU.device, units=1))  # no blocks divide the sum
    kernel = ts.build(default_schedule([x, w, out], small, 0.0), [x, w, out], target=GPU)
    assert "cp.async" in kernel.source
    kernel(*given, found)
    error = 1e-5 if types[2] == "f32" else 0
    np.testing.assert_allclose(found, matrices.wanted(given), 10 * error, 100 * error)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("types", FACTORS, ids=lambda t: "-".join(t[:2]))
def test_matrix_instructions(types: tuple[str, str, str], is_transposed: bool):
    """By the rules, with tiles that pass the end of the result."""
    x, w, out, given = matrices.product(types, (40, 136, 32), is_transposed)
    schedule = default_schedule([x, w, out], GPU, 0.0)
    found = np.empty(out.shape, out.dtype.numpy)
    kernel = ts.build(schedule, [x, w, out], target=GPU)
    assert "nvvm.mma" in kernel.source
    kernel(*given, found)
    error = 1e-5 if types[2] == "f32" else 0
    np.testing.assert_allclose(found, matrices.wanted(given, is_transposed), error, 10 * error)


def test_softmax():
    x = te.placeholder((7, 50), name="x")
    k, m = te.reduce_axis(50, "k"), te.reduce_axis(50, "m")
    most = te.compute((7,), lambda i: te.max(x[i, k], axis=k), "most")
    e = te.compute((7, 50), lambda i, j: te.exp(x[i, j] - most[i]), "e")
    total = te.compute((7,), lambda i: te.sum(e[i, m], axis=m), "total")
    y = te.compute((7, 50), lambda i, j: e[i, j] / total[i], "y")
    given = np.random.default_rng(2).random((7, 50), np.float32)
    found = np.empty_like(given)
    ts.build("auto", [x, y], target=GPU)(given, found)
    wanted = np.exp(given - given.max(1, keepdims=True))
    np.testing.assert_allclose(found, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "i16", "i64", "bf16"])
@pytest.mark.parametrize("op", reductions.REDUCERS)
def test_shuffles(op: str, dtype: str):
    """Whole waves, parts of them, rows of a block, and one exchange between waves."""
    for threads, lanes, together in ((256, 32, 1), (48, 32, 1), (16, 8, 4), (8, 8, 3)):
        schedule, args = reductions.rows((4, 300), threads, lanes, op, dtype, together)
        kernel = ts.build(schedule, args, target=GPU)
        assert "nvvm.shfl" in kernel.source
        x = np.random.default_rng(3).integers(1, 5, (4, 300)).astype(args[0].dtype.numpy)
        x[:, 9:] = 1
        found = np.empty(4, x.dtype)
        kernel(x, found)
        wanted = reductions.ANSWERS[op](x.astype("f8" if dtype == "bf16" else x.dtype), 1)
        np.testing.assert_array_equal(found, wanted.astype(x.dtype))


def test_a_model():
    graph = pass_models.attention()
    exe = ts.compile(graph, target="cuda-sm_80", options=ALONE)
    rng = np.random.default_rng(4)
    given = [rng.standard_normal(s.static_shape, np.float32) for s in exe.inputs]
    (wanted,) = evaluate(graph, given).values()
    for _ in range(2):
        np.testing.assert_allclose(exe(*given), wanted, rtol=1e-4, atol=1e-4)


def test_irregular():
    b = Builder("g")
    graph = b.finish(list(b.add(TopK(3), b.input("x", TensorType(f32, (6, 20))))))
    given = np.random.default_rng(6).random((6, 20), np.float32)
    found = ts.compile(graph, target="cuda-sm_80", options=ALONE)(given)
    for x, y in zip(found, evaluate(graph, [given]).values(), strict=True):
        np.testing.assert_array_equal(x, y)


def test_long_lines():
    """A scan, a sort and a scatter of one long line, divided into chunks."""
    b = Builder("g")
    x, at = b.input("x", TensorType(f32, (1200,))), b.input("at", TensorType(i64, (1200,)))
    found = [*b.add(TopK(40, 0), x), b.add(CumSum(0, reverse=True), x)]
    found.append(b.add(ScatterElements(0, "add"), b.constant(np.zeros(7, np.float32)), at, x))
    graph = b.finish(found)
    rng = np.random.default_rng(8)
    given = [rng.integers(-9, 9, 1200).astype(np.float32), rng.integers(-7, 7, 1200)]
    exe = ts.compile(graph, target="cuda-sm_80", options=ALONE)
    for found, wanted in zip(exe(*given), evaluate(graph, given).values(), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_wrong_index():
    """The failure lies where the report has it; the next call works."""
    b = Builder("g")
    x, at = b.input("x", TensorType(f32, (5,))), b.input("at", TensorType(i64, (2,)))
    graph = b.finish([b.add(Gather(0), x, at, loc="taken")])
    exe = ts.compile(graph, target="cuda-sm_80", options=ALONE)
    given = np.arange(5, dtype=np.float32)
    with pytest.raises(ModelError, match="taken: expected indices from -5 to 4, found 7 at posi"):
        exe(given, np.array([0, 7]))
    np.testing.assert_array_equal(exe(given, np.array([4, -4])), [4, 1])


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_model_in_low_precision(precision: str):
    """Its products use matrix instructions; the answer is that of the evaluator, rounded."""
    rng = np.random.default_rng(5)
    b = Builder("g")
    x = b.input("x", TensorType(f32, (64, 64)))
    weights = (rng.standard_normal(s).astype(np.float32) / 8 for s in ((64, 128), (128, 64)))
    first, second = (b.constant(w) for w in weights)
    y = b.add(MatMul(), b.add(Relu(), b.add(MatMul(), x, first)), second)
    graph = b.finish([y])
    given = rng.standard_normal((64, 64)).astype(np.float32)
    low = ts.Options(use_cache=False, jobs=1, precision=precision)
    exe = ts.compile(graph, target="cuda-sm_80", options=low)
    assert sum("nvvm.mma" in unpacked(*k).text for k in exe.program.objects.items()) == 2
    (wanted,) = evaluate(graph, [given]).values()
    np.testing.assert_allclose(exe(given), wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_convolution_in_low_precision(precision: str):
    """With a border and an epilogue; the first one has too few channels."""
    rng = np.random.default_rng(5)
    b = Builder("g")
    x = b.input("x", TensorType(f32, (1, 3, 10, 10)))
    shapes = (64, 3, 3, 3), (32, 64, 3, 3)
    first, second = (b.constant(rng.standard_normal(s).astype(np.float32) / 8) for s in shapes)
    op = Conv(pads=(1, 1, 1, 1))
    y = b.add(Relu(), b.add(op, b.add(Relu(), b.add(op, x, first)), second))
    graph = b.finish([b.add(ReduceMean((2, 3)), y)])
    given = rng.standard_normal((1, 3, 10, 10)).astype(np.float32)
    low = ts.Options(use_cache=False, jobs=1, precision=precision)
    exe = ts.compile(graph, target="cuda-sm_80", options=low)
    texts = [unpacked(*k).text for k in exe.program.objects.items()]
    (product,) = (text for text in texts if "nvvm.mma" in text)
    assert "cp.async.cg.shared.global.16.s" in product  # the border is filled with zeros
    (wanted,) = evaluate(graph, [given]).values()
    np.testing.assert_allclose(exe(given), wanted, rtol=0.05, atol=0.02)


def test_a_product_of_bytes():
    rng = np.random.default_rng(6)
    b = Builder("g")
    x = b.input("x", TensorType(u8, (64, 64)))
    w = b.constant(rng.integers(-127, 128, (64, 128)).astype(np.int8))
    graph = b.finish([b.add(MatMul(to=i32), x, w)])
    exe = ts.compile(graph, target="cuda-sm_80", options=ALONE)
    given = rng.integers(0, 256, (64, 64)).astype(np.uint8)
    assert any("nvvm.mma" in unpacked(*k).text for k in exe.program.objects.items())
    (wanted,) = evaluate(graph, [given]).values()
    np.testing.assert_array_equal(exe(given), wanted)


NORMS = {
    "softmax": (Softmax(-1), (5, 300)),
    "log softmax": (LogSoftmax(-1), (5, 300)),
    "layer norm": (LayerNorm(-1), (7, 200), (200,), (200,)),
    "rms norm": (RmsNorm(-1), (7, 200), (200,)),
    "instance norm": (InstanceNorm(), (2, 3, 12, 11), (3,), (3,)),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_one_launch(name: str):
    """Also where a mean, or the reciprocal of a sum, is computed once for each row."""
    op, *shapes = NORMS[name]
    b = Builder("g")
    inputs = (b.input(f"x{n}", TensorType(f32, x)) for n, x in enumerate(shapes))
    graph = b.finish([b.add(op, *inputs)])
    exe = ts.compile(graph, target="cuda-sm_80", options=ALONE)
    launches = [x for found in exe.launches.values() for x in found]
    assert len(launches) == 1
    rng = np.random.default_rng(8)
    given = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    (wanted,) = evaluate(graph, given).values()
    np.testing.assert_allclose(exe(*given), wanted, rtol=1e-4, atol=1e-5)


def selected() -> Graph:
    """The CPU measures a size; the device computes before, and the caller's array is a result."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (1, 4096)))
    shifted = b.add(Sub(), x, b.constant(np.float32(0.5), "half"))
    places, _ = b.add(NonZero(), b.add(Relu(), shifted))
    return b.finish([places, x, shifted])


def open_sizes() -> Graph:
    """The CPU runs all of it, without copies."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (symbol("n"), 16)))
    return b.finish([b.add(Relu(), x), x])


SPLIT = {
    "suppression": (lambda: detector(6), (1, 3, 6, 6)),
    "branch": (branching, (1, 1, 8, 8)),
    "measured sizes": (selected, (1, 4096)),
    "open sizes": (open_sizes, (5, 16)),
}


@pytest.mark.parametrize("name", SPLIT)
def test_the_interpreter_of_a_model_in_parts(name: str, monkeypatch: pytest.MonkeyPatch):
    """It gives what the executable gives, and the text of each program is read back."""
    monkeypatch.setattr(parts_runner, "is_there", lambda t: True)
    make, shape = SPLIT[name]
    with recorded() as recording, pytest.warns(FallbackWarning):
        made = ts.compile(make(), target="cuda-sm_80", options=OPTIONS)
    program = made.program
    assert program.parts
    for main in (program.main, *(p.main for p in program.parts)):
        assert parse_program(print_program(main)) == main
    for seed in range(2):
        given = (-1) ** seed * np.random.default_rng(seed).random(shape, np.float32)
        results = made(given)
        wanted = results if isinstance(results, tuple) else (results,)
        for a, b in zip(recording.interpret(program, [given]), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_model_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The CPU finds the elements that are not zero; the device computes before and after."""
    monkeypatch.setattr(parts_runner, "is_there", lambda t: True)
    rng = np.random.default_rng(9)
    given, weights = rng.random((1, 4), np.float32), rng.random((4, 4096), np.float32) - 0.5
    b = Builder("g")
    product = b.add(MatMul(), b.input("x", TensorType(f32, (1, 4))), b.constant(weights, "w"))
    places, _ = b.add(NonZero(), product)
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'cuda-sm_80'"):
        made = ts.compile(
            b.finish([places, b.add(Relu(), product)]), target="cuda-sm_80", options=ALONE
        )
    made.save(tmp_path / "model.tsm")
    for exe in (made, made, ts.load(tmp_path / "model.tsm")):
        found, positive = exe(given)
        np.testing.assert_array_equal(found[:, :4096], np.stack(np.nonzero(given @ weights)))
        np.testing.assert_allclose(positive, np.maximum(given @ weights, 0), rtol=1e-5, atol=1e-6)
    out = np.empty_like(positive)
    assert made(given, out=(None, out))[1] is out
    np.testing.assert_array_equal(out, positive)
    with pytest.raises(ts.UsageError, match=r"output .* shares memory with input 'x'"):
        made(out.reshape(-1)[:4].reshape(1, 4), out=(None, out))
    torch = pytest.importorskip("torch")
    assert isinstance(made(torch.from_numpy(given))[1], torch.Tensor)
    profile = made.profile(given, repeats=2)
    assert len(profile) == len(made.program.calls) and all(k.seconds > 0 for k in profile)
    made.load_weights({"w": 2 * weights})
    np.testing.assert_allclose(made(given)[1], 2 * positive, rtol=1e-6)
    steps = made.program.steps
    on_device = next(s.to for s in made.program.transfers if s.to_device)
    for wrong in (steps[1:], steps[:-1], (*steps[:-1], Results((on_device, on_device)))):
        with pytest.raises(ModelError, match="do not fit its parts"):
            Executable(replace(made.program, steps=wrong))
