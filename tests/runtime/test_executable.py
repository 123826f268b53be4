from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from models import COLS, ROWS, checked_program, copy_program, expected, linked, program

from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import ALL, DType, bf16, f32, i64
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.native import keep_arenas
from tilesmith.runtime.program import (
    Arg,
    Contents,
    KernelCall,
    Program,
    TensorSpec,
    pack_constants,
)
from tilesmith.runtime.threads import physical_cores, thread_count
from tilesmith.support.errors import ModelError, UsageError


def sample(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, COLS)).astype(np.float32)


@pytest.fixture(scope="module")
def made() -> tuple[Executable, np.ndarray]:
    p, c = program()
    return Executable(p, threads=2), c


Made = tuple[Executable, np.ndarray]


def check(outputs: tuple[np.ndarray, ...], x: np.ndarray, c: np.ndarray) -> None:
    for got, want in zip(outputs, expected(x, c), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_call_and_run(made: Made) -> None:
    exe, c = made
    x = sample()
    check(exe(x), x, c)
    named = exe.run({"x": x})
    assert list(named) == ["y", "z"]
    check(tuple(named.values()), x, c)
    assert [str(s) for s in exe.inputs] == ["x: f32[8,24]"]
    assert "x: f32[8,24] -> y: f32[8,24], z: f32[8]" in repr(exe)


def test_the_call_of_onnx_runtime(made: Made) -> None:
    exe, c = made
    x = sample()
    found = exe.run(None, {"x": x})
    assert isinstance(found, list)
    check(tuple(found), x, c)
    z, y, again = exe.run(["z", "y", "z"], {"x": x})
    check((y, z), x, c)
    assert np.array_equal(z, again)
    assert exe.run([], {"x": x}) == []
    for call, said in (
        (lambda: exe.run(["Y"], {"x": x}), "no output is called 'Y'; did you mean 'y'"),
        (lambda: exe.run(["x"], {"x": x}), "no output is called 'x'"),
        (lambda: exe.run(None, {}), "missing inputs: 'x'"),
        (lambda: exe.run(None, {"y": x}), "no input is called 'y'"),
    ):
        with pytest.raises(ModelError, match=said):
            call()


@pytest.mark.parametrize("threads", (1, 3))
def test_the_number_of_threads_does_not_matter(threads: int) -> None:
    p, c = program()
    x = sample()
    check(Executable(p, threads=threads)(x), x, c)


def test_what_is_not_contiguous_is_copied(made: Made) -> None:
    exe, c = made
    x = sample()
    check(exe(np.asfortranarray(x)), x, c)
    check(exe(np.repeat(x, 2, axis=1)[:, ::2]), x, c)
    misaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    check(exe(misaligned), x, c)
    x.flags.writeable = False
    check(exe(x), x, c)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", ((), (0,), (3, 5)), ids=str)
def test_every_element_type_goes_through(dtype: DType, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype.numpy)
    y = Executable(copy_program(dtype, shape))(x)
    assert y.dtype == dtype.numpy and y.shape == shape
    np.testing.assert_array_equal(y.astype(np.float64), x.astype(np.float64))


def test_torch_tensors_in_torch_tensors_out(made: Made) -> None:
    torch = pytest.importorskip("torch")
    exe, c = made
    x = sample()
    y, z = exe(torch.from_numpy(x).requires_grad_())
    assert isinstance(y, torch.Tensor)
    check((y.numpy(), z.numpy()), x, c)
    check(tuple(t.numpy() for t in exe.run({"x": torch.from_numpy(x.T.copy()).T}).values()), x, c)
    half = torch.arange(4, dtype=torch.bfloat16)
    out = Executable(copy_program(bf16, (4,)))(half)
    assert out.dtype is torch.bfloat16 and torch.equal(out, half)


def test_other_array_libraries(made: Made) -> None:
    exe, c = made
    x = sample()

    class Interface:
        __array_interface__ = x.__array_interface__

    class Capsule:
        def __dlpack__(self, **options: object) -> object:
            return x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    check(exe(Interface()), x, c)
    check(exe(Capsule()), x, c)


def test_wrong_arguments_are_named(made: Made) -> None:
    exe, _ = made
    x = sample()
    cases = (
        (lambda: exe(), r"expected 1 inputs \(x: f32\[8,24\]\), found 0"),
        (
            lambda: exe(x.astype(np.float64)),
            r"input 'x': expected element type f32 \(float32\), found float64",
        ),
        (lambda: exe(x[:4]), r"input 'x': expected shape \(8, 24\), found \(4, 24\)"),
        (lambda: exe([1.0]), "input 'x': expected a NumPy array, a torch tensor or .* found list"),
        (lambda: exe.run({"xx": x}), "no input is called 'xx'; did you mean 'x'"),
        (lambda: exe.run({}), "missing inputs: 'x'; the inputs are x: f32"),
    )
    for bad, message in cases:
        with pytest.raises(ModelError, match=message):
            bad()


def test_results_go_where_the_caller_wants_them(made: Made) -> None:
    exe, c = made
    x = sample()
    y, z = np.empty((ROWS, COLS), np.float32), np.empty(ROWS, np.float32)
    got = exe(x, out=(y, z))
    assert got[0] is y and got[1] is z
    check((y, z), x, c)
    y[:] = z[:] = 0
    got = exe(np.asfortranarray(x), out=[None, z])  # the input is converted
    assert got[1] is z and not y.any()
    check(got, x, c)
    named = exe.run({"x": x}, out={"y": y})
    assert named["y"] is y and named["z"] is not z
    check(tuple(named.values()), x, c)
    for shape in ((), (0,), (3, 5)):
        for dtype in (f32, bf16):
            x = np.ones(shape, dtype.numpy)
            y = np.zeros(shape, dtype.numpy)
            assert Executable(copy_program(dtype, shape))(x, out=y) is y
            np.testing.assert_array_equal(y.astype(np.float32), x.astype(np.float32))


def test_torch_tensors_receive_results(made: Made) -> None:
    torch = pytest.importorskip("torch")
    exe, c = made
    x = sample()
    y, z = torch.empty(ROWS, COLS), np.empty(ROWS, np.float32)
    got = exe(torch.from_numpy(x), out=(y, z))
    assert got[0] is y and got[1] is z
    check((y.numpy(), z), x, c)
    assert isinstance(exe(x, out=(y, None))[1], np.ndarray)
    with pytest.raises(ModelError, match="output 'y': expected a writable, C-contiguous array"):
        exe(x, out=(torch._neg_view(y), None))  # NumPy sees a copy of it


def test_room_for_results_that_does_not_fit(made: Made) -> None:
    exe, c = made
    x = sample()
    y, z = np.empty((ROWS, COLS), np.float32), np.empty(ROWS, np.float32)
    memory = np.empty(2 * y.size, np.float32)
    fixed = y.copy()
    fixed.flags.writeable = False
    cases = (
        (y, r"out: expected 2 arrays \(y: f32\[8,24\], z: f32\[8\]\), found 1"),
        ((y, z, z), "out: expected 2 arrays .* found 3"),
        ((y.astype(np.float64), z), r"output 'y': expected element type f32 .* found float64$"),
        ((y, y), r"output 'z': expected shape \(8,\), found \(8, 24\)"),
        ((np.asfortranarray(y), z), "output 'y': expected a writable, C-contiguous array"),
        ((fixed, z), "output 'y': expected a writable, C-contiguous array"),
        (([0.0], z), "output 'y': expected a NumPy array or a torch tensor, found list"),
    )
    for out, message in cases:
        with pytest.raises(ModelError, match=message):
            exe(x, out=out)
    with pytest.raises(
        ModelError, match=r"no output is called 'Y'; did you mean 'y'.* outputs are"
    ):
        exe.run({"x": x}, out={"Y": y})
    shared = memory[: y.size].reshape(y.shape)
    shared[:] = x
    for out, message in (
        ((x, z), "output 'y' shares memory with input 'x'; expected an array with memory of its"),
        ((shared, memory[y.size - 1 :][:ROWS]), "output 'z' shares memory with output 'y'"),
        ((memory[ROWS : ROWS + y.size].reshape(y.shape), z), "'y' shares memory with input 'x'"),
    ):
        with pytest.raises(UsageError, match=message):
            exe(x if out[0] is x else shared if out[0] is not shared else x, out=out)
    with pytest.raises(UsageError, match="shares memory with input 'x'"):
        exe.run({"x": x}, out={"y": x})
    after = memory[y.size :][:ROWS]
    check(exe(shared, out=(None, after)), shared, c)  # neighbours in one block


def test_a_failed_assertion_names_the_node() -> None:
    exe = Executable(checked_program())
    np.testing.assert_array_equal(exe(np.arange(4)), np.arange(4))
    with pytest.raises(ModelError, match=r"node narrow: number not below 10 \(found 50\)"):
        exe(np.array([1, 50, 2, 3]))
    with pytest.raises(ModelError, match="node wide: number not below 100"):
        exe(np.array([1, 50, 200, 3]))
    with pytest.raises(ModelError, match="node narrow: number not below 10"):
        exe.profile(np.array([1, 50, 2, 3]))


def test_profile_lists_every_call(made: Made) -> None:
    exe, _ = made
    times = exe.profile(sample(), repeats=3)
    assert [t.call.label for t in times] == ["first", "second"]
    assert all(0 < t.seconds < 1 for t in times)


def test_sixteen_callers_share_the_pool() -> None:
    """Executables with different numbers of threads, called at once: answers are equal bit by
    bit.
    """
    p, c = program()
    executables = [Executable(p, threads=n) for n in (1, 2, 3, 5)]
    inputs = [sample(seed) for seed in range(16)]
    answers = [executables[0](x) for x in inputs]
    for x, y in zip(inputs, answers, strict=True):
        check(y, x, c)
    failures: list[str] = []

    def work(number: int) -> None:
        exe, x, y = executables[number % 4], inputs[number], answers[number]
        wrong = sum(not all(map(np.array_equal, exe(x), y)) for _ in range(300))
        if wrong:
            failures.append(f"caller {number}: {wrong} of 300")

    callers = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not failures


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_can_call(made: Made) -> None:
    exe, c = made
    x = sample()
    check(exe(x), x, c)
    child = os.fork()
    if child == 0:
        try:
            for _ in range(20):
                check(exe(x), x, c)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_an_executable_outlives_its_parts() -> None:
    p, c = program()
    call = Executable(p).__call__
    x = sample()
    del p
    check(call(x), x, c)


def test_threads_come_from_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "5")
    assert thread_count() == 5
    assert thread_count(7) == 7
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.delenv("TILESMITH_NUM_THREADS")
    assert thread_count() == physical_cores() >= 1
    with pytest.raises(UsageError, match="threads: expected a number from 1 to 4096, found 0"):
        thread_count(0)


def test_constants_are_packed_once_and_aligned() -> None:
    a, b = np.arange(5, dtype=np.float32), np.ones((3, 3), ml_dtypes.bfloat16)
    first, second = Contents.of(a), Contents.of(b)
    blob, offsets = pack_constants([first, second, first], jobs=2)
    assert blob.ctypes.data % 64 == 0 and offsets == [0, 64, 0]
    np.testing.assert_array_equal(blob[:20].view(np.float32), a)
    np.testing.assert_array_equal(blob[64:82].view(ml_dtypes.bfloat16), b.ravel())
    assert f32.bytes == 4


def waiting_program(arena_bytes: int) -> Program:
    """y[0] = 1; then waits until x[0] is not zero.  So calls overlap for as long as a test likes.
    It writes all over its arena.
    """
    text = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i32 @wait(ptr %x, ptr %y, ptr %workspace, ptr %context) {{
  call void @llvm.memset.p0.i64(ptr %workspace, i8 1, i64 {arena_bytes}, i1 false)
  store atomic i64 1, ptr %y seq_cst, align 8
  br label %loop
loop:
  %v = load atomic i64, ptr %x seq_cst, align 8
  %go = icmp ne i64 %v, 0
  br i1 %go, label %done, label %loop
done:
  ret i32 0
}}
"""
    spec = TensorSpec("x", i64, (1,)), TensorSpec("y", i64, (1,))
    calls = [KernelCall("wait", (Arg("input", 0), Arg("output", 0)))]
    constants, _ = pack_constants([])
    code = {"wait": compile_object(text, host())}
    return linked(spec[:1], spec[1:], calls, arena_bytes, 0, constants, code, host())


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


ARENA = 64 << 20


def three_at_once(exe: Executable) -> None:
    """Three calls that overlap, each of which has an arena of its own."""
    flags = [np.zeros(1, np.int64) for _ in range(3)]
    callers = [threading.Thread(target=exe, args=(x,)) for x in flags]
    before = resident_bytes()
    for c in callers:
        c.start()
    while resident_bytes() < before + 3 * ARENA * 0.9:
        time.sleep(0.001)
    for x in flags:
        x[0] = 1
    for c in callers:
        c.join()


@pytest.fixture
def arenas_kept() -> Iterator[Callable[[float], float]]:
    """Sets how long arenas are kept; as before when the test ends."""
    before = keep_arenas(1e6)
    yield keep_arenas
    keep_arenas(before)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the resident memory is read from Linux's /proc"
)


@needs_proc
def test_trim_gives_back_arenas(arenas_kept: Callable[[float], float]) -> None:
    exe = Executable(waiting_program(ARENA))
    three_at_once(exe)
    held = resident_bytes()
    assert 3 * ARENA <= exe.trim() <= 3 * ARENA + (1 << 20)
    assert resident_bytes() < held - 2.9 * ARENA
    assert exe.trim() == 0
    exe(np.ones(1, np.int64))
    assert exe.trim() >= ARENA


@needs_proc
def test_arenas_are_given_back_after_a_while(arenas_kept: Callable[[float], float]) -> None:
    """By the next call of any executable."""
    busy, other = Executable(waiting_program(ARENA)), Executable(copy_program(f32, (4,)))
    three_at_once(busy)
    held = resident_bytes()
    other(np.ones(4, np.float32))
    assert resident_bytes() > held - ARENA  # it was not long enough
    time.sleep(0.1)
    arenas_kept(0.05)
    other(np.ones(4, np.float32))
    assert resident_bytes() < held - 2.9 * ARENA
    assert busy.trim() == 0
