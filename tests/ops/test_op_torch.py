"""Operators agree with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from common.op_cases import assert_close
from tilesmith.ops import activation as ac
from tilesmith.ops import reduce as rd
from tilesmith.ops.attention import Attention
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.eager import evaluate
from tilesmith.ops.matmul import Gemm
from tilesmith.ops.norm import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LogSoftmax,
    LpNormalization,
    Lrn,
    RmsNorm,
    Softmax,
)
from tilesmith.ops.pool import AvgPool, LpPool, MaxPool, MaxPoolIndices
from tilesmith.ops.resize import Resize
from tilesmith.ops.scan import CumSum
from tilesmith.ops.shape import DepthToSpace
from tilesmith.ops.slicing import Pad

torch = pytest.importorskip("torch")
F: Any = torch.nn.functional


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(op: Op, f: Callable[..., Any], *arrays: np.ndarray, times: float = 1.0) -> None:
    wanted = f(*(torch.from_numpy(a) for a in arrays))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for found, w in zip(evaluate(op, *arrays), wanted, strict=True):
        assert_close(np.asarray(found), w.numpy(), times)


X = normal(2, 8, 9, 11)


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("strides", "pads", "dilations"),
    [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 1)), ((1, 2), (2, 1), (2, 1))],
)
def test_convolutions(
    groups: int, strides: tuple[int, int], pads: tuple[int, int], dilations: tuple[int, int]
) -> None:
    w = normal(16, 8 // groups, 3, 3, seed=1)
    check(
        Conv(strides, pads + pads, dilations, groups),
        lambda x, w: F.conv2d(x, w, None, strides, pads, dilations, groups),
        X, w, times=5,
    )  # fmt: skip
    w = normal(8, 6, 3, 2, seed=2)
    extra = (strides[0] - 1, 0)
    check(
        ConvTranspose(strides, pads + pads, dilations, groups, extra),
        lambda x, w: F.conv_transpose2d(x, w, None, strides, pads, extra, groups, dilations),
        X, w, times=5,
    )  # fmt: skip


def test_convolutions_of_other_ranks() -> None:
    check(
        Conv((2,), (1, 1)),
        lambda x, w: F.conv1d(x, w, None, 2, 1),
        normal(2, 3, 9), normal(4, 3, 3, seed=1),
    )  # fmt: skip
    check(
        Conv((1, 2, 1), (1, 1, 0, 1, 1, 0)),
        lambda x, w: F.conv3d(x, w, None, (1, 2, 1), (1, 1, 0)),
        normal(1, 2, 5, 6, 7), normal(4, 2, 2, 3, 3, seed=1),
        times=5,
    )  # fmt: skip
    check(
        ConvTranspose((2, 2, 2), (1, 1, 1, 1, 1, 1)),
        lambda x, w: F.conv_transpose3d(x, w, None, 2, 1),
        normal(1, 2, 3, 4, 3), normal(2, 3, 3, 3, 3, seed=1),
        times=5,
    )  # fmt: skip


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("kernel", "strides", "pads"),
    [
        ((3, 3), (2, 2), (1, 1)),
        ((2, 3), (2, 1), (0, 1)),
        ((2, 2), (2, 2), (0, 0)),
        ((3, 3), (3, 2), (1, 1)),
    ],
)
def test_pools(
    ceil: bool, kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, int]
) -> None:
    args = (kernel, strides, pads + pads, (), ceil)

    def max_pool(x: Any) -> Any:
        return F.max_pool2d(x, kernel, strides, pads, ceil_mode=ceil, return_indices=True)

    check(MaxPool(*args), lambda x: max_pool(x)[0], X)
    planes = torch.arange(16).reshape(2, 8, 1, 1) * 99
    check(MaxPoolIndices(*args), lambda x: (max_pool(x)[0], max_pool(x)[1] + planes), X)
    for counted in (False, True):
        check(
            AvgPool(*args, counted),
            lambda x, c=counted: F.avg_pool2d(x, kernel, strides, pads, ceil, c),
            X,
        )


def test_pools_with_dilation_and_powers() -> None:
    check(
        MaxPool((3, 2), (1, 2), (1, 1, 1, 1), (2, 1)),
        lambda x: F.max_pool2d(x, (3, 2), (1, 2), 1, (2, 1)),
        X,
    )
    check(LpPool((2, 2), (2, 2)), lambda x: F.lp_pool2d(x, 2, 2, 2), X)
    check(LpPool((2, 2), (2, 2), p=3), lambda x: F.lp_pool2d(x.abs(), 3, 2, 2), X)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (ac.Gelu(), "gelu"), (ac.Silu(), "silu"), (ac.HardSwish(), "hardswish"),
        (ac.Mish(), "mish"),
        (ac.Softplus(), "softplus"), (ac.Elu(), "elu"), (ac.Celu(), "celu"), (ac.Selu(), "selu"),
        (ac.Sigmoid(), "sigmoid"), (ac.LeakyRelu(), "leaky_relu"), (ac.Softsign(), "softsign"),
        (ac.HardSigmoid(1 / 6), "hardsigmoid"),
    ],
)  # fmt: skip
def test_activations(op: Op, function: str) -> None:
    check(op, getattr(F, function), X * 3)


def test_norms() -> None:
    a, b, c, d = (normal(8, seed=i) for i in range(4))
    d = np.abs(d) + np.float32(0.1)
    last, more = normal(11, seed=5), normal(11, seed=6)
    check(Softmax(1), lambda x: F.softmax(x, 1), X)
    check(LogSoftmax(-1), lambda x: F.log_softmax(x, -1), X)
    check(BatchNorm(), lambda x, a, b, c, d: F.batch_norm(x, c, d, a, b), X, a, b, c, d, times=5)
    check(LayerNorm(), lambda x, s, t: F.layer_norm(x, (11,), s, t), X, last, more, times=5)
    check(InstanceNorm(), lambda x, s, t: F.instance_norm(x, weight=s, bias=t), X, a, b, times=5)
    check(GroupNorm(4), lambda x, s, t: F.group_norm(x, 4, s, t), X, a, b, times=5)
    check(RmsNorm(), lambda x, s: F.rms_norm(x, (11,), s, 1e-5), X, last, times=5)
    check(Lrn(5, 1e-2, 0.75, 2.0), lambda x: F.local_response_norm(x, 5, 1e-2, 0.75, 2.0), X)
    check(LpNormalization(1), lambda x: F.normalize(x, dim=1), X)


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2, 3), (-1,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axes: tuple[int, ...], keepdims: bool) -> None:
    args = (axes, keepdims)
    check(rd.ReduceSum(*args), lambda x: x.sum(axes, keepdims), X, times=5)
    check(rd.ReduceMean(*args), lambda x: x.mean(axes, keepdims), X)
    check(rd.ReduceMax(*args), lambda x: x.amax(axes, keepdims), X)
    check(rd.ReduceLogSumExp(*args), lambda x: x.logsumexp(axes, keepdims), X)
    check(rd.ReduceL2(*args), lambda x: x.square().sum(axes, keepdims).sqrt(), X)


def test_argmax_and_running_sum() -> None:
    check(rd.ArgMax(1, False), lambda x: x.argmax(1), X)
    check(rd.ArgMin(-1), lambda x: x.argmin(-1, keepdim=True), X)
    x = normal(3, 1000)
    check(CumSum(1), lambda x: x.double().cumsum(1).float(), x)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_pads(mode: str) -> None:
    ours = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    check(Pad((0, 0, 2, 1, 0, 0, 3, 4), ours), lambda x: F.pad(x, (1, 4, 2, 3), mode), X)


@pytest.mark.parametrize("size", [(14, 18), (5, 20), (13, 4)])
@pytest.mark.parametrize("aligned", [False, True])
def test_resizes(size: tuple[int, int], aligned: bool) -> None:
    x = normal(2, 3, 7, 9)
    coordinates = "align_corners" if aligned else "pytorch_half_pixel"
    for ours, theirs in (("linear", "bilinear"), ("cubic", "bicubic")):
        check(
            Resize((2, 3, *size), (), ours, coordinates),
            lambda x, m=theirs: F.interpolate(x, size, mode=m, align_corners=aligned),
            x, times=5,
        )  # fmt: skip
    check(
        Resize((2, 3, *size), (), "nearest", "asymmetric", "floor"),
        lambda x: F.interpolate(x, size, mode="nearest"),
        x,
    )
    check(
        Resize((2, 3, *size), (), "linear", antialias=True, exclude_outside=True),
        lambda x: F.interpolate(x, size, mode="bilinear", antialias=True),
        x, times=5,
    )  # fmt: skip


def test_attention() -> None:
    q, k, v = normal(2, 4, 5, 8), normal(2, 4, 6, 8, seed=1), normal(2, 4, 6, 3, seed=2)
    attend = F.scaled_dot_product_attention
    check(Attention(), attend, q, k, v)
    check(Attention(is_causal=True), lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v)
    mask = np.tri(5, 6, 1, dtype=np.bool_)
    k, v = k[:, :2].copy(), v[:, :2].copy()
    check(Attention(), lambda q, k, v, m: attend(q, k, v, m, enable_gqa=True), q, k, v, mask)


def test_gemm_and_pixel_shuffle() -> None:
    a, b, c = normal(4, 3), normal(5, 4, seed=1), normal(5, seed=2)
    check(
        Gemm(0.5, 2.0, True, True),
        lambda a, b, c: torch.addmm(c, a.T, b.T, beta=2.0, alpha=0.5),
        a, b, c,
    )  # fmt: skip
    check(DepthToSpace(2, "CRD"), lambda x: F.pixel_shuffle(x, 2), X)
