"""Import functions of the StableHLO operations that TFLite's files do not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilesmith.frontend.common.arithmetic import angle, expm1, rounded_away, shifted_right
from tilesmith.frontend.common.hlo import elementwise, functions, indexing
from tilesmith.frontend.common.slots import Result
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import BY_NAME
from tilesmith.ops import elementwise as ew
from tilesmith.ops import slicing, sort
from tilesmith.ops.base import Op
from tilesmith.ops.functions import minimum, where
from tilesmith.ops.gather import GatherElements

from .node import OPERATORS, StablehloNode, stablehlo_op
from .syntax import Operation, Region

_SAME: dict[str, Callable[[], Op]] = {
    "ceil": ew.Ceil,
    "log_plus_one": ew.Log1p,
    "round_nearest_even": ew.Round,
    "sign": ew.Sign,
    "sine": ew.Sin,
    "sqrt": ew.Sqrt,
    "tan": ew.Tan,
    "optimization_barrier": ew.Identity,
    "chlo.acos": ew.Acos,
    "chlo.acosh": ew.Acosh,
    "chlo.asin": ew.Asin,
    "chlo.asinh": ew.Asinh,
    "chlo.atan": ew.Atan,
    "chlo.atanh": ew.Atanh,
    "chlo.cosh": ew.Cosh,
    "chlo.erf": ew.Erf,
    "chlo.is_inf": ew.IsInf,
    "chlo.sinh": ew.Sinh,
    "chlo.tan": ew.Tan,
}
"""Operations of one operand -> the equal operator of Tilesmith."""


for _name, _make in _SAME.items():
    OPERATORS.register_same(_make, _name)


@stablehlo_op("not")
def inverted(n: StablehloNode) -> Result:
    return ~n.input(0)


@stablehlo_op("xor")
def one_of(n: StablehloNode) -> Result:
    return n.input(0) ^ n.input(1)


@stablehlo_op("exponential_minus_one")
def exponential_minus_one(n: StablehloNode) -> Result:
    return expm1(n.input(0))


@stablehlo_op("chlo.square")
def square(n: StablehloNode) -> Result:
    return n.input(0) * n.input(0)


@stablehlo_op("is_finite")
def is_finite(n: StablehloNode) -> Result:
    x = n.input(0)
    return abs(x) < np.inf


@stablehlo_op("round_nearest_afz")
def round_nearest_afz(n: StablehloNode) -> Result:
    return rounded_away(n.input(0))


@stablehlo_op("shift_right_logical")
def shift_right_logical(n: StablehloNode) -> Result:
    kind = n.input(0).dtype
    unsigned = BY_NAME[f"u{kind.bits}"]
    x, by = (n.add(ew.Bitcast(unsigned), v) if kind.kind == "int" else v for v in n.inputs)
    y = n.add(ew.BitShift("right"), x, by)
    return n.add(ew.Bitcast(kind), y) if kind.kind == "int" else y


@stablehlo_op("shift_right_arithmetic")
def shift_right_arithmetic(n: StablehloNode) -> Result:
    x, by = n.input(0), n.input(1)
    return shifted_right(n, x, minimum(by, x.dtype.bits - 1))


@stablehlo_op("atan2")
def atan2(n: StablehloNode) -> Result:
    return angle(n, n.input(0), n.input(1))


@stablehlo_op("chlo.erfc")
def erfc(n: StablehloNode) -> Result:
    return 1 - n.add(ew.Erf(), n.input(0))


@stablehlo_op("compare")
def compare(n: StablehloNode) -> Result:
    a, b = n.input(0), n.input(1)
    if n.stated("compare_type") == "TOTALORDER" and a.dtype.is_float and b.dtype is a.dtype:
        a, b = _place(n, a), _place(n, b)
    return elementwise.compared(n, a, b)


def _place(n: StablehloNode, x: Value) -> Value:
    """Integers in the total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN.

    The bits of a float are read as an integer.  Then positive floats are in order, and negative
    ones are in reverse order (IEEE 754, 5.10).
    """
    bits = n.add(ew.Bitcast(BY_NAME[f"i{x.dtype.bits}"]), x)
    return where(bits < 0, bits ^ ((1 << x.dtype.bits - 1) - 1), bits)


@stablehlo_op("gather")
def gather_slices(n: StablehloNode) -> Result:
    of_indices = n.options("start_indices_batching_dims")
    return indexing.gathered(n, n.options("operand_batching_dims"), of_indices)


@stablehlo_op("scatter")
def scatter_slices(n: StablehloNode) -> Result:
    of_indices = n.options("scatter_indices_batching_dims")
    return indexing.scattered(n, n.options("input_batching_dims"), of_indices)


@stablehlo_op("bitcast_convert")
def bitcast(n: StablehloNode) -> Result:
    if n.input(0).dtype.bits != n.output_dtype().bits:
        n.unsupported("a change of the number of bits")
    return n.add(ew.Bitcast(n.output_dtype()), n.input(0))


@stablehlo_op("reverse")
def reverse(n: StablehloNode) -> Result:
    x = n.input(0)
    axes = n.axes(n.options("dimensions"), x.type.rank)
    last = np.iinfo(np.int64)
    count = len(axes)
    return n.add(slicing.Slice((last.max,) * count, (last.min,) * count, axes, (-1,) * count), x)


# Sizes that a run knows


@stablehlo_op("get_dimension_size")
def dimension_size(n: StablehloNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.option("dimension"), x.type.rank)
    return n.of_dims((x.type.shape[axis],), ()).cast(n.output_dtype())


@stablehlo_op("dynamic_reshape")
def dynamic_reshape(n: StablehloNode) -> Result:
    return n.input(0).reshape(*n.extents(n.input(1), "the shape"))


@stablehlo_op("dynamic_broadcast_in_dim")
def dynamic_broadcast(n: StablehloNode) -> Result:
    x, dims = n.input(0), n.extents(n.input(1), "the shape")
    axes = n.axes(n.options("broadcast_dimensions"), len(dims))
    if len(axes) != x.type.rank or list(axes) != sorted(axes):
        n.bad(f"expected an ascending axis for each of {x.type}, found {list(axes)}")
    wide: list[object] = [1] * len(dims)
    for a, d in zip(axes, x.type.shape, strict=True):
        wide[a] = d
    return n.expand(n.reshape(x, wide), dims)  # type: ignore[arg-type]


@stablehlo_op("dynamic_iota")
def dynamic_iota(n: StablehloNode) -> Result:
    dims = n.extents(n.input(0), "the shape")
    axis = n.axis(n.option("iota_dimension"), len(dims))
    numbers = n.positions(dims[axis], len(dims), axis)
    return n.expand(numbers.cast(n.output_dtype()), dims)


@stablehlo_op("dynamic_pad")
def dynamic_pad(n: StablehloNode) -> Result:
    low, high, inner = (n.int_list(n.input(i), "the borders") for i in (2, 3, 4))
    return elementwise.padded(n, n.input(0), low, high, inner, n.input(1))


@stablehlo_op("real_dynamic_slice")
def real_dynamic_slice(n: StablehloNode) -> Result:
    x = n.input(0)
    starts, ends, steps = (n.int_list(n.input(i), "the slice") for i in (1, 2, 3))
    return n.add(slicing.Slice(starts, ends, tuple(range(x.type.rank)), steps), x)


# Calls by name


@stablehlo_op("chlo.top_k")
def top_k(n: StablehloNode) -> Result:
    x = n.input(0)
    best, places = n.add(sort.TopK(n.option("k"), x.type.rank - 1, True), x)
    return best, places.cast(n.output_dtype(1))


@stablehlo_op("custom_call")
def custom_call(n: StablehloNode) -> Result:
    name = n.stated("call_target_name") or n.stated("callee")
    stated = n.stated("mhlo.attributes")
    if name == "shape_assertion":
        return ()
    if name in ("Sharding", "annotate_device_placement"):
        return n.input(0)
    if name == "mhlo.topk" and isinstance(stated, dict):
        x = n.input(0)
        count = stated.get("k")
        if not isinstance(count, int):
            n.bad(f"expected the number 'k' of elements, found {count!r}")
        op = sort.TopK(count, x.type.rank - 1, bool(stated.get("largest", True)))
        best, places = n.add(op, x)
        return best, places.cast(n.output_dtype(1))
    named = {f"mhlo.{k.removeprefix('chlo.')}": make for k, make in _SAME.items()}
    if name in named:
        return n.add(named[name](), n.input(0))
    return n.unsupported(f"a call of the foreign function {name!r}")


# Reductions of several tensors, or by several operations


@stablehlo_op("reduce")
def reduce(n: StablehloNode) -> Result:
    count = len(n.slots) // 2
    region = n.called("body")
    if count == 1 and len(region.operations) == 2:
        return functions.reduction(n)
    tensors, init = n.inputs[:count], n.inputs[count:]
    rank = tensors[0].type.rank
    for axis in n.axes(n.options("dimensions"), rank):
        tensors = _folded(n, tensors, init, axis)
    kept = [a for a in range(rank) if a not in n.axes(n.options("dimensions"), rank)]
    made = [n.reshape(x, [x.type.shape[a] for a in kept]) for x in tensors]
    combined = n.inline(region, [*(n.expand(i, m.type.shape) for i, m in zip(init, made)), *made],
                        n.loc)  # fmt: skip
    return tuple(combined)


def _folded(
    n: StablehloNode, tensors: tuple[Value, ...], init: tuple[Value, ...], axis: int
) -> tuple[Value, ...]:
    """Reduce `axis` to one element: its two halves are combined until one element is left.

    The region's operations work on tensors as on numbers.
    """
    extent = n.extent(tensors[0], axis)
    if extent == 0:
        dims = [1 if a == axis else d for a, d in enumerate(tensors[0].type.shape)]
        return tuple(n.expand(i, dims) for i in init)
    while extent > 1:
        half = extent // 2
        parts = [[_range(n, x, axis, a, b) for x in tensors]
                 for a, b in ((0, half), (half, 2 * half), (2 * half, extent))]  # fmt: skip
        made = n.inline(n.called("body"), [*parts[0], *parts[1]], n.loc)
        values = [v for v in made if isinstance(v, Value)]
        if len(values) != len(tensors):
            n.bad(f"expected {len(tensors)} results of the region, found {len(values)}")
        if extent % 2:
            values = [n.add(slicing.Concat(axis), v, rest) for v, rest in zip(values, parts[2])]
        tensors, extent = tuple(values), half + extent % 2
    return tensors


def _range(n: StablehloNode, x: Value, axis: int, start: int, end: int) -> Value:
    return n.add(slicing.Slice((start,), (end,), (axis,), (1,)), x)


# Sorts


@stablehlo_op("sort")
def sorted_(n: StablehloNode) -> Result:
    """Sort tensors by a key, which the region computes from the first operand's elements."""
    region = n.called("comparator")
    if len(region.operations) < 2 or len(region.arguments) != 2 * len(n.slots):
        n.bad(f"expected a comparison of two elements of each of {len(n.slots)} tensors")
    *before, last, end = region.operations
    if last.name != "compare" or len(last.operands) != 2 or end.operands != last.results:
        n.unsupported("a sort by more than one comparison")
    made = {r: o for o in before for r in o.results}
    names = [name for name, _ in region.arguments]
    left, right = last.operands
    if not _alike(left, right, made, dict(zip(names[::2], names[1::2], strict=True))):
        n.unsupported("a sort that compares different functions of its elements")
    key_of = Region(region.arguments, (*before, replace(end, operands=(left,))))
    (key,) = n.inline(key_of, [v for v in n.inputs for _ in range(2)], n.loc)
    if not isinstance(key, Value) or key.type != n.input(0).type:
        n.unsupported("a sort by a key of another type")
    axis = n.axis(n.option("dimension"), key.type.rank)
    direction = last.attributes.get("comparison_direction")
    _, places = n.add(sort.TopK(key.type.shape[axis], axis, direction in ("GT", "GE")), key)
    return tuple(n.add(GatherElements(axis), v, places) for v in n.inputs)


def _alike(
    left: str, right: str, made: Mapping[str, Operation], pairs: Mapping[str, str], depth: int = 0
) -> bool:
    """Whether `left` is the same formula of the left arguments as `right` is of the right ones.

    made: the operation that makes each value.
    pairs: the right argument for each left argument.
    """
    if left not in made or right not in made:
        return left not in pairs.values() and pairs.get(left, left) == right
    a, b = made[left], made[right]
    same = a.name == b.name and len(a.operands) == len(b.operands) and not a.regions
    if not same or depth > 16 or repr(a.attributes) != repr(b.attributes):
        return False
    operands = zip(a.operands, b.operands, strict=True)
    return all(_alike(v, w, made, pairs, depth + 1) for v, w in operands)
