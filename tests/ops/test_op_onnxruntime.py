"""Operators agree with ONNX Runtime's kernels, where they have integer or special-value rules of
their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from common.op_cases import SPECIAL, assert_close
from tilesmith.ir.dtypes import BY_NAME
from tilesmith.ops import activation as ac
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce as rd
from tilesmith.ops.base import Op
from tilesmith.ops.eager import evaluate
from tilesmith.ops.gather import Gather, GatherElements, GatherNd, OneHot, Trilu
from tilesmith.ops.norm import LpNormalization
from tilesmith.ops.pool import AvgPool, MaxPoolIndices
from tilesmith.ops.resize import Resize
from tilesmith.ops.scan import CumSum
from tilesmith.ops.shape import DepthToSpace, SpaceToDepth
from tilesmith.ops.slicing import Slice

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

OPSET = 21


def run(
    name: str, inputs: list[np.ndarray | None], outputs: int = 1, **attributes: Any
) -> list[Any]:
    """What ONNX Runtime answers for one node; None is an input left out."""
    h = onnx.helper
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    given = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    results = [f"y{i}" for i in range(outputs)]
    node = h.make_node(name, names, results, **attributes)
    infos = [
        h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    untyped = [onnx.ValueInfoProto(name=r) for r in results]
    graph = h.make_graph([node], "one", infos, untyped)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", OPSET)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, given)


def check(op: Op, name: str, *arrays: np.ndarray, extra: Any = (), **attributes: Any) -> None:
    """`extra` are inputs that ONNX has where our operator has an attribute."""
    found = evaluate(op, *arrays)
    wanted = run(name, [*arrays, *extra], len(found), **attributes)
    for f, w in zip(found, wanted, strict=True):
        assert_close(np.asarray(f), np.asarray(w), 2)


def ints(dtype: str, *shape: int, low: int = -9, high: int = 10) -> np.ndarray:
    numbers = BY_NAME[dtype]
    low = max(low, int(numbers.min))
    return np.random.default_rng(0).integers(low, high, shape).astype(numbers.numpy)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integer_arithmetic(dtype: str) -> None:
    a, b = ints(dtype, 40), ints(dtype, 40)[::-1].copy()
    b[b == 0] = 4
    for op, name in ((ew.Add(), "Add"), (ew.Sub(), "Sub"), (ew.Mul(), "Mul"), (ew.Div(), "Div")):
        check(op, name, a, b)
    check(ew.Mod(), "Mod", a, b)
    check(ew.Mod(True), "Mod", a, b, fmod=1)
    check(ew.Pow(), "Pow", a, np.abs(b) % 5)
    check(ew.Abs(), "Abs", a)
    check(ew.Sign(), "Sign", a)
    check(ew.Clip(-2, 3), "Clip", a, extra=[np.asarray(-2, a.dtype), np.asarray(3, a.dtype)])


@pytest.mark.parametrize("dtype", ["u8", "u32", "u64"])
def test_shifts(dtype: str) -> None:
    a = ints(dtype, 8, low=0, high=200)
    b = np.arange(8).astype(a.dtype)
    check(ew.BitShift("left"), "BitShift", a, b, direction="LEFT")
    check(ew.BitShift("right"), "BitShift", a, b, direction="RIGHT")


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (ew.Exp(), "Exp"), (ew.Sqrt(), "Sqrt"), (ew.Floor(), "Floor"), (ew.Ceil(), "Ceil"),
        (ew.Round(), "Round"), (ew.Sign(), "Sign"), (ew.IsNan(), "IsNaN"), (ew.IsInf(), "IsInf"),
        (ew.Abs(), "Abs"), (ew.Neg(), "Neg"), (ew.Reciprocal(), "Reciprocal"),
        (ac.Sigmoid(), "Sigmoid"), (ac.Softplus(), "Softplus"), (ew.Tanh(), "Tanh"),
        (ew.Erf(), "Erf"),
    ],
)  # fmt: skip
def test_special_values(op: Op, name: str) -> None:
    check(op, name, SPECIAL)


def test_comparisons_with_nan() -> None:
    other = np.roll(SPECIAL, 1)
    for op, name in ((ew.Equal(), "Equal"), (ew.Less(), "Less"),
                     (ew.GreaterEqual(), "GreaterOrEqual"), (ew.Min(), "Min"),
                     (ew.Max(), "Max")):  # fmt: skip
        check(op, name, SPECIAL, other)


@pytest.mark.parametrize("to", ["i32", "i64", "u8", "f16", "f64", "bool"])
def test_casts(to: str) -> None:
    x = np.asarray([0.0, 0.4, 1.6, 2.5, 99.9], np.float32)
    number = onnx.helper.np_dtype_to_tensor_dtype(BY_NAME[to].numpy)
    check(ew.Cast(BY_NAME[to]), "Cast", x, to=number)


def test_reductions_of_integers() -> None:
    x = ints("i32", 3, 4, 5)
    axes = np.asarray([0, 2], np.int64)
    for op, name in ((rd.ReduceSum((0, 2)), "ReduceSum"), (rd.ReduceMean((0, 2)), "ReduceMean"),
                     (rd.ReduceMax((0, 2)), "ReduceMax"),
                     (rd.ReduceMin((0, 2)), "ReduceMin")):  # fmt: skip
        check(op, name, x, extra=[axes])
    for last in (0, 1):
        x = ints("i32", 4, 9, low=0, high=3)
        check(rd.ArgMax(1, True, bool(last)), "ArgMax", x, axis=1, select_last_index=last)


def test_lookups() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    i = np.asarray([[0, -1], [2, 1]], np.int64)
    check(Gather(1), "Gather", x, i, axis=1)
    check(GatherElements(2), "GatherElements", x[:, :1].copy(), i[:, None], axis=2)
    check(GatherNd(), "GatherND", x, i % 2)
    check(GatherNd(1), "GatherND", x, i[:, :1] % 2, batch_dims=1)
    values = np.asarray([-1, 5], np.float32)
    found = evaluate(OneHot(3, 0), i, values)[0]
    wanted = run("OneHot", [i, np.asarray(3, np.int64), values], axis=0)[0]
    assert_close(found, wanted)
    check(Trilu(False, 1), "Trilu", x, extra=[np.asarray(1, np.int64)], upper=0)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            check(
                CumSum(1, bool(exclusive), bool(reverse)), "CumSum", x,
                extra=[np.asarray(1, np.int64)], exclusive=exclusive, reverse=reverse,
            )  # fmt: skip


def test_slices_with_negative_steps() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for starts, ends, steps in (
        ((-1, 1), (-100, 5), (-1, 2)), ((10, -3), (0, 100), (-2, 1)), ((0, 5), (2, -7), (1, -1)),
    ):  # fmt: skip
        extra = [np.asarray(v, np.int64) for v in (starts, ends, (0, 1), steps)]
        check(Slice(starts, ends, (0, 1), steps), "Slice", x, extra=extra)


def test_rearrangements() -> None:
    x = np.arange(48, dtype=np.float32).reshape(1, 4, 4, 3)
    for mode in ("DCR", "CRD"):
        check(DepthToSpace(2, mode), "DepthToSpace", x, blocksize=2, mode=mode)
    check(SpaceToDepth(2), "SpaceToDepth", x.reshape(1, 3, 4, 4), blocksize=2)


def test_pools() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8)).astype(np.float32)
    window = {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)}
    for ceil in (0, 1):
        for order in (0, 1):
            check(
                MaxPoolIndices((3, 2), (2, 2), (1, 0, 1, 1), (), bool(ceil), bool(order)),
                "MaxPool", x, **window, ceil_mode=ceil, storage_order=order,
            )  # fmt: skip
        for counted in (0, 1):
            check(
                AvgPool((3, 2), (2, 2), (1, 0, 1, 1), (1, 2), bool(ceil), bool(counted)),
                "AveragePool", x, **window, dilations=(1, 2), ceil_mode=ceil,
                count_include_pad=counted,
            )  # fmt: skip


def test_zero_norm_gives_zero() -> None:
    check(LpNormalization(1), "LpNormalization", np.zeros((2, 3), np.float32), axis=1)


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "half_pixel_symmetric"])  # fmt: skip
@pytest.mark.parametrize("size", [(8, 12), (3, 4), (1, 9)])
def test_resizes(coordinates: str, size: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 6)).astype(np.float32)
    sizes = (1, 2, *size)
    extra = [None, None, np.asarray(sizes, np.int64)]
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        check(
            Resize(sizes, (), "nearest", coordinates, rounding), "Resize", x, extra=extra,
            mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=rounding,
        )  # fmt: skip
    for mode in ("linear", "cubic"):
        check(
            Resize(sizes, (), mode, coordinates), "Resize", x, extra=extra,
            mode=mode, coordinate_transformation_mode=coordinates,
        )  # fmt: skip
