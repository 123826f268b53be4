"""Rules of `algebra` for operators that only move elements, and for readers of their results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.rewriter import Result, Rewriter, Rule
from tilesmith.ir.expr import Load
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.ops.base import OPS, Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Elementwise
from tilesmith.ops.gather import Gather
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.rules import broadcast_shapes
from tilesmith.ops.scatter import ScatterNd
from tilesmith.ops.shape import Expand, Reshape, Transpose
from tilesmith.ops.slicing import Concat, Pad, Slice
from tilesmith.ops.structure import reads_own_point
from tilesmith.te.tensor import Compute, Placeholder, Tensor


def index_identity(r: Rewriter, n: Node) -> Result:
    """Remove a node whose result equals its only input, element for element, such as a slice of
    the whole input.
    """
    if len(n.inputs) != 1 or len(n.outputs) != 1 or n.inputs[0].type != n.outputs[0].type:
        return None
    if not n.op.is_primitive():
        return None
    op = n.op.tensors(n.inputs[0].type).outputs[0].op
    if not isinstance(op, Compute) or not isinstance(op.body[0], Load):
        return None
    load = op.body[0]
    is_input = isinstance(load.buffer, Tensor) and isinstance(load.buffer.op, Placeholder)
    if is_input and len(load.indices) == len(op.axis) and reads_own_point(op, load):
        return n.inputs[0]
    return None


# Reshape and transpose


def _reshape(r: Rewriter, n: Node) -> Result:
    """reshape(reshape(x)) -> reshape(x); an extent of -1 is replaced by its value."""
    assert isinstance(n.op, Reshape)
    shape = n.outputs[0].shape
    inner = r.producer(n.inputs[0], Reshape)
    if inner is not None:
        return r.add(Reshape(shape), inner.inputs[0])
    return r.add(Reshape(shape), n.inputs[0]) if not same_shape(n.op.shape, shape) else None


def _reshape_of_transpose(r: Rewriter, n: Node) -> Result:
    """reshape(transpose(x)) -> transpose(reshape(x)) if the reshape only adds or removes axes of
    extent 1.

    The transpose is then adjacent to slices, products or other transposes, and their rules apply.
    """
    source, target = n.inputs[0], n.outputs[0].type
    inner = r.producer(source, Transpose)
    if inner is None or not target.is_static or not r.is_single_use(source):
        return None
    wide = [d for d in target.shape if not _is_one(d)]
    if not same_shape(wide, [d for d in source.shape if not _is_one(d)]):
        return None
    x = inner.inputs[0]
    kept = [a for a in range(x.type.rank) if not _is_one(x.shape[a])]
    ones = target.rank - len(kept)
    moved = iter([ones + kept.index(p) for p in _perm(inner.op) if p in kept])
    unit = iter(range(ones))
    perm = tuple(next(unit) if _is_one(d) else next(moved) for d in target.shape)
    squeezed = r.add(Reshape((*[1] * ones, *(x.shape[a] for a in kept))), x)
    return r.add(Transpose(perm), squeezed)


def _perm(op: Op) -> tuple[int, ...]:
    assert isinstance(op, Transpose)
    return tuple(p % len(op.perm) for p in op.perm)


def _transpose(r: Rewriter, n: Node) -> Result:
    """transpose(transpose(x)) -> transpose(x); transpose(x) -> reshape(x) if only axes of extent 1
    move.
    """
    x, perm = n.inputs[0], _perm(n.op)
    inner = r.producer(x, Transpose)
    if inner is not None:
        first = _perm(inner.op)
        return r.add(Transpose(tuple(first[p] for p in perm)), inner.inputs[0])
    wide = [p for p in perm if not _is_one(x.shape[p])]
    if wide == sorted(wide) and list(perm) != sorted(perm):
        return r.add(Reshape(n.outputs[0].shape), x)
    return None


def _is_one(d: Dim) -> bool:
    return isinstance(d, int) and d == 1


def _matmul_of_transpose(r: Rewriter, n: Node) -> Result:
    """matmul(a, transpose(b)) -> matmul(a, b, transpose_b), for either operand.

    If the transpose also moves other axes, a transpose remains.  It keeps the innermost axis in
    place, so it is a cheap copy.
    """
    assert isinstance(n.op, MatMul)
    for i, v in enumerate(n.inputs):
        t = r.producer(v, Transpose)
        if t is None or v.type.rank < 2:
            continue
        perm, last = _perm(t.op), v.type.rank - 1
        if perm[-2] != last:
            continue
        rest = (*perm[:-2], perm[-1], perm[-2])
        is_plain = rest == tuple(range(last + 1))
        if not is_plain and not r.is_single_use(v):
            continue  # both the transposed value and the new one would be computed
        source = t.inputs[0] if is_plain else r.add(Transpose(rest), t.inputs[0])
        flip_a, flip_b = n.op.transpose_a ^ (i == 0), n.op.transpose_b ^ (i == 1)
        operands = [source if j == i else u for j, u in enumerate(n.inputs)]
        op = replace(n.op, transpose_a=flip_a, transpose_b=flip_b)
        return r.add(op, *operands)
    return None


# Expand


def _expand(r: Rewriter, n: Node) -> Result:
    """expand(expand(x)) -> expand(x)."""
    inner = r.producer(n.inputs[0], Expand)
    return r.add(Expand(n.outputs[0].shape), inner.inputs[0]) if inner else None


def _elementwise_of_expand(r: Rewriter, n: Node) -> Result:
    """f(expand(a), b) -> f(a, b) where f broadcasts to the same shape by itself."""
    inputs = list(n.inputs)
    for i, v in enumerate(inputs):
        inner = r.producer(v, Expand)
        if inner is None or len(inputs) == 1:
            continue
        shapes = [u.shape for j, u in enumerate(inputs) if j != i]
        broadcast = broadcast_shapes(n.op.name, inner.inputs[0].shape, *shapes)
        if same_shape(broadcast, n.outputs[0].shape):
            inputs[i] = inner.inputs[0]
    return r.add(n.op, *inputs) if tuple(inputs) != n.inputs else None


# Padding, concatenation, lookup


def _conv_of_pad(r: Rewriter, n: Node) -> Result:
    """conv(pad(x)) -> conv(x) with larger pads, if the pad adds zeros around the spatial axes
    only.
    """
    assert isinstance(n.op, Conv)
    inner = r.producer(n.inputs[0], Pad)
    if inner is None:
        return None
    assert isinstance(inner.op, Pad)
    rank = n.inputs[0].type.rank
    added = tuple(p for p in inner.op.pads if isinstance(p, int))
    begins, ends = added[:rank], added[rank:]
    is_zero = inner.op.mode == "constant" and inner.op.value == 0
    if not is_zero or len(added) < 2 * rank:
        return None
    if any((*begins[:2], *ends[:2])) or min(added) < 0:
        return None
    own = n.op.pads or (0,) * (2 * (rank - 2))
    if min(own) < 0:
        return None  # a negative pad of the convolution removes elements that the pad added
    pads = tuple(a + b for a, b in zip(own, (*begins[2:], *ends[2:]), strict=True))
    op = replace(n.op, pads=pads)
    return r.add(op, inner.inputs[0], n.inputs[1])


def _taps_in_padding(r: Rewriter, n: Node) -> Result:
    """Remove the outermost taps of a convolution's kernel if they read only padding in all windows.

    Such taps occur with large dilations on small images.  Weights are assumed to be finite.
    """
    assert isinstance(n.op, Conv)
    x, w = n.inputs
    rank = x.type.rank
    pads = n.op.pads or (0,) * (2 * (rank - 2))
    if not (x.type.is_static and w.type.is_static and n.outputs[0].type.is_static and any(pads)):
        return None
    strides, dilations = n.op.strides or (1,) * (rank - 2), n.op.dilations or (1,) * (rank - 2)
    first, last = [], []
    for a in range(rank - 2):
        size, taps, results = (v.type.static_shape[2 + a] for v in (x, w, n.outputs[0]))
        before, after = pads[a], pads[rank - 2 + a]
        # The position in the image that each tap reads in the first window.
        reach = [t * dilations[a] - before for t in range(taps)]
        end = (results - 1) * strides[a]
        used = [t for t, offset in enumerate(reach) if offset < size and offset + end >= 0]
        begin, stop = (used[0], used[-1] + 1) if used else (0, 1)
        # The pads shrink by the removed taps, but must not become negative.
        first.append(min(begin, max(before, 0) // dilations[a]))
        last.append(max(stop, taps - max(after, 0) // dilations[a]))
    kept = [b - a for a, b in zip(first, last, strict=True)]
    if kept == list(w.type.static_shape[2:]):
        return None
    axes = tuple(range(2, rank))
    part = r.add(Slice(tuple(first), tuple(last), axes, (1,) * len(axes)), w)
    cut = [t - b for t, b in zip(w.type.static_shape[2:], last, strict=True)]
    less = (f * d for f, d in zip((*first, *cut), (*dilations, *dilations), strict=True))
    own = tuple(p - c for p, c in zip(pads, less, strict=True))
    op = replace(n.op, strides=strides, pads=own, dilations=dilations)
    return r.add(op, x, part)


def _concat(r: Rewriter, n: Node) -> Result:
    """Remove empty inputs of a concat, and a concat of one input."""
    assert isinstance(n.op, Concat)
    axis = n.op.axis % n.outputs[0].type.rank
    kept = [v for v in n.inputs if not same_dim(v.shape[axis], 0)]
    if len(kept) == 1:
        return kept[0]
    return r.add(n.op, *kept) if kept and len(kept) < len(n.inputs) else None


def _gather_one(r: Rewriter, n: Node) -> Result:
    """gather at one known index, or at a repeated one -> expand(reshape(slice)): no indices are
    loaded.
    """
    assert isinstance(n.op, Gather)
    x, indices = n.inputs
    index = r.splat(indices)
    axis = n.op.axis % x.type.rank
    extent = x.shape[axis]
    if index is None or not isinstance(extent, int) or not -extent <= index < extent:
        return None
    index %= extent
    cut = r.add(Slice((index,), (index + 1,), (axis,), (1,)), x)
    ones = (1,) * indices.type.rank
    shaped = r.add(Reshape((*x.shape[:axis], *ones, *x.shape[axis + 1 :])), cut)
    return r.add(Expand(n.outputs[0].shape), shaped)


def _scatter_of_rows(r: Rewriter, n: Node) -> Result:
    """scatter_nd to consecutive rows a..b -> concat(rows before a, updates, rows after b)."""
    assert isinstance(n.op, ScatterNd)
    data, indices, updates = n.inputs
    indices_of_rows = r.array(indices)
    if (
        n.op.reduction != "none"
        or indices_of_rows is None
        or indices_of_rows.shape[-1] != 1
        or indices_of_rows.size == 0
    ):
        return None
    count, extent = indices_of_rows.size, data.type.static_shape[0]
    rows = np.where(indices_of_rows < 0, indices_of_rows + extent, indices_of_rows).reshape(-1)
    first = int(rows[0])
    if first < 0 or first + count > extent or (rows != np.arange(first, first + count)).any():
        return None
    shaped = r.add(Reshape((count, *data.shape[1:])), updates)
    before = r.add(Slice((0,), (first,), (0,), (1,)), data)
    after = r.add(Slice((first + count,), (extent,), (0,), (1,)), data)
    return r.add(Concat(0), before, shaped, after)


def _slice_of_transpose(r: Rewriter, n: Node) -> Result:
    """slice(transpose(x)) -> transpose(slice(x)): fewer elements move, often along extents of 1
    only.
    """
    assert isinstance(n.op, Slice)
    inner = r.producer(n.inputs[0], Transpose)
    if inner is None:
        return None
    perm = _perm(inner.op)
    axes = tuple(perm[a] for a in n.op.axes)  # negative axes count from the end of perm as well
    cut = r.add(Slice(n.op.starts, n.op.ends, axes, n.op.steps), inner.inputs[0])
    return r.add(Transpose(perm), cut)


def _elementwise_of_moved(r: Rewriter, n: Node) -> Result:
    """f(transpose(x), number) -> transpose(f(x, number)), and the same for reshape.

    Then f is adjacent to the producer of x, and the transpose to the reader of the result.
    """
    moved = [v for v in n.inputs if not r.is_constant(v)]
    if len(moved) != 1 or not same_shape(moved[0].shape, n.outputs[0].shape):
        return None
    source, moves = moved[0], []
    while r.is_single_use(source) and (above := r.producer(source, Transpose, Reshape)):
        source = above.inputs[0]
        moves.append(above.op)
    if not moves:
        return None
    inputs = []
    for v in n.inputs:
        array = None if v is moved[0] else r.array(v)
        if array is not None and array.size != 1:
            return None
        inputs.append(source if array is None else r.constant(array.reshape(())))
    result = r.add(n.op, *inputs)
    for op in reversed(moves):
        result = r.add(op, result)
    return result


SHAPE_RULES: dict[type[Op], tuple[Rule, ...]] = {
    Reshape: (_reshape, _reshape_of_transpose),
    Transpose: (_transpose,),
    MatMul: (_matmul_of_transpose,),
    Expand: (_expand,),
    Conv: (_conv_of_pad, _taps_in_padding),
    Concat: (_concat,),
    Gather: (_gather_one,),
    ScatterNd: (_scatter_of_rows,),
    Slice: (_slice_of_transpose,),
    **{
        op: (_elementwise_of_expand, _elementwise_of_moved)
        for op in OPS.values()
        if issubclass(op, Elementwise)
    },
}
