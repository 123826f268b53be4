"""Processes that load the same compiled file share its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.driver.saved.constants import LEAST_SHARED
from tilesmith.support.cache import Room

SIZE = 2048
WEIGHT_BYTES = 4 * SIZE * SIZE

WORKER = f"""
import sys
import numpy as np
import tilesmith as ts

def private() -> int:
    lines = (line.split() for line in open("/proc/self/smaps_rollup"))
    return sum(int(words[1]) << 10 for words in lines if words[0].startswith("Private_"))

x = np.ones((1, {SIZE}), np.float32)
ts.load(sys.argv[2])(np.ones((1, 64), np.float32))  # what every executable needs once
before = private()
print("ready", flush=True)
input()
exe = ts.load(sys.argv[1])
answer = exe(x)
print("loaded", flush=True)
input()  # all processes have loaded the file
print(private() - before, float(answer[0].sum()), flush=True)
input()
"""


def product(size: int) -> bytes:
    weight = np.random.default_rng(0).standard_normal((size, size), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled file, whose weights are not in the cache."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    options = ts.Options(use_cache=False)
    ts.compile(product(SIZE), threads=1, options=options).save(tmp_path / "m.tsm")
    ts.compile(product(64), threads=1, options=options).save(tmp_path / "small.tsm")
    return tmp_path / "m.tsm"


def asked(workers: list[subprocess.Popen[str]]) -> list[str]:
    """A line of each worker, after each was told to go on."""
    for w in workers:
        assert w.stdin is not None
        w.stdin.write("\n")
        w.stdin.flush()
    return [w.stdout.readline() for w in workers if w.stdout is not None]


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system doesn't count private memory"
)
def test_four_processes_add_a_fraction_of_the_weights_each(saved: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(saved), str(saved.with_name("small.tsm"))]
    pipe = subprocess.PIPE
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    try:
        assert {w.stdout.readline() for w in workers if w.stdout} == {"ready\n"}
        assert set(asked(workers)) == {"loaded\n"}  # they load the file at the same time
        found = [line.split() for line in asked(workers)]
    finally:
        for w in workers:
            w.kill()
            w.communicate()
    assert max(int(added) for added, _ in found) < 0.15 * WEIGHT_BYTES
    assert len({answer for _, answer in found}) == 1


def test_weights_in_the_cache_are_those_of_the_file(saved: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, SIZE), np.float32)
    first, second = ts.load(saved), ts.load(saved.read_bytes())
    np.testing.assert_array_equal(first(x)[0], second(x)[0])
    assert isinstance(base_of(first.program.constants), np.memmap)
    assert isinstance(base_of(second.program.constants), np.memmap)
    assert not second.program.constants.flags.writeable


def test_a_damaged_or_missing_file_of_weights_is_made_again(saved: Path, tmp_path: Path) -> None:
    x = np.ones((1, SIZE), np.float32)
    expected = ts.load(saved)(x)[0]
    [weights] = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    size = weights.stat().st_size
    weights.write_bytes(bytes(size))
    np.testing.assert_array_equal(ts.load(saved)(x)[0], expected)
    assert not weights.exists()
    np.testing.assert_array_equal(ts.load(saved)(x)[0], expected)
    assert weights.stat().st_size == size


def test_small_weights_and_those_without_a_cache_are_private(
    saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = ts.load(saved.with_name("small.tsm"))
    assert small.program.constants.nbytes < LEAST_SHARED
    assert not list(tmp_path.rglob("cache/*"))
    monkeypatch.setenv("TILESMITH_CACHE_DIR", "/dev/null/absent")
    alone = ts.load(saved).program.constants
    assert not isinstance(base_of(alone), (np.memmap, Room))


def base_of(blob: np.ndarray) -> object:
    """The owner of an array's memory."""
    owner: object = blob
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
        if isinstance(owner, np.memmap):
            return owner
    return owner.obj if isinstance(owner, memoryview) else owner
