"""Shape operators, such as reshape and slice, whose shape operand is computed by the model.

If only a run knows the operand, formulas bring it to a canonical form: extents without -1, starts
from the front, a flag for each axis.  Then a run measures the extents and looks up the elements.
Operands that are known when the model is compiled become attributes of an operator instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather
from tilesmith.ops.base import Op
from tilesmith.ops.functions import clamp, maximum, where
from tilesmith.ops.runtime_shape import Reinterpret, Stretch, Window

from .lists import joined, listed, picked
from .node import NodeContext

_FAR = 1 << 40
"""A number above every extent, but far from overflow."""


def taken(n: NodeContext, x: Value, axis: int, places: Value) -> Value:
    """The slices of x at `places` along `axis`.  The places are clamped to the axis, so the kernel
    need not check them.
    """
    if same_dim(x.type.shape[axis], 0):  # the axis is empty, so there is nothing to take
        dims = (*x.type.shape[:axis], *places.type.shape, *x.type.shape[axis + 1 :])
        return n.const(0, x.dtype).expand(*dims)
    last = n.of_dims((extents.difference(x.type.shape[axis], 1),))
    return n.add(gather.Gather(axis), x, clamp(places, 0, last))


def along(places: Value, axis: int, rank: int) -> Value:
    """A list reshaped to `rank` axes, all of extent 1 except `axis`."""
    return places.reshape(*[1] * axis, -1, *[1] * (rank - axis - 1))


def viewed(n: NodeContext, x: Value, dims: tuple[Dim, ...]) -> Value:
    """x in the shape `dims`.  A run with another number of elements is refused elsewhere."""
    if any(same_dim(d, 0) for d in x.type.shape):
        return n.const(0, x.dtype).expand(*dims)
    # The tensor is flattened first, since a flat tensor is copied by a single loop.
    flat = x if x.type.rank == 1 else x.reshape(extents.product(x.type.shape))
    return n.add(Reinterpret(dims), flat)


# Shapes


def reshaped(n: NodeContext, x: Value, wanted: Value, zero_is_zero: bool) -> Value:
    """x in the shape `wanted`: -1 stands for the rest, 0 copies an extent unless `zero_is_zero`."""
    known = n.elements(wanted, "shape")
    count, dims = len(known), x.type.shape
    sizes = listed(wanted)
    if not zero_is_zero:
        copied = n.of_dims((*dims[:count], *[0] * (count - len(dims))))
        sizes = where(sizes.equals(0), copied, sizes)
        known = [dims[i] if d is not None and same_dim(d, 0) and i < len(dims) else d
                 for i, d in enumerate(known)]  # fmt: skip
    known = [None if isinstance(d, int) and d < 0 else d for d in known]
    total = n.of_dims((extents.product(dims),))
    is_rest = sizes.equals(-1)
    others = where(is_rest, 1, sizes).prod((0,)).reshape(1)
    exact = where(is_rest, total / where(others.equals(0), 1, others), sizes)
    excess = exact.prod((0,)).reshape(1) - total
    return viewed(n, x, n.measured(exact, known, zero=excess))


def expanded(n: NodeContext, x: Value, wanted: Value) -> Value:
    """x broadcast together with the shape `wanted`."""
    known = n.elements(wanted, "shape")
    rank = max(len(known), x.type.rank)
    dims = (*[1] * (rank - x.type.rank), *x.type.shape)
    known = [*[1] * (rank - len(known)), *known]
    sizes = listed(wanted)
    if wanted.type.size < rank:
        sizes = joined(n.of_dims([1] * (rank - wanted.type.size)), sizes)
    own = n.of_dims(dims)
    exact = where(sizes.equals(1), own, sizes)
    fits = where(exact.equals(own), 0, where(own.equals(1), 0, exact * 0 + 1))
    result: list[Dim | None] = []
    for d, w in zip(dims, known, strict=True):
        if isinstance(d, int) and d != 1:
            result.append(d)  # extents other than 1 and d are refused
        elif w is None or isinstance(w, int):
            result.append(d if w == 1 else w)
        else:
            result.append(w if same_dim(d, 1) else None)
    shape = n.measured(exact, result, zero=fits)
    return n.add(Stretch(shape), x.reshape(*dims) if rank > x.type.rank else x)


# Axes


def flags(n: NodeContext, axes: Value, rank: int) -> Value:
    """Flags of `rank` axes: whether `axes` names the axis.  Negative axes count from the end."""
    named = _placed(listed(axes), rank)
    same = along(named, 1, 2).equals(along(n.of_dims(range(rank)), 0, 2))
    return same.cast(i64).max((1,)).cast(bool_)


def _placed(axes: Value, rank: int) -> Value:
    return where(axes < 0, axes + rank, axes)


def _misnamed(n: NodeContext, axes: Value, is_named: Value) -> Value:
    """0 if all axes are in range and distinct, else another number."""
    return is_named.cast(i64).sum((0,)).reshape(1) - axes.type.size


def _kept(n: NodeContext, dims: Sequence[Dim], is_named: Value, count: int) -> Value:
    """The extents of the `count` axes that no axis operand names, in order."""
    rest = 1 - is_named.cast(i64)
    order = running_sum(n, rest) - 1
    here = along(order, 1, 2).equals(along(n.of_dims(range(count)), 0, 2))
    counted = here.cast(i64) * along(rest * n.of_dims(dims), 1, 2)
    return counted.sum((1,))


def running_sum(n: NodeContext, numbers: Value) -> Value:
    """The running sum of a short list: each number plus those before it."""
    size = numbers.type.static_shape[0]
    order = n.of_dims(range(size))
    before = along(order, 1, 2) < along(order, 0, 2) + 1
    return (before.cast(i64) * along(numbers, 1, 2)).sum((1,))


def reduced(
    n: NodeContext, x: Value, axes: Value, make: Callable[..., Op], keepdims: bool
) -> Value:
    """A reduction over computed axes.

    Each axis of extent d is split into two axes: the first is kept, the second is reduced.  Their
    extents are 1 and d if the axis is among `axes`, else d and 1.
    """
    n.elements(axes, "axes")
    dims, rank = x.type.shape, x.type.rank
    named = flags(n, axes, rank)
    own = n.of_dims(dims)
    parts = joined(where(named, 1, own), where(named, own, 1))
    least = [extents.larger(d, 1) for d in dims]
    measured = n.measured(parts, bounds=[*least, *least],
                          zero=_misnamed(n, axes, named))  # fmt: skip
    kept, gone = measured[:rank], measured[rank:]
    pairs = [d for pair in zip(kept, gone, strict=True) for d in pair]
    y = viewed(n, x, tuple(pairs))
    y = n.add(make(tuple(range(1, 2 * rank, 2)), False), y)
    if keepdims:
        return y
    left = rank - axes.type.size
    remaining = _kept(n, dims, named, left)
    return viewed(n, y, n.measured(remaining, bounds=[_largest(dims)] * left))


def _largest(dims: Sequence[Dim]) -> Dim:
    largest: Dim = 0
    for d in dims:
        largest = extents.larger(largest, d)
    return largest


def squeezed(n: NodeContext, x: Value, axes: Value) -> Value:
    n.elements(axes, "axes")
    dims, rank = x.type.shape, x.type.rank
    named = flags(n, axes, rank)
    count = rank - axes.type.size
    more = where(named, n.of_dims(dims) - 1, 0)
    wrong = joined(_misnamed(n, axes, named), more)
    measured = n.measured(_kept(n, dims, named, count), bounds=[_largest(dims)] * count,
                       zero=wrong)  # fmt: skip
    return viewed(n, x, measured)


def unsqueezed(n: NodeContext, x: Value, axes: Value) -> Value:
    n.elements(axes, "axes")
    dims = x.type.shape
    rank = x.type.rank + axes.type.size
    named = flags(n, axes, rank)
    if dims:
        order = running_sum(n, 1 - named.cast(i64)) - 1
        own = n.add(gather.Gather(0), n.of_dims(dims), clamp(order, 0, len(dims) - 1))
        result = where(named, 1, own)
    else:
        result = n.of_dims([1] * rank)
    bounds = [extents.larger(_largest(dims), 1)] * rank
    wrong = _misnamed(n, axes, named)
    return viewed(n, x, n.measured(result, bounds=bounds, zero=wrong))


def split_at(n: NodeContext, x: Value, axis: Value) -> tuple[Value, tuple[Dim, ...]]:
    """x reshaped to three axes: those before a computed axis, that axis, and those after it.  Also
    the three extents.
    """
    dims, rank = x.type.shape, x.type.rank
    number = _placed(listed(axis), rank)
    own, order = n.of_dims(dims), n.of_dims(range(rank))
    parts = [
        where(chosen, own, 1).prod((0,)).reshape(1)
        for chosen in (order < number, order.equals(number), number < order)
    ]
    named = order.equals(number).cast(i64).sum((0,)).reshape(1)
    size = extents.product([extents.larger(d, 1) for d in dims])
    measured = n.measured(joined(*parts), bounds=[size, _largest(dims), size],
                       zero=named - 1)  # fmt: skip
    return viewed(n, x, measured), measured


def running(n: NodeContext, x: Value, axis: Value, make: Callable[[int], Op]) -> Value:
    """A scan along a computed axis."""
    lines, _ = split_at(n, x, axis)
    return viewed(n, n.add(make(1), lines), x.type.shape)


# Slices and pads


def _on_axes(
    n: NodeContext, given: Value, axes: Value | Sequence[int], rank: int, default: int
) -> Value:
    """A number for each of `rank` axes: for an axis in `axes` the number at the same position in
    `given`, else `default`.
    """
    if not isinstance(axes, Value):
        if tuple(axes) == tuple(range(rank)):
            return given
        positions = {a: i for i, a in enumerate(axes)}
        several = joined(given, n.of_dims([default]))
        return picked(several, [positions.get(a, len(positions)) for a in range(rank)])
    named = _placed(listed(axes), rank)
    here = along(named, 1, 2).equals(along(n.of_dims(range(rank)), 0, 2)).cast(i64)
    value = (here * along(given - default, 1, 2)).sum((1,))
    return value + default


def sliced(
    n: NodeContext,
    x: Value,
    starts: Value,
    ends: Value,
    axes: Value | Sequence[int],
    steps: Value | None,
) -> Value:
    """x[start:end:step] along axes, by Python's rules."""
    dims, rank = x.type.shape, x.type.rank
    start, end = (clamp(listed(v), -_FAR, _FAR) for v in (starts, ends))
    step = clamp(listed(steps), -_FAR, _FAR) if steps is not None else start * 0 + 1
    start, end, step = (
        _on_axes(n, v, axes, rank, default) for v, default in ((start, 0), (end, _FAR), (step, 1))
    )
    own = n.of_dims(dims)
    backward = step < 0
    lowest, highest = where(backward, own * 0 - 1, 0), where(backward, own - 1, own)
    first, last = (clamp(where(v < 0, v + own, v), lowest, highest) for v in (start, end))
    up = where(backward, step + 1, step - 1)
    count = maximum((last - first + up) / step, 0)
    is_cut = [isinstance(axes, Value) or a in axes for a in range(rank)]
    known = [None if cut else d for d, cut in zip(dims, is_cut, strict=True)]
    sizes = n.measured(count, known, dims, step.equals(0).cast(i64))
    exact = _known_steps(n, steps, axes, rank)
    if exact is not None and not any(same_dim(d, 0) for d in dims):
        return n.add(Window(_offsets(n, maximum(first, 0), is_cut, dims), sizes, exact), x)
    for a in range(rank):
        if is_cut[a]:
            x = taken(n, x, a, picked(first, a) + picked(step, a) * n.positions(sizes[a]))
    return x


def _known_steps(
    n: NodeContext, steps: Value | None, axes: Value | Sequence[int], rank: int
) -> tuple[int, ...] | None:
    """The step along each axis, if all are known."""
    if steps is None:
        return (1,) * rank
    if isinstance(axes, Value) or n.known(steps) is None:
        return None
    known = (min(max(s, -_FAR), _FAR) for s in n.int_list(steps, "steps"))
    by_axis = dict(zip(axes, known, strict=True))
    return tuple(by_axis.get(a, 1) for a in range(rank))


def _offsets(
    n: NodeContext, numbers: Value, is_moved: Sequence[bool], bounds: Sequence[Dim] = ()
) -> tuple[Dim, ...]:
    """Offsets along the axes, as extents with the expected size 0.

    numbers: the offsets, none of them negative.
    is_moved: for each axis, whether it has an offset; others get 0.
    bounds: upper bounds of the offsets.
    """
    known = n.builder.partly(numbers)
    known = [k if moved else 0 for k, moved in zip(known, is_moved, strict=True)]
    return n.measured(numbers, known, bounds, usual=[0] * len(known))


def padded(
    n: NodeContext,
    x: Value,
    pads: Value,
    axes: Value | Sequence[int],
    mode: str,
    filler: Value | float | int | bool,
) -> Value:
    """x with elements added before and after axes.  A negative pad removes elements.

    filler: the filler in mode "constant"; a `Value` if only a run knows it.
    """
    dims, rank = x.type.shape, x.type.rank
    count = pads.type.size // 2
    numbers = listed(pads)
    begins, ends = (
        _on_axes(n, picked(numbers, range(s, s + count)), axes, rank, 0) for s in (0, count)
    )
    own = n.of_dims(dims)
    is_padded = [isinstance(axes, Value) or a in axes for a in range(rank)]
    known = [None if p else d for d, p in zip(dims, is_padded, strict=True)]
    usual = [expected(d) for d in dims]
    sizes = n.measured(own + begins + ends, known, usual=usual)
    if any(same_dim(d, 0) for d in dims):  # x is empty, so nothing is read
        value = filler if isinstance(filler, Value) else n.const(filler, x.dtype)
        return value.expand(*sizes)
    added, removed = (_offsets(n, maximum(v, 0), is_padded) for v in (begins, -begins))
    starts = tuple(map(extents.difference, removed, added))
    steps = (1,) * rank
    if not isinstance(filler, Value):
        return n.add(Window(starts, sizes, steps, mode, filler), x)
    kept = n.add(Window(starts, sizes, steps, "constant", 0), x)
    inside = n.add(
        Window(starts, sizes, steps, "constant", False), n.const(True, bool_).expand(*dims)
    )
    return where(inside, kept, filler)


def parts(n: NodeContext, x: Value, axis: int, sizes: Sequence[Dim]) -> tuple[Value, ...]:
    """x cut along `axis` into parts of computed sizes.  A run is refused if a size is negative, or
    if the sizes do not add up to the extent.
    """
    n.builder.require_equal(extents.total(sizes), x.type.shape[axis])
    parts, start = [], 0
    for size in sizes:
        parts.append(_window(n, x, axis, start, size))
        start = extents.total((start, size))
    return tuple(parts)


def _window(n: NodeContext, x: Value, axis: int, start: Dim, size: Dim) -> Value:
    """`size` slices of x along `axis` from `start` on."""
    rank = x.type.rank
    starts = tuple(start if a == axis else 0 for a in range(rank))
    sizes = (*x.type.shape[:axis], size, *x.type.shape[axis + 1 :])
    if any(same_dim(d, 0) for d in x.type.shape):  # x is empty, so nothing is read
        return n.const(0, x.dtype).expand(*sizes)
    return n.add(Window(starts, sizes, (1,) * rank), x)
