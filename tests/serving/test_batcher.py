"""A batcher answers each request once, as a call by itself does, and says why it does not."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
import tracemalloc
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

DEPTH, COLUMNS = 8, 4
REQUESTS = int(os.environ.get("TILESMITH_TEST_REQUESTS", "3000"))
"""Requests of the long test; 100,000 take a minute."""
OUTSIDE = 99
"""A row that the table of `lookup_model` lacks."""


def info(name: str, shape: list[Any], dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def made(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> bytes:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def rows_model() -> bytes:
    """z = x . w, n = -x for x: f32[batch,8]."""
    w = np.random.default_rng(0).standard_normal((DEPTH, COLUMNS)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Neg", ["x"], ["n"]),
    ]
    outputs = [info("z", ["batch", COLUMNS]), info("n", ["batch", DEPTH])]
    return made(nodes, [info("x", ["batch", DEPTH])], outputs, {"w": w})


def lookup_model() -> bytes:
    """y = the rows of a table of 4 that i: i64[batch] names; other numbers make the run fail."""
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
    inputs = [info("i", ["batch"], TensorProto.INT64)]
    return made(nodes, inputs, [info("y", ["batch", 3])], {"t": table})


def texts_model() -> bytes:
    """s = sum over time of x * mask, y = x + 1, for x and mask: f32[batch,time]."""
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["m"]),
        helper.make_node("ReduceSum", ["m", "axis"], ["s"], keepdims=0),
        helper.make_node("Add", ["x", "one"], ["y"]),
    ]
    inputs = [info("x", ["batch", "time"]), info("mask", ["batch", "time"])]
    outputs = [info("s", ["batch"]), info("y", ["batch", "time"])]
    weights = {"axis": np.array([1]), "one": np.float32(1)}
    return made(nodes, inputs, outputs, weights)


def ranged(model: bytes, **dynamic: tuple[int, int]) -> ts.Executable:
    return ts.compile(model, dynamic=dynamic, threads=1)


@pytest.fixture(scope="module")
def rows() -> ts.Executable:
    return ranged(rows_model(), batch=(1, 64))


@pytest.fixture(scope="module")
def lookup() -> ts.Executable:
    return ranged(lookup_model(), batch=(1, 64))


@pytest.fixture(scope="module")
def texts() -> ts.Executable:
    return ranged(texts_model(), batch=(1, 64), time=(1, 100))


def x_of(seed: int, n: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, DEPTH)).astype(np.float32)


class Gate:
    """An executable whose calls wait until the gate is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, exe: ts.Executable) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()
        self.calls: list[int] = []
        run = exe.run

        def waiting(inputs: Any) -> Any:
            self.entered.set()
            assert self.opened.wait(30)
            self.calls.append(len(next(iter(inputs.values()))))
            return run(inputs)

        monkeypatch.setattr(exe, "run", waiting)

    def block(self, batcher: ts.Batcher, *arrays: Any) -> Future[Any]:
        """Occupy the only worker with a request."""
        first = batcher.submit(*arrays)
        assert self.entered.wait(30)
        return first


def test_answers_are_those_of_single_calls(rows):
    xs = [x_of(i, 1 + i % 3) for i in range(200)]
    with ts.Batcher(rows, max_batch=16) as batcher, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(batcher, xs))
    for x, (z, n) in zip(xs, answers, strict=True):
        np.testing.assert_allclose(z, rows(x)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(n, -x)


def test_waiting_requests_share_a_call_in_the_order_of_their_arrival(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    with ts.Batcher(rows, max_batch=4, workers=1) as batcher:
        first = gate.block(batcher, x_of(0))
        done: list[int] = []
        waiting = [batcher.submit(x_of(i, n)) for i, n in enumerate((2, 1, 2, 1, 4))]
        for i, future in enumerate(waiting):
            future.add_done_callback(lambda _, i=i: done.append(i))
        gate.opened.set()
        for future in (first, *waiting):
            future.result(30)
    assert gate.calls == [1, 3, 3, 4] and done == [0, 1, 2, 3, 4]
    stats = batcher.stats()
    assert stats.batches == {1: 1, 3: 2, 4: 1} and stats.requests["answered"] == 6
    assert stats.waits.count == 6 and stats.mean_batch == 11 / 4
    assert stats.seconds["queue"] > 0 and stats.seconds["run"] > 0


def test_a_request_waits_at_most_max_wait_for_others(rows):
    with ts.Batcher(rows, max_batch=2, max_wait=3600) as batcher:
        both = [batcher.submit(x_of(i)) for i in range(2)]
        assert all(f.result(30) for f in both)
    with ts.Batcher(rows, max_batch=2, max_wait=0.05) as batcher:
        start = time.monotonic()
        batcher(x_of(0))
        assert time.monotonic() - start >= 0.05
    assert batcher.stats().batches == {1: 1}


def test_an_answer_has_memory_of_its_own(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    with ts.Batcher(rows, workers=1) as batcher:
        first = gate.block(batcher, x_of(0))
        second, third = (batcher.submit(x_of(i)) for i in (1, 2))
        gate.opened.set()
        z = second.result(30)[0]
        z[...] = 0
        np.testing.assert_allclose(third.result(30)[0], rows(x_of(2))[0], rtol=1e-5)
        assert z.base is None and first.result(30)[0].shape == (1, COLUMNS)


def test_coroutines_share_calls(rows):
    async def ask() -> list[Any]:
        return await asyncio.gather(*(batcher.call(x=x_of(i)) for i in range(50)))

    with ts.Batcher(rows, max_batch=8, max_wait=0.05) as batcher:
        answers = asyncio.run(ask())
    for i, (z, _) in enumerate(answers):
        np.testing.assert_allclose(z, rows(x_of(i))[0], rtol=1e-5, atol=1e-6)
    assert batcher.stats().mean_batch > 4


def test_a_cancelled_task_leaves_the_queue(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)

    async def ask() -> None:
        task = asyncio.create_task(batcher.call(x_of(1)))
        await asyncio.sleep(0)
        assert batcher.stats().waiting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert batcher.stats().waiting == 0

    with ts.Batcher(rows, workers=1) as batcher:
        gate.block(batcher, x_of(0))
        asyncio.run(ask())
        gate.opened.set()
    assert gate.calls == [1] and batcher.stats().requests["cancelled"] == 1


def test_tensors_of_torch_are_answered_with_tensors(rows):
    torch = pytest.importorskip("torch")
    with ts.Batcher(rows) as batcher:
        z, n = batcher(torch.ones(2, DEPTH))
    assert torch.equal(n, -torch.ones(2, DEPTH)) and z.shape == (2, COLUMNS)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((np.zeros((1, 7), np.float32),), r"expected shape \(batch, 8\), found \(1, 7\)"),
        ((np.zeros((1, 8)),), "expected element type f32"),
        ((np.zeros((0, 8), np.float32),), "1 to 4 rows"),
        ((np.zeros((5, 8), np.float32),), "1 to 4 rows .*found 5"),
        ((), "expected each input once"),
        ((x_of(0), x_of(0)), "expected each input once"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_at_once(rows, request_, message):
    with ts.Batcher(rows, max_batch=4) as batcher:
        with pytest.raises(ts.ModelError, match=message):
            batcher.submit(*request_)
        with pytest.raises(ts.ModelError, match="no input is called 'y'"):
            batcher.submit(y=x_of(0))
        assert batcher(x_of(0))[0].shape == (1, COLUMNS)


def test_a_request_whose_run_fails_does_not_fail_its_neighbours(lookup, monkeypatch):
    gate = Gate(monkeypatch, lookup)
    with ts.Batcher(lookup, workers=1) as batcher:
        first = gate.block(batcher, np.array([0]))
        good, bad, also = (batcher.submit(np.array([i])) for i in (1, 77, 2))
        gate.opened.set()
        assert first.result(30).tolist() == [[0, 1, 2]]
        assert good.result(30).tolist() == [[3, 4, 5]] and also.result(30).tolist() == [[6, 7, 8]]
        with pytest.raises(ts.ModelError):
            bad.result(30)
    assert batcher.stats().requests["failed"] == 1


def test_another_error_of_a_run_reaches_every_request(rows, monkeypatch):
    def broken(inputs: Any) -> Any:
        raise MemoryError("none left")

    monkeypatch.setattr(rows, "run", broken)
    with ts.Batcher(rows) as batcher:
        futures = [batcher.submit(x_of(i)) for i in range(3)]
        assert all(isinstance(f.exception(30), MemoryError) for f in futures)


def test_a_deadline_passes_while_all_workers_are_busy(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    with ts.Batcher(rows, workers=1, deadline=60) as batcher:
        first = gate.block(batcher, x_of(0))
        kept = batcher.submit(x_of(1))
        with pytest.raises(ts.DeadlineError, match="before a run began"):
            batcher(x_of(2), deadline=0.02)
        assert not kept.done()
        gate.opened.set()
        assert kept.result(30) and first.result(30)
    assert batcher.stats().requests["expired"] == 1


def test_a_full_queue_refuses(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    with ts.Batcher(rows, workers=1, queue=2, full="refuse") as batcher:
        gate.block(batcher, x_of(0))
        second, _ = batcher.submit(x_of(1)), batcher.submit(x_of(2))
        with pytest.raises(ts.UnavailableError, match="queue full"):
            batcher.submit(x_of(3))
        second.cancel()
        batcher.submit(x_of(4))
        gate.opened.set()
    assert batcher.stats().requests["refused"] == 1


def test_a_full_queue_lets_requests_wait_for_a_place(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    with ts.Batcher(rows, workers=1, queue=1, max_batch=1) as batcher:
        gate.block(batcher, x_of(0))
        batcher.submit(x_of(1))
        late: list[Future[Any]] = []
        thread = threading.Thread(target=lambda: late.append(batcher.submit(x_of(2))))
        thread.start()
        while batcher.stats().waiting < 2:
            time.sleep(0.001)
        assert not late
        gate.opened.set()
        thread.join(30)
        assert late[0].result(30)


def test_closing_answers_what_waits_or_drops_it(rows, monkeypatch):
    gate = Gate(monkeypatch, rows)
    drained, dropping = ts.Batcher(rows, workers=1), ts.Batcher(rows, workers=1)
    futures = [[b.submit(x_of(i)) for i in range(3)] for b in (drained, dropping)]
    while not (drained.stats().running and dropping.stats().running):
        time.sleep(0.001)
    begun = 3 - dropping.stats().waiting
    threading.Timer(0.05, gate.opened.set).start()
    drained.close()
    dropping.close(drain=False)
    dropping.close()
    assert all(f.result(0) for f in futures[0])
    assert [f.done() and f.exception() is None for f in futures[1]].count(True) >= begun
    for b in (drained, dropping):
        with pytest.raises(ts.UnavailableError, match="closed"):
            b(x_of(0))
    assert all(f.done() for f in futures[1])


def test_a_batcher_that_nobody_closes_answers_and_ends_with_its_last_reference(rows):
    before = set(threading.enumerate())
    batcher = ts.Batcher(rows, max_wait=0.05)
    x = np.ones((1, DEPTH), np.float32)
    future = batcher.submit(x)
    threads = set(threading.enumerate()) - before
    assert threads
    del batcher
    np.testing.assert_array_equal(future.result()[1], -x)
    del future
    gc.collect()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_requests_of_unequal_lengths_are_padded_and_cut(texts, monkeypatch):
    gate = Gate(monkeypatch, texts)
    options: Any = {"length": "time", "mask": "mask", "padding": {"x": 9.0}}
    lengths = (3, 1, 7, 5)
    xs = [np.full((1 + n % 2, n), n, np.float32) for n in lengths]
    with ts.Batcher(texts, workers=1, **options) as batcher:
        gate.block(batcher, np.ones((1, 2), np.float32))
        futures = [batcher.submit(x) for x in xs]
        gate.opened.set()
        for x, future in zip(xs, futures, strict=True):
            s, y = future.result(30)
            np.testing.assert_array_equal(s, x.sum(1))
            np.testing.assert_array_equal(y, x + 1)
    assert gate.calls == [1, 8]


def test_buckets_of_lengths_share_calls(texts, monkeypatch):
    gate = Gate(monkeypatch, texts)
    options: Any = {"length": "time", "mask": "mask", "buckets": (4, 16)}
    with ts.Batcher(texts, workers=1, **options) as batcher:
        gate.block(batcher, np.ones((1, 2), np.float32))
        futures = [batcher.submit(np.ones((1, n), np.float32)) for n in (3, 9, 4, 16, 1)]
        with pytest.raises(ts.ModelError, match=r"at most 16.*found 17"):
            batcher.submit(np.ones((1, 17), np.float32))
        gate.opened.set()
        assert [f.result(30)[0].tolist() for f in futures] == [[3], [9], [4], [16], [1]]
    assert gate.calls == [1, 3, 2]


def test_without_padding_only_equal_shapes_share_a_call(texts, monkeypatch):
    gate = Gate(monkeypatch, texts)
    x, y = np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)
    with ts.Batcher(texts, workers=1) as batcher:
        gate.block(batcher, x, x)
        futures = [batcher.submit(a, a) for a in (x, y, x, y)]
        with pytest.raises(ts.ModelError, match="one size in all inputs"):
            batcher.submit(x, y)
        gate.opened.set()
        assert [f.result(30)[0].tolist() for f in futures] == [[3], [4], [3], [4]]
    assert gate.calls == [1, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 65}, "expected at most 64"),
        ({"max_batch": 0}, "max_batch: expected 1"),
        ({"max_wait": -1.0}, "max_wait: expected 0"),
        ({"batch": "rows"}, "expected an open batch dimension"),
        ({"batch": "time"}, "'s': expected the batch dimension 'time' exactly once"),
        ({"length": "batch"}, "expected another open dimension"),
        ({"mask": "mask"}, "mask: expected an input"),
        ({"length": "time", "mask": "z"}, "mask: expected an input"),
        ({"padding": 1.0}, "expected length= with it"),
        ({"buckets": (4,)}, "expected length= with them"),
        ({"length": "time", "buckets": (4, 101)}, "expected lengths from 1 to 100"),
        ({"length": "time", "padding": {"y": 0.0}}, "padding: expected inputs"),
        ({"full": "drop"}, "full: expected"),
        ({"deadline": 0.0}, "deadline: expected seconds"),
        ({"workers": 0}, "workers: expected 1"),
    ],
)
def test_options_out_of_range_are_refused(texts, options, message):
    with pytest.raises(ts.UsageError, match=message):
        ts.Batcher(texts, **options)


def test_models_whose_calls_cannot_be_shared_are_refused(rows):
    with pytest.raises(ts.UsageError, match="expected an open batch dimension"):
        ts.Batcher(ts.compile(rows_model(), shapes={"x": (2, DEPTH)}))
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)]
    total = made(nodes, [info("x", ["batch", 2])], [info("y", [])], {})
    with pytest.raises(ts.UsageError, match="output 'y': expected the batch dimension"):
        ts.Batcher(ts.compile(total))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_must_make_a_batcher_of_its_own(rows):
    with ts.Batcher(rows) as batcher:
        child = os.fork()
        if child == 0:
            try:
                batcher(x_of(0))
            except ts.UsageError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert batcher(x_of(0))


def storm(batcher: ts.Batcher, count: int, seed: int) -> Counter[str]:
    """Ask `count` times; some requests do not fit, are cancelled, expire, or fail.  Returns how
    they ended.
    """
    draw, ended = random.Random(seed), Counter[str]()
    pending: list[tuple[int, Future[Any]]] = []
    for number in range(count):
        if draw.random() < 0.01:
            with pytest.raises(ts.ModelError):
                batcher.submit(np.zeros(1, np.float32))
            ended["misfit"] += 1
        else:
            row = draw.randrange(4) if draw.random() < 0.99 else OUTSIDE
            deadline = 1e-4 if draw.random() < 0.01 else None
            pending.append((row, batcher.submit(np.array([row]), deadline=deadline)))
            if draw.random() < 0.05:
                pending[-1][1].cancel()
        if len(pending) == 100 or number == count - 1:
            ended.update(end_of(row, future) for row, future in pending)
            pending = []
    return ended


def end_of(row: int, future: Future[Any]) -> str:
    try:
        answer = future.result(60)
    except CancelledError:
        return "cancelled"
    except ts.DeadlineError:
        return "expired"
    except ts.ModelError:
        assert row == OUTSIDE
        return "failed"
    assert answer.tolist() == [[3 * row, 3 * row + 1, 3 * row + 2]]
    return "answered"


def test_every_request_of_many_ends_once_and_memory_stays_flat(lookup):
    each = REQUESTS // 4
    with (
        ts.Batcher(lookup, max_batch=16, queue=64, workers=2) as batcher,
        ThreadPoolExecutor(4) as threads,
    ):
        tracemalloc.start()
        ends = [storm(batcher, each // 4, 0)]
        before = traced()
        ends += threads.map(lambda seed: storm(batcher, each, seed), range(1, 5))
        after = traced()
        tracemalloc.stop()
    total, stats = sum(ends, Counter()), batcher.stats()
    assert total.pop("misfit") and total == Counter(stats.requests)
    assert set(total) == {"answered", "cancelled", "expired", "failed"}
    assert stats.waiting == stats.running == 0
    assert after - before < 100_000


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
