"""Convolutions as products of matrices, for instructions on tiles.

    Y[n, o, h, v] = sum over p, q, c of X[n, c, h + p, v + q] * W[o, c, p, q]

    windows[m, p, q, c] = X[m // (H * V), c, m // V % H + p, m % V + q]     # in shared memory only
    filters[p, q, c, o] = W[o, c, p, q]                                     # likewise
    product[m, o] = sum over p, q, c of windows[m, p, q, c] * filters[p, q, c, o]

A row of the product is a position of the result.  Blocks load zeros for the padding of the image.
The loops over positions are fused, so that tiles continue from row to row and from image to image.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.expr import (
    Const,
    Expr,
    Load,
    Var,
    as_expr,
    const,
    same,
    substitute,
    vars_of,
)
from tilesmith.ir.target import Target
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.group import Group
from tilesmith.strategy.sketch.structure import bodies
from tilesmith.te import tensor as te
from tilesmith.te.rewrite import map_loads
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Reduce

from .generic import inline_stages
from .tensor_tiles import TensorTile, schedule_tensor_tiles, tensor_tile


@dataclass(frozen=True, slots=True, eq=False)
class Implicit:
    """A convolution as a product.

    product: stage of the product, [position, filter].
    positions: numbers of the convolution result's axes that are merged into a position.
    column: number of the axis of filters.
    """

    product: Compute
    positions: tuple[int, ...]
    column: int

    def read(self, indices: tuple[Expr, ...], shape: tuple[int, ...]) -> tuple[Expr, Expr]:
        """Indices in the product that correspond to `indices` of the result."""
        row: Expr = const(0)
        for n in self.positions:
            row = indices[n] if n == self.positions[0] else row * shape[n] + indices[n]
        return row, indices[self.column]


def implicit_product(op: Compute) -> Implicit | None:
    """A convolution of known sizes without groups, as a product; None for other stages."""
    factors, body = product_of_loads(op), op.body[0]
    extents = [a.extent for a in (*op.axis, *op.reduce_axis)]
    if factors is None or not isinstance(body, Reduce) or len(op.reduce_axis) < 2:
        return None
    if not all(isinstance(n, int) for n in extents):
        return None
    x, w = factors
    of_x, of_w = (vars_of(f.indices) for f in factors)
    columns = [n for n, a in enumerate(op.axis) if a.var in of_w]
    channels = [a for a in op.reduce_axis if any(i is a.var for i in x.indices)]
    if len(columns) != 1 or op.axis[columns[0]].var in of_x or len(channels) != 1:
        return None
    if not all(isinstance(i, (Var, Const)) for i in w.indices) or len(op.axis) < 3:
        return None
    column, channel = op.axis[columns[0]], channels[0]
    positions = tuple(n for n in range(len(op.axis)) if n != columns[0])
    taps = [a for a in op.reduce_axis if a is not channel]
    terms = [*taps, channel]
    names = [a.var.name for a in terms]
    shape = [a.extent for a in op.axis]
    rows = 1
    for n in positions:
        rows = rows * _number(shape[n])

    def windows(m: Expr, *at: Expr) -> Expr:
        indices: dict[Expr, Expr] = {a.var: i for a, i in zip(terms, at, strict=True)}
        inner = 1
        for n in reversed(positions):
            place = m if inner == 1 else m // inner
            inner *= _number(shape[n])
            indices[op.axis[n].var] = place if n == positions[0] else place % _number(shape[n])
        return substitute(x, indices)

    def filters(*at: Expr) -> Expr:
        axes = (*terms, column)
        return substitute(w, {a.var: i for a, i in zip(axes, at, strict=True)})

    sizes = [a.extent for a in terms]
    left = te.compute((rows, *sizes), windows, "windows", ["m", *names])
    right = te.compute((*sizes, column.extent), filters, "filters", [*names, column.var.name])

    def product(m: Expr, o: Expr) -> Expr:
        axes = [te.reduce_axis(a.extent, n) for a, n in zip(terms, names, strict=True)]
        position = [as_expr(a.var) for a in axes]
        (term,) = map_loads(
            body.sources,
            lambda e: left[(m, *position)] if same_load(e, x) else right[(*position, o)],
        )
        return te.sum(term, axis=axes)

    made = te.compute((rows, column.extent), product, "product", ["m", column.var.name])
    return Implicit(made.op, positions, columns[0])


def same_load(a: Load, b: Load) -> bool:
    """Whether two loads read the same element."""
    return a.buffer is b.buffer and same(a.indices, b.indices)


def _number(extent: object) -> int:
    assert isinstance(extent, int)
    return extent


@dataclass(frozen=True, slots=True, eq=False)
class ImplicitGroup:
    """A group whose convolution is a product.

    group: the new expressions.
    made: the product that replaces the convolution.
    tile: tile sizes of the product.
    out: the stage that reads each element of the product at the same index.
    """

    group: Group
    made: Implicit
    tile: TensorTile
    out: Compute


def implicit_group(group: Group, target: Target) -> ImplicitGroup | None:
    """`group` with its convolution as a product.  None unless the group has one result and one
    convolution, and instructions on tiles can compute it.
    """
    reductions = [op for op in group.stages if op.reduce_axis]
    if len(reductions) != 1 or len(group.outputs) != 1:
        return None
    (conv,), (output,) = reductions, group.outputs
    made = implicit_product(conv)
    tile = None if made is None else tensor_tile(made.product, target, divides=False)
    if made is None or tile is None or output.shape != conv.outputs[0].shape:
        return None
    old, new = conv.outputs[0], made.product.outputs[0]
    shape = tuple(_number(n) for n in old.shape)

    def element(e: Load) -> Expr:
        return new[made.read(e.indices, shape)]

    stand_in = new
    if output is old:
        stand_in = te.compute(old.shape, lambda *i: element(old[i]), "result")
    rebuilt = group.with_tensor(old, stand_in, element)
    (result,) = rebuilt.outputs
    assert isinstance(result.op, Compute)
    return ImplicitGroup(rebuilt, made, tile, result.op)


def schedule_implicit(found: ImplicitGroup, target: Target) -> Schedule | None:
    """The schedule of a group with an implicit product.  None if another stage is stored, if an
    element is read at other indices than its own, or if channels are not last in memory.
    """
    s = found.group.schedule()
    inline_stages(s, set())
    kept, made = bodies(s), found.made
    product, out = (s[op.outputs[0]] for op in (made.product, found.out))
    axes = tuple(a.var for a in found.out.axis)
    shape = tuple(_number(a.extent) for a in found.out.axis)
    place = made.read(axes, shape)
    reads = [x for b in kept.values() for x in b.reads if x.source == product.name]
    if set(kept) != {product.name, out.name} or not all(same(x.load.indices, place) for x in reads):
        return None
    along = (made.product.reduce_axis[-1].var, made.product.axis[-1].var)
    if not all(any(x.stride(v) == 1 for v in along) for x in kept[product.name].reads):
        return None  # adjacent elements in memory are neither channels nor filters
    rows = (*made.positions, made.column)
    schedule_tensor_tiles(s, found.tile, product.name, out.name, target, rows)
    return s
