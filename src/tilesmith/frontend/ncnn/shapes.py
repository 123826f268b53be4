"""ncnn's layers on shapes, reductions and images."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.scaled import scaled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.ncnn.elements import ncnn_layer
from tilesmith.frontend.ncnn.layers import take
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import functions as fn
from tilesmith.ops import resize, scan, slicing, sort
from tilesmith.ops import shape as sh

_REST = -233
"""The number of a parameter that is left out, or that means the rest of an axis."""

_ORDERS = {
    1: ("W",),
    2: ("WH", "HW"),
    3: ("WHC", "HWC", "WCH", "CWH", "HCW", "CHW"),
    4: ("WHDC", "HWDC", "WDHC", "DWHC", "HDWC", "DHWC", "WHCD", "HWCD", "WCHD", "CWHD", "HCWD",
        "CHWD", "WDCH", "DWCH", "WCDH", "CWDH", "DCWH", "CDWH", "HDCW", "DHCW", "HCDW", "CHDW",
        "DCHW", "CDHW"),
}  # fmt: skip
"""The orders of axes by rank and by order_type; the innermost axis comes first."""


@ncnn_layer("Flatten")
def flatten(n: LayerNode) -> Result:
    return n.reshape(n.input(), (extents.product(n.input().type.shape),))


@ncnn_layer("Reshape")
def reshape(n: LayerNode) -> Result:
    x = n.input()
    if n.has("6"):
        n.unsupported("a shape that is an expression")
    rank = x.type.rank
    # for c, d, h and w: the parameter's key, and the input's axis
    own = {"2": 0, "11": 1, "1": rank - 2, "0": rank - 1}
    new: list[Dim] = []
    for key, axis in own.items():
        size = n.attr_int(key, _REST)
        if size != _REST:
            new.append(x.type.shape[axis] if size == 0 else size)
    return x.reshape(*new)


@ncnn_layer("Permute")
def permute(n: LayerNode) -> Result:
    x, number = n.input(), n.attr_int("0", 0)
    orders = _ORDERS.get(x.type.rank, ())
    if not 0 <= number < len(orders):
        n.bad(f"expected an order below {len(orders)} for {x.type}, found {number}")
    axes = orders[0][::-1]
    return x.transpose(*(axes.index(letter) for letter in orders[number][::-1]))


@ncnn_layer("Concat")
def concat(n: LayerNode) -> Result:
    return n.add(slicing.Concat(n.axis(n.attr_int("0", 0), n.input().type.rank)), *n.inputs)


@ncnn_layer("Slice")
def slices(n: LayerNode) -> Result:
    x, axis = n.input(), n.axis(n.attr_int("1", 0), n.input().type.rank)
    count, extent = len(n.layer.outputs), x.type.shape[axis]
    edges: list[Dim] = [0]
    if n.has("2"):
        extent_number = n.extent(x, axis)
        edges += [i % extent_number for i in n.attr_ints("2")]
        edges.append(extent)
    else:
        for i, size in enumerate(n.attr_ints("0", (_REST,) * count)):
            rest = extents.difference(extent, edges[-1])
            if size == _REST:
                size = n.builder.divided("Slice", rest, count - i, "the rest", n.loc)
            edges.append(extents.total((edges[-1], size)))
    if len(edges) != count + 1:
        n.bad(f"expected sizes for {count} outputs, found {len(edges) - 1}")
    sizes = tuple(extents.difference(edges[i + 1], edges[i]) for i in range(count))
    return n.add(slicing.Split(axis, sizes), x)


@ncnn_layer("Crop")
def crop(n: LayerNode) -> Result:
    x, rank = n.input(0), n.input(0).type.rank
    for key in ("19", "20", "21"):
        if n.has(key):
            n.unsupported("a crop that is an expression")
    starts, ends = n.attr_ints("9", ()), n.attr_ints("10", ())
    if starts:
        axes = n.axes(n.attr_ints("11", tuple(range(len(starts)))), rank)
        last = tuple(1 << 31 if e == _REST else e for e in ends)
        starts = tuple(0 if s == _REST else s for s in starts)
        return n.add(slicing.Slice(starts, last, axes, (1,) * len(axes)), x)
    keys = {1: ("0",), 2: ("1", "0"), 3: ("2", "1", "0"), 4: ("2", "13", "1", "0")}[rank]
    sizes = {"0": "3", "1": "4", "13": "14", "2": "5"}
    others = {"0": "6", "1": "7", "13": "15", "2": "8"}
    first: list[Dim] = []
    stop: list[Dim] = []
    for axis, key in enumerate(keys):
        start, size = n.attr_int(key, 0), n.attr_int(sizes[key], 0)
        end: Dim = extents.difference(x.type.shape[axis], n.attr_int(others[key], 0))
        if len(n.slots) > 1:
            end = extents.total((start, n.input(1).type.shape[axis]))
        elif size > 0:
            end = extents.smaller(end, start + size)
        first.append(start)
        stop.append(end)
    every = tuple(range(rank))
    return n.add(slicing.Slice(tuple(first), tuple(stop), every, (1,) * rank), x)


@ncnn_layer("Padding")
def padding(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank
    top, bottom, left, right = (n.attr_int(str(i), 0) for i in range(4))
    front, behind, kind = n.attr_int("7", 0), n.attr_int("8", 0), n.attr_int("4", 0)
    if n.attr_int("6", 0) or kind not in (0, 1, 2):
        n.unsupported("a padding for each channel" if kind == 0 else f"a padding of type {kind}")
    outer = rank - 3
    before = {1: (left,), 2: (top, left)}.get(rank, (front, *[0] * outer, top, left))
    after = {1: (right,), 2: (bottom, right)}.get(rank, (behind, *[0] * outer, bottom, right))
    mode = ("constant", "edge", "reflect")[kind]
    return n.add(slicing.Pad((*before, *after), mode, n.attr_float("5", 0)), x)


@ncnn_layer("ExpandDims")
def expand_dims(n: LayerNode) -> Result:
    x, axes = n.input(), n.attr_ints("3", ())
    rank = x.type.rank + len(axes)
    return n.add(sh.Unsqueeze(tuple(sorted(n.axis(a, rank) for a in axes))), x)


@ncnn_layer("Squeeze")
def squeeze(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank
    axes = {n.axis(a, rank) for a in n.attr_ints("3", ())}
    if not axes:
        named = {"0": rank - 1, "1": rank - 2, "11": 1 if rank == 4 else -1, "2": 0}
        axes = {a for key, a in named.items() if n.attr_int(key, 0) and 0 <= a < rank}
        axes = {a for a in axes if same_dim(x.type.shape[a], 1)}
    return n.add(sh.Squeeze(tuple(sorted(axes))), x)


@ncnn_layer("Tile")
def tile(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank
    repeats = n.attr_ints("2", ())
    if not repeats:
        axis = n.axis(n.attr_int("0", 0), rank)
        repeats = tuple(n.attr_int("1", 1, 1) if a == axis else 1 for a in range(rank))
    if len(repeats) > rank:
        x = n.reshape(x, (*[1] * (len(repeats) - rank), *x.type.shape))
    repeats = (*[1] * (x.type.rank - len(repeats)), *repeats)
    return n.add(slicing.Tile(repeats), x)


@ncnn_layer("Reduction")
def reduction(n: LayerNode) -> Result:
    x, operation, rank = n.input(), n.attr_int("0", 0), n.input().type.rank
    everything, keep = bool(n.attr_int("1", 1)), bool(n.attr_int("4", 0))
    axes = tuple(range(rank))
    if not everything:
        if not n.attr_int("5", 0):
            n.unsupported("axes as old files count them (5=0)")
        axes = tuple(sorted({n.axis(a, rank) for a in n.attr_ints("3", axes)}))
    y: Value
    if operation in (3, 4, 5, 6):
        y = {3: x.mean, 4: x.max, 5: x.min, 6: x.prod}[operation](axes, keep)
    elif operation in (0, 9):
        y = x.sum(axes, keep)
        y = fn.log(y) if operation == 9 else y
    elif operation in (1, 7):
        y = abs(x).sum(axes, keep)
    elif operation in (2, 8):
        y = (x * x).sum(axes, keep)
        y = fn.sqrt(y) if operation == 8 else y
    elif operation == 10:
        y = fn.log(fn.exp(x).sum(axes, keep))
    else:
        n.unsupported(f"operation {operation}")
    y = n.reshape(y, (1,)) if y.type.rank == 0 else y
    coeff = n.attr_float("2", 1)
    return y if coeff == 1 else y * coeff


@ncnn_layer("ArgMax")
def arg_max(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("1", 1, 1)
    flat = n.reshape(x, (extents.product(x.type.shape),))
    best, places = n.add(sort.TopK(count, 0), flat)
    if not n.attr_int("0", 0):
        return places.cast(f32)
    rows = (n.reshape(v, (1, count)) for v in (best, places.cast(f32)))
    return n.add(slicing.Concat(0), *rows)


@ncnn_layer("CumulativeSum")
def cumulative_sum(n: LayerNode) -> Result:
    return n.add(scan.CumSum(n.axis(n.attr_int("0", 0), n.input().type.rank)), n.input())


@ncnn_layer("Flip")
def flip(n: LayerNode) -> Result:
    x = n.input()
    for axis in n.attr_ints("0", ()):
        a = n.axis(axis, x.type.rank)
        x = n.add(slicing.Slice((-1,), (-(1 << 31),), (a,), (-1,)), x)
    return x


@ncnn_layer("GLU")
def glu(n: LayerNode) -> Result:
    x = n.input()
    axis = n.axis(n.attr_int("0", 0), x.type.rank)
    half = n.builder.divided("GLU", x.type.shape[axis], 2, "the axis", n.loc)
    value, gate = n.add(slicing.Split(axis, (half, half)), x)
    return value / (fn.exp(-gate) + 1)


@ncnn_layer("MemoryData")
def memory_data(n: LayerNode) -> Result:
    sizes = (n.attr_int(key, 0) for key in ("2", "11", "1", "0"))
    dims = tuple(s for s in sizes if s)
    return take(n, "data", *dims, flagged=n.attr_int("21", 1) == 0)


@ncnn_layer("ShuffleChannel")
def shuffle_channel(n: LayerNode) -> Result:
    x, groups = n.input(), n.attr_int("0", 1, 1)
    each = n.builder.divided("ShuffleChannel", x.type.shape[0], groups, "the channels", n.loc)
    outer, inner = (each, groups) if n.attr_int("1", 0) else (groups, each)
    y = x.reshape(outer, inner, *x.type.shape[1:])
    return y.transpose(1, 0, *range(2, y.type.rank)).reshape(*x.type.shape)


@ncnn_layer("PixelShuffle")
def pixel_shuffle(n: LayerNode) -> Result:
    x = n.input()
    op = sh.DepthToSpace(n.attr_int("0", 1, 1), "DCR" if n.attr_int("1", 0) else "CRD")
    y = n.add(op, n.reshape(x, (1, *x.type.shape)))
    return n.reshape(y, y.type.shape[1:])


@ncnn_layer("Reorg")
def reorg(n: LayerNode) -> Result:
    x, stride = n.input(), n.attr_int("0", 1, 1)
    y = n.add(sh.SpaceToDepth(stride), n.reshape(x, (1, *x.type.shape)))
    y = n.reshape(y, y.type.shape[1:])
    if n.attr_int("1", 0):
        return y
    # in ncnn the channel is the outer index, and the position in a block is the inner index
    split = y.reshape(stride * stride, x.type.shape[0], *y.type.shape[1:])
    return split.transpose(1, 0, 2, 3).reshape(*y.type.shape)


@ncnn_layer("Interp")
def interp(n: LayerNode) -> Result:
    x, kind = n.input(0), n.attr_int("0", 0)
    modes = {1: "nearest", 2: "linear", 3: "cubic"}
    if kind not in modes or n.has("9") or x.type.rank == 2:
        n.unsupported(f"resizing of type {kind}, of rows, or to a size that is an expression")
    if x.type.rank == 1:
        x = n.reshape(x, (*x.type.shape, 1, 1))
    factors = n.attr_float("1", 1), n.attr_float("2", 1)
    sizes: list[Dim] = [n.attr_int("3", 0), n.attr_int("4", 0)]
    scales: tuple[float, ...] = ()
    if n.attr_int("5", 0) and len(n.slots) > 1:
        sizes = list(n.input(1).type.shape[-2:])
    elif 0 in sizes:
        parts = zip(x.type.shape[1:], factors, strict=True)
        sizes = [scaled(d, f, np.float32, "Interp") for d, f in parts]
        scales = (1.0, *factors)
    aligned = n.attr_int("6", 0)
    where = "align_corners" if aligned and kind > 1 else "asymmetric" if kind == 1 else "half_pixel"
    op = resize.Resize((x.type.shape[0], *sizes), scales, modes[kind], where, "floor")
    return n.add(op, x)
