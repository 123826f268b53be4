"""Streams run calls side by side on cores of their own."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.runtime import threads
from tilesmith.serving import streams
from tilesmith.serving.streams import Core, partitions, usable_cores


def machine(nodes: int, per_node: int, smt: int) -> list[Core]:
    """A machine whose second hardware threads are numbered after all first ones, as on most."""
    count = nodes * per_node
    return [Core(c // per_node, tuple(c + count * t for t in range(smt))) for c in range(count)]


@pytest.mark.parametrize("cores", [4, 16, 64, 128])
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("smt", [1, 2])
def test_streams_share_no_core_and_stay_in_a_node(cores: int, nodes: int, smt: int):
    usable = machine(nodes, cores // nodes, smt)
    node_of = {p: c.node for c in usable for p in c.processors}
    for width in (1, 2, 3, cores // nodes, cores):
        if width > cores:
            continue
        fits = nodes * (cores // nodes // width) or 1
        parts = partitions(usable, fits, width)
        assert len(frozenset().union(*parts)) == sum(map(len, parts)) == fits * width * smt
        homes = [{node_of[p] for p in part} for part in parts]
        if width <= cores // nodes:
            assert all(len(h) == 1 for h in homes)
            used = [sum(n in h for h in homes) for n in range(nodes)]
            assert max(used) - min(used) <= 1
        for core in usable:  # hardware threads of a core are not divided
            assert sum(bool(part & set(core.processors)) for part in parts) <= 1


def test_more_streams_than_cores_are_refused():
    with pytest.raises(ts.UsageError, match="at most 4 cores in all, found 3 streams of 2 threads"):
        partitions(machine(1, 4, 1), 3, 2)


def product(rows: int) -> bytes:
    """y = x @ w for x: f32[rows,64]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 64]) for n in "xy")
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.fixture(scope="module")
def exe() -> ts.Executable:
    """y = x @ w for x: f32[8,64] with one thread."""
    return ts.compile(product(8), threads=1)


def test_calls_in_streams_give_the_results_of_calls(exe):
    inputs = [np.full((8, 64), n, np.float32) for n in range(20)]
    expected = [exe(x) for x in inputs]
    with ts.Streams(exe) as side_by_side:
        assert len(side_by_side.parts) == threads.physical_cores()
        futures = [side_by_side.submit(x) for x in inputs]
        wait(futures)
        for future, y in zip(futures, expected, strict=True):
            np.testing.assert_array_equal(future.result(), y)
        np.testing.assert_array_equal(side_by_side(x=inputs[3]), expected[3])
        np.testing.assert_array_equal(asyncio.run(side_by_side.call(inputs[4])), expected[4])
        with pytest.raises(ts.ModelError, match="expected shape"):
            side_by_side(inputs[0][:1])
    with pytest.raises(ts.UnavailableError, match="closed"):
        side_by_side(inputs[0])


@pytest.mark.skipif(not usable_cores(), reason="the system doesn't report its cores")
def test_the_threads_of_streams_keep_to_their_cores(exe):
    with ts.Streams(exe, streams=1, hint="latency") as one:
        assert one._pool.submit(os.sched_getaffinity, 0).result() == one.parts[0]
    assert os.sched_getaffinity(0) >= one.parts[0]  # this thread keeps all


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_the_workers_of_a_stream_end_with_it():
    x = np.full((64, 64), 2, np.float32)
    wide = ts.compile(product(64), threads=2)
    expected = wide(x)  # starts workers that all callers share, which stay
    before = set(os.listdir("/proc/self/task"))
    with ts.Streams(wide, streams=1) as one:
        np.testing.assert_array_equal(one(x), expected)
        during = set(os.listdir("/proc/self/task")) - before
    ends = time.monotonic() + 10
    while set(os.listdir("/proc/self/task")) & during:
        assert time.monotonic() < ends, "threads stay"
        time.sleep(0.001)
    if threads.physical_cores() > 1:
        assert len(during) == 2  # the caller and its worker


def test_a_quota_counts_as_fewer_cores(exe, monkeypatch):
    monkeypatch.setattr(streams, "usable_cores", lambda: machine(2, 8, 2))
    monkeypatch.setattr(streams, "physical_cores", lambda: 7)  # a quota of 7.65
    monkeypatch.setattr(streams, "_stay_on", lambda processors: None)
    with ts.Streams(exe) as many:
        assert len(many.parts) == 7
    with ts.Streams(exe, hint="latency") as one:
        assert len(one.parts) == 1
    for bad in ({"streams": 8}, {"streams": 0}, {"hint": "speed"}):
        with pytest.raises(ts.UsageError):
            ts.Streams(exe, **bad)
