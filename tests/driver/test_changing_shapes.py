"""Control flow whose results have the shapes that a run finds, against the evaluator."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from changing_shapes import built, compared

import tilesmith as ts
from tilesmith import driver
from tilesmith.runtime import host_runner
from tilesmith.support.errors import ModelError

BRANCHES = """\
graph main<n 0..100000~64, m 0..2147483647~64, k 0..300000~64>(%c: bool[], %x: f32[n]) {
  %y: f32[m] = if(%c, %x) {then=graph a(%x: f32[n]) {
    %y: f32[n * 2] = concat(%x, %x) {axis=0}
    return %y as "out"
  }, otherwise=graph b(%x: f32[n]) {
    return %x as "out"
  }, results=(f32[m],), symbols=(`m`,), bounds=(2147483647,)}
  %z: f32[m] = exp(%y)
  %w: f32[k] = if(%c, %z, %x) {then=graph a(%z: f32[m], %x: f32[n]) {
    %y: f32[n] = exp(%x)
    return %y as "out"
  }, otherwise=graph b(%z: f32[m], %x: f32[n]) {
    %y: f32[m + n] = concat(%z, %x) {axis=0}
    return %y as "out"
  }, results=(f32[k],), symbols=(`k`,), bounds=(`max(n, m + n)`,)}
  %s: f32[1] = reduce_sum(%w) {axes=(0,)}
  return %z as "z", %s as "s"
}
"""

APPENDED = """\
graph main<n 0..64~8, m 0..2147483647~8, k 0..2147483647~8>(%t: i64[], %x: f32[n], %e: f32[3]) {
  %y: f32[m] = loop(%t, %x, %e) {body=graph step(%i: i64[], %x: f32[k], %e: f32[3]) {
    %f: f32[3] = mul(%e, %e)
    %y: f32[k + 3] = concat(%x, %f) {axis=0}
    return %y as "out"
  }, carried=1, results=(f32[m],), symbols=(`m`,), bounds=(2147483647,), inside=(`k`,)}
  %z: f32[m] = exp(%y)
  return %y as "y", %z as "z"
}
"""

COUNTED = """\
graph main<n 0..64~8, k 0..2147483647~8>(%x: f32[n], %e: f32[3]) {
  %y: f32[n + 21] = loop(%x, %e) {body=graph step(%i: i64[], %x: f32[k], %e: f32[3]) {
    %y: f32[k + 3] = concat(%x, %e) {axis=0}
    return %y as "out"
  }, carried=1, steps=7, results=(f32[n + 21],), inside=(`k`,)}
  return %y as "y"
}
"""

BOUNDED = """\
graph main<n 0..64~40, m 0..4096~64, k 0..4096~64>(%x: f32[n], %e: f32[3], %l: f32[]) {
  const %go: bool[] = [1]
  %y: f32[m] = loop(%go, %x, %e, %l) {
  body=graph step(%i: i64[], %x: f32[k], %e: f32[3], %l: f32[]) {
    %y: f32[k + 3] = concat(%x, %e) {axis=0}
    %s: f32[] = reduce_sum(%y) {axes=(0,), keepdims=False}
    %a: bool[] = less(%s, %l)
    return %a as "again", %y as "out"
  }, carried=1, steps=9, conditional=True, results=(f32[m],), symbols=(`m`,), bounds=(`n + 27`,),
  inside=(`k`,)}
  %s: f32[1] = reduce_sum(%y) {axes=(0,)}
  return %s as "s"
}
"""

ROWS = """\
graph main<r 0..2147483647~8>(%t: i64[], %x: f32[3], %l: f32[]) {
  const %go: bool[] = [1]
  %y: f32[3], %all: f32[r,3], %x2: f32[r,3] = loop(%t, %go, %x, %l) {
  body=graph step(%i: i64[], %x: f32[3], %l: f32[]) {
    %y: f32[3] = add(%x, %x)
    %s: f32[] = reduce_sum(%y) {axes=(0,), keepdims=False}
    %a: bool[] = less(%s, %l)
    return %a as "again", %y as "out", %y as "row", %x as "before"
  }, carried=1, collected=(1, 1), conditional=True, results=(f32[3], f32[r,3], f32[r,3]),
  symbols=(`r`,), bounds=(2147483647,)}
  %z: f32[r,3] = exp(%x2)
  return %y as "y", %all as "all", %z as "z"
}
"""

NESTED = """\
graph main<m 0..2147483647~8, k 0..2147483647~8, p 0..2147483647~8, q 0..2147483647~8,
    j 0..2147483647~8>(%t: i64[], %u: i64[], %x: f32[2]) {
  %y: f32[m] = loop(%t, %x, %u) {body=graph outer(%i: i64[], %x: f32[k], %u: i64[]) {
    %y: f32[p] = loop(%u, %x) {body=graph inner(%h: i64[], %x: f32[q]) {
      const %one: i64[] = [1]
      %c: bool[] = greater(%h, %one)
      %y: f32[j] = if(%c, %x) {then=graph a(%x: f32[q]) {
        %y: f32[q * 2] = concat(%x, %x) {axis=0}
        return %y as "out"
      }, otherwise=graph b(%x: f32[q]) {
        return %x as "out"
      }, results=(f32[j],), symbols=(`j`,), bounds=(2147483647,)}
      return %y as "out"
    }, carried=1, results=(f32[p],), symbols=(`p`,), bounds=(2147483647,), inside=(`q`,)}
    return %y as "out"
  }, carried=1, results=(f32[m],), symbols=(`m`,), bounds=(2147483647,), inside=(`k`,)}
  return %y as "y"
}
"""

TEXTS = {"appended": APPENDED, "counted": COUNTED, "bounded": BOUNDED, "rows": ROWS,
         "branches": BRANCHES, "nested": NESTED}  # fmt: skip
E3 = np.array([0.5, 1, 2], np.float32)


def numbers(n: int) -> np.ndarray:
    return np.linspace(-1, 1, n, dtype=np.float32)


def cases(name: str, rng: random.Random) -> list[tuple[object, ...]]:
    """Inputs for a program, in order."""
    sizes = (0, 1, 5, rng.randint(2, 64))
    counts = (-1, 0, 1, 2, 7, rng.randint(8, 60))
    limits = [np.float32(v) for v in (-99, 5, 1e9)]
    match name:
        case "branches":
            return [(c, numbers(n)) for c in (True, False) for n in (*sizes, 5000)]
        case "appended":
            return [(t, numbers(n), E3) for t in counts for n in sizes]
        case "counted":
            return [(numbers(n), E3) for n in sizes]
        case "bounded":
            return [(numbers(n), E3, limit) for n in sizes for limit in limits]
        case "rows":
            return [(t, E3, limit) for t in counts for limit in limits]
        case _:
            return [(t, u, numbers(2)) for t in (0, 1, 3) for u in (0, 1, 2, 4)]


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("name", TEXTS)
def test_results_have_the_shapes_that_a_run_finds(name: str, target: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    graph, exe = built(TEXTS[name], target)
    exe.save(tmp_path / "model.tsm")
    loaded = ts.load(tmp_path / "model.tsm", threads=1)
    assert loaded.program.steps == exe.program.steps
    made = driver.kernels_made()
    for inputs in cases(name, random.Random(seed)):
        compared(graph, exe, *inputs)
        compared(graph, loaded, *inputs)
    assert driver.kernels_made() == made


def test_memory_that_has_a_bound_does_not_grow() -> None:
    """Nor does that of a loop whose iterations add a number, so many times."""
    assert not built(COUNTED)[1].needs_growth
    assert not built(BOUNDED)[1].needs_growth
    assert built(APPENDED)[1].needs_growth


@pytest.mark.parametrize("name", TEXTS)
def test_kernels_in_changing_shapes_are_checked(name: str) -> None:
    graph, _ = built(TEXTS[name])
    inputs = dict(zip((v.name for v in graph.inputs), cases(name, random.Random(0))[-1]))
    checks = driver.check(graph, {k: np.asarray(v) for k, v in inputs.items()})
    assert checks and all(c.passed for c in checks)


@pytest.mark.parametrize("target", ["native", "c"])
def test_growth_ends_where_memory_does(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_runner, "usable_memory", lambda: 1 << 20)
    graph, exe = built(APPENDED, target)
    with pytest.raises(ModelError, match="more, as its data say, than the machine has"):
        exe(np.array(1 << 40), numbers(3), E3)
    compared(graph, exe, 3, numbers(3), E3)
    graph, exe = built(ROWS, target)
    with pytest.raises(ModelError, match="more, as its data say, than the machine has"):
        exe(np.array(1 << 40), E3 * 0, np.float32(1))
    compared(graph, exe, 3, E3, np.float32(1e9))


def test_an_extent_beyond_its_symbol_is_refused() -> None:
    text = APPENDED.replace("k 0..2147483647", "k 0..40").replace("2147483647,)", "40,)")
    _, exe = built(text.replace("m 0..2147483647", "m 0..40"))
    assert exe(np.array(10), numbers(10), E3)[0].shape == (40,)
    with pytest.raises(ModelError, match=r"the data make dimension '.*' 43; expected 0 to 40"):
        exe(np.array(11), numbers(10), E3)


def test_runs_at_one_time_grow_memory_of_their_own() -> None:
    _, exe = built(APPENDED)
    wrong: list[int] = []

    def calls(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            t, x = rng.randint(0, 200), numbers(rng.randint(0, 50))
            y, _ = exe(np.array(t), x, E3)
            if not np.array_equal(y, np.concatenate([x, *[E3 * E3] * t])):
                wrong.append(t)

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and exe.trim() > 0
