"""Shape arithmetic that is followed symbolically gives the numbers that the operators compute."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.symbols import symbol, value_of
from tilesmith.ir.types import TensorType
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, reduce, shape, slicing
from tilesmith.ops.base import Op
from tilesmith.ops.sizes import Extents

SIZES = (1, 2, 3, 5, 8, 31, 64, 1000)


def _unary(draw: random.Random, count: int) -> list[Op]:
    """A few operators on a list of `count` integers, one after the other."""
    start = draw.randrange(count)
    return draw.choice(
        [
            [ew.Neg()],
            [slicing.Slice((start,), (draw.randint(start + 1, count),), (0,), (1,))],
            [slicing.Slice((-1,), (-count - 1,), (0,), (-1,))],
            [shape.Unsqueeze((0,)), shape.Transpose((1, 0)), shape.Squeeze((1,))],
            [shape.Reshape((1, -1)), shape.Expand((2, count)), shape.Reshape((2 * count,))],
            [reduce.ReduceProd((0,), True)],
            [reduce.ReduceSum((0,), False), shape.Reshape((1,))],
            [ew.Cast(i32), ew.Cast(i64)],
            [ew.Cast(f32), ew.Floor(), ew.Cast(i64)],
            [slicing.Tile((2,))],
        ]
    )


_BINARY = (ew.Add, ew.Sub, ew.Mul, ew.Div, ew.Mod, ew.Min, ew.Max)


@pytest.mark.parametrize("seed", range(60))
def test_followed_arithmetic_is_the_operators(seed: int) -> None:
    print("seed", seed)
    draw = random.Random(seed)
    n, m = symbol("n", high=1 << 12), symbol("m", high=1 << 12)
    sizes = [dict(zip((n, m), draw.choices(SIZES, k=2), strict=True)) for _ in range(4)]
    b = FoldingBuilder()
    b.input("x", TensorType(f32, (n, m)))
    value: Value = b.add(Extents((n, m), (2,)))
    arrays = [np.array([s[n], s[m]], np.int64) for s in sizes]
    for _ in range(draw.randint(1, 5)):
        if draw.random() < 0.5:
            number = np.array([draw.choice((1, 2, 3, 4, 16))], np.int64)
            op = draw.choice(_BINARY)()
            steps = [(op, (number,))]
        elif draw.random() < 0.2:
            at = np.array(draw.choices(range(len(arrays[0])), k=2), np.int64)
            steps = [(gather.Gather(0), (at,))]
        else:
            steps = [(op, ()) for op in _unary(draw, len(arrays[0]))]
        for op, others in steps:
            value = b.add(op, value, *map(b.constant, others))
            arrays = [evaluate_op(op, a, *others)[0] for a in arrays]
        if len(arrays[0]) > 16 or max(np.abs(a).max() for a in arrays) > 1 << 20:
            break  # beyond what floats hold exactly
    held = b.contents(value)
    assert held is not None
    for s, array in zip(sizes, arrays, strict=True):
        assert [value_of(e, s) for e in held.flat] == array.reshape(-1).tolist()


def test_fractions_of_extents() -> None:
    n = symbol("n")
    b = FoldingBuilder()
    size = b.add(Extents((n,), (1,)))
    wide = b.add(ew.Cast(f32), size)
    half = b.add(ew.Mul(), wide, b.constant(np.float32(0.5)))
    up, down = (b.add(ew.Cast(i64), b.add(op, half)) for op in (ew.Ceil(), ew.Floor()))
    ratio = b.add(ew.Div(), half, wide)  # of a size to another: 1/2 for all sizes
    for size in (1, 2, 7, 10):
        assert value_of(b.contents(up)[0], {n: size}) == -(-size // 2)
        assert value_of(b.contents(down)[0], {n: size}) == size // 2
    assert str(b.contents(ratio)[0]) == "Ratio(number=1, by=2)"


def test_what_depends_on_sizes_is_not_known() -> None:
    n = symbol("n", low=1)
    b = FoldingBuilder()
    size = b.add(Extents((n,), (1,)))
    never, perhaps = (b.add(ew.Equal(), size, b.constant(np.array([k]))) for k in (-1, 5))
    chosen = [b.add(ew.Where(), c, b.constant(np.array([7])), size) for c in (never, perhaps)]
    assert b.contents(chosen[0])[0] is n
    assert b.contents(chosen[1]) is None
    assert b.known(chosen[1]) is None
