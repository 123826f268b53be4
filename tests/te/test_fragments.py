"""Fragments: tiles that a warp holds, in the interpreter, through the passes, and refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from common import matrices
from tilesmith import te
from tilesmith.backend import CUDA
from tilesmith.codegen.ptx.emit import emit
from tilesmith.codegen.targets import target
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Barrier, Func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import walk
from tilesmith.strategy.device import default_schedule
from tilesmith.strategy.device.tensor_tiles import tensor_tile
from tilesmith.support.errors import ScheduleError

GPU = target("cuda-sm_80")
FLOATS, BYTES = ("f16", "f16", "f32"), ("u8", "i8", "i32")


def final(func: Func) -> Func:
    for p in CUDA.loop_passes:
        func = p.run(func)
        verify(func, p.stage)
    return CUDA.lower_intrinsics(func, GPU)


def blocked(
    tile=(16, 8), lane=(8, 4), threads=32, bound="threadIdx.x", scope="fragment", types=FLOATS
):  # fmt: skip
    """A product whose waves compute 32 x 16 elements of the result."""
    x, w, out, given = matrices.product(types, (64, 32, 32))
    s = te.create_schedule(out.op)
    (c,) = out.op.inputs
    s[c].set_scope(scope)
    shared = [s.cache_read(t, "shared", [s[c]]) for t in (x, w)]
    outer = (LayoutDim(n, "outer", size) for n, size in enumerate(tile))
    inner = (LayoutDim(n, "inner", size) for n, size in enumerate(tile))
    s.transform_layout(c, Layout((*outer, *inner)))
    by, y = s[out].split(s[out].axis[0], factor=32)
    bx, v = s[out].split(s[out].axis[1], factor=16)
    yt, y = s[out].split(y, factor=16)
    xt, v = s[out].split(v, factor=8)
    yh, yl = s[out].split(y, factor=lane[0])
    xh, xl = s[out].split(v, nparts=lane[1])
    s[out].reorder(by, bx, yl, xh, yt, yh, xt, xl)
    own = s[out].fuse(yl, xh)
    for axis, index in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (own, bound)):
        s[out].bind(axis, index)
    for axis in (yt, yh, xt, xl):
        s[out].unroll(axis)
    s[c].compute_at(s[out], bx)
    depth = 16 if types is FLOATS else 32
    ko, ki = s[c].split(s[c].reduce_axis[0], factor=depth)
    it, i = s[c].split(s[c].axis[0], factor=16)
    jt, j = s[c].split(s[c].axis[1], factor=8)
    s[c].reorder(ko, it, jt, i, j, ki)
    s[c].unroll(it)
    s[c].unroll(jt)
    s[c].tensorize(i, "mma_f16" if types is FLOATS else "mma_u8s8")
    for t in shared:
        s[t].compute_at(s[c], ko)
        _, part = s[t].split(s[t].fuse(*s[t].axis), factor=threads)
        s[t].bind(part, "threadIdx.x")
    return s, [x, w, out], given


@pytest.mark.parametrize("types", [FLOATS, BYTES], ids=["f16", "u8"])
def test_schedule(types, golden):
    """The same answer at every stage, and a barrier before threads use their parts."""
    s, args, given = blocked(types=types)
    func = te.lower(s, args)
    verify(func, "nest")
    if types is FLOATS:
        golden(print_func(func))
        assert sum(isinstance(x, Barrier) for x in walk(func.body)) == 3
    for stage in (func, final(func)):
        found = np.full((64, 32), -1, args[2].dtype.numpy)
        interpret(stage, [a.reshape(p.shape) for a, p in zip((*given, found), stage.buffers)])
        np.testing.assert_allclose(found, matrices.wanted(given), 1e-5, 1e-4)
    text = emit(final(func), GPU, "k").text
    assert text.count("@llvm.nvvm.mma.") == 4 and "store <4 x" in text


@pytest.mark.parametrize("shape", [(64, 32, 32), (40, 24, 32), (17, 9, 32)])
def test_rule(shape):
    """Tiles that pass the end of the result compute nothing that is stored."""
    x, w, out, given = matrices.product(FLOATS, shape, is_transposed=True)
    func = te.lower(default_schedule([x, w, out], GPU, 0.0), [x, w, out])
    assert "tensor mma_f16_t" in print_func(func)
    found = np.empty(out.shape, np.float32)
    interpret(func, [*given, found])
    np.testing.assert_allclose(found, matrices.wanted(given, True), 1e-5, 1e-4)


def test_rule_is_by_type_and_structure():
    def tile(types, shape=(64, 64, 64), gpu=GPU):
        _, _, out, _ = matrices.product(types, shape)
        (c,) = out.op.inputs
        assert isinstance(c.op, te.tensor.Compute)
        return tensor_tile(c.op, gpu)

    found = tile(("bf16", "bf16", "f32"))
    assert found is not None and found.intrinsic.name == "mma_bf16"
    assert tile(("f32", "f32", "f32")) is None  # no instruction is as exact
    assert tile(FLOATS, (64, 64, 40)) is None  # the sum is no multiple of 16
    assert tile(FLOATS, gpu=target("cuda-sm_75")) is None
    small, large = tile(FLOATS, (64, 64, 64)), tile(FLOATS, (4096, 4096, 64))
    assert small is not None and large is not None and small.block < large.block


REFUSED = [
    ({"lane": (4, 2)}, "thread t reads row t // 4"),
    ({"bound": "threadIdx.y"}, "32 threads along threadIdx.y all write"),
    ({"threads": 64}, "64 x 1 x 1 threads holds fragments"),
    ({"tile": (8, 16)}, "cannot tensorize with mma_f16: operand c"),
    ({"scope": "shared"}, "c is in scope shared, and mma_f16 is run by 32 threads"),
]


@pytest.mark.parametrize("change, message", REFUSED, ids=lambda c: str(c)[:20])
def test_refused(change, message):
    with pytest.raises(ScheduleError, match=message):
        s, args, _ = blocked(**change)
        emit(final(te.lower(s, args)), GPU, "k")


def test_threads_around_a_fragment():
    s, args, _ = blocked()
    c = s[args[2].op.inputs[0].op]
    out = s[args[2]]
    c.compute_at(out, out.leaf_axes[2])
    with pytest.raises(ScheduleError, match=r"expected no loop over threadIdx.x in it"):
        te.lower(s, args)


def test_other_targets():
    s, args, _ = blocked()
    with pytest.raises(ScheduleError, match="scope 'fragment', which the target lacks"):
        ts.build(s, args, target="opencl-gpu")
    with pytest.raises(ScheduleError, match="mma_f16 needs mma-float"):
        ts.build(s, args, target="cuda-sm_75")


def test_strict_accuracy():
    """Sums of floats in another order than the expression's are not for strict accuracy."""
    s, args, _ = blocked()
    with pytest.raises(ScheduleError, match="which strict accuracy does not allow"):
        emit(final(te.lower(s, args)), GPU, "k", strict=True)


def test_rows_beside_axes_of_one_element():
    """Every wave has rows of its own: those are the last axis with several elements."""
    x, w = te.placeholder((37, 1, 32), "f16", "x"), te.placeholder((32, 128), "f16", "w")
    k = te.reduce_axis(32, "k")
    c = te.compute(
        (37, 1, 128),
        lambda i, j, n: te.sum(x[i, j, k].astype("f32") * w[k, n].astype("f32"), axis=k),
    )
    text = emit(final(te.lower(default_schedule([x, w, c], GPU, 0.0), [x, w, c])), GPU, "k").text
    assert "@llvm.nvvm.mma." in text
