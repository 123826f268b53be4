"""Inputs that do not fit are rejected with what was expected and what was found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilesmith.ir.dtypes import BY_NAME, DType, f32
from tilesmith.ir.expr import Var
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as ac
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.eager import evaluate, infer
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.fourier import Dft
from tilesmith.ops.gather import Gather, GatherElements, GatherNd, OneHot
from tilesmith.ops.linalg import Det, Solve
from tilesmith.ops.matmul import Gemm, MatMul
from tilesmith.ops.norm import GroupNorm, Softmax
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.reduce import ArgMax, ReduceMax, ReduceSum
from tilesmith.ops.resize import Resize
from tilesmith.ops.scan import CumMax, CumSum
from tilesmith.ops.scatter import ElementPlaces, ScatterElements, ScatterSorted, SlicePlaces
from tilesmith.ops.shape import DepthToSpace, Expand, Reshape, Squeeze, Transpose
from tilesmith.ops.slicing import Concat, Pad, Slice, Split, Tile
from tilesmith.ops.sort import MergeSorted, TopK
from tilesmith.ops.winograd import WinogradConv
from tilesmith.support.errors import ModelError, UnsupportedError


def t(*shape: int, dtype: str = "f32") -> TensorType:
    return TensorType(BY_NAME[dtype], shape)


I64 = "i64"
BITS, BYTES = t(4, 4, dtype="uint2"), t(4, 4, dtype="f8e4m3fnuz")
AT = t(4, dtype=I64), t(4, dtype=I64)
NO_ARITHMETIC = "converted to a type that has arithmetic, found"

BAD: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (ew.Add(), (t(2, 3), t(4)), "add: expected shapes that broadcast, found [2,3] and [4]"),
    (ew.Add(), (t(2), t(2, dtype=I64)), "add: expected inputs of one element type, found f32, i64"),
    (ew.Add(), (t(2),), "add: expected 2 inputs, found 1"),
    (ew.Exp(), (t(2, dtype=I64),), "exp: expected an input of kind float, found i64[2]"),
    (ew.Where(), (t(2), t(2), t(2)), "where: expected a bool condition, found f32"),
    (ew.LogicalAnd(), (t(2), t(2)), "kind bool"),
    (ew.BitShift("up"), (t(2, dtype="u8"),) * 2, "direction"),
    (ac.Gelu("fast"), (t(2),), "approximate"),
    (ReduceSum((2,)), (t(2, 3),), "reduce_sum: expected an axis in -2..1 for rank 2, found 2"),
    (ReduceSum((1, -1)), (t(2, 3),), "expected each axis once"),
    (ArgMax(0), (t(0, 3),), "at least one element"),
    (ReduceMax((0,)), (BITS,), NO_ARITHMETIC),
    (Det(), (BYTES,), NO_ARITHMETIC),
    (Solve(), (t(2, 3), t(2, 3)), "square matrices of floats"),
    (Solve(), (t(3, 3), t(2, 3)), "as many rows and matrices"),
    (TopK(1), (BITS,), NO_ARITHMETIC),
    (MergeSorted(1, 4), (t(2, 4), t(2, 4)), "expected positions i64[2,4], found f32[2,4]"),
    (MergeSorted(1, 4), (t(3, 4), t(3, 4, dtype=I64)), "an even number of lines before the axis"),
    (MergeSorted(9, 4), (t(2, 4), t(2, 4, dtype=I64)), "expected k in 0..8, found 9"),
    (ElementPlaces((2, 3)), (t(4, dtype=I64),), "indices of rank 2"),
    (SlicePlaces((2, 3)), (t(4, 3, dtype=I64),), "index tuples of 2"),
    (ScatterSorted(3), (t(2, 3), t(4, 3), *AT), "a depth of 1..2"),
    (ScatterSorted(1), (t(2, 3), t(4, 2), *AT), "updates that end in [3]"),
    (ScatterSorted(1), (t(2, 3), t(5, 3), *AT), "expected i64[5], found i64[4]"),
    (CumMax(0), (BYTES,), NO_ARITHMETIC),
    (ScatterElements(0, "max"), (BITS, t(4, 4, dtype=I64), BITS), NO_ARITHMETIC),
    (MatMul(), (t(2, 3), t(4, 5)), "equal inner dimensions, found [2,3] and [4,5]"),
    (MatMul(), (t(2, 2, 3), t(3, 3, 5)), "broadcast"),
    (MatMul(), (t(), t(3)), "rank 1 or more"),
    (Gemm(), (t(2, 3), t(4, 3, 5)), "matrices"),
    (Einsum("ij,jk->iz"), (t(2, 3), t(3, 4)), "different and known"),
    (Einsum("ij,jk"), (t(2, 3), t(4, 4)), "one extent for axis 'j'"),
    (Einsum("i,j"), (t(2, 3), t(4)), "one letter per axis"),
    (Einsum("i+j"), (t(2),), "an equation of 1 inputs"),
    (Conv(), (t(1, 3, 8, 8), t(4, 2, 3, 3)), "with 1 groups"),
    (Conv(groups=3), (t(1, 4, 8, 8), t(4, 1, 3, 3)), "with 3 groups"),
    (Conv((1,)), (t(1, 3, 8, 8), t(4, 3, 3, 3)), "2 strides of at least 1"),
    (Conv((0, 1)), (t(1, 3, 8, 8), t(4, 3, 3, 3)), "2 strides of at least 1"),
    (Conv(), (t(1, 3, 2, 2), t(4, 3, 3, 3)), "an extent of at least 3 under the window"),
    (Conv(), (t(3, 8), t(4, 3)), "x [N, C, spatial...]"),
    (WinogradConv(3), (t(1, 3, 8, 8), t(5, 5, 4, 3)), "m in (2, 4)"),
    (WinogradConv(4), (t(1, 3, 8, 8), t(4, 4, 4, 3)), "weights [6, 6, OC, IC]"),
    (ConvTranspose(), (t(1, 3, 2, 2), t(4, 3, 3, 3)), "with 1 groups"),
    (MaxPool((2,)), (t(1, 1, 4, 4),), "rank 3"),
    (AvgPool((2, 2)), (t(1, 1, 4, 4, dtype=I64),), "kind float"),
    (Softmax(3), (t(2, 3),), "an axis in -2..1"),
    (GroupNorm(3), (t(1, 4, 2), t(4), t(4)), "divisible by 3, found 4"),
    (Reshape((4, 2)), (t(2, 3),), "as many elements as [2,3], found [4,2]"),
    (Reshape((-1, 4)), (t(2, 3),), "as many elements"),
    (Reshape((-1, -1)), (t(2, 3),), "as many elements"),
    (Reshape((-2, -3)), (t(2, 3),), "as many elements"),
    (Squeeze((0,)), (t(2, 3),), "extent 1"),
    (Transpose((0, 0)), (t(2, 3),), "a permutation of 2 axes"),
    (Expand((4,)), (t(2, 3),), "broadcast"),
    (DepthToSpace(2), (t(1, 3, 2, 2),), "divisible by 2*2"),
    (Concat(0), (t(2, 3), t(2, 4)), "shapes equal but for axis 0"),
    (Concat(0), (), "1 input"),
    (Split(0, (1, 2)), (t(4),), "sizes that add up to 4"),
    (Slice((0,), (1,), (0,), (0,)), (t(4),), "steps other than 0"),
    (Slice((0,), (1,), (5,), (1,)), (t(4),), "an axis in -1..0"),
    (Pad((1,)), (t(4),), "2 pads for rank 1"),
    (Pad((1, 1), "mirror"), (t(4),), "mode"),
    (Pad((-3, -3)), (t(4),), "no negative extent"),
    (Tile((2,)), (t(2, 3),), "2 repeats"),
    (Gather(0), (t(3), t(2)), "indices of kind int or uint"),
    (GatherElements(0), (t(3, 4), t(2, 5, dtype=I64)), "indices no larger than"),
    (GatherNd(), (t(3), t(2, 2, dtype=I64)), "index tuples of at most 1"),
    (OneHot(3), (t(2, dtype=I64), t(3)), "values of shape [2]"),
    (CumSum(1), (t(3),), "an axis"),
    (Resize((1, 2)), (t(3),), "1 sizes"),
    (Resize((5,), coordinates="polar"), (t(3),), "coordinate transformation"),
    (Resize((5,), mode="linear"), (t(3, dtype="i32"),), "floats for mode linear"),
]


@pytest.mark.parametrize(("op", "types", "message"), BAD, ids=lambda v: str(v)[:40])
def test_rejected(op: Op, types: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        infer(op, *types)


@pytest.mark.parametrize("bad", [3, -4])
def test_index_out_of_range(bad: int) -> None:
    with pytest.raises(ModelError, match=r"indices in -3..2, found"):
        evaluate(Gather(0), np.zeros(3, np.float32), np.asarray([0, bad]))


def _symbolic(*shape: object, dtype: DType = f32) -> TensorType:
    return TensorType(dtype, shape)  # type: ignore[arg-type]


def test_symbolic_dimensions_pass_through() -> None:
    n = Var("n")
    x = _symbolic(n, 3, 8, 8)
    assert infer(ew.Add(), x, t(3, 1, 1))[0].shape == (n, 3, 8, 8)
    assert infer(Softmax(1), x)[0].shape == (n, 3, 8, 8)
    assert infer(Conv(), x, t(4, 3, 3, 3))[0].shape == (n, 4, 6, 6)
    assert infer(MatMul(), _symbolic(n, 4), t(4, 5))[0].shape == (n, 5)
    assert infer(Reshape((n, -1)), x)[0].shape == (n, 192)
    assert infer(Reshape((-1, 192)), x)[0].shape == (n, 192)
    assert infer(Concat(1), x, x)[0].shape == (n, 6, 8, 8)
    assert infer(MaxPool((2, 2), (2, 2)), x)[0].shape == (n, 3, 4, 4)


def test_symbolic_dimension_where_a_number_is_needed() -> None:
    n = Var("n")
    with pytest.raises(UnsupportedError, match="give it a number with shapes="):
        infer(Dft(1), _symbolic(4, n, 2))
    with pytest.raises(ModelError, match="broadcast"):
        infer(ew.Add(), _symbolic(n), _symbolic(Var("m")))
