"""Reductions that several threads of a block share."""

from __future__ import annotations

import numpy as np

from tilesmith import te
from tilesmith.loop.compare import assert_structural_equal
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify

REDUCERS = {"add": te.sum, "mul": te.prod, "min": te.min, "max": te.max}


ANSWERS = {"add": np.sum, "mul": np.prod, "min": np.min, "max": np.max}


def rows(
    shape: tuple[int, int], threads: int, lanes: int, op: str = "add", dtype: str = "f32",
    together: int = 1,
):  # fmt: skip
    """A block for `together` rows, each with so many threads; the schedule and its arguments."""
    x = te.placeholder(shape, dtype, "x")
    k = te.reduce_axis(shape[1], "k")
    y = te.compute(shape[:1], lambda i: REDUCERS[op](x[i, k], axis=k), "y")
    s = te.create_schedule(y.op)
    own = s[s.cache_write(y, "register")]
    block, row = s[y].split(s[y].axis[0], factor=together, tail="guard")
    row, first = s[y].split(row, factor=1)
    s[y].bind(block, "blockIdx.x")
    s[y].bind(row, "threadIdx.y")
    s[y].bind(first, "threadIdx.x")
    own.compute_at(s[y], row)
    _, part = own.split(own.op.reduce_axis[0], factor=threads, tail="guard")
    own.bind(part, "threadIdx.x", lanes=lanes)
    return s, [x, y]


def summed(shape: tuple[int, int], threads: int, lanes: int, *more) -> Func:
    func = te.lower(*rows(shape, threads, lanes, *more), "sums")
    verify(func, "nest")
    assert_structural_equal(parse_func(print_func(func)), func)
    return func
