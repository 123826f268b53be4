"""The shape of the expressions: what strategies and fusion rely on."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tilesmith.ir.dtypes import f16, f32
from tilesmith.ir.expr import Binary, Const, Load, Var, const, post_order
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.pool import AvgPool, MaxPool
from tilesmith.ops.reduce import ReduceMean
from tilesmith.ops.shape import Reshape
from tilesmith.ops.slicing import Concat
from tilesmith.ops.structure import loads, product_of_loads, stages, structure
from tilesmith.te import tensor as te
from tilesmith.te.tensor import Compute, Reduce


def _type(*shape: int) -> TensorType:
    return TensorType(f32, shape)


def _stages(op: Op, *types: TensorType) -> tuple[Compute, ...]:
    return stages(op.tensors(*types).outputs)


def _indices(stage: Compute) -> list[Load]:
    return list(loads(stage))


@dataclass(frozen=True)
class _Prefixes(Op, abstract=True):
    """Sums of the elements up to each position: x [n] gives [n]."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = inputs[0]
        k = te.reduce_axis(x.shape[0], "k")
        zero = const(0.0)
        return te.compute(
            x.shape, lambda i: te.sum(te.if_then_else(k.var <= i, x[k.var], zero), axis=k), "sums"
        )


def test_a_sum_for_each_position_reduces_no_whole_axis() -> None:
    found = structure(_Prefixes(), (_type(40),))
    assert (found.kind, found.reduced, found.keeps_rank) == ("reduction", None, False)
    kept = structure(ReduceMean((1,)), (_type(3, 4),))
    assert (kept.reduced, kept.keeps_rank) == ({1}, True)


def test_add_of_equal_shapes_reads_plain_axes() -> None:
    (stage,) = _stages(Add(), _type(1, 4), _type(1, 4))
    for load in loads(stage):
        assert load.indices == tuple(a.var for a in stage.axis)


def test_broadcast_axis_is_read_at_zero() -> None:
    (stage,) = _stages(Add(), _type(3, 4), _type(3, 1))
    second = loads(stage)[1]
    assert second.indices[0] is stage.axis[0].var
    assert isinstance(second.indices[1], Const) and second.indices[1].value == 0


def test_matmul_is_one_stage() -> None:
    (stage,) = _stages(MatMul(), _type(2, 3, 4), _type(2, 4, 5))
    assert [a.name for a in stage.axis] == ["b0", "m", "n"]
    assert [a.name for a in stage.reduce_axis] == ["k"]
    assert product_of_loads(stage) is not None


def test_conv_without_pads_is_one_stage() -> None:
    (stage,) = _stages(Conv((2, 2)), _type(1, 3, 8, 8), _type(4, 3, 3, 3))
    assert [a.name for a in stage.axis] == ["n", "oc", "oh", "ow"]
    assert [a.name for a in stage.reduce_axis] == ["ic", "kh", "kw"]
    assert product_of_loads(stage) is not None


def test_conv_with_pads_has_a_pad_stage() -> None:
    names = [s.name for s in _stages(Conv(pads=(1, 1, 1, 1)), _type(1, 3, 8, 8), _type(4, 3, 3, 3))]
    assert names == ["pad", "conv"]


def _divisions(stage: Compute) -> int:
    return sum(
        isinstance(n, Binary) and n.op in ("floordiv", "floormod")
        for b in stage.body
        for n in post_order(b)
    )


@pytest.mark.parametrize(
    ("groups", "filters", "reduced", "divisions"),
    [(1, 8, ["ic", "kh", "kw"], 0), (2, 8, ["ic", "kh", "kw"], 1), (8, 8, ["kh", "kw"], 0)],
)
def test_groups(groups: int, filters: int, reduced: list[str], divisions: int) -> None:
    (stage,) = _stages(Conv(groups=groups), _type(1, 8, 6, 6), _type(filters, 8 // groups, 3, 3))
    assert [a.name for a in stage.reduce_axis] == reduced
    assert _divisions(stage) == divisions


def test_conv_transpose_with_stride_1_has_no_division() -> None:
    for stage in _stages(ConvTranspose(), _type(1, 3, 4, 4), _type(3, 2, 3, 3)):
        assert _divisions(stage) == 0


def test_narrow_floats_are_accumulated_in_f32() -> None:
    half = TensorType(f16, (4, 4))
    product, rounded = _stages(MatMul(), half, half)
    assert product.body[0].dtype is f32
    assert rounded.body[0].dtype is f16
    assert product_of_loads(product) is not None


def test_pools() -> None:
    assert [s.name for s in _stages(MaxPool((2, 2)), _type(1, 2, 4, 4))] == ["max_pool"]
    average = _stages(AvgPool((2, 2), pads=(1, 1, 1, 1)), _type(1, 2, 4, 4))
    assert [s.name for s in average] == ["pad", "avg_pool", "scale"]
    # every window inside: a constant divisor
    (_, scale) = _stages(AvgPool((2, 2), (2, 2)), _type(1, 2, 4, 4))
    divisor = scale.body[0]
    assert isinstance(divisor, Binary) and isinstance(divisor.b, Const) and divisor.b.value == 4.0


def test_mean_is_a_sum_and_a_division() -> None:
    total, mean = _stages(ReduceMean((1,)), _type(3, 4))
    assert isinstance(total.body[0], Reduce) and not mean.reduce_axis
    found = structure(ReduceMean((1,)), (_type(3, 4),))
    assert (found.kind, found.reduced, found.keeps_rank) == ("reduction", frozenset({1}), True)


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        ((2, 3, 4), (2, 3, 4), "i0 i1 i2"),
        ((2, 3, 4), (2, 1, 3, 4), "i0 i2 i3"),
        ((2, 1, 3), (2, 3), "i0 0 i1"),
        ((2, 12), (2, 3, 4), "i0 ((i1 * 4) + i2)"),
        ((2, 3, 4), (2, 12), "i0 (i1 // 4) (i1 % 4)"),
        ((6, 5), (2, 3, 5), "((i0 * 3) + i1) i2"),
        ((1, 128, 12, 64), (1, 128, 768), "i0 i1 (i2 // 64) (i2 % 64)"),
        ((4, 6), (8, 3), "(((i0 * 3) + i1) // 6) (((i0 * 3) + i1) % 6)"),
    ],
)
def test_reshape_touches_only_groups(
    source: tuple[int, ...], target: tuple[int, ...], wanted: str
) -> None:
    (stage,) = _stages(Reshape(target), _type(*source))
    (load,) = loads(stage)
    assert " ".join(_show(i) for i in load.indices) == wanted


def _show(e: object) -> str:
    signs = {"add": "+", "mul": "*", "floordiv": "//", "floormod": "%"}
    match e:
        case Var():
            return e.name
        case Const():
            return str(e.value)
        case Binary():
            return f"({_show(e.a)} {signs[e.op]} {_show(e.b)})"
    raise AssertionError(e)


def test_concat_depth_is_logarithmic() -> None:
    (stage,) = _stages(Concat(0), *[_type(2, 3)] * 64)

    def depth(e: object) -> int:
        children = getattr(e, "children", ())
        return 1 + max((depth(c) for c in children), default=0)

    assert depth(stage.body[0]) < 14
