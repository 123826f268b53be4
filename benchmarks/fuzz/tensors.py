"""Recipes of operators that move elements, gather, scatter and sort them."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, helper

from .builder import BOOL, F32, FLOATS, I64, INTS, Builder, Rejected, recipe

ANY = (*FLOATS, *INTS, BOOL)


@recipe("Reshape")
def reshape(b: Builder, op: str) -> None:
    x = b.pick(ANY)
    array = b.of(x)
    left, target = array.size, []
    while left > 1 and len(target) < 4:
        part = b.choose([d for d in range(1, left + 1) if left % d == 0][:12])
        target.append(part)
        left //= part
    target += [left] if left != 1 or not target else []
    if target and b.chance(0.4) and array.size:
        target[b.number(0, len(target) - 1)] = -1
    for i in range(min(len(target), array.ndim)):
        if target[i] == array.shape[i] and b.chance(0.3):
            target[i] = 0
    b.add(op, [x, b.ints(*target)])


@recipe("Flatten")
def flatten(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 5))
    b.add(op, [x], axis=b.number(0 if b.opset < 11 else -b.of(x).ndim, b.of(x).ndim))


@recipe("Transpose")
def transpose(b: Builder, op: str) -> None:
    x = b.pick(ANY)
    perm = [int(p) for p in b.random.permutation(b.of(x).ndim)]
    b.add(op, [x], **({"perm": perm} if b.chance(0.8) and perm else {}))


@recipe("Squeeze")
def squeeze(b: Builder, op: str) -> None:
    x = b.pick(ANY, fits=lambda a: 1 in a.shape)
    dims = b.of(x).shape
    ones = [i - len(dims) * (b.opset >= 11 and b.chance(0.3)) for i, d in enumerate(dims) if d == 1]
    b.listed(op, [x], 13, "axes", ones[b.number(0, len(ones) - 1) :] if b.chance(0.7) else None)


@recipe("Unsqueeze")
def unsqueeze(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(0, 4))
    count = b.number(1, 2)
    rank = b.of(x).ndim + count
    axes = [int(a) - rank * (b.opset >= 11 and b.chance(0.3)) for a in b.random.permutation(rank)]
    b.listed(op, [x], 13, "axes", axes[:count])


@recipe("Expand")
def expand(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(0, 3))
    dims = [b.extent(5) if d == 1 else b.choose([1, d]) for d in b.of(x).shape]
    b.add(op, [x, b.ints(*([b.extent(4)] * b.number(0, 1)), *dims)])


@recipe("Concat")
def concat(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    first = b.of(x)
    axis = b.number(0, first.ndim - 1)
    parts = [x]
    for _ in range(b.number(0, 2)):
        dims = list(first.shape)
        dims[axis] = b.extent(5)
        parts.insert(b.number(0, len(parts)), x if b.chance(0.3) else b.fresh(dims, first.dtype))
    b.add(op, parts, axis=axis - first.ndim * (b.opset >= 11 and b.chance(0.3)))


@recipe("Split")
def split(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    rank, axis = b.of(x).ndim, b.number(0, b.of(x).ndim - 1)
    extent, count = b.of(x).shape[axis], b.number(1, 3)
    at = axis - rank * (b.opset >= 11 and b.chance(0.3))
    if b.opset >= 18 and b.chance(0.4):
        b.add(op, [x], count, axis=at, num_outputs=count)
        return
    cuts = sorted(b.number(0, extent) for _ in range(count - 1))
    sizes = [int(n) for n in np.diff([0, *cuts, extent])]
    b.listed(op, [x], 13, "split", sizes, outputs=count, axis=at)


@recipe("Slice")
def slice_(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 5))
    axes = b.axes(b.of(x).ndim, 1)
    most = max(b.of(x).shape, default=1) + 2
    far = (1 << 63) - 1
    starts = [b.number(-most, most) for _ in axes]
    ends = [b.choose([b.number(-most, most), far, -far]) for _ in axes]
    if b.opset < 10:
        positive = [a % b.of(x).ndim for a in axes]
        b.add(op, [x], starts=starts, ends=ends, axes=positive)
        return
    steps = [b.choose([1, 1, 2, 3, -1, -2, far]) for _ in axes]
    b.add(op, [x, *(b.ints(*v) for v in (starts, ends, axes, steps))])


@recipe("Pad")
def pad(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 4))
    array = b.of(x)
    modes = ["constant", "reflect", "edge"] + ["wrap"] * (b.opset >= 19)
    mode = b.choose(modes)
    low = -1 if mode == "constant" else 0
    pads = [b.number(low, 3) if b.chance(0.6) else 0 for _ in range(2 * array.ndim)]
    if b.opset < 11:
        b.add(op, [x], pads=pads, mode=mode, value=float(b.number(-2, 2)))
        return
    more = [b.given(b.array((), array.dtype))] if mode == "constant" and b.chance(0.5) else []
    if b.opset >= 18 and b.chance(0.4):
        axes = b.axes(array.ndim, 1)
        chosen = [pads[a] for a in axes] + [pads[a % array.ndim + array.ndim] for a in axes]
        b.add(op, [x, b.ints(*chosen), *(more or [""]), b.ints(*axes)], mode=mode)
    else:
        b.add(op, [x, b.ints(*pads), *more], mode=mode)


@recipe("Tile")
def tile(b: Builder, op: str) -> None:
    x = b.pick(ANY)
    b.add(op, [x, b.ints(*(b.choose([0, 1, 1, 2, 3]) for _ in b.of(x).shape))])


@recipe("DepthToSpace", "SpaceToDepth")
def blocks(b: Builder, op: str) -> None:
    block, dims = b.number(1, 3), [b.extent(3) for _ in range(4)]
    for i in (1,) if op == "DepthToSpace" else (2, 3):
        dims[i] *= block * block if i == 1 else block
    modes = op == "DepthToSpace" and b.opset >= 11
    more = {"mode": b.choose(["DCR", "CRD"])} if modes else {}
    b.add(op, [b.fresh(dims)], blocksize=block, **more)


@recipe("Trilu")
def trilu(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(2, 4))
    k = [b.store(np.int64(b.number(-4, 4)))] if b.chance(0.7) else []
    b.add(op, [x, *k], upper=b.number(0, 1))


@recipe("CenterCropPad")
def center_crop_pad(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    axes = b.axes(b.of(x).ndim, 1)
    b.add(op, [x, b.ints(*(b.number(1, 7) for _ in axes))], axes=axes)


def _positions(b: Builder, shape: tuple[int, ...], extent: int, dtype: type = np.int64) -> str:
    """Indices into an axis, from either end."""
    if extent == 0:
        raise Rejected("nothing to choose from")
    low = -extent if b.opset >= 11 else 0
    return b.given(b.random.integers(low, extent, shape).astype(dtype))


@recipe("Gather")
def gather(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    axis = b.axis(b.of(x).ndim)
    kind = b.choose([np.int64, np.int32])
    b.add(op, [x, _positions(b, b.shape(0, 2), b.of(x).shape[axis], kind)], axis=axis)


@recipe("GatherElements", "ScatterElements")
def gather_elements(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    array = b.of(x)
    axis = b.axis(array.ndim)
    dims = [b.number(1, d) if d else 0 for d in array.shape]
    if op == "GatherElements":
        dims[axis] = b.extent(6)
        b.add(op, [x, _positions(b, tuple(dims), array.shape[axis])], axis=axis)
        return
    # Each place is written once: of several writes without a reduction one is undefined.
    order = np.argsort(b.random.random(array.shape), axis)
    chosen = order[tuple(slice(d) for d in dims)].astype(np.int64)
    modes = ["none"] + ["add", "mul"] * (b.opset >= 16) + ["max", "min"] * (b.opset >= 18)
    mode = b.choose(modes) if array.dtype != BOOL else "none"
    more = {} if mode == "none" else {"reduction": mode}
    b.add(op, [x, b.given(chosen), b.fresh(dims, array.dtype)], axis=axis, **more)


@recipe("GatherND", "ScatterND")
def gather_nd(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4), fits=lambda a: a.size > 0)
    array = b.of(x)
    depth = b.number(1, array.ndim)
    places = [b.random.permutation(d) for d in array.shape[:depth]]
    count = min(b.number(1, 4), *map(len, places))
    index = np.stack([p[:count] for p in places], -1).astype(np.int64)
    if op == "GatherND":
        b.add(op, [x, b.given(index)])
        return
    modes = ["none"] + ["add", "mul"] * (b.opset >= 16) + ["max", "min"] * (b.opset >= 18)
    mode = b.choose(modes) if array.dtype != BOOL else "none"
    updates = b.fresh((count, *array.shape[depth:]), array.dtype)
    b.add(op, [x, b.given(index), updates], **({} if mode == "none" else {"reduction": mode}))


@recipe("OneHot")
def one_hot(b: Builder, op: str) -> None:
    depth, dtype = b.number(1, 6), b.choose([F32, I64, np.dtype(np.int32), FLOATS[1]])
    index = b.random.integers(-depth - 1, depth + 2, b.shape(0, 3)).astype(
        b.choose([np.int64, np.int32])
    )
    values = b.given(b.random.integers(-3, 4, 2).astype(dtype))
    rank = index.ndim + 1
    b.add(op, [b.given(index), b.store(np.int64(depth)), values], axis=b.axis(rank))


@recipe("TopK")
def top_k(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 4), fits=lambda a: np.unique(a).size == a.size)
    array = b.of(x)
    axis = b.axis(array.ndim)
    k = b.number(0, array.shape[axis])
    if b.opset < 10:
        b.add(op, [x], 2, k=k, axis=axis)
        return
    more = {"largest": b.number(0, 1)} if b.opset >= 11 else {}
    b.add(op, [x, b.ints(k)], 2, axis=axis, **more)


@recipe("Compress")
def compress(b: Builder, op: str) -> None:
    x = b.pick(ANY, rank=(1, 4))
    dims = b.of(x).shape
    axis = {"axis": b.number(0, len(dims) - 1)} if b.chance(0.6) else {}
    extent = dims[axis["axis"]] if axis else prod(dims)
    b.add(op, [x, b.store(b.random.random(extent) < 0.6)], **axis)


@recipe("ReverseSequence")
def reverse_sequence(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(2, 4), fits=lambda a: a.shape[0] > 0 and a.shape[1] > 0)
    time = b.number(0, 1)
    dims = b.of(x).shape
    lengths = b.random.integers(1, dims[time] + 1, dims[1 - time]).astype(np.int64)
    b.add(op, [x, b.given(lengths)], time_axis=time, batch_axis=1 - time)


@recipe("Shape", "Size")
def shape_of(b: Builder, op: str) -> None:
    x = b.pick(ANY)
    more = (
        {"start": b.number(-3, 3), "end": b.number(-3, 5)}
        if op == "Shape" and b.opset >= 15
        else {}
    )
    b.add(op, [x], **(more if b.chance(0.6) else {}))


@recipe("ConstantOfShape")
def constant_of_shape(b: Builder, op: str) -> None:
    value = helper.make_tensor("value", b.choose([TensorProto.FLOAT, TensorProto.INT64]), [1], [2])
    b.add(op, [b.ints(*b.shape(0, 3))], **({"value": value} if b.chance(0.7) else {}))


@recipe("EyeLike")
def eye_like(b: Builder, op: str) -> None:
    x = b.pick((F32, I64), rank=(2, 2))
    b.add(op, [x], k=b.number(-3, 3))


@recipe("Range")
def range_(b: Builder, op: str) -> None:
    dtype = b.choose([np.int64, np.int32, np.float32])
    step = b.choose([1, 2, 3, -1, -2])
    parts = (b.number(-5, 5), b.number(-5, 9), step)
    b.add(op, [b.store(np.array(p, dtype)) for p in parts])
