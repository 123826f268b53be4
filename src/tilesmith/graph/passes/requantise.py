"""Simplifies arithmetic between products of quantised numbers: scales are multiplied together, zero
points fold away, and values in memory between kernels are integers.

    round((f32(a) * s + b) / t)              ->  round(f32(a) * (s / t) + b / t)
    i32(u8(clip(round(x) + z, 0, 255))) - z  ->  i32(i16(clip(round(x), -z, 255 - z)))

    i8(i32(u8(clip(round(x + b) + z, 0, 255))) - 128)
                                             ->  i8(clip(round(x + (b + z - 128)), -128, 127))

The first and the last rule change roundings of floats: a number exactly or nearly halfway between
two steps may round to the other step.  The second rule is exact, since all numbers are small
integers.  A number of 8 bits minus its zero point fits 16 bits.  All readers of a value share one
form: signed bytes if some product reads these (see `factors`), else 16 bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.factors import SHIFT
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import f32, i8, i16, i32, u8
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Cast, Clip, Div, Mul, Round, Sub
from tilesmith.ops.matmul import MatMul


def requantise(graph: Graph) -> Graph:
    """`graph` with simpler arithmetic between integer products; the same object if nothing
    changes.
    """
    graph = Rewriter(graph, {Round: (_without_division,)}).run()
    signed = _signed(graph)
    kept = _factors(graph)

    def cast(r: Rewriter, n: Node) -> Result:
        from_byte = _byte_cast(r, n, signed, kept)
        return _whole_cast(r, n) if from_byte is None and n.inputs[0] not in kept else from_byte

    def difference(r: Rewriter, n: Node) -> Result:
        wide = r.producer(n.inputs[0], Cast)
        is_kept = wide is not None and wide.inputs[0] in kept
        return None if is_kept else _whole_difference(r, n)

    return Rewriter(graph, {Sub: (_difference, difference), Cast: (cast,)}).run()


def _factors(graph: Graph) -> set[Value]:
    """The 8-bit values that are operands of products."""
    products = (n for n in graph.nodes if isinstance(n.op, (Conv, MatMul)))
    return {v for n in products for v in n.inputs if v.dtype.is_int and v.dtype.bits == 8}


def _signed(graph: Graph) -> frozenset[Value]:
    """Values of unsigned bytes from which some reader subtracts `SHIFT` to get signed bytes."""
    signed: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Cast) and node.op.to is i8:
            sub = graph.producer.get(node.inputs[0])
            if sub is None or not isinstance(sub.op, Sub):
                continue
            wide, shift = graph.producer.get(sub.inputs[0]), graph.constant.get(sub.inputs[1])
            if wide is None or not isinstance(wide.op, Cast) or shift is None:
                continue
            if wide.inputs[0].dtype is u8 and (shift.data.array == SHIFT).all():
                signed.add(wide.inputs[0])
    return frozenset(signed)


def _without_division(r: Rewriter, n: Node) -> Result:
    """Rewrites a rounded quotient: the reciprocal of the divisor is multiplied into scales of the
    dividend.
    """
    node = r.producer(n.inputs[0], Div)
    if node is None or not r.is_single_use(node.outputs[0]) or node.outputs[0].dtype is not f32:
        return None
    divisor = r.splat(node.inputs[1])
    if divisor is None or not 0 < divisor < np.inf:
        return None
    factor = 1 / float(divisor)
    if not _takes_factor(r, node.inputs[0], factor):
        return None
    return r.add(n.op, _times(r, node.inputs[0], factor))


_DEEPEST = 32
"""Upper bound on the length of a chain that is searched for constants to absorb a factor."""


def _takes_factor(r: Rewriter, v: Value, factor: float, depth: int = _DEEPEST) -> bool:
    """Whether constants in the computation of `v` can absorb a factor of `v`, within `depth`
    nodes.
    """
    array = r.array(v)
    if array is not None:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(_scaled(array, factor)).all())
    node = r.producer(v, Mul, Add, Relu, Clip)
    if node is None or depth == 0 or not r.is_single_use(v):
        return False
    if isinstance(node.op, Mul):
        constant = next((i for i in node.inputs if r.is_constant(i)), None)
        return constant is not None and _takes_factor(r, constant, factor)
    return all(_takes_factor(r, i, factor, depth - 1) for i in node.inputs)


def _times(r: Rewriter, v: Value, factor: float) -> Value:
    """`v` times `factor`, which must be positive and for which `_takes_factor` must hold."""
    array = r.array(v)
    if array is not None:
        return r.constant(_scaled(array, factor))
    node = r.producer(v)
    assert node is not None
    if isinstance(node.op, Mul):
        one = next(i for i in node.inputs if r.is_constant(i))
        other = node.inputs[0] if one is node.inputs[1] else node.inputs[1]
        return r.add(node.op, other, _times(r, one, factor))
    op = node.op
    if isinstance(op, Clip):
        op = replace(op, min=_limit(op.min, factor), max=_limit(op.max, factor))
    return r.add(op, *(_times(r, i, factor) for i in node.inputs))


def _scaled(array: Any, factor: float) -> np.ndarray:
    return np.asarray(np.asarray(array, np.float64) * factor, np.float32)


def _limit(limit: float | int | None, factor: float) -> float | None:
    return None if limit is None else float(_scaled(limit, factor))


def _byte_cast(r: Rewriter, n: Node, signed: frozenset[Value], kept: set[Value]) -> Result:
    """Rewrites the cast of a quantised number to a cast of the signed byte that all readers share.
    This byte is added to `kept`.
    """
    assert isinstance(n.op, Cast)
    (v,), to = n.inputs, n.op.to
    inner = r.producer(v, Cast)
    if inner is not None and inner.inputs[0].dtype is to is i8 and v.dtype is i32:
        return inner.inputs[0]
    parts = _quantised(r, v) if v in signed and to in (i16, i32, f32) else None
    if parts is None:
        return None
    rounded, zero = parts[:2]
    last = r.producer(rounded)
    assert last is not None
    x = _plus(r, _unlimited(r, last.inputs[0], *parts[2:]), zero - SHIFT)
    byte = r.add(Cast(i8), r.add(Clip(float(i8.min), float(i8.max)), r.add(Round(), x)))
    kept.add(byte)
    shift = r.constant(np.asarray(SHIFT, np.int32))
    whole = r.add(Add(), r.add(Cast(i32), byte), shift)
    return whole if to is i32 else r.add(Cast(to), whole)


def _unlimited(r: Rewriter, v: Value, low: int, high: int) -> Value:
    """`v` without clips that are redundant, since `v` is later rounded and clipped to `low` and
    `high`.
    """
    while (node := r.producer(v, Relu, Clip)) is not None:
        below, above = (node.op.min, node.op.max) if isinstance(node.op, Clip) else (0, None)
        is_free = below is None or round(below) <= low
        if not is_free or not (above is None or round(above) >= high):
            break
        v = node.inputs[0]
    return v


def _plus(r: Rewriter, v: Value, number: int) -> Value:
    """`v` plus a number.  If `v` is a sum with a constant, the number is added to this constant."""
    if number == 0:
        return v
    node = r.producer(v, Add)
    array = None if node is None or not r.is_single_use(v) else r.array(node.inputs[1])
    if node is None or array is None:
        return r.add(Add(), v, r.constant(np.asarray(number, np.float32)))
    return r.add(Add(), node.inputs[0], r.constant(array + np.float32(number)))


def _difference(r: Rewriter, n: Node) -> Result:
    """Rewrites an integer plus a constant minus another constant: the constants are combined."""
    add, less = r.producer(n.inputs[0], Add), r.splat(n.inputs[1])
    more = None if add is None else r.splat(add.inputs[1])
    if add is None or less is None or more is None or n.outputs[0].dtype is not i32:
        return None
    if more == less:
        return add.inputs[0]
    return r.add(Add(), add.inputs[0], r.constant(np.asarray(more - less, np.int32)))


def _whole_difference(r: Rewriter, n: Node) -> Result:
    """Rewrites a quantised number minus its zero point."""
    wide, zero = r.producer(n.inputs[0], Cast), r.splat(n.inputs[1])
    if wide is None or zero is None or n.outputs[0].dtype is not i32:
        return None
    parts = _quantised(r, wide.inputs[0])
    if parts is None or parts[1] != zero:
        return None
    return r.add(Cast(i32), _whole(r, parts[0], *parts[1:]))


def _whole_cast(r: Rewriter, n: Node) -> Result:
    """Rewrites the cast of a quantised number that has no zero point, or whose zero point was
    removed.
    """
    assert isinstance(n.op, Cast)
    (v,), to = n.inputs, n.op.to
    inner = r.producer(v, Cast)
    if inner is not None and v.dtype is i32 and inner.inputs[0].dtype is i16:
        return inner.inputs[0] if to is i16 else r.add(Cast(to), inner.inputs[0])
    parts = _quantised(r, v)
    if parts is None or parts[1] != 0 or to not in (i16, i32, f32):
        return None
    whole = _whole(r, parts[0], *parts[1:])
    return whole if to is i16 else r.add(Cast(to), whole)


def _quantised(r: Rewriter, v: Value) -> tuple[Value, int, int, int] | None:
    """The rounded value, z, and the limits of `round(x)`, if `v` is `round(x) + z` clipped to 8
    bits; else None.
    """
    if not v.dtype.is_int or v.dtype.bits != 8:
        return None
    cast = r.producer(v, Cast)
    clip = None if cast is None else r.producer(cast.inputs[0], Clip)
    if clip is None or not isinstance(clip.op, Clip):
        return None
    limits, zero = (clip.op.min, clip.op.max), 0
    if limits != (v.dtype.min, v.dtype.max) or clip.inputs[0].dtype is not f32:
        return None
    rounded = r.producer(clip.inputs[0], Round, Add)
    if rounded is not None and isinstance(rounded.op, Add):
        zero, rounded = r.splat(rounded.inputs[1]), r.producer(rounded.inputs[0], Round)
    if rounded is None or zero is None or zero != int(zero):
        return None
    low, high = int(v.dtype.min) - int(zero), int(v.dtype.max) - int(zero)
    fits = i16.min <= low and high <= i16.max
    return (rounded.outputs[0], int(zero), low, high) if fits else None


def _whole(r: Rewriter, rounded: Value, zero: int, low: int, high: int) -> Value:
    return r.add(Cast(i16), r.add(Clip(float(low), float(high)), rounded))
