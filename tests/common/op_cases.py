"""At least one small application of every operator, with its inputs; shared by the tests of this
folder.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from common.irregular_cases import irregular_cases
from common.op_case import SPECIAL, Case, In, case
from tilesmith.ir.dtypes import (
    STORAGE,
    bool_,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    int4,
    u8,
    u16,
)
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as ac
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce as rd
from tilesmith.ops.attention import Attention
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.coupling import PairwiseCoupling
from tilesmith.ops.deform import DeformConv, DeformSample
from tilesmith.ops.divisor import Divisor
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.fixed_point import DoublingHighMul, RoundingShift
from tilesmith.ops.gather import FromFront, Gather, GatherElements, GatherNd, OneHot, Trilu
from tilesmith.ops.lookup import CountRuns, Position
from tilesmith.ops.matmul import Gemm, MatMul
from tilesmith.ops.norm import (
    BatchNorm,
    GroupNorm,
    Hardmax,
    InstanceNorm,
    LayerNorm,
    LogSoftmax,
    LpNormalization,
    Lrn,
    MaskedSoftmax,
    MeanVarianceNorm,
    RmsNorm,
    Softmax,
)
from tilesmith.ops.packed import DequantizeBlocks, PackedMatMul
from tilesmith.ops.pool import (
    AvgPool,
    GlobalAvgPool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPlaces,
    MaxPool,
    MaxPoolIndices,
)
from tilesmith.ops.quantize import Dequantize, DynamicQuantize, Quantize
from tilesmith.ops.random import RandomNormal, RandomUniform
from tilesmith.ops.resample import Resample
from tilesmith.ops.resize import Resize
from tilesmith.ops.runtime_shape import Reinterpret, Stretch, Window
from tilesmith.ops.scan import CumLogSumExp, CumMax, CumMin, CumProd, CumSum, LinearRecurrence
from tilesmith.ops.select import Leading
from tilesmith.ops.shape import (
    DepthToSpace,
    Expand,
    Flatten,
    Reshape,
    SpaceToDepth,
    Squeeze,
    Transpose,
    Unsqueeze,
)
from tilesmith.ops.sizes import Extents, Iota
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice, Split, Tile
from tilesmith.ops.trees import TreeEnsemble
from tilesmith.ops.vjp import Vjp
from tilesmith.ops.winograd import WinogradConv

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i8", "i32", "i64", "u8", "u32")


def _derivatives() -> Iterator[Case]:
    conv = Conv((2, 1), (1, 1, 0, 1))
    types = (TensorType(f32, (1, 2, 5, 6)), TensorType(f32, (3, 2, 3, 3)))
    result = (1, 3, 2, 6)
    yield case(Vjp(conv, types, 0, (1,)), types[1].static_shape, result)
    yield case(Vjp(conv, types, 1, (0,)), types[0].static_shape, result)
    yield case(Vjp(rd.ReduceProd((1,), False), (TensorType(f32, (3, 4)),), 0, (0,)), (3, 4), (3,))
    halves = Split(0, (2, 3))
    yield case(Vjp(halves, (TensorType(f32, (5, 2)),), 0, (), (0, 1)), (2, 2), (3, 2))


def _elementwise() -> Iterator[Case]:
    shape = (3, 5)
    whole = (
        ew.Exp(), ew.Erf(), ew.Sin(), ew.Cos(), ew.Tan(), ew.Atan(), ew.Sinh(), ew.Cosh(),
        ew.Tanh(), ew.Asinh(), ew.Floor(), ew.Ceil(), ew.Trunc(), ew.Round(), ew.Neg(), ew.Abs(),
        ew.Sign(), ew.Identity(), ew.StopGradient(), ew.IsNan(), ew.IsInf(),
        ew.IsInf(detect_negative=False),
        ew.IsInf(detect_positive=False), ew.IsInf(False, False), ew.Clip(-0.5, 0.5),
        ew.Clip(max=0.25), ew.Clip(min=-1.0), ew.Clip(), ac.Relu(), ac.LeakyRelu(0.1),
        ac.ThresholdedRelu(0.3), ac.Elu(1.5), ac.Celu(0.8), ac.Selu(), ac.Sigmoid(),
        ac.HardSigmoid(), ac.Softplus(), ac.Softsign(), ac.Shrink(0.1, 0.4), ac.Gelu(),
        ac.Gelu("tanh"), ac.Silu(), ac.Silu(1.7), ac.HardSwish(), ac.Mish(),
    )  # fmt: skip
    for op in whole:
        yield case(op, shape)
        yield case(op, In((4,), "f16"))
        yield case(op, SPECIAL)
    yield case(ew.Exp(), In((2, 2), "f64"))
    yield case(ew.Tanh(), In((2, 2), "bf16"))
    yield case(ew.Exp(), ())
    for op in (ew.Log(), ew.Sqrt(), ew.Rsqrt(), ew.Reciprocal(), ew.Log1p()):
        yield case(op, In(shape, low=0.1, high=9.0))
        yield case(op, SPECIAL)
    for op in (ew.Asin(), ew.Acos(), ew.Atanh()):
        yield case(op, In(shape, low=-0.99, high=0.99))
    yield case(ew.Acosh(), In(shape, low=1.0, high=9.0))
    for dtype in INTEGERS:
        for op in (ew.Abs(), ew.Sign(), ew.Neg(), ac.Relu(), ew.BitwiseNot(), ew.Clip(1, 7)):
            yield case(op, In(shape, dtype))
    yield case(ew.LogicalNot(), In(shape, "bool"))
    for source in ("f32", "f16", "i64", "i8", "u8", "bool"):
        for to in (bool_, f16, f32, i32, i64, u8):
            low = 0.0 if to is u8 else -9.0
            yield case(ew.Cast(to), In((7,), source, low, 9.0))
    for storage in STORAGE:
        low = 0.0 if storage.kind == "uint" else -9.0
        for other in (f32, f16, i64):
            yield case(ew.Cast(storage), In((19,), other.name, low, 9.0))
            yield case(ew.Cast(other), In((19,), storage.name, 0.5, 2.0))
        yield case(Transpose((1, 0)), In((5, 6), storage.name, 0.0, 2.0))
        pair = In((2, 3), storage.name, 0.5, 2.0)
        yield case(Concat(1), pair, pair)
        yield case(ew.Where(), In((2, 3), "bool"), pair, pair)
        yield case(Pad((0, 1, 1, 0)), pair)
    tables = (
        np.int32([0, 1]), np.int32([0, 1, 0, 0, 0, 2, 0, 0]),
        np.float32([0.1, 0.2, np.nan, np.nan, np.nan, -0.3, np.nan, np.nan]),
        np.uint8([1, 1, 0, 0, 0, 0, 0, 0]), np.int32([4, 2, 2, 3, 4, 6, 6, 7]),
    )  # fmt: skip
    for outputs in (1, 3):
        weights = np.arange(8 * outputs, dtype=np.float32).reshape(8, outputs)
        yield case(TreeEnsemble(2), In((9, 3)), *tables, weights)
        rows = np.where(np.arange(27).reshape(9, 3) % 4, 0.2, np.nan).astype(np.float32)
        yield case(TreeEnsemble(2, True), rows, *tables, weights)
        for combine in ("min", "max"):
            yield case(TreeEnsemble(2, False, combine), In((9, 3)), *tables, weights)
    for classes, pairs in ((2, 1), (3, 3), (5, 10)):
        yield case(PairwiseCoupling(classes), In((7, pairs), low=0.01, high=0.99))
    for keys in (np.int64([-3, 0, 2, 4, 5]), np.float32([-1, 0, 2, np.inf, np.nan]), np.int8([])):
        x = np.append(keys, [1, 2, 7, 0, -9]).astype(keys.dtype)
        yield case(Position(), x, keys)
        yield case(Position(), np.resize(x, (3, 4)), keys)
    runs = (np.int64([[1], [3]]), np.int64([4, 0]), np.int64([[0, 3], [2, 2], [2, 3]]),
            np.int64([1, 2, 1]), np.zeros((0, 3), np.int64), np.zeros(0, np.int64))  # fmt: skip
    for extent in (1, 2, 9):
        lines = np.random.default_rng(extent).integers(0, 4, (5, extent))
        for skip in (0, 2):
            yield case(CountRuns((1, 2, 3), skip, 5), lines, *runs)
    for mode in ew.CastE8M0.modes:
        for saturate in (True, False):
            yield case(ew.CastE8M0(mode, saturate), SPECIAL)
            yield case(ew.CastE8M0(mode, saturate), In((64,)))

    for source, to in (("f32", i32), ("i32", f32), ("f16", i16), ("bf16", u16), ("i64", f64)):
        yield case(ew.Bitcast(to), In(shape, source))

    pairs = (((3, 4), (3, 4)), ((3, 1, 4), (2, 1)), ((2, 3), ()), ((1,), (4, 2)))
    for a, b in pairs:
        for op in (ew.Add(), ew.Sub(), ew.Mul(), ew.Div(), ew.Min(), ew.Max(), ew.Less()):
            yield case(op, a, b)
    for op in (
        ew.Add(), ew.Sub(), ew.Mul(), ew.Div(), ew.Min(), ew.Max(), ew.Mod(), ew.Mod(True),
        ew.Equal(), ew.NotEqual(), ew.Less(), ew.LessEqual(), ew.Greater(), ew.GreaterEqual(),
    ):  # fmt: skip
        for dtype in (*INTEGERS, *FLOATS):
            yield case(op, In((4, 3), dtype), In((3,), dtype, 1.0, 9.0))
        yield case(op, In((4, 3), "i32"), In((3,), "i32", -9.0, -1.0))
        yield case(op, SPECIAL, np.roll(SPECIAL, 1))
    for op in (ew.Equal(), ew.NotEqual()):
        yield case(op, In((4, 3), "bool"), In((3,), "bool"))
    yield case(ew.Pow(), In(shape, low=0.1, high=3.0), In((5,), low=-2.0, high=2.0))
    yield case(ew.Pow(), In(shape), In((5,), "i64", 0.0, 4.0))
    yield case(ew.Pow(), In(shape, "i32", -5.0, 5.0), In((5,), "i32", 0.0, 4.0))
    yield case(ew.Pow(), In(shape, "i64", -9e5, 9e5), In((5,), "i8", -2.0, 4.0))
    yield case(ew.Pow(), In(shape, "u8", 0.0, 255.0), In((5,), "i32", -70.0, 70.0))
    yield case(ew.Pow(), In(shape, "i64", 1.0, 5.0), In((5,), "f32", 0.0, 3.0))
    yield case(ew.Pow(), In(shape, "f32", 0.5, 2.0), In((5,), "f64", 0.0, 3.0))
    for op in (ew.LogicalAnd(), ew.LogicalOr(), ew.LogicalXor()):
        yield case(op, In((2, 3), "bool"), In((3,), "bool"))
    for op in (ew.BitwiseAnd(), ew.BitwiseOr(), ew.BitwiseXor()):
        yield case(op, In((2, 3), "i32"), In((3,), "i32"))
    for direction in ("left", "right"):
        shifts = np.asarray([0, 1, 7, 8, 31], np.uint8)
        yield case(ew.BitShift(direction), In((3, 5), "u8", 0.0, 255.0), shifts)
        yield case(ew.BitShift(direction), In((5,), "i32"), shifts.astype(np.int32))
    words = np.asarray([-(2**31), -(2**30) - 1, -3, -1, 0, 1, 2, 3, 2**30, 2**31 - 1], np.int32)
    yield case(DoublingHighMul(), words[:, None], words)
    yield case(DoublingHighMul(saturates=False), words[:, None], words[1:])
    yield case(DoublingHighMul(), In((3, 40), "i32", -2e9, 2e9), In((40,), "i32", 1e9, 2e9))
    yield case(RoundingShift(), words[:, None], np.arange(32, dtype=np.int32))
    yield case(RoundingShift(), In((3, 40), "i32", -2e9, 2e9), np.asarray(7, np.int32))
    yield case(ew.Where(), In((3, 1), "bool"), (3, 4), (4,))
    yield case(ew.Where(), In((4,), "bool"), In((1,), "i64"), In((2, 4), "i64"))
    yield case(ac.PRelu(), (2, 3, 4), (3, 1))


def _reductions() -> Iterator[Case]:
    for cls in (rd.ReduceSum, rd.ReduceMean, rd.ReduceProd, rd.ReduceMin, rd.ReduceMax,
                rd.ReduceL1, rd.ReduceL2, rd.ReduceSumSquare, rd.ReduceLogSumExp):  # fmt: skip
        for axes in (None, (0,), (1, -1), (2,), ()):
            for keepdims in (True, False):
                yield case(cls(axes, keepdims), (2, 3, 4))
        yield case(cls((1,)), In((3, 40), "f16"))
        yield case(cls((1,)), In((3, 40), "bf16", 0.5, 1.0))
        if cls not in (rd.ReduceL2, rd.ReduceLogSumExp):
            yield case(cls((0,), False), In((3, 4), "i32"))
    yield case(rd.ReduceLogSumExp(None, False), np.asarray([-np.inf, -np.inf], np.float32))
    yield case(rd.ReduceLogSumExp(), np.asarray([1.0, np.inf], np.float32))
    yield case(rd.ReduceLogSumExp(), np.asarray([1000.0, 1001.0], np.float32))
    yield case(rd.ReduceLogSum((1,)), In((3, 4), low=0.1, high=2.0))
    yield case(rd.ReduceMin((0,)), In((3, 4), "bool"))
    yield case(rd.ReduceMax((0,)), In((3, 4), "bool"))
    yield case(rd.ReduceSum((0,)), np.zeros((0, 3), np.float32))
    yield case(rd.ReduceMax((1,)), SPECIAL.reshape(2, 6))
    ties = np.asarray([[2, 5, 5, 1], [7, 7, 0, 0], [3, 3, 3, 3]], np.int32)
    nans = np.asarray([[1, np.nan, 3, np.nan], [-np.inf] * 4, [np.nan] * 4], np.float32)
    for cls in (rd.ArgMax, rd.ArgMin):
        for last in (False, True):
            for axis in (0, 1, -1):
                yield case(cls(axis, True, last), (3, 4))
                yield case(cls(axis, False, last), ties)
                yield case(cls(axis, False, last), nans)
        yield case(cls(1, False), In((2, 5), "f16"))


def _contractions() -> Iterator[Case]:
    for a, b in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
                 ((2, 1, 3, 4), (5, 4, 2)), ((1, 3, 4), (6, 4, 2)),
                 ((2, 3, 4), (4, 5))):  # fmt: skip
        yield case(MatMul(), a, b)
    yield case(MatMul(transpose_a=True), (4, 3), (4, 5))
    yield case(MatMul(transpose_b=True), (2, 3, 4), (2, 5, 4))
    yield case(MatMul(True, True), (2, 4, 3), (5, 4))
    for dtype in ("f16", "bf16", "f64", "i32", "u8"):
        yield case(MatMul(), In((3, 20), dtype), In((20, 2), dtype))
    yield case(Gemm(), (3, 4), (4, 5))
    yield case(Gemm(0.5, 2.0, True, True), (4, 3), (5, 4), (5,))
    yield case(Gemm(beta=0.0), (3, 4), (4, 5), (3, 1))
    for equation, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk", (2, 3, 4), (2, 4, 5)), ("ii->i", (3, 3)),
        ("...ij,jk->...ik", (2, 3, 4), (4, 5)), ("ii", (3, 3)), ("i,j->ij", (3,), (4,)),
        ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)), ("...i->...", (2, 3, 4)), ("ij->ji", (2, 3)),
        ("...a,...a", (3, 1, 4), (2, 4)),
    ):  # fmt: skip
        yield case(Einsum(equation), *shapes)
    yield case(Einsum("ij,jk"), In((3, 8), "f16"), In((8, 2), "f16"))


def _packed() -> Iterator[Case]:
    for q in ("u8", "i8", "uint4", "int4", "int2", "i32"):
        yield case(DequantizeBlocks(1, 4), In((3, 10), q, 0, 2), (3, 3), In((3, 3), q, 0, 2))
    yield case(DequantizeBlocks(-2, 3), In((6, 5), "u8"), In((2, 5), "f16"), In((2, 1), "u8"))
    yield case(DequantizeBlocks(0, 2), In((4, 2), "uint4"), (2, 2), (2, 2))
    for bits, block, chunk, inner in (
        (4, 32, 32, 64),
        (4, 12, 6, 30),
        (8, 64, 16, 100),
        (2, 20, 20, 20),
    ):
        words = -(-chunk * bits // 32)
        codes = In((-(-inner // chunk), words, 5), "u32", 0, 2**32 - 256)
        scales = In((-(-inner // block), 5), "f32", 0.01, 0.02)
        zeros = In(scales.shape, "u8", 0, 2**bits - 1)
        yield case(PackedMatMul(bits, block, chunk), (3, inner), codes, scales)
        yield case(PackedMatMul(bits, block, chunk, 1 << bits - 1), (2, 3, inner), codes, scales)
        yield case(PackedMatMul(bits, block, chunk), In((1, inner), "f16"), codes, scales, zeros)


def _windows() -> Iterator[Case]:
    x = (2, 8, 6, 7)
    for groups in (1, 2, 4, 8):
        yield case(Conv(groups=groups), x, (16, 8 // groups, 3, 3))
        yield case(Conv((2, 1), (1, 2, 0, 1), (1, 2), groups), x, (8, 8 // groups, 3, 2))
        yield case(ConvTranspose(groups=groups), x, (8, 3, 2, 3))
        yield case(ConvTranspose((2, 3), (1, 0, 0, 2), (2, 1), groups, (1, 2)), x, (8, 2, 3, 2))
    yield case(Conv((2,), (1, 1)), (2, 3, 9), (4, 3, 3))
    yield case(Conv((1, 2, 1), (1, 0, 1, 1, 1, 0)), (1, 2, 4, 5, 3), (3, 2, 2, 3, 2))
    yield case(Conv(pads=(-1, 1, 0, -2)), x, (4, 8, 2, 2))
    yield case(Conv(pads=(1, 1, 1, 1)), In((1, 4, 5, 5), "f16"), In((3, 4, 3, 3), "f16"))
    yield case(Conv(groups=4), In((1, 4, 5, 5), "bf16"), In((4, 1, 3, 3), "bf16"))
    yield case(WinogradConv(2, (1, 1, 1, 1)), x, (4, 4, 5, 8))
    for pads in ((0, 2, 1, 0), ()):  # f64: rounding is relative to the largest result, not to each
        yield case(WinogradConv(4, pads), In(x, "f64"), In((6, 6, 5, 8), "f64"))
    yield case(ConvTranspose((2,)), (1, 3, 5), (3, 2, 3))
    yield case(ConvTranspose(pads=(-1, 0, 2, 1)), (1, 3, 5, 4), (3, 2, 3, 3))
    yield case(ConvTranspose((2, 2, 2)), (1, 2, 2, 3, 2), (2, 2, 2, 2, 3))
    repeated = (np.arange(2 * 3 * 7 * 6) % 5).reshape(2, 3, 7, 6).astype(np.float32)
    repeated[0, 0, 2:4, 2] = np.nan
    for ceil in (False, True):
        for kernel, strides, pads in (
            ((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 3), (2, 1), (0, 1, 1, 0)),
            ((2, 2), (2, 2), ()), ((3, 3), (3, 2), (1, 0, 1, 2)), ((1, 1), (2, 2), ()),
        ):  # fmt: skip
            for dilations in ((), (2, 1)):
                args = (kernel, strides, pads, dilations, ceil)
                yield case(MaxPool(*args), x)
                yield case(MaxPoolIndices(*args), x)
                yield case(MaxPlaces(*args), repeated, MaxPool(*args).reference(repeated))
                yield case(AvgPool(*args), x)
                yield case(AvgPool(*args, True), x)
                yield case(LpPool(*args), x)
    yield case(MaxPoolIndices((2, 2), column_major=True), (1, 2, 4, 5))
    whole = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4) % 7
    for in_plane in (False, True):
        op = MaxPlaces((2, 2), column_major=True, in_plane=in_plane)
        yield case(op, whole, MaxPool((2, 2)).reference(whole))
    yield case(MaxPool((2,)), In((1, 2, 5), "i8"))
    yield case(MaxPool((2,), pads=(1, 1)), np.full((1, 1, 3), -np.inf, np.float32))
    yield case(MaxPool((2, 2, 2), (1, 2, 1)), (1, 2, 3, 4, 3))
    yield case(AvgPool((2, 2, 2), (1, 2, 1), (0, 1, 0, 0, 0, 1)), (1, 2, 3, 4, 3))
    yield case(AvgPool((3, 3), pads=(1, 1, 1, 1)), In((1, 2, 5, 5), "f16"))
    for p in (1, 2, 3):
        yield case(LpPool((2, 2), p=p), (1, 2, 4, 5))
        yield case(GlobalLpPool(p), (1, 2, 4, 5))
    yield case(GlobalAvgPool(), x)
    yield case(GlobalMaxPool(), (1, 2, 3, 2, 3))


def _norms() -> Iterator[Case]:
    x = (2, 4, 3, 5)
    vector, positive = In((4,)), In((4,), low=0.5, high=2.0)
    for axis in (-1, 1):
        yield case(Softmax(axis), x)
        yield case(LogSoftmax(axis), x)
        yield case(Hardmax(axis), x)
        yield case(LpNormalization(axis, 1), x)
        yield case(LpNormalization(axis, 2), x)
    infinite = np.float32([[1, np.inf, -2], [-np.inf, 0, 3], [np.nan, 1, 2]])
    yield case(Softmax(), infinite)
    yield case(LogSoftmax(), infinite)
    nothing = np.float32([[-np.inf, -np.inf], [-np.inf, 1], [np.nan, -np.inf], [-3e38, -3e38]])
    yield case(MaskedSoftmax(), nothing)
    yield case(MaskedSoftmax(0), nothing.T.copy())
    yield case(MaskedSoftmax(), nothing.astype(np.float16))
    yield case(LpNormalization(0), np.zeros((2, 3), np.float32))
    yield case(Softmax(), np.asarray([[1000.0, 1001.0], [-1e30, 0.0]], np.float32))
    yield case(Softmax(), In((3, 30), "f16"))
    yield case(BatchNorm(), x, vector, vector, vector, positive)
    yield case(BatchNorm(), (3, 4), vector, vector, vector, positive)
    yield case(BatchNorm(), In(x, "f16"), vector, vector, vector, positive)
    yield case(LayerNorm(-1), x, (5,))
    yield case(LayerNorm(2, 1e-3, True), x, (3, 5), (3, 5))
    yield case(LayerNorm(), In((3, 20), "f16"), In((20,), "f16"), In((20,), "f16"))
    yield case(RmsNorm(), x, (5,))
    yield case(RmsNorm(), In((3, 20), "bf16"), In((20,), "bf16"))
    yield case(InstanceNorm(), x, vector, vector)
    yield case(GroupNorm(2), x, vector, vector)
    yield case(MeanVarianceNorm(), x)
    for size in (1, 2, 3):
        yield case(Lrn(size, 0.1), x)
    yield case(Lrn(3), (2, 5))
    q, k, v = (2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)
    yield case(Attention(), q, k, v)
    yield case(Attention(0.3, True, 2.0), q, k, v)
    yield case(Attention(), q, k, v, (3, 5))
    yield case(Attention(), q, (2, 2, 5, 8), (2, 2, 5, 6), np.tri(3, 5, dtype=np.bool_))
    yield case(Attention(), q, (2, 1, 5, 8), (2, 1, 5, 6), (2, 4, 3, 5))
    padded = np.arange(5) > np.int64([[4], [1], [2]])  # the first row has no key
    yield case(Attention(), q, k, v, padded)
    yield case(Attention(is_causal=True), q, k, v, padded)
    yield case(Attention(), q, k, v, np.where(padded, 0, -np.inf).astype(np.float32))


def _shapes() -> Iterator[Case]:
    x = (2, 3, 4, 6)
    for shape in ((6, 4, 6), (2, 3, 24), (2, 3, 2, 2, 6), (-1,), (2, 12, 6), (4, 36), (9, 16),
                  (1, 2, 3, 1, 4, 6, 1), x, (3, 2, -1), (8, 3, 6)):  # fmt: skip
        yield case(Reshape(shape), x)
    yield case(Reshape((2, 1, 3)), (1, 2, 3, 1))
    yield case(Reshape(()), (1, 1))
    yield case(Reshape((1, 1)), ())
    yield case(Reshape((3, 0, 2)), np.zeros((0, 4), np.float32))
    yield case(Squeeze(), (1, 2, 1, 3))
    yield case(Squeeze((0, -2)), (1, 2, 1, 3))
    yield case(Unsqueeze((0, -1)), (2, 3))
    for axis in (0, 1, -1, 4):
        yield case(Flatten(axis), x)
    yield case(Transpose((2, 0, 3, 1)), x)
    yield case(Transpose((0, -1, 1)), (2, 3, 4))
    yield case(Expand((4, 1, 3)), (2, 1))
    yield case(Expand((2, 3)), In((), "i64"))
    for mode in ("DCR", "CRD"):
        yield case(DepthToSpace(2, mode), (2, 8, 2, 3))
    yield case(SpaceToDepth(2), (2, 3, 4, 6))
    yield case(Concat(1), (2, 3), (2, 1), (2, 4), (2, 0), (2, 2))
    yield case(Concat(-2), (2, 3))
    yield case(Split(1, (2, 1, 3)), (2, 6))
    yield case(Split(-1, (6,)), (2, 6))
    yield case(Slice((1, -1), (5, -100), (0, 2), (2, -2)), (6, 2, 7))
    yield case(Slice((-3,), (2**62,), (-1,), (1,)), (2, 5))
    yield case(Slice((4,), (1,), (0,), (1,)), (6,))
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield case(Pad((1, 0, 2, 3, 0, 2), mode, 1.5), (4, 3, 5))
        yield case(Pad((-1, 0, 1, 2), mode), (4, 3))
        yield case(Pad((0, 0, 0, 0), mode), (4, 3))
        yield case(Pad((5, 7), mode), (3,))
        yield case(Pad((2, 2), mode), (1,))
    yield case(Pad((1, 1), value=3), In((4,), "i64"))
    yield case(Pad((1, 1), value=True), In((4,), "bool"))
    yield case(Tile((2, 1, 3)), (1, 2, 3))
    yield case(Flip((0, -1)), (2, 3, 4))


def _lookups() -> Iterator[Case]:
    indices = np.asarray([[0, -1], [2, 1]], np.int64)
    yield case(FromFront(5), np.int64([[0, 4], [3, 1]]))
    yield case(Divisor(), np.int64([[1, -4], [3, 1 << 62]]))
    yield case(Divisor(), np.uint8([255, 1, 128]))
    yield case(FromFront(5), np.int32([4, 0]))
    for axis in (0, 1, -1):
        yield case(Gather(axis), (3, 4, 5), indices)
    yield case(Gather(0), (3, 4), np.asarray(-2, np.int32))
    yield case(GatherElements(1), (3, 4), np.asarray([[0, -1], [3, 2], [1, 1]], np.int64))
    yield case(GatherElements(0), (3, 4), np.asarray([[0, -1, 2]], np.int32))
    yield case(GatherNd(), (3, 4, 5), indices)
    yield case(GatherNd(1), (2, 3, 4), np.asarray([[1], [-1]], np.int64))
    yield case(OneHot(4), np.asarray([[0, -1], [9, 2]], np.int64), np.asarray([0.5, 2], np.float32))
    yield case(OneHot(3, 0), np.asarray([0, 2], np.int32), np.asarray([0, 1], np.int64))
    for k in (-1, 0, 2):
        yield case(Trilu(True, k), (2, 3, 4))
        yield case(Trilu(False, k), (4, 3))
    for exclusive in (False, True):
        for reverse in (False, True):
            yield case(CumSum(1, exclusive, reverse), (2, 7, 2))
            yield case(CumSum(-1, exclusive, reverse), (2, 65))
            yield case(CumProd(-2, exclusive, reverse), In((3, 5, 2), low=0.5, high=1.5))
            yield case(CumLogSumExp(1, exclusive, reverse), (2, 7, 3))
            yield case(LinearRecurrence(1, exclusive, reverse), (2, 7, 3), (2, 7, 3))
    yield case(CumSum(0), In((5,), "i64"))
    yield case(CumSum(0), In((70,), "f16"))
    yield case(CumMax(1), (2, 7, 2))
    yield case(CumMax(0, True), In((9,), "i32"))
    yield case(CumMax(0), SPECIAL)
    yield case(CumMin(-1), (2, 65))
    yield case(CumMin(0, False, True), In((9,), "u8"))
    yield case(CumMin(0), SPECIAL)


def _resizes() -> Iterator[Case]:
    x = (1, 2, 5, 6)
    for coordinates in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                        "asymmetric", "tf_half_pixel_for_nn"):  # fmt: skip
        for size in ((10, 12), (3, 4), (1, 9)):
            for mode in ("linear", "cubic"):
                yield case(Resize((1, 2, *size), (), mode, coordinates), x)
            for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
                yield case(Resize((1, 2, *size), (), "nearest", coordinates, rounding), x)
    yield case(Resize((1, 2, 3, 3), (1.0, 1.0, 0.6, 0.6), "linear"), x)
    yield case(Resize((1, 2, 8, 9), (), "cubic", exclude_outside=True), x)
    roi = (0.0, 0.0, 0.4, -0.3, 1.0, 1.0, 0.6, 1.2)
    for mode in ("nearest", "linear", "cubic"):
        yield case(
            Resize((1, 2, 4, 7), (), mode, "tf_crop_and_resize", extrapolation=9.0, roi=roi), x
        )
        yield case(Resize((1, 2, 3, 2), (), mode, antialias=True), x)
        yield case(Resize((1, 1, 3, 2), (), mode, antialias=True, exclude_outside=True), x)
    yield case(Resize((1, 2, 10, 12)), In(x, "u8"))
    yield case(Resample(0, 7, 1, 0, 2), (4,))
    yield case(Resample(0, 7, 3, -2, 4, "linear"), In((4,), "f16"))
    yield case(Resample(1, 4, 7, 3, 5, "cubic", exclude_outside=True, outside=1.0), (2, 5))


def _random() -> Iterator[Case]:
    for op in (RandomUniform, RandomNormal):
        yield case(op((3, 5), (1, 2)))
        yield case(op((), (7, 0)))
        yield case(op((0, 4)))
        yield case(op((2, 3, 70), (0xFFFFFFFF, 0xFFFFFFFF)))


def _sizes() -> Iterator[Case]:
    yield case(Extents((3, -1, 1 << 40, 7, 5), (5,)))
    yield case(Extents((3, -1, 300, 7, 5, 0), (2, 3), u8))
    yield case(Extents((4,), ()))
    yield case(Extents((), (0,)))
    yield case(Iota(37))
    yield case(Reinterpret((4, 1, 6)), (2, 3, 4))
    yield case(Reinterpret((6,)), In((3, 2), "i64"))
    yield case(Reinterpret((0, 7)), (3, 0))
    yield case(Stretch((3, 4, 5)), (3, 1, 5))
    yield case(Stretch((2, 0)), (1, 0))
    yield case(Window((1, 0), (2, 5), (2, 1)), (4, 5))
    yield case(Window((3, 0), (2, 5), (-3, 1)), In((4, 5), "i64"))
    yield case(Window((-2, 1), (7, 3), (1, 1), "constant", 2.5), (4, 5))
    yield case(Window((-1, 2), (3, 2), (1, 1), "constant", True), In((4, 5), "bool"))
    for mode in ("edge", "reflect", "wrap"):
        yield case(Window((-5, 1), (13, 3), (1, 1), mode), (4, 5))
        yield case(Window((0, -1), (2, 3), (1, 1), mode), (2, 1))
    yield case(Leading(3), In((2, 5), "i64"))
    yield case(Leading(0), (4,))
    yield case(Iota(0))


def _deformed() -> Iterator[Case]:
    x, w, offset = (1, 4, 5, 6), (6, 4, 3, 2), (1, 12, 3, 5)
    yield case(DeformConv(), x, w, offset)
    yield case(DeformConv(), x, w, offset, (1, 6, 3, 5))
    yield case(DeformSample((3, 2)), x, In(offset, low=-20.0, high=20.0))
    yield case(DeformSample((2,)), (2, 3, 7), (2, 2, 6))
    yield case(
        DeformConv((2, 1), (1, 0, 2, 1), (1, 2), groups=2, offset_groups=4),
        (2, 4, 5, 6), (6, 2, 3, 2), (2, 48, 3, 5), (2, 24, 3, 5),
    )  # fmt: skip
    yield case(
        DeformSample((3, 3), pads=(1, 1, 1, 1), groups=2),
        In((1, 2, 4, 4), "f16"), In((1, 36, 4, 4), "f16"), In((1, 18, 4, 4), "f16"),
    )  # fmt: skip


def _quantised() -> Iterator[Case]:
    """Scales are powers of two, so that quotients are exact."""
    scales = np.asarray([0.125, 0.25, 0.5], np.float32)
    for dtype in (u8, i8, i16, int4):
        zero = np.asarray(3, dtype.numpy)
        yield case(Quantize(dtype), (2, 3, 4), scales[0], zero)
        yield case(Quantize(dtype), (2, 3, 4), scales[0])
        zeros = np.asarray([0, 1, 2], dtype.numpy)
        yield case(Quantize(dtype, -2), (2, 3, 4), scales, zeros)
        yield case(Dequantize(1), In((2, 3, 4), dtype.name, 0.0, 7.0), scales, zeros)
        yield case(Dequantize(1), In((2, 3, 4), dtype.name, 0.0, 7.0), scales)
        blocks = np.broadcast_to(scales[:, None], (3, 5)), np.ones((3, 5), dtype.numpy)
        yield case(Quantize(dtype, 0, 3), (7, 5), *blocks)
        yield case(Dequantize(0, 3), In((9, 5), dtype.name, 0.0, 7.0), *blocks)
        few = blocks[0].astype(np.float16), np.ones((1, 1), dtype.numpy)
        yield case(Dequantize(0, 3), In((9, 5), dtype.name, 0.0, 7.0), *few)
    for dtype in (f8e4m3fn, f8e5m2):
        zeros = np.ones(3, dtype.numpy)
        for saturates in (True, False):
            quantize = Quantize(dtype, 1, saturates=saturates)
            yield case(quantize, In((2, 3, 4), low=-900.0, high=900.0), scales, zeros)
        yield case(Dequantize(1), In((2, 3, 4), dtype.name, 0.0, 7.0), scales, zeros)
    yield case(Dequantize(), In((2, 3), "i32", 0.0, 99.0), scales[0], np.asarray(1.5, np.float32))
    for low, high in ((0.0, 4.0), (-3.0, -1.0), (0.0, 0.0)):
        yield case(DynamicQuantize(), In((5, 7), low=low, high=high))


CASES: tuple[Case, ...] = (
    *_elementwise(),
    *_reductions(),
    *_contractions(),
    *_packed(),
    *_windows(),
    *_norms(),
    *_shapes(),
    *_lookups(),
    *irregular_cases(),
    *_resizes(),
    *_random(),
    *_sizes(),
    *_deformed(),
    *_quantised(),
    *_derivatives(),
)


def tolerance(array: np.ndarray) -> float:
    """Relative (and absolute, for values near 1) difference to accept for results of this type."""
    if array.dtype == ml_dtypes.bfloat16:
        return 2e-2
    return {np.dtype(np.float16): 4e-3, np.dtype(np.float64): 1e-12}.get(array.dtype, 2e-5)


def assert_close(found: np.ndarray, wanted: np.ndarray, times: float = 1.0) -> None:
    """Equal shape and type, equal integers, floats within `times` the tolerance of their type."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted)
        return
    t = tolerance(wanted) * times
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), t, t)
