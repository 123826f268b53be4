"""PTX of kernels; nothing here needs a device or a driver."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from assembled import check_assembled

import tilesmith as ts
from common import device_groups as rules
from common import thread_reductions as reductions
from common.blocks_of_threads import blocked
from common.device_groups import attention
from tilesmith import te
from tilesmith.backend import CUDA
from tilesmith.codegen.ptx.assemble import ptx
from tilesmith.codegen.ptx.emit import emit
from tilesmith.codegen.targets import target
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.thread_registers import unroll_registers
from tilesmith.strategy.device import RULES
from tilesmith.support.errors import ScheduleError

GPU = target("cuda-sm_80")


def final(func: Func) -> Func:
    for p in CUDA.loop_passes:
        func = p.run(func)
    return CUDA.lower_intrinsics(func, GPU)


def test_product(golden):
    """The text for LLVM, and what LLVM makes of it."""
    golden(emit(final(blocked()), GPU, "product").text)
    text = ptx(emit(final(blocked()), GPU, "product").text, GPU)
    assert ".target sm_80" in text and ".entry product_0(" in text
    assert text.count("bar.sync") == 2 and "fma.rn.f32" in text
    assert "ld.shared" in text and "ld.global.nc" in text and ".local" not in text


def loop_of(text: str) -> list[str]:
    """What the loop around `wait_group` does, in order, once for each kind of instruction."""
    words = r"cp\.async\.(?:c[ag]|commit|wait)|bar\.sync|ld\.shared|mma\.sync|fma\.rn|st\.shared"
    found = re.findall(words, text)
    found = found[found.index("cp.async.wait") :] + found[: found.index("cp.async.wait")]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_copies_ahead(dtype: str, name: str, tmp_path: Path):
    """A wait, a barrier, the copies of a later iteration, and only then this one's products."""
    a, b = (te.placeholder((1024, 1024), dtype, n) for n in "ab")
    k = te.reduce_axis((0, 1024), "k")
    term = lambda i, j: te.sum(a[i, k].astype("f32") * b[k, j].astype("f32"), axis=k)  # noqa: E731
    gpu = target(f"cuda-{name}")
    source = ts.build("auto", [a, b, te.compute((1024, 1024), term, "c")], target=gpu).source
    found = loop_of(ptx(source, gpu))
    copies, product = ("cp.async.ca", "fma.rn") if dtype == "f32" else ("cp.async.cg", "mma.sync")
    # the loop is rotated: its group ends in the next block of the text
    assert found[:3] == ["cp.async.wait", "bar.sync", copies]
    assert set(found) == {*found[:3], "cp.async.commit", "ld.shared", product}
    check_assembled(source, name, tmp_path)


def test_copies_with_zeros():
    """Where a condition does not hold, a copy reads nothing and stores zeros; what is no copy is
    stored at once, and older devices store all of it so.
    """
    func = parse_func("""def main(x: f32[64], y: f32[64]) -> y:
    for i in thread_x(16):
        alloc t: f32[64] shared
        alloc u: f32[64] shared
        async:
            for v in vectorized(4):
                t[i * 4 + v] = select(i < 9, x[i * 4 + v], 0.0)
            u[i] = select(i < 9, x[i + 3], 1.0)
            u[i + 16] = select(i < 9, x[i + 3], 0.0)
            u[i + 32] = x[i] + 1.0
        wait 0
        barrier
        y[i] = t[63 - i] + u[15 - i] + u[31 - i] + u[47 - i]
""")
    text = ptx(emit(final(func), GPU, "k").text, GPU)
    copies = re.findall(r"cp\.async\.c\w\.shared\.global \[.*?\], \[.*?\], (\d+)(, %r\d+)?;", text)
    assert [size for size, zeros in copies if zeros] == ["16", "4"] and len(copies) == 2
    assert text.count("st.shared") == 2 and text.count("wait_group") == 1
    older = target("cuda-sm_75")
    assert "cp.async" not in ptx(emit(final(func), older, "k").text, older)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("threads", [16, 256, 1024])
def test_shuffles(threads: int, name: str, tmp_path: Path):
    func = reductions.summed((8, 4096), threads, 32)
    made = emit(final(func), target(f"cuda-{name}"), "sums")
    text = ptx(made.text, target(f"cuda-{name}"))
    assert text.count("shfl.sync.bfly.b32") == {16: 4, 256: 8, 1024: 10}[threads]
    assert text.count("bar.sync") == (threads > 32)
    check_assembled(made.text, name, tmp_path)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100"])
def test_rows(name: str, tmp_path: Path):
    """Softmax: two reductions, each with one exchange between waves."""
    args, _ = rules.CASES["softmax of long rows"]
    function = ts.build("auto", args, target=f"cuda-{name}", name="f")
    text = ptx(function.source, target(f"cuda-{name}"))
    assert text.count("shfl.sync.bfly.b32") == 2 * (5 + 3)
    assert text.count("bar.sync") == 2 and ".local" not in text
    check_assembled(function.source, name, tmp_path)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "args",
    [rules.product(32, 128, 4096), rules.vector(1000, 4096), rules.halves(32, 64, 2048)],
    ids=["tiles", "vector", "matrix instructions"],
)
def test_sums_that_blocks_divide(name: str, args: list[te.Tensor], tmp_path: Path):
    function = ts.build("auto", args, target=f"cuda-{name}", name="f")
    assert function.source.count("define ptx_kernel") == 2
    check_assembled(function.source, name, tmp_path)


@pytest.mark.parametrize(
    "shape", [(64, 384, 64, 64), (8, 700, 128, 128), (64, 2048, 64, 64), (64, 2048, 128, 128)]
)
def test_attention(shape: tuple[int, int, int, int], tmp_path: Path):
    rows, keys, size, width = shape
    func = RULES.lower_group(attention((12, rows, size), keys, width), GPU, "k")
    source = emit(final(func), GPU).text
    assert source.count("define ptx_kernel") == 1
    check_assembled(source, "sm_80", tmp_path)


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"])
def test_assembler(name: str, tmp_path: Path):
    """No register is spilled, and nothing lies in memory of a thread."""
    a, b = (te.placeholder((256, 256), name=n) for n in "ab")
    k = te.reduce_axis((0, 256), "k")
    c = te.compute((256, 256), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    d = te.compute((256, 256), lambda i, j: te.exp(te.tanh(c[i, j])), "d")
    function = ts.build("auto", [a, b, d], target=f"cuda-{name}")
    check_assembled(function.source, name, tmp_path)


def test_registers_have_no_addresses():
    """What indexes them is unrolled; memory that anything else indexes has addresses."""
    func = parse_func("""def main(x: f32[4, 8], i: i64[4], y: f32[4, 8]) -> y:
    for t in thread_x(4):
        alloc r: f32[8] register
        alloc s: f32[8] register
        for j in vectorized(8):
            r[j] = x[t, j]
            s[j] = 0.0 - x[t, j]
        for k in range(8):
            y[t, k] = r[7 - k] + s[i[t]]
""")
    found = unroll_registers(func)
    assert "for k in unrolled(8)" in str(found) and "alloc s: f32[8] stack" in str(found)
    assert unroll_registers(found) is found
    rng = np.random.default_rng(5)
    given = [rng.random((4, 8), np.float32), np.arange(4), np.zeros((4, 8), np.float32)]
    wanted = (given[0][:, ::-1] - given[0][range(4), range(4)][:, None]).copy()
    interpret(found, given)
    np.testing.assert_array_equal(given[2], wanted)
    text = ptx(emit(final(func), GPU).text, GPU)
    assert ".local" in text


def test_strict_products_are_not_contracted():
    func = final(parse_func("def main(x: f32[8], y: f32[8]) -> y:\n    for t in thread_x(8):\n"
                            "        y[t] = x[t] * x[t] + y[t]\n"))  # fmt: skip
    assert "fma.rn.f32" in ptx(emit(func, GPU).text, GPU)
    strict = ptx(emit(func, GPU, strict=True).text, GPU)
    assert "fma" not in strict and "mul.rn.f32" in strict and "add.rn.f32" in strict


def test_what_can_not_be_written():
    waiting = parse_func("""def main(x: f32[8], y: f32[8]) -> y:
    for t in thread_x(8):
        alloc s: f32[8] shared
        s[t] = x[t]
        barrier
        assert s[0] > 0.0, "positive"
        y[t] = s[7 - t]
""")
    with pytest.raises(ScheduleError, match="a thread can't stop where the others wait"):
        emit(final(waiting), GPU)
