"""Recipes of indices: reads and writes where other values say."""

from __future__ import annotations

import torch

from .draw import ANY, BOOL, I32, I64, NUMBERS, Draw, Rejected, recipe


def _indices(d: Draw, shape: tuple[int, ...], limit: int, negative: bool = False) -> str:
    """A new value with indices of an axis of `limit` elements."""
    if limit == 0:
        raise Rejected("nothing to index")
    low = -limit if negative else 0
    array = d.random.integers(low, limit, shape)
    dtype = I64 if d.chance(0.85) else I32
    return d.given(torch.as_tensor(array).to(dtype))


def _distinct(d: Draw, limit: int) -> str:
    """A new value with distinct indices."""
    chosen = d.random.permutation(limit)[: d.number(0 if d.chance(0.1) else 1, limit)]
    return d.given(torch.as_tensor(chosen.astype("int64")))


@recipe(2)
def read(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    t = d.of(x)
    axis = d.axis(x)
    limit = t.shape[axis]
    if d.chance(0.5):
        shape = d.shape(1, 2)
        i = _indices(d, shape[:1], limit)
        d.add(
            d.choose(
                [
                    f"torch.index_select({{0}}, {axis}, {{1}})",
                    f"{{0}}[{':, ' * (axis % t.ndim)}{{1}}]",
                ]
            ),
            x,
            i,
        )
    elif d.chance(0.5):
        i = _indices(d, d.shape(1, 2), t.shape[0], negative=True)
        d.add("{0}[{1}]", x, i)
    elif t.ndim > 1:
        shape = d.shape(1, 1)
        i, j = (_indices(d, shape, e, negative=True) for e in (t.shape[0], t.shape[-1]))
        d.add(d.choose(["{0}[{1}, ..., {2}]", "{0}[{1}][..., {2}]"]), x, i, j)


@recipe(1.5)
def gathered(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    t, axis = d.of(x), d.axis(x)
    shape = list(t.shape)
    shape[axis] = d.extent(6)
    i = _indices(d, tuple(shape), t.shape[axis])
    form = d.choose(
        [f"torch.gather({{0}}, {axis}, {{1}})", f"torch.take_along_dim({{0}}, {{1}}, {axis})"]
    )
    d.add(form, x, i)


@recipe(2)
def scattered(d: Draw) -> None:
    x = d.pick(NUMBERS, (1, 3))
    t, axis = d.of(x), d.axis(x)
    limit = t.shape[axis]
    if d.chance(0.5):  # sums may meet
        i = _indices(d, tuple(t.shape), limit)
        y = d.new(t.shape, t.dtype)
        form = d.choose(
            [
                f"torch.scatter_add({{0}}, {axis}, {{1}}, {{2}})",
                f"{{0}}.scatter_reduce({axis}, {{1}}, {{2}}, 'amax')",
                f"{{0}}.scatter_reduce({axis}, {{1}}, {{2}}, 'sum', include_self=False)",
                f"torch.scatter({{0}}, {axis}, {{1}}, {d.number(0, 2)})",
            ]
        )
        d.add(form, x, i, y)
        return
    i = _distinct(d, limit)
    shape = list(t.shape)
    shape[axis] = d.of(i).shape[0]
    y = d.new(shape, t.dtype)
    form = d.choose(
        [
            f"torch.index_add({{0}}, {axis}, {{1}}, {{2}})",
            f"torch.index_copy({{0}}, {axis}, {{1}}, {{2}})",
            f"torch.index_fill({{0}}, {axis}, {{1}}, {d.number(0, 2)})",
        ]
    )
    d.add(form, x, i, y)


@recipe(1.5)
def put(d: Draw) -> None:
    x = d.add("{0}.clone()", d.pick(NUMBERS, (1, 3)))[0]
    t = d.of(x)
    i = _distinct(d, t.shape[0])
    y = d.new((d.of(i).shape[0], *t.shape[1:]), t.dtype)
    form = d.choose(
        [
            "{0}[{1}] = {2}",
            "{0}[{1}] += {2}",
            "{0}.index_put_(({1},), {2}, accumulate=True)",
            "{0}.index_add_(0, {1}, {2})",
            "{0}.index_copy_(0, {1}, {2})",
            "{0}[{1}] = 1",
        ]
    )
    d.add(form, x, i, y, results=0)


@recipe()
def embedded(d: Draw) -> None:
    rows, width = d.number(2, 9), d.number(1, 8)
    table = d.new((rows, width))
    i = _indices(d, d.shape(1, 2), rows)
    d.add("F.embedding({1}, {0})", table, i)


@recipe(0.7)
def by_data(d: Draw) -> None:
    """Sizes that only a run knows."""
    x = d.pick(NUMBERS, (1, 3))
    form = d.choose(
        [
            "{0}[{0} > 0]",
            "torch.nonzero({0})",
            "torch.masked_select({0}, {0} > 0)",
            "torch.unique({0})",
            "torch.where({0} > 0)[0]",
        ]
    )
    (v,) = d.add(form, x)
    if d.chance(0.6):
        d.add(d.choose(["{0}.sum()", "{0} * 2", "torch.cat([{0}, {0}])"]), v)


@recipe(0.7)
def places(d: Draw) -> None:
    if d.chance(0.5):
        limit = d.number(2, 6)
        i = _indices(d, d.shape(1, 2), limit)
        d.add(f"F.one_hot({{0}}.long(), {limit})", i)
    else:
        x = d.pick((NUMBERS[0],), (1, 3))
        edges = d.given(torch.linspace(-2, 2, d.number(2, 6)))
        form = d.choose(["torch.bucketize({0}, {1})", "torch.searchsorted({1}, {0}, right=True)"])
        d.add(form, x, edges)


@recipe(0.5)
def by_masks(d: Draw) -> None:
    x = d.pick(NUMBERS, (1, 3))
    d.add(
        "{0}.masked_scatter({1}, {2})",
        x,
        d.new(d.of(x).shape, BOOL),
        d.new(d.of(x).shape, d.of(x).dtype),
    )
