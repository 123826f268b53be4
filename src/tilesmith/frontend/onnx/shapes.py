"""ONNX's operators that move, cut, join and repeat elements without computing with them."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import reversed_sequences, without_ones
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.expr import Expr, as_expr, binary
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, rules, shape, slicing
from tilesmith.ops.functions import clamp, maximum

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def is_single(x: Value) -> bool:
    """Whether `x` has one element, whatever its rank."""
    return all(same_dim(d, 1) for d in x.type.shape)


def equal_where_open(n: OnnxNode, found: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether shapes are equal or can be.  In that case, open sizes that could differ are required
    to be equal from then on.
    """
    if len(found) != len(wanted) or any(
        extents.are_equal(a, b) is False for a, b in zip(found, wanted, strict=True)
    ):
        return False
    return rules.equal_shapes(n.op_type, tuple(found), tuple(wanted))


@onnx_op("Identity", since=1)
def identity(n: OnnxNode) -> Result:
    slot = n.slot(0)
    return n.add(ew.Identity(), n.input(0)) if slot is None or isinstance(slot, Value) else slot


@onnx_op("Reshape", since=5)
def reshape(n: OnnxNode) -> Result:
    zero_is_zero = n.attr_flag("allowzero") if n.version >= 14 else False
    if not n.is_known(n.input(1)):
        return computed.reshaped(n, n.input(0), n.input(1), zero_is_zero)
    return reshaped(n, n.dims(n.input(1), "shape"), zero_is_zero)


def reshaped(n: OnnxNode, dims: tuple[Dim, ...], zero_is_zero: bool) -> Value:
    """The first input with shape `dims`: -1 stands for the remaining extent, and 0 copies an extent
    unless `zero_is_zero`.
    """
    x = n.input(0)
    numbers = [d for d in dims if isinstance(d, int)]
    if any(d < -1 for d in numbers):
        n.bad(f"shape: expected dimensions >= -1, found {list(dims)}")
    if zero_is_zero and 0 in numbers and -1 in numbers:
        n.bad("shape: with allowzero it may not have both 0 and -1")
    copies = [same_dim(d, 0) and not zero_is_zero for d in dims]
    if any(copies[x.type.rank :]):
        n.bad(f"shape: {list(dims)} copies a dimension that {x.type} does not have")
    target = tuple(x.type.shape[i] if c else d for i, (d, c) in enumerate(zip(dims, copies)))
    return x.reshape(*target)


@onnx_op("Flatten", since=1)
def flatten(n: OnnxNode) -> Result:
    return n.add(shape.Flatten(n.attr_int("axis", 1)), n.input(0))


@onnx_op("Transpose", since=1)
def transpose(n: OnnxNode) -> Result:
    x = n.input(0)
    perm = n.attr_ints("perm")
    return x.transpose(*(tuple(reversed(range(x.type.rank))) if perm is None else perm))


def _with_axes(n: OnnxNode) -> tuple[Value, Value | None, tuple[int, ...] | None]:
    """The input, the axes as a value, and the axes as numbers.

    Axes that are known during import are numbers, and the value is None.  For other axes, the
    numbers are None.  Both are None if the node has no axes.
    """
    computed_axes = n.computed("axes", 1, since=13)
    known = n.ints_or_input("axes", 1, since=13) if computed_axes is None else None
    return n.input(0), computed_axes, known


@onnx_op("Squeeze", since=1)
def squeeze(n: OnnxNode) -> Result:
    x, computed_axes, axes = _with_axes(n)
    if computed_axes is not None:
        return computed.squeezed(n, x, computed_axes)
    if axes is None:
        return without_ones(n, x)
    return n.add(shape.Squeeze(n.axes(axes, x.type.rank)), x)


@onnx_op("Unsqueeze", since=1)
def unsqueeze(n: OnnxNode) -> Result:
    x, computed_axes, axes = _with_axes(n)
    if computed_axes is not None:
        return computed.unsqueezed(n, x, computed_axes)
    if axes is None:
        n.bad("expected axes, which are required; found none")
    return n.add(shape.Unsqueeze(n.axes(axes, x.type.rank + len(axes))), x)


@onnx_op("Expand", since=8)
def expand(n: OnnxNode) -> Result:
    if not n.is_known(n.input(1)):
        return computed.expanded(n, n.input(0), n.input(1))
    dims = checked_dims(n.dims(n.input(1), "shape"), "shape")
    return n.input(0).expand(*dims)


@onnx_op("Concat", since=4)
def concat(n: OnnxNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    return n.add(slicing.Concat(n.axis(n.attr_int("axis"), n.inputs[0].type.rank)), *n.inputs)


@onnx_op("Split", since=1)
def split(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    count, extent = n.output_count, x.type.shape[axis]
    sizes: tuple[Dim, ...] | None = n.attr_ints("split") if n.version < 13 else None
    # opset 1 has both the attribute and the input
    sizes_input = n.optional(1) if n.version >= 13 or (n.version == 1 and sizes is None) else None
    if sizes_input is not None:
        known = n.elements(sizes_input, "split")
        sizes = n.measured(listed(sizes_input), known, [extent] * len(known))
    is_given = sizes is not None
    if n.version >= 18 and n.has("num_outputs"):
        wanted = n.attr_int("num_outputs")
        if sizes is not None or wanted != count:
            n.bad(
                f"num_outputs: expected {count} as the node has outputs, and no split; found "
                f"{wanted}"
            )
        part = as_dim(as_expr(extents.total((extent, count - 1))) // count)  # quotient rounded up
        starts = (extents.product((i, part)) for i in range(count))
        left = (extents.larger(extents.difference(extent, start), 0) for start in starts)
        sizes = tuple(extents.smaller(part, n) for n in left)
    if sizes is None:
        what = f"an extent along axis {axis}"
        sizes = (n.builder.divided("split", extent, count, what, n.loc),) * count
    if len(sizes) != count:
        n.bad(f"split: expected {count} sizes, found {list(sizes)}")
    is_computed = sizes_input is not None and not n.is_known(sizes_input)
    if is_computed or (is_given and not all(extents.is_at_most(0, size) for size in sizes)):
        return computed.parts(n, x, axis, sizes)  # a run with negative sizes raises an error
    parts = n.add(slicing.Split(axis, sizes), x)
    return parts if isinstance(parts, tuple) else (parts,)


@onnx_op("Slice", since=1, until=9)
def slice_attributes(n: OnnxNode) -> Result:
    starts, ends, axes = n.attr_ints("starts"), n.attr_ints("ends"), n.attr_ints("axes")
    if starts is None or ends is None:
        n.bad("expected attributes 'starts' and 'ends', which are required")
    return _slice(n, starts, ends, axes, None)


@onnx_op("Slice", since=10)
def slice_inputs(n: OnnxNode) -> Result:
    x, starts, ends = (n.input(i) for i in range(3))
    axes, steps = n.optional(3), n.optional(4)
    operands = [v for v in (starts, ends, axes, steps) if v is not None]
    if all(map(n.is_known, operands)):
        known = None if axes is None else n.int_list(axes, "axes")
        by = None if steps is None else n.int_list(steps, "steps")
        return _slice(n, n.dims(starts, "starts"), n.dims(ends, "ends"), known, by)
    if len({len(n.elements(v, "bounds")) for v in operands}) > 1:
        n.bad(f"expected as many ends, axes and steps as starts, {starts.type}")
    return computed.sliced(n, x, starts, ends, _axes(n, axes, starts.type.size), steps)


def _axes(n: OnnxNode, axes: Value | None, count: int) -> Value | tuple[int, ...]:
    """The axes as numbers if they are known, else `axes`; by default the first `count` axes."""
    if axes is None:
        return tuple(range(count))
    return n.axes(n.int_list(axes, "axes"), n.input(0).type.rank) if n.is_known(axes) else axes


def _slice(
    n: OnnxNode,
    starts: tuple[Dim, ...],
    ends: tuple[Dim, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Result:
    x = n.input(0)
    axes = n.axes(tuple(range(len(starts))) if axes is None else axes, x.type.rank)
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        n.bad(f"expected as many ends, axes and steps as starts ({len(starts)})")
    return n.add(slicing.Slice(starts, ends, axes, steps), x)


@onnx_op("Pad", since=2, until=10)
def pad_attributes(n: OnnxNode) -> Result:
    pads = n.attr_ints("pads")
    if pads is None:
        n.bad("expected attribute 'pads', which is required; found none")
    mode = n.attr_string("mode", "constant", among=PAD_MODES)
    return n.add(slicing.Pad(pads, mode, n.attr_float("value", 0.0)), n.input(0))


@onnx_op("Pad", since=11)
def pad_inputs(n: OnnxNode) -> Result:
    x, pads, rank = n.input(0), n.input(1), n.input(0).type.rank
    value, axes_input = n.optional(2), n.optional(3) if n.version >= 18 else None
    mode = n.attr_string("mode", "constant", among=PAD_MODES)
    axes = _axes(n, axes_input, rank)
    count = len(n.elements(axes, "axes")) if isinstance(axes, Value) else len(axes)
    if len(n.elements(pads, "pads")) != 2 * count:
        n.bad(f"pads: expected {2 * count} for {count} axes, found {pads.type}")
    filler: Value | float | int | bool = 0
    if value is not None:
        is_known = n.is_known(value)
        filler = n.scalar(value, "constant_value") if is_known else n.reshape(value, ())
    if isinstance(axes, Value) or isinstance(filler, Value) or not n.is_known(pads):
        return computed.padded(n, x, pads, axes, mode, filler)
    numbers = dict(zip((*axes, *(a + rank for a in axes)), n.dims(pads, "pads"), strict=True))
    borders = tuple(numbers.get(a, 0) for a in range(2 * rank))
    return n.add(slicing.Pad(borders, mode, filler), x)


@onnx_op("Tile", since=6)
def tile(n: OnnxNode) -> Result:
    x, repeats = n.input(0), n.extents(n.input(1), "repeats")
    if len(repeats) != x.type.rank or any(isinstance(r, int) and r < 0 for r in repeats):
        n.bad(f"repeats: expected {x.type.rank} numbers of 0 or more, found {list(repeats)}")
    return tiled(n, x, repeats)


@onnx_op("DepthToSpace", since=1)
def depth_to_space(n: OnnxNode) -> Result:
    mode = n.attr_string("mode", "DCR", among=("DCR", "CRD")) if n.version >= 11 else "DCR"
    return n.add(shape.DepthToSpace(n.attr_int("blocksize"), mode), n.input(0))


@onnx_op("SpaceToDepth", since=1)
def space_to_depth(n: OnnxNode) -> Result:
    mode = n.attr_string("mode", "DCR", among=("DCR", "CRD")) if n.version >= 28 else "DCR"
    x, block = n.input(0), n.attr_int("blocksize")
    y = n.add(shape.SpaceToDepth(block), x)
    if mode == "DCR":
        return y
    batch, c, h, w = y.type.shape  # DCR order: blocks come before channels; CRD has channels first
    what = "the channel count"
    inner = n.builder.divided("space_to_depth", c, block * block, what, n.loc)
    y = y.reshape(batch, block * block, inner, h, w)
    return y.transpose(0, 2, 1, 3, 4).reshape(batch, c, h, w)


@onnx_op("Trilu", since=14)
def trilu(n: OnnxNode) -> Result:
    x, k = n.input(0), n.optional(1)
    if x.type.rank < 2:
        n.bad(f"expected an input of rank 2 or more, found {x.type}")
    diagonal: Dim = 0
    if k is not None and n.is_known(k):
        diagonal = n.dim(k, "k")
    elif k is not None:  # count from the lowest, so no measured number is negative
        rows = x.type.shape[-2]
        whole = extents.total((rows, x.type.shape[-1]))
        shifted = clamp(listed(k) + rows, 0, n.of_dims((whole,)))
        diagonal = extents.difference(n.measured(shifted, bounds=[whole])[0], rows)
    return n.add(gather.Trilu(n.attr_flag("upper", True), diagonal), x)


@onnx_op("CenterCropPad", since=18)
def center_crop_pad(n: OnnxNode) -> Result:
    x = n.input(0)
    wanted, axes = n.extents(n.input(1), "shape"), n.attr_ints("axes")
    axes = n.axes(tuple(range(x.type.rank)) if axes is None else axes, x.type.rank)
    if len(wanted) != len(axes):
        n.bad(f"shape: expected {len(axes)} dimensions, found {len(wanted)}")
    begins: list[Dim] = [0] * x.type.rank
    ends: list[Dim] = [0] * x.type.rank
    for a, w in zip(axes, wanted, strict=True):
        difference = extents.difference(w, x.type.shape[a])
        # Keep the middle.  If the difference is odd, the end loses or gains one more element than
        # the start.
        half = as_dim(binary("truncdiv", as_expr(difference), 2))
        begins[a], ends[a] = half, extents.difference(difference, half)
    return n.add(slicing.Pad((*begins, *ends), "constant", 0), x)


@onnx_op("Gather", since=1)
def gather_slices(n: OnnxNode) -> Result:
    x = n.input(0)
    return n.add(gather.Gather(n.axis(n.attr_int("axis", 0), x.type.rank)), x, n.input(1))


@onnx_op("GatherElements", since=11)
def gather_elements(n: OnnxNode) -> Result:
    x = n.input(0)
    axis, indices = n.axis(n.attr_int("axis", 0), x.type.rank), n.input(1)
    if x.type.rank == indices.type.rank:
        pairs = enumerate(zip(x.shape, indices.shape, strict=True))
        larger = [extents.difference(e, d) for a, (d, e) in pairs
                  if a != axis and not extents.is_at_most(e, d)]  # fmt: skip
        if any(isinstance(d, Expr) for d in larger):
            n.builder.require_zero(maximum(n.of_dims(larger), 0))
    return n.add(gather.GatherElements(axis), x, indices)


@onnx_op("GatherND", since=11)
def gather_nd(n: OnnxNode) -> Result:
    batch = n.attr_int("batch_dims", 0) if n.version >= 12 else 0
    return n.add(gather.GatherNd(batch), n.input(0), n.input(1))


@onnx_op("OneHot", since=9)
def one_hot(n: OnnxNode) -> Result:
    depth_input = n.input(1)
    if not depth_input.dtype.is_int:
        depth_input = depth_input.cast(i64)
    (depth,) = n.extents(depth_input, "depth")
    if isinstance(depth, int) and depth < 1:
        n.bad(f"depth: expected at least 1, found {depth}")
    return n.add(gather.OneHot(depth, n.attr_int("axis", -1)), n.input(0), n.input(2))


@onnx_op("Compress", since=9)
def compress(n: OnnxNode) -> Result:
    x, axis = n.input(0), n.attr_int("axis") if n.has("axis") else None
    keep = n.input(1)
    if keep.type.rank != 1 or keep.dtype is not bool_:
        n.bad(f"condition: expected a list of bools, found {keep.type}")
    if axis is None:
        x, axis = n.reshape(x, (extents.product(x.type.shape),)), 0
    if same_dim(x.type.shape[n.axis(axis, x.type.rank)], 0):
        return n.add(ew.Identity(), x)
    return n.add(gather.Gather(n.axis(axis, x.type.rank)), x, n.places(keep).reshape(-1))


@onnx_op("ReverseSequence", since=10)
def reverse_sequence(n: OnnxNode) -> Result:
    x = n.input(0)
    time, batch = n.attr_int("time_axis", 0), n.attr_int("batch_axis", 1)
    if {time, batch} != {0, 1}:
        n.bad(
            f"expected time_axis and batch_axis to be 0 and 1 in some order, found {time} and "
            f"{batch}"
        )
    lengths = n.input(1)
    dims = x.type.shape
    if len(dims) < 2:
        n.bad(f"expected an input of rank 2 or more, found {x.type}")
    sequences = dims[batch]
    if not rules.equal_shapes("reverse_sequence", lengths.type.shape, (sequences,)):
        n.bad(f"sequence_lens: expected [{sequences}], found {lengths.type}")
    return reversed_sequences(n, x, lengths, time, batch)
