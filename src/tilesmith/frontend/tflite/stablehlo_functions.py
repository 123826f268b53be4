"""StableHLO's operators in TFLite files that call a subgraph: reductions, windows, sorts, branches.

The subgraph of a reduction or a sort must be a single operator on two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import branched, results_of, values_of
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.frontend.tflite.stablehlo import padded
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import TensorType
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, reduce, sort
from tilesmith.ops.base import Op


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


_SUM = Combiner("add", ew.Add, reduce.ReduceSum)
_PRODUCT = Combiner("mul", ew.Mul, reduce.ReduceProd)
_LEAST = Combiner("min", ew.Min, reduce.ReduceMin)
_LARGEST = Combiner("max", ew.Max, reduce.ReduceMax)
_COMBINERS = {"add": _SUM, "mul": _PRODUCT, "min": _LEAST, "max": _LARGEST}
_OF_BOOLS = {"logical_and": _LEAST, "logical_or": _LARGEST}
_WINDOW_FUNCTIONS = (None, _SUM, _PRODUCT, _LEAST, _LARGEST, _LEAST, _LARGEST)
"""The functions of `REDUCE_WINDOW`, by number; the last two are for bools."""


def combiner(n: TfliteNode, option: str, x: Value) -> Combiner | None:
    """The operation by which a subgraph combines two numbers; None if it returns the second one.

    option: the option with the subgraph's number.
    x: a tensor of these numbers.
    """
    name, _ = _operator(n, n.option(option), [x])
    combined = (_OF_BOOLS if x.dtype.is_bool else _COMBINERS).get(name)
    if combined is None and name:
        n.unsupported(f"a reduction of {x.dtype} by {name}")
    return combined


def _operator(n: TfliteNode, number: int, inputs: Sequence[Value]) -> tuple[str, bool]:
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


def _reduced(n: TfliteNode, x: Value, init: Value, c: Combiner, axes: tuple[int, ...]) -> Value:
    """`x` combined along `axes`, and with `init`."""
    init = n.reshape(init, ())
    if x.dtype.is_bool:
        x, init = x.cast(i32), init.cast(i32)
        return _reduced(n, x, init, c, axes).cast(n.output_tensor().dtype)
    y = n.add(c.along(axes, False), x) if axes else x
    return n.add(c.pair(), y, init)


@tflite_op("STABLEHLO_REDUCE")
def reduction(n: TfliteNode) -> Result:
    if len(n.slots) != 2:
        n.unsupported(f"a reduction of {len(n.slots) // 2} tensors at once")
    x, init = n.input(0), n.input(1)
    c = combiner(n, "body_subgraph_index", x)
    if c is None:
        n.unsupported("a reduction that keeps the last number")
    return _reduced(n, x, init, c, n.axes(n.options("dimensions"), x.type.rank))


def _windows(
    n: TfliteNode, x: Value, init: Value, c: Combiner | None, lists: Sequence[Sequence[int]]
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


@tflite_op("STABLEHLO_REDUCE_WINDOW")
def reduce_window(n: TfliteNode) -> Result:
    if len(n.slots) != 2:
        n.unsupported(f"windows of {len(n.slots) // 2} tensors at once")
    x, rank = n.input(0), n.input(0).type.rank
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    lists = [n.options(name) or (1,) * rank for name in names]
    padding = n.options("padding") or (0,) * 2 * rank
    c = combiner(n, "body_subgraph_index", x)
    return _windows(n, x, n.input(1), c, [*lists, padding[::2], padding[1::2]])


@tflite_op("REDUCE_WINDOW")
def builtin_reduce_window(n: TfliteNode) -> Result:
    c = n.choice("reduce_function", tuple(map(str, range(len(_WINDOW_FUNCTIONS)))))
    window, strides, dilations = (n.int_list(n.input(i), "the windows") for i in range(2, 5))
    zeros, ones = ((v,) * n.input(0).type.rank for v in (0, 1))
    lists = [window, strides, ones, dilations, zeros, zeros]
    return _windows(n, n.input(0), n.input(1), _WINDOW_FUNCTIONS[int(c)], lists)


@stored_op("DILATE")
def dilate(n: TfliteNode) -> Result:
    x, factors = n.input(0), n.int_list(n.input(1), "the dilations")
    zeros = (0,) * x.type.rank
    return padded(n, x, zeros, zeros, [f - 1 for f in factors], n.input(2))


@tflite_op("STABLEHLO_SORT")
def sorted_(n: TfliteNode) -> Result:
    keys = n.input(0)
    name, in_order = _operator(n, n.option("comparator_subgraph_index"), n.inputs)
    if name not in ("less", "less_equal", "greater", "greater_equal"):
        n.unsupported(f"a sort by {name or 'no comparison'}")
    axis = n.axis(n.option("dimension"), keys.type.rank)
    largest = name.startswith("greater") == in_order
    best, places = n.add(sort.TopK(keys.type.shape[axis], axis, largest), keys)
    return best, *(n.add(gather.GatherElements(axis), v, places) for v in n.inputs[1:])


@stored_op("STABLEHLO_CASE")
def case(n: TfliteNode) -> Result:
    """One of several branches; a number outside of the range takes the last one."""
    branches, index = n.options("branch_subgraph_indices"), n.input(0)
    known = n.known(index)
    if known is not None or len(branches) == 1:
        number = 0 if known is None else int(known.reshape(-1)[0])
        number = number if 0 <= number < len(branches) else len(branches) - 1
        return results_of(n.inline(branches[number], n.slots[1:], n.loc))
    if len(branches) != 2:
        n.unsupported(f"{len(branches)} branches of which only a run knows the one to take")
    return branched(n, index.equals(0), (branches[0], branches[1]), n.slots[1:])
