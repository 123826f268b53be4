"""Programs whose shapes depend on data: answers, memory that grows, refusals."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.runtime import host_runner
from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.options import Options

BOUNDED = """\
graph main<n 0..4096~64, m 0..4096~16>(%x: f32[n], %k: i64[1]) {
  %e: f32[n] = exp(%x)
  measure(%k) {symbols=(`m`,), bounds=(`n`,)}  # "count"
  %y: f32[min(m, n)] = slice(%e) {starts=(0,), ends=(`m`,), axes=(0,), steps=(1,)}
  %c: f32[min(m, n),1] = reshape(%y) {shape=(`min(m, n)`, 1)}
  %s: f32[min(m, n),min(m, n)] = mul(%c, %y)
  %r: f32[] = reduce_sum(%s) {axes=(0, 1), keepdims=False}
  return %r as "r"
}
"""
"""What follows from the measured extent is no larger than the input says."""

GROWING = """\
graph main<n 1..64~8, m 0..2147483647~32, k 0..2147483647~64>(%x: f32[1,n], %c: i64[2]) {
  measure(%c) {symbols=(`m`, `k`), bounds=(2147483647, 2147483647)}  # "sizes"
  %y: f32[m,n] = expand(%x) {shape=(`m`, `n`)}
  %i: i64[m] = iota() {count=`m`}
  %f: f32[m] = cast(%i) {to=f32}
  %g: f32[m,1] = reshape(%f) {shape=(`m`, 1)}
  %z: f32[m,n] = mul(%y, %g)
  %t: f32[n,m] = transpose(%z) {perm=(1, 0)}
  %a: f32[n,n] = matmul(%t, %z)
  %q: f32[m,n] = matmul(%z, %a)
  %w: f32[n] = reduce_mean(%q) {axes=(0,), keepdims=False}
  %b: f32[k,n,n] = expand(%a) {shape=(`k`, `n`, `n`)}
  return %z as "z", %w as "w", %b as "b"
}
"""
"""Nothing says before how large results and intermediate values are."""

CHAIN = """\
graph main<n 0..512~16, m 0..512~16, k 0..262144~64>(%x: f32[n], %c: i64[1]) {
  measure(%c) {symbols=(`m`,), bounds=(`n`,)}
  %i: i64[m] = iota() {count=`m`}
  %s: i64[1] = reduce_sum(%i) {axes=(0,)}
  measure(%s) {symbols=(`k`,), bounds=(`m * m`,)}  # "triangle"
  %j: i64[k] = iota() {count=`k`}
  %f: f32[k] = cast(%j) {to=f32}
  %g: f32[min(m, n)] = slice(%x) {starts=(0,), ends=(`m`,), axes=(0,), steps=(1,)}
  return %f as "f", %g as "g", %s as "s"
}
"""
"""What is measured depends on what was measured before."""

BOXES = """\
graph main<n 0..4096~64, k 0..24576~16, m 0..24576~16>(
    %b: f32[2,n,4], %s: f32[2,3,n], %most: i64[1]) {
  const %t: f32[1] = [0.3]
  %v: f32[2,3,n], %o: i64[2,3,n] = top_k(%s) {k=`n`, axis=2}
  %a: i32[2,3,(n + 511) // 512,32] = count_above(%s, %t)
  %r: i32[2,3] = reduce_sum(%a) {axes=(2, 3), keepdims=False}
  %w: i64[2,3] = cast(%r) {to=i64}
  %l: i64[6] = reshape(%w) {shape=(6,)}
  %e: i64[6] = cum_sum(%l) {axis=0}
  %all: i64[1] = reduce_sum(%l) {axes=(0,)}
  measure(%all) {symbols=(`k`,), bounds=(`n * 6`,)}
  %f: i64[k,3], %c: i64[1] = non_max_suppression(%b, %s, %t, %a, %e, %most, %t) {candidates=`k`}
  measure(%c) {symbols=(`m`,), bounds=(`k`,)}  # "kept"
  %y: i64[min(k, m),3] = slice(%f) {starts=(0,), ends=(`m`,), axes=(0,), steps=(1,)}
  return %v as "v", %y as "y"
}
"""
"""A sort of all elements of an open axis, and boxes chosen in the order of their scores."""


def compiled(text: str, target: str = "native", threads: int = 2) -> tuple[Graph, Executable]:
    graph = parse_graph(text)
    options = Options.from_environment().with_(target=target, threads=threads)
    return graph, Executable(driver.compile_program(graph, driver.Session.of(options)), threads)


def compare(graph: Graph, exe: Executable, *inputs: np.ndarray) -> dict[str, np.ndarray]:
    found = exe.run({v.name: a for v, a in zip(graph.inputs, inputs, strict=True)})
    for name, want in evaluate(graph, list(inputs)).items():
        assert (found[name].shape, found[name].dtype) == (want.shape, want.dtype), name
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)
    return found


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", ["native", "c"])
def test_results_of_sizes_that_data_say(target: str) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    bounded = compiled(BOUNDED, target)
    growing = compiled(GROWING, target)
    chain = compiled(CHAIN, target)
    made = driver.kernels_made()
    for n in (0, 1, 17, rng.randint(2, 200)):
        for m in {0, n, rng.randint(0, n)}:
            compare(*bounded, floats(n) * 0.1, np.array([m]))
            compare(*chain, floats(n), np.array([m]))
    for m, k in ((0, 0), (0, 3), (7, 0), (40, 70), (3, 2), (rng.randint(0, 99), rng.randint(0, 9))):
        compare(*growing, floats(1, rng.randint(1, 64)) * 0.01, np.array([m, k]))
    assert driver.kernels_made() == made


@pytest.mark.parametrize("target", ["native", "c"])
def test_boxes_of_open_number(target: str) -> None:
    graph, exe = compiled(BOXES, target)
    for n in (0, 1, 2, 3, 8, 33):
        boxes, scores = floats(2, n, 4), floats(2, 3, n)
        for most in (0, 1, n):
            found = compare(graph, exe, boxes, scores, np.array([most]))
            assert len(found["y"]) or not most or n < 8


def test_memory_with_a_bound_is_planned_before_the_run() -> None:
    _, exe = compiled(BOUNDED)
    assert not exe.needs_growth and exe.outputs[0].type == "f32[]"
    assert exe.program.arena_bytes >= 64 * 64 * 4  # the square of the bound
    _, exe = compiled(GROWING)
    assert exe.needs_growth and exe.program.slots > len(exe.outputs)
    assert [s.type for s in exe.outputs] == ["f32[m,n]", "f32[n]", "f32[k,n,n]"]
    _, exe = compiled(CHAIN)  # results grow, values inside have bounds
    assert exe.needs_growth and exe.program.slots == len(exe.outputs) - 1


@pytest.mark.parametrize("found", [-1, 65, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_extents_out_of_their_range_are_refused(found: int) -> None:
    graph, exe = compiled(BOUNDED)
    x = floats(64)
    with pytest.raises(ModelError, match=f"count: .* dimension 'm' {found}; expected 0 to 64"):
        exe(x, np.array([found]))
    with pytest.raises(ModelError, match="count"):
        evaluate(graph, [x, np.array([found])])
    compare(graph, exe, x, np.array([64]))  # the next run knows nothing of it


@pytest.mark.parametrize("target", ["native", "c"])
def test_hostile_sizes_take_no_memory(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_runner, "usable_memory", lambda: 64 << 20)
    graph, exe = compiled(GROWING, target)
    x = floats(1, 64)
    most = (1 << 31) - 1
    for counts in ([most, 1], [1, most], [300_000, 1], [1, 5000]):
        with pytest.raises(ModelError, match=r"needs .* bytes more, as its data say"):
            exe(x, np.array(counts))
    with pytest.raises(ModelError, match=r"sizes: .* dimension 'm' 2147483648; expected 0"):
        exe(x, np.array([most + 1, 1]))
    compare(graph, exe, x * 0.01, np.array([100, 100]))


def test_sizes_that_do_not_fit_64_bits() -> None:
    _, exe = compiled("""\
graph main<m 0..2147483647~32, k 0..2147483647~64>(%x: f32[1,1,1], %c: i64[2]) {
  measure(%c) {symbols=(`m`, `k`), bounds=(2147483647, 2147483647)}
  %y: f32[m,k,m] = expand(%x) {shape=(`m`, `k`, `m`)}
  return %y as "y"
}
""")
    with pytest.raises(ModelError, match="depends on m, k negative or too large"):
        exe(floats(1, 1, 1), np.array([(1 << 31) - 1] * 2))


def test_arrays_of_the_caller() -> None:
    graph, exe = compiled(CHAIN)
    x, count = floats(20), np.array([9])
    want = evaluate(graph, [x, count])
    room = np.zeros(100, np.float32)
    f, g, s = exe(x, count, out=(room, np.empty(9, np.float32), None))
    assert np.shares_memory(f, room) and f.shape == (36,)
    for found, name in zip((f, g, s), want, strict=True):
        np.testing.assert_array_equal(found, want[name])
    exact = np.empty(36, np.float32)
    assert exe.run({"x": x, "c": count}, {"f": exact})["f"] is exact
    with pytest.raises(ModelError, match=r"output 'f': the result has 144 bytes, .* 140; give a"):
        exe(x, count, out=(np.empty(35, np.float32), None, None))
    with pytest.raises(UsageError, match="shares memory"):
        exe(x, count, out=(x, None, None))
    with pytest.raises(ModelError, match="element type f32"):
        exe(x, count, out=(np.empty(99), None, None))


def test_results_live_on() -> None:
    """A result is nobody else's memory, whatever runs after it."""
    _, exe = compiled(CHAIN)
    x = floats(30)
    kept = [exe(x, np.array([m]))[0] for m in range(30)]
    exe.trim()
    for m, found in enumerate(kept):
        np.testing.assert_array_equal(found, np.arange(m * (m - 1) // 2, dtype=np.float32))


@pytest.mark.parametrize("size", ["n", "4"])
def test_runs_of_shapes_that_were_seen_are_checked_as_the_first_is(size: str) -> None:
    """The second run takes a shorter way; what does not fit it is refused as before."""
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "places"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [size if size == "n" else 4]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", inputs, [result])
    exe = ts.compile(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]))
    x = np.float32([4, 3, 2, 1])
    results = [exe(x, np.array([k])) for k in (2, 3, 4, 0)]
    for k, result in zip((2, 3, 4, 0), results, strict=True):  # each has memory of its own
        np.testing.assert_array_equal(result, x[:k], strict=True)
    with pytest.raises(ModelError, match="expected 0 to"):
        exe(x, np.array([5]))
    with pytest.raises(ModelError, match="expected element type"):
        exe(x.astype(np.float64), np.array([2]))
    with pytest.raises(ModelError, match="expected shape"):
        exe(x[None], np.array([2]))
    with pytest.raises(ModelError, match="expected 2 inputs"):
        exe(x)
    strided = np.repeat(x, 2)[::2]
    np.testing.assert_array_equal(exe(strided, np.array([3])), x[:3])


def test_concurrent_runs_have_memory_of_their_own() -> None:
    _, exe = compiled(GROWING)
    x = floats(1, 32) * 0.01
    wrong: list[object] = []

    def calls(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            m, k = rng.randint(0, 300), rng.randint(0, 40)
            z, _, b = exe(x, np.array([m, k]))
            if b.shape != (k, 32, 32) or not np.array_equal(
                z, x * np.arange(m, dtype=np.float32)[:, None]
            ):
                wrong.append((m, k))

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert exe.trim() > 0


def test_saved_profiled_checked(tmp_path: Path) -> None:
    graph, exe = compiled(GROWING)
    exe.save(tmp_path / "model.tsm")
    again = ts.load(tmp_path / "model.tsm", threads=1)
    assert again.program.steps == exe.program.steps and again.needs_growth
    x, counts = floats(1, 5), np.array([6, 7])
    compare(graph, again, x, counts)
    assert again.profile(x, counts, repeats=2).seconds > 0
    checks = driver.check(graph, {"x": x, "c": counts})
    assert checks and all(c.passed for c in checks)
    for n in (0, 5):
        inputs = {"x": floats(n), "c": np.array([n])}
        assert all(c.passed for c in driver.check(parse_graph(CHAIN), inputs))


IN_BODIES = """\
graph main<n 1..512~16, m 0..512~16, j 0..2147483647~16>(%c: bool[], %x: f32[n], %k: i64[1]) {
  %y: f32[1] = if(%c, %x, %k) {then=graph a(%x: f32[n], %k: i64[1]) {
    measure(%k) {symbols=(`m`,), bounds=(`n`,)}
    %f: f32[min(m, n)] = slice(%x) {starts=(0,), ends=(`m`,), axes=(0,), steps=(1,)}
    %s: f32[1] = reduce_sum(%f) {axes=(0,)}
    return %s as "out"
  }, otherwise=graph b(%x: f32[n], %k: i64[1]) {
    %0: f32[1] = reduce_sum(%x) {axes=(0,)}
    return %0 as "out"
  }}
  %z: f32[1] = loop(%y, %k) {body=graph step(%i: i64[], %y: f32[1], %k: i64[1]) {
    %l: i64[1] = mul(%k, %i)
    measure(%l) {symbols=(`j`,), bounds=(2147483647,)}
    %e: f32[j] = expand(%y) {shape=(`j`,)}
    %d: i64[j] = iota() {count=`j`}
    %g: f32[j] = cast(%d) {to=f32}
    %h: f32[j] = mul(%e, %g)
    %t: f32[1,j] = reshape(%h) {shape=(1, `j`)}
    %u: f32[j,1] = reshape(%g) {shape=(`j`, 1)}
    %p: f32[1,1] = matmul(%t, %u)
    %s: f32[1] = reshape(%p) {shape=(1,)}
    %o: f32[1] = add(%s, %y)
    return %o as "y"
  }, carried=1, steps=6}
  return %z as "z"
}
"""


@pytest.mark.parametrize("target", ["native", "c"])
def test_measures_in_branches_and_loops(target: str) -> None:
    graph, exe = compiled(IN_BODIES, target)
    assert exe.needs_growth
    for n, k in ((5, 3), (1, 0), (30, 30), (4, 1)):
        for taken in (True, False):
            x = floats(n) * 1e-9
            compare(graph, exe, np.array(taken), x, np.array([k]))
    with pytest.raises(ModelError, match="dimension 'm' 6; expected 0 to 5"):
        exe(np.array(True), floats(5), np.array([6]))


COLLECTED = """\
graph main<m 0..2147483647~16>(%k: i64[1], %x: f32[4]) {
  measure(%k) {symbols=(`m`,), bounds=(2147483647,)}
  %y: f32[4], %all: f32[m,4], %back: f32[m,1] = loop(%x) {body=graph step(%i: i64[], %x: f32[4]) {
    %0: f32[4] = mul(%x, %x)
    %1: f32[4] = add(%0, %x)
    %2: f32[1] = reduce_mean(%1) {axes=(0,), keepdims=True}
    return %1 as "x", %0 as "seen", %2 as "b"
  }, carried=1, collected=(1, -1), steps=`m`}
  %e: f32[m,4] = exp(%all)
  return %y as "y", %e as "e", %back as "back"
}
"""


@pytest.mark.parametrize("target", ["native", "c"])
def test_a_loop_collects_as_often_as_data_say(target: str, tmp_path: Path) -> None:
    graph, exe = compiled(COLLECTED, target)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    exe.save(tmp_path / "model.tsm")
    for e in (exe, ts.load(tmp_path / "model.tsm")):
        for k in (0, 1, 2, 5, 40):
            compare(graph, e, np.array([k]), np.full(4, 1e-3, np.float32))
    if target == "native":
        inputs = {"k": np.array([3]), "x": floats(4) * 0.1}
        assert all(c.passed for c in driver.check(graph, inputs))
