from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from models import COLS, ROWS, checked_program, copy_program, expected, program

from tilesmith.ir.dtypes import ALL, DType, bf16, f32
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import Contents, pack_constants
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


@pytest.mark.parametrize("threads", (1, 3))
def test_the_number_of_threads_does_not_matter(threads: int) -> None:
    p, c = program()
    x = sample()
    check(Executable(p, threads=threads)(x), x, c)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="places are chosen on Linux only")
def test_each_worker_gets_a_processor_of_its_own() -> None:
    allowed = os.sched_getaffinity(0)
    wanted = len(allowed)
    if wanted < 2:
        pytest.skip("one processor has no room for a worker")
    code = f"""
import os, numpy as np
from models import ROWS, COLS, program
from tilesmith.runtime.executable import Executable
Executable(program()[0], threads={wanted})(np.zeros((ROWS, COLS), np.float32))
places = [os.sched_getaffinity(int(t)) for t in os.listdir("/proc/self/task")]
print(sorted(min(p) for p in places if len(p) == 1))
"""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    places = json.loads(done.stdout)
    assert len(places) == len(set(places)) == min(wanted, ROWS) - 1, done.stdout
    assert set(places) <= allowed


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


def test_a_failed_assertion_names_the_node() -> None:
    exe = Executable(checked_program())
    np.testing.assert_array_equal(exe(np.arange(4)), np.arange(4))
    with pytest.raises(ModelError, match="node narrow: number not below 10"):
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


def test_calls_from_several_threads_at_once(made: Made) -> None:
    exe, c = made
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = sample(seed)
            for _ in range(500):
                check(exe(x), x, c)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
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
    with pytest.raises(UsageError, match="threads: expected a positive integer, found 0"):
        thread_count(0)


def test_constants_are_packed_once_and_aligned() -> None:
    a, b = np.arange(5, dtype=np.float32), np.ones((3, 3), ml_dtypes.bfloat16)
    first, second = Contents.of(a), Contents.of(b)
    blob, offsets = pack_constants([first, second, first], jobs=2)
    assert blob.ctypes.data % 64 == 0 and offsets == [0, 64, 0]
    np.testing.assert_array_equal(blob[:20].view(np.float32), a)
    np.testing.assert_array_equal(blob[64:82].view(ml_dtypes.bfloat16), b.ravel())
    assert f32.bytes == 4
