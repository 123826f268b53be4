"""Operators of StableHLO that call a function: reductions, windows, sorts.

The function of windows, of a scatter or of a sort must be a single operator on two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import values_of
from tilesmith.frontend.common.slots import Result
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import TensorType
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, reduce, sort
from tilesmith.ops.base import Op

from .elementwise import padded
from .node import HloNode
from .registry import hlo_op


@dataclass(frozen=True, slots=True)
class Combiner:
    """An operation that combines all numbers of a reduction.

    scatter: the name of the reduction in scatters.
    pair: its operator on two numbers.
    along: its operator along axes.
    """

    scatter: str
    pair: Callable[[], Op]
    along: Callable[[tuple[int, ...], bool], Op]


SUM = Combiner("add", ew.Add, reduce.ReduceSum)
PRODUCT = Combiner("mul", ew.Mul, reduce.ReduceProd)
LEAST = Combiner("min", ew.Min, reduce.ReduceMin)
LARGEST = Combiner("max", ew.Max, reduce.ReduceMax)
_COMBINERS = {"add": SUM, "mul": PRODUCT, "min": LEAST, "max": LARGEST}
_OF_BOOLS = {"logical_and": LEAST, "logical_or": LARGEST}


def combiner(n: HloNode, option: str, x: Value) -> Combiner | None:
    """The operation by which a subgraph combines two numbers; None if the subgraph returns the
    second number.

    option: the option that names the function.
    x: a tensor of these numbers.
    """
    name, _ = operator_of(n, n.called(option), [x])
    combined = (_OF_BOOLS if x.dtype.is_bool else _COMBINERS).get(name)
    if combined is None and name:
        n.unsupported(f"a reduction of {x.dtype} by {name}")
    return combined


def operator_of(n: HloNode, number: Any, inputs: Sequence[Value]) -> tuple[str, bool]:
    """The name of a subgraph's only operator, and whether it takes the arguments in their order.

    The operator must combine the first two arguments.  For a subgraph that returns the second
    argument, the name is "".

    inputs: tensors; the subgraph has two arguments for each, which are elements of the tensor.
    """
    body = Body(n.builder, "function")
    numbers = body.given([TensorType(v.dtype, ()) for v in inputs for _ in range(2)])
    results = n.nest(body, number, numbers, n.loc)
    if results is None:
        n.unsupported(f"its subgraph {number} {body.misfit}")
    graph = body.finish(values_of(n, results))
    if not graph.nodes and graph.outputs == (numbers[1],):
        return "", True
    pairs = [tuple(numbers[:2]), tuple(numbers[1::-1])]
    if len(graph.nodes) != 1 or graph.nodes[0].inputs not in pairs or body.captured:
        n.unsupported(f"subgraph {number}; expected a single operator on two numbers")
    return graph.nodes[0].op.name, graph.nodes[0].inputs == pairs[0]


def _reduced(n: HloNode, x: Value, init: Value, c: Combiner, axes: tuple[int, ...]) -> Value:
    """`x` combined along `axes`, and with `init`."""
    init = n.reshape(init, ())
    if x.dtype.is_bool:
        x, init = x.cast(i32), init.cast(i32)
        return _reduced(n, x, init, c, axes).cast(n.output_dtype())
    y = n.add(c.along(axes, False), x) if axes else x
    return n.add(c.pair(), y, init)


@hlo_op("reduce")
def reduction(n: HloNode) -> Result:
    if len(n.slots) != 2:
        n.unsupported(f"a reduction of {len(n.slots) // 2} tensors at once")
    x, init = n.input(0), n.input(1)
    c = combiner(n, "body", x)
    if c is None:
        n.unsupported("a reduction that keeps the last number")
    return _reduced(n, x, init, c, n.axes(n.options("dimensions"), x.type.rank))


def windows(
    n: HloNode, x: Value, init: Value, c: Combiner | None, lists: Sequence[Sequence[int]]
) -> Value:
    """Reductions of windows.

    lists: extents of windows, strides, dilations of the input, dilations of windows, elements added
        before and after each axis.
    """
    if c is None:
        n.unsupported("windows of which each gives its last number")
    rank = x.type.rank
    if any(len(v) != rank for v in lists) or min(map(min, lists[:4]), default=1) < 1:
        n.bad(f"expected {rank} windows, strides and dilations above 0, found {list(lists)}")
    window, strides, spread, dilations, before, after = lists
    x = padded(n, x, before, after, [s - 1 for s in spread], init)
    axes: list[int] = []
    for axis in reversed(range(rank)):
        w, stride, step = window[axis], strides[axis], dilations[axis]
        if w == stride == 1:
            continue
        room = extents.difference(x.type.shape[axis], (w - 1) * step + 1)
        count = extents.larger(extents.total((as_dim(as_expr(room) // stride), 1)), 0)
        places = n.positions(count, 2) * stride + n.const(np.arange(w) * step, i64)
        x = computed.taken(n, x, axis, places)
        axes = [axis + 1, *(a + 1 for a in axes)]
    return _reduced(n, x, init, c, tuple(axes))


@hlo_op("reduce_window")
def reduce_window(n: HloNode) -> Result:
    if len(n.slots) != 2:
        n.unsupported(f"windows of {len(n.slots) // 2} tensors at once")
    x, rank = n.input(0), n.input(0).type.rank
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    lists = [n.options(name) or (1,) * rank for name in names]
    padding = n.options("padding") or (0,) * 2 * rank
    c = combiner(n, "body", x)
    return windows(n, x, n.input(1), c, [*lists, padding[::2], padding[1::2]])


@hlo_op("sort")
def sorted_(n: HloNode) -> Result:
    keys = n.input(0)
    name, in_order = operator_of(n, n.called("comparator"), n.inputs)
    if name not in ("less", "less_equal", "greater", "greater_equal"):
        n.unsupported(f"a sort by {name or 'no comparison'}")
    axis = n.axis(n.option("dimension"), keys.type.rank)
    largest = name.startswith("greater") == in_order
    best, places = n.add(sort.TopK(keys.type.shape[axis], axis, largest), keys)
    return best, *(n.add(gather.GatherElements(axis), v, places) for v in n.inputs[1:])
