"""Gradients of operators that move elements."""

from __future__ import annotations

from typing import Any

from tilesmith.ir import extents
from tilesmith.ir.types import same_dim
from tilesmith.ops.gather import Trilu
from tilesmith.ops.runtime_shape import Reinterpret
from tilesmith.ops.shape import Expand, Reshape, Transpose
from tilesmith.ops.slicing import Append, Concat, Flip, Pad, Slice, Split, Tile

from .call import Call, gradient, summed_to, zeros


@gradient(Reshape)
def reshape(call: Call) -> tuple[Any, ...]:
    return (call.cotangent.reshape(*call.inputs[0].type.shape),)


@gradient(Reinterpret)
def reinterpret(call: Call) -> tuple[Any, ...]:
    return (call.builder.add(Reinterpret(call.inputs[0].type.shape), call.cotangent),)


@gradient(Transpose)
def transpose(call: Call) -> tuple[Any, ...]:
    rank = call.inputs[0].type.rank
    perm = [p % rank for p in call.op.perm]
    return (call.cotangent.transpose(*(perm.index(a) for a in range(rank))),)


@gradient(Expand)
def expand(call: Call) -> tuple[Any, ...]:
    return (summed_to(call.cotangent, call.inputs[0].type.shape),)


@gradient(Flip, Trilu)
def again(call: Call) -> tuple[Any, ...]:
    """The operator is its own transpose."""
    return (call.builder.add(call.op, call.cotangent),)


@gradient(Concat, Append)
def concat(call: Call) -> tuple[Any, ...]:
    g, start, parts = call.cotangent, 0, []
    axis = call.op.axis % g.type.rank
    for v, is_wanted in zip(call.inputs, call.wanted, strict=True):
        end = extents.total((start, v.type.shape[axis]))
        cut = Slice((start,), (end,), (axis,), (1,))
        parts.append(call.builder.add(cut, g) if is_wanted else None)
        start = end
    return tuple(parts)


@gradient(Split)
def split(call: Call) -> tuple[Any, ...]:
    parts = [
        zeros(call.builder, y.type) if g is None else g
        for y, g in zip(call.outputs, call.cotangents, strict=True)
    ]
    return (call.builder.add(Concat(call.op.axis), *parts),)


@gradient(Pad)
def pad(call: Call) -> tuple[Any, ...]:
    """The gradient of constant padding is a crop.  Gradients of other modes are derived."""
    op, x, rank = call.op, call.inputs[0].type, call.inputs[0].type.rank
    if op.mode != "constant" or not all(extents.is_at_most(0, p) for p in op.pads):
        return (call.derived(0),)
    axes = [a for a in range(rank) if any(not same_dim(p, 0) for p in op.pads[a::rank])]
    starts = tuple(op.pads[a] for a in axes)
    ends = tuple(extents.total((op.pads[a], x.shape[a])) for a in axes)
    cut = Slice(starts, ends, tuple(axes), (1,) * len(axes))
    return (call.builder.add(cut, call.cotangent) if axes else call.cotangent,)


@gradient(Slice)
def slice(call: Call) -> tuple[Any, ...]:
    """The gradient of a slice is the cotangent padded with zeros.  With steps, the gradient is
    derived.
    """
    op, x = call.op, call.inputs[0].type
    if any(s != 1 for s in op.steps) or not all(isinstance(d, int) for d in x.shape):
        return (call.derived(0),)
    if not all(isinstance(d, int) for d in (*op.starts, *op.ends)):
        return (call.derived(0),)
    before, after = [0] * x.rank, [0] * x.rank
    shape = call.outputs[0].type.shape
    for start, axis in zip(op.starts, op.axes, strict=True):
        a = axis % x.rank
        n = x.shape[a]
        before[a] = min(max(start + n if start < 0 else start, 0), n)
        after[a] = n - before[a] - shape[a]
    if any(n < 0 for n in after):  # an empty slice that starts past its end
        return (call.derived(0),)
    return (call.builder.add(Pad((*before, *after)), call.cotangent),)


@gradient(Tile)
def tile(call: Call) -> tuple[Any, ...]:
    """The gradient is the sum over the copies."""
    x, g = call.inputs[0].type, call.cotangent
    pairs = list(zip(call.op.repeats, x.shape, strict=True))
    apart = g.reshape(*(d for pair in pairs for d in pair))
    axes = tuple(2 * a for a, (r, _) in enumerate(pairs) if not same_dim(r, 1))
    total = apart.sum(axes, keepdims=True) if axes else apart
    return (total.reshape(*x.shape),)
