"""Instances of executables: bound memory, submitted runs, shared weights, and misuse."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

ROWS, DEPTH, COLUMNS = 5, 16, 8


def model(rows: int | str = ROWS) -> bytes:
    """z = x . w, n = -x for x: f32[rows,16]."""
    w = np.random.default_rng(0).standard_normal((DEPTH, COLUMNS)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Neg", ["x"], ["n"]),
    ]
    infos = [("x", [rows, DEPTH]), ("z", [rows, COLUMNS]), ("n", [rows, DEPTH])]
    x, z, n = (helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in infos)
    graph = helper.make_graph(nodes, "g", [x], [z, n], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def array(seed: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DEPTH)).astype(np.float32)


@pytest.fixture(scope="module")
def exe() -> ts.Executable:
    return ts.compile(model())


def test_a_bound_input_is_read_again_by_every_run(exe):
    x, instance = array(1), ts.Instance(exe)
    instance.set_input("x", x)
    instance.run()
    first = instance.get_output("z")
    np.testing.assert_array_equal(first, exe(x)[0])
    x[...] = array(2)
    instance.run()
    assert instance.get_output(0) is first  # the same memory
    np.testing.assert_array_equal(first, exe(array(2))[0])
    np.testing.assert_array_equal(instance.get_output("n"), -x)


def test_a_bound_output_takes_the_result_until_it_is_unbound(exe):
    x, z, instance = array(1), np.empty((ROWS, COLUMNS), np.float32), ts.Instance(exe)
    instance.set_input(0, x)
    instance.set_output("z", z)
    instance.run()
    assert instance.get_output("z") is z
    np.testing.assert_array_equal(z, exe(x)[0])
    instance.set_output("z", None)
    z[...] = 0
    instance.run()
    assert instance.get_output("z") is not z and not z.any()


def test_sizes_that_only_a_run_knows():
    exe = ts.compile(model("n"), dynamic={"n": (1, 64)})
    instance = ts.Instance(exe)
    for rows in (3, 40):
        instance.set_input("x", array(rows, rows))
        instance.run()
        for got, expected in zip(
            (instance.get_output(0), instance.get_output(1)), exe(array(rows, rows)), strict=True
        ):
            np.testing.assert_array_equal(got, expected)


def test_an_output_that_lives_in_an_input():
    exe = ts.compile(model(), in_place={"n": "x"})
    x, instance = array(4), ts.Instance(exe)
    before = x.copy()
    instance.set_input("x", x)
    instance.run()
    assert instance.get_output("n") is x
    np.testing.assert_array_equal(x, -before)
    with pytest.raises(ts.ModelError, match="output 'n' lives in the memory of input 'x'"):
        instance.set_output("n", np.empty_like(x))


def test_instances_run_at_once_on_the_same_weights(exe):
    instances = [ts.Instance(exe) for _ in range(4)]
    assert len({i.exe.program.constants.ctypes.data for i in instances}) == 1
    futures = []
    for seed, instance in enumerate(instances):
        instance.set_input("x", array(seed))
        futures.append(instance.submit())
    for seed, future in enumerate(futures):
        np.testing.assert_array_equal(future.result()[0], exe(array(seed))[0])


def test_a_callback_submits_the_next_run(exe):
    instance, sums, over = ts.Instance(exe), list[float](), threading.Event()
    instance.set_input("x", array(0))

    def answered(future: Future[Any]) -> None:
        sums.append(float(future.result()[1].sum()))
        if len(sums) < 20:
            instance.set_input("x", array(len(sums)))
            instance.submit().add_done_callback(answered)
        else:
            over.set()

    instance.submit().add_done_callback(answered)
    assert over.wait(60)
    assert sums == [float((-array(i)).sum()) for i in range(20)]


def test_while_a_submitted_run_is_under_way_all_else_is_refused(exe, monkeypatch):
    entered, gate = threading.Event(), threading.Event()
    real = type(exe)._in_order

    def slow(self: ts.Executable, *arguments: Any) -> Any:
        entered.set()
        assert gate.wait(60)
        return real(self, *arguments)

    monkeypatch.setattr(type(exe), "_in_order", slow)
    instance = ts.Instance(exe)
    instance.set_input("x", array(0))
    future = instance.submit()
    assert entered.wait(60)
    for call in (
        instance.run,
        instance.submit,
        lambda: instance.get_output(0),
        lambda: instance.set_input("x", array(1)),
        lambda: instance.set_output("z", None),
    ):
        with pytest.raises(ts.UsageError, match="a submitted run of this instance is under way"):
            call()
    gate.set()
    np.testing.assert_array_equal(future.result()[1], -array(0))


def test_misuse_is_said(exe):
    instance = ts.Instance(exe)
    with pytest.raises(ts.ModelError, match=r"these inputs are not bound: .*x.*; use set_input"):
        instance.run()
    with pytest.raises(ts.UsageError, match="expected a run before it"):
        instance.get_output(0)
    with pytest.raises(ts.ModelError, match="'y'"):
        instance.set_input("y", array(0))
    for key in (-1, 1):
        with pytest.raises(ts.ModelError, match=f"position of an input from 0 to 0, found {key}"):
            instance.set_input(key, array(0))
    with pytest.raises(ts.ModelError, match="'x'"):
        instance.set_input("x", array(0, ROWS + 1))
    with pytest.raises(ts.ModelError, match="'x'"):
        instance.set_input("x", array(0).astype(np.float64))
    instance.set_input("x", array(0))
    instance.set_output("z", np.empty((ROWS, COLUMNS + 1), np.float32))
    with pytest.raises(ts.ModelError, match="'z'"):
        instance.run()
    with pytest.raises(ts.ModelError, match="'z'"):
        instance.submit().result()
    with pytest.raises(ts.UsageError, match="none that succeeded"):
        instance.get_output(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_instance_is_idle_in_a_forked_child(exe):
    inst = ts.Instance(exe)
    inst.set_input("x", array(0))
    want = inst.submit().result()[0].copy()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        inst.set_input("x", array(0))
        os._exit(0 if np.array_equal(inst.submit().result()[0], want) else 1)
    assert os.waitpid(child, 0)[1] == 0
    inst.run()
