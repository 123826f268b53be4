"""Weights whose pages the system watches: no write is missed, whoever does it and however.

Each test leaves weights with other contents than those compared before, by a road of its own.  That
contents are found the same again is tested too: the system answers, and nothing is read for it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import random
import resource
import threading

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.runtime.native import page_bytes

torch = pytest.importorskip("torch")
guards = pytest.importorskip("tilesmith.engines.torch.guards")
pytestmark = [
    pytest.mark.skipif(not page_bytes(), reason="the system doesn't tell which pages were written"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

PAGE = page_bytes() or 4096
SIZE = 256 * PAGE
HUGE = 1 << 21

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mprotect.argtypes = libc.madvise.argtypes
libc.mlock.argtypes = libc.munlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
MAP_FIXED, DONTNEED, HUGEPAGE = 0x10, 4, 14
MAYMOVE, FIXED, DONTUNMAP = 1, 2, 4  # of mremap


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    """Pages are watched from the first comparison on."""
    monkeypatch.setattr(guards, "_PATIENCE", 0)


def memory(size=SIZE, value=1):
    """Private memory from the system, which begins with a page."""
    x = torch.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE), dtype=torch.uint8)
    if value:
        x.fill_(value)
    return x


def map_again(place, size):
    """Fresh memory of zeros at an address where there is other memory."""
    assert libc.mmap(place, size, 3, PRIVATE | MAP_FIXED, -1, 0) == place


def guard(*weights, threads=1):
    numbers = tuple(range(len(weights)))
    return guards.unchanged(numbers, weights, guards.state(weights, False), threads)


def watched(is_same):
    return is_same.__self__.watched()


def watching(*weights):
    """A guard whose weights are watched."""
    is_same = guard(*weights)
    assert is_same(weights) and watched(is_same) and is_same(weights)
    return is_same


def flags(x):
    """The flags of the mapping in which the middle of a tensor lies."""
    place, inside = x.data_ptr() + x.numel() // 2, False
    with open("/proc/self/smaps") as f:
        for line in f:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                begin, end = (int(a, 16) for a in first.split("-"))
                inside = begin <= place < end
            elif inside and line.startswith("VmFlags:"):
                return line.split()[1:]
    raise AssertionError("no such mapping")


def in_child(scene):
    """Runs a scene in the child of a fork; its failure is ours."""
    child = os.fork()
    if child == 0:
        try:
            scene()
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _by_pipe(x, at):
    reading, writing = os.pipe()
    os.write(writing, b"\7")
    os.readv(reading, [memoryview(x.numpy())[at : at + 1]])
    os.close(reading), os.close(writing)


def _by_force(x, at):
    with open("/proc/self/mem", "r+b", buffering=0) as f:
        f.seek(x.data_ptr() + at)
        f.write(b"\7")


WAYS = {
    "numpy": lambda x, at: x.numpy().__setitem__(at, 7),
    "data": lambda x, at: x.data[at : at + 1].fill_(7),
    "foreign": lambda x, at: ctypes.memset(x.data_ptr() + at, 7, 1),
    "kernel": _by_pipe,
    "proc": _by_force,
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_a_byte_is_seen_wherever_it_is(write):
    x = memory()[100 : SIZE - 50]  # parts of pages at both ends
    for at in (0, PAGE - 101, PAGE - 100, x.numel() // 2, x.numel() - 1):
        is_same = watching(x)
        assert watched(is_same) == SIZE - 2 * PAGE
        write(x, at)
        assert not is_same((x,)), at
        x.numpy()[at] = 1
        assert is_same((x,))


def test_what_is_not_written_is_not_read():
    x = memory()
    is_same = watching(x)
    in_child(lambda: None)  # the parent of a fork still knows
    assert libc.mprotect(x.data_ptr(), SIZE, 0) == 0  # to read would be a crash
    assert is_same((x,))
    assert libc.mprotect(x.data_ptr(), SIZE, 3) == 0
    assert is_same((x,)) and watched(is_same) == SIZE
    x.numpy()[0] = 1
    assert is_same((x,)) and not watched(is_same)  # the same contents: read
    assert is_same((x,)) and watched(is_same)


def test_frequent_writes_end_the_watching():
    x, times = memory(), 0
    is_same = guard(x)
    for _ in range(200):
        x.numpy()[5] = 1
        assert is_same((x,))
        times += watched(is_same) > 0
    assert times <= 8
    x.numpy()[5] = 2
    assert not is_same((x,))


def test_contents_that_differ_when_watching_begins():
    x = memory()
    is_same = guard(x)
    x.numpy()[SIZE // 2] = 2
    for _ in range(3):
        assert not is_same((x,)) and not watched(is_same)
    x.numpy()[SIZE // 2] = 1
    assert is_same((x,))


def test_guards_that_share_weights():
    x = memory()
    first = watching(x)
    x.numpy()[0] = 2
    second = watching(x)  # protects the page that was written for `first`
    assert not first((x,)) and second((x,))
    x.numpy()[-1] = 2
    assert not second((x,))


def test_guards_of_weights_that_overlap():
    x = memory()
    views = x, x[: SIZE // 2], x[SIZE // 4 :]
    guarded = [watching(v) for v in views]
    for _ in range(3):
        for is_same, view in zip(guarded, views, strict=True):
            assert is_same((view,)) and watched(is_same)  # none disturbs another
    x.numpy()[SIZE // 3] = 2
    again = watching(views[2])
    assert again((views[2],))
    assert not any(is_same((v,)) for is_same, v in zip(guarded, views, strict=True))


@pytest.mark.parametrize("road", ["fork", "clone"])
def test_children_of_a_fork(road):
    x = memory()
    is_same = watching(x)

    def scene():
        assert is_same((x,)) and is_same((x,))
        x.numpy()[SIZE // 2] = 2
        assert not is_same((x,))
        own = watching(x)
        x.numpy()[SIZE // 2] = 3
        assert not own((x,))

    if road == "fork":
        in_child(scene)
    else:  # nothing that is registered for forks runs
        child = libc.syscall(56 if platform.machine() == "x86_64" else 220, 17, 0, 0, 0, 0)
        if child == 0:
            try:
                scene()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_same((x,)) and watched(is_same)
    x.numpy()[SIZE // 2] = 2
    assert not is_same((x,))


def test_memory_that_is_mapped_again():
    x = memory()
    is_same = watching(x)
    map_again(x.data_ptr(), SIZE)
    assert not is_same((x,))
    x.fill_(1)
    assert is_same((x,)) and is_same((x,)) and watched(is_same)
    map_again(x.data_ptr() + SIZE // 2, PAGE)
    assert not is_same((x,))


def test_memory_that_is_mapped_again_and_watched_by_another():
    x = memory()
    is_same = watching(x)
    map_again(x.data_ptr(), SIZE)
    other = watching(x[: SIZE // 2]), watching(x[SIZE // 2 :])
    assert not is_same((x,))
    del other


def test_watched_memory_that_moves_to_where_others_watch():
    x, y = memory(), memory(value=2)
    is_same, moved = watching(x), watching(y)
    assert libc.mremap(y.data_ptr(), SIZE, SIZE, MAYMOVE | FIXED, x.data_ptr()) == x.data_ptr()
    map_again(y.data_ptr(), SIZE)
    other = watching(x[: SIZE // 2]), watching(x[SIZE // 2 :])  # whose pages nobody writes
    assert not is_same((x,)) and not moved((y,))
    del other


def test_watched_memory_that_moves():
    x, y = memory(), memory(value=2)
    is_same, moved = watching(x), watching(y)
    assert moved((y,))
    size, how = SIZE // 2, MAYMOVE | FIXED
    assert libc.mremap(y.data_ptr(), size, size, how, x.data_ptr()) == x.data_ptr()
    assert x[0] == 2 and not is_same((x,))
    # what was there is unmapped now
    map_again(y.data_ptr(), size)
    assert not moved((y,))


def test_memory_whose_pages_move_and_that_stays():
    x = memory()
    is_same = watching(x)
    assert libc.mremap(x.data_ptr(), SIZE, SIZE, MAYMOVE | DONTUNMAP, None) not in (None, 2**64 - 1)
    assert not is_same((x,))
    x.fill_(1)
    assert is_same((x,))


@pytest.mark.parametrize("first, size", [(0, PAGE), (0, 2 * HUGE), (HUGE, HUGE), (3 * PAGE, HUGE)])
@pytest.mark.parametrize("huge", [False, True])
def test_memory_that_is_emptied(huge, first, size):
    whole = memory(4 * HUGE, value=0)
    offset = -whole.data_ptr() % HUGE
    x = whole[offset : offset + 2 * HUGE]
    if huge:
        assert libc.madvise(x.data_ptr(), 2 * HUGE, HUGEPAGE) == 0
    x.fill_(1)
    is_same = watching(x)
    size = min(size, 2 * HUGE - first)
    assert libc.madvise(x.data_ptr() + first, size, DONTNEED) == 0
    assert not is_same((x,))
    assert not is_same((x,))
    x[first : first + size] = 1
    assert is_same((x,))


def test_huge_pages():
    whole = memory(4 * HUGE, value=0)
    offset = -whole.data_ptr() % HUGE
    x = whole[offset + 2 * PAGE : offset + 2 * HUGE + PAGE]
    assert libc.madvise(whole.data_ptr() + offset, 3 * HUGE, HUGEPAGE) == 0
    x.fill_(1)
    is_same = watching(x)
    for at in (0, HUGE - 1, HUGE + 5, x.numel() - 1):
        x.numpy()[at] = 2
        assert not is_same((x,))
        x.numpy()[at] = 1
        while not watched(is_same):
            assert is_same((x,))


def test_memory_that_was_never_written():
    x = memory(value=0)
    is_same = watching(x)
    assert is_same((x,)) and watched(is_same)
    x.numpy()[SIZE // 2] = 1
    assert not is_same((x,))


def test_memory_of_files_and_of_other_processes_is_read(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(SIZE))
    for mode in ("c", "r+"):  # private and shared
        x = torch.from_numpy(np.memmap(path, np.uint8, mode))
        is_same = guard(x)
        assert is_same((x,)) and is_same((x,)) and not watched(is_same)
        with path.open("r+b") as f:  # a private page that nobody wrote is the file's
            f.seek(SIZE // 2)
            f.write(b"\1" if mode == "c" else b"\2")
        assert not is_same((x,))
    x = torch.zeros(SIZE, dtype=torch.uint8).share_memory_()
    is_same = guard(x)
    assert is_same((x,)) and is_same((x,)) and not watched(is_same)
    in_child(lambda: x.numpy().fill(1))
    assert not is_same((x,))


def test_pinned_memory_is_read(monkeypatch):
    x = memory()
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    is_same = guard(x)
    assert is_same((x,)) and is_same((x,)) and not watched(is_same)


def test_a_process_with_locked_pages_reads():
    x, other = memory(), memory(PAGE)
    assert libc.mlock(other.data_ptr(), PAGE) == 0
    try:
        is_same = guard(x)
        assert is_same((x,)) and is_same((x,)) and not watched(is_same)
    finally:
        assert libc.munlock(other.data_ptr(), PAGE) == 0
    watching(x)


@pytest.mark.parametrize("closed", ["userfaultfd", "pagemap", "all"])
@pytest.mark.parametrize("reused", [False, True])
def test_descriptors_that_the_process_closes(closed, reused):
    x, y = memory(), memory()
    kept = watching(x)
    parent = os.getpid()

    def scene():
        is_same, found = watching(x), 0
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                name = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue  # that of the list
            if not any(n in name and closed in (n, "all") for n in ("userfaultfd", "pagemap")):
                continue
            os.close(fd)
            found += 1
            if reused:
                # the same memory of our parent is watched, and nobody writes it
                new = os.open(f"/proc/{parent}/pagemap", os.O_RDONLY)
                os.dup2(new, fd)
        assert found >= 1
        assert is_same((x,))
        x.numpy()[SIZE // 2] = 2
        assert not is_same((x,))
        other = guard(y)
        assert other((y,)) and other((y,))
        y.numpy()[SIZE // 2] = 2
        assert not other((y,))

    in_child(scene)
    assert kept((x,)) and watched(kept)


def test_a_system_that_refuses():
    x = memory()

    def scene():  # a child asks anew, and gets no descriptor
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        is_same = guard(x)
        assert not page_bytes() and is_same((x,)) and is_same((x,)) and not watched(is_same)
        x.numpy()[SIZE // 2] = 2
        assert not is_same((x,))

    in_child(scene)


def test_the_switch(monkeypatch):
    x = memory()
    for text, found in (("0", 0), ("1", SIZE), ("", SIZE)):
        monkeypatch.setenv("TILESMITH_WATCH_PAGES", text)
        is_same = guard(x)
        assert is_same((x,)) and is_same((x,)) and watched(is_same) == found
    monkeypatch.setenv("TILESMITH_WATCH_PAGES", "no idea")
    with pytest.raises(ts.UsageError, match="TILESMITH_WATCH_PAGES must be 1 or 0"):
        guard(x)


@pytest.mark.parametrize("seed", range(4))
def test_random_walk(seed):
    """Guards of weights that overlap say what a copy of the contents says, whatever happens."""
    rng = random.Random(seed)
    size = 64 * PAGE
    x = memory(size)
    place, array = x.data_ptr(), x.numpy()
    views = [x, x[: size // 2], x[size // 3 :], x[5 : size - 5], x[PAGE : 20 * PAGE]]

    def write(value=None):
        at = rng.choice([0, PAGE - 1, size - 1, rng.randrange(size)])
        array[at] = rng.randrange(2) if value is None else value
        return at

    def restore():
        array[:] = 1

    def same():
        at = rng.randrange(size)
        array[at] = array[at]

    def pages():
        first = rng.randrange(64)
        return place + first * PAGE, rng.randrange(1, 65 - first) * PAGE

    def child():
        in_child(lambda: write(3))

    steps = [write, restore, same, child]
    steps += [lambda: libc.madvise(*pages(), DONTNEED), lambda: map_again(*pages())]
    held = []
    for step in range(400):
        what = rng.choices(steps, [6, 3, 3, 1, 1, 1])[0]
        what()
        if rng.random() < 0.2:
            guarded = tuple(rng.choices(views, k=rng.randrange(1, 3)))
            held.append((guarded, [v.numpy().copy() for v in guarded], guard(*guarded)))
            del held[: max(0, len(held) - 5) * rng.randrange(2)]
        for guarded, copies, is_same in rng.sample(held, rng.randrange(len(held) + 1)):
            expected = all(map(np.array_equal, guarded, copies))
            assert is_same(guarded) == expected, (seed, step)


def test_threads_that_write_meanwhile():
    x = memory()
    rng = np.random.default_rng(5)
    for round_ in range(60):
        is_same = guard(x) if round_ % 2 else watching(x)
        at = int(rng.integers(SIZE))
        thread = threading.Thread(target=ctypes.memset, args=(x.data_ptr() + at, 2, 1))
        thread.start()
        found = [is_same((x,)) for _ in range(3)]
        thread.join()
        assert found == sorted(found, reverse=True)  # once it was seen, it stays seen
        assert not is_same((x,))
        x.numpy()[at] = 1


def test_memory_is_left_as_it_was():
    x = memory()
    first, second = watching(x), watching(x)
    assert "uw" in flags(x)
    del first
    assert "uw" in flags(x) and second((x,)) and watched(second)
    del second
    assert "uw" not in flags(x)


def test_weights_that_move_and_come_back():
    x, y = memory(), memory()
    weight = torch.nn.Parameter(x.float(), requires_grad=False)
    first, second = weight.data, y.float()
    is_same = watching(weight)
    weight.data = second
    assert is_same((weight,))  # the same contents, which were read
    first.numpy()[SIZE // 2] = 2
    assert is_same((weight,))
    weight.data = first
    assert not is_same((weight,))
    first.numpy()[SIZE // 2] = 1
    is_same = watching(weight)
    second.numpy()[SIZE // 2] = 2
    weight.data = second
    assert not is_same((weight,))


@torch.no_grad()
def test_models_follow_weights_that_are_watched():
    torch._dynamo.reset()
    linear = torch.nn.Linear
    model, x = (
        torch.nn.Sequential(linear(300, 300), torch.nn.ReLU(), linear(300, 300)),
        torch.randn(2, 300),
    )
    compiled = torch.compile(model, backend=ts.torch.backend, options={"threads": 1})
    for change in (
        lambda: model[0].weight.data[7].mul_(2),
        lambda: model[2].weight.numpy().__setitem__((299, 299), 9),
        lambda: setattr(model[0].weight, "data", 0.1 * torch.randn(300, 300)),
        lambda: setattr(model[2], "weight", linear(300, 300).weight),
        lambda: model[2].bias.data.fill_(3),
    ):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        before = model(x)
        change()
        assert (model(x) - before).abs().max() > 1e-2
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
