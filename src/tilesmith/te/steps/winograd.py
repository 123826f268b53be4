"""The schedule step `winograd`: a convolution with a 3x3 window by minimal filtering.

`C[i, j, o] = sum(A[i + p, j + q, k] * W[p, q, k, o], (p, q, k))` becomes six stages:

    W_rows, W_tiles    G W G', for each k and o                 [x, y, k, o]
    A_rows, A_tiles    B' A B of the tiles that overlap by two  [x, y, i / m, j / m, k]
    products           over k, for each of the t^2 points       [x, y, i / m, j / m, o]
    C_rows, C          A' products A                            [i, j, o]

Other indices of A, W and C (batches, more taps, groups) stay as they are.  The stages are those of
`te.winograd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.expr import Binary, Expr, Load, Var, as_expr, free_vars, select, substitute
from tilesmith.ir.types import Dim, same_dim
from tilesmith.support.errors import ScheduleError

from ..interpolation import SQUARES, WINDOW, input_rows, weight_rows
from ..state import StageState, State, make_stage
from ..tensor import SUM, Compute, IterVar, Reduce, Tensor
from ..winograd import Rows, points, result_at, result_rows, transformed
from .base import Number, Step, primitive
from .rewrites import unscheduled


@dataclass(frozen=True, slots=True)
class Windowed:
    """A reduction over a 3x3 window.

    image: the load of the image.
    weights: the load of the weights.
    places: positions of the window's two axes among the axes of the stage.
    image_dims: positions of the window's two axes among the dimensions of the image.
    weight_dims: positions of the window's two axes among the dimensions of the weights.
    taps: the window's reduction axes.
    others: the remaining reduction axes.
    """

    image: Load
    weights: Load
    places: tuple[int, int]
    image_dims: tuple[int, int]
    weight_dims: tuple[int, int]
    taps: tuple[IterVar, IterVar]
    others: tuple[IterVar, ...]


class WinogradStages(NamedTuple):
    """The tensors of the stages that come before the convolution's own stage."""

    weight_rows: Tensor
    weights: Tensor
    image_rows: Tensor
    image: Tensor
    products: Tensor
    rows: Tensor


def windowed(op: Compute) -> Windowed | None:
    """The parts of `op` if it is a sum of products over a 3x3 window without strides and dilations;
    else None.

    If there are more than two window axes, the last two count.
    """
    body = op.body[0]
    if len(op.body) != 1 or not isinstance(body, Reduce) or body.reducer is not SUM:
        return None
    source = body.sources[0]
    if not isinstance(source, Binary) or source.op != "mul" or source.dtype not in (f32, f64):
        return None
    for image, weights in ((source.a, source.b), (source.b, source.a)):
        if isinstance(image, Load) and isinstance(weights, Load):
            window = _windowed(op, image, weights)
            if window is not None:
                return window
    return None


def _windowed(op: Compute, image: Load, weights: Load) -> Windowed | None:
    axes = {a.var: n for n, a in enumerate(op.axis)}
    taps = {a.var: a for a in op.reduce_axis if same_dim(a.extent, WINDOW)}
    windows: list[tuple[int, int, int, IterVar]] = []
    for d, index in enumerate(image.indices):
        if not isinstance(index, Binary) or index.op != "add":
            continue
        for i, p in ((index.a, index.b), (index.b, index.a)):
            places = [n for n, w in enumerate(weights.indices) if w is p]
            if i in axes and p in taps and len(places) == 1:  # type: ignore[operator]  # by identity
                windows.append((axes[i], d, places[0], taps[p]))  # type: ignore[index]
    if len(windows) < 2:
        return None
    (i, d_i, w_i, p), (j, d_j, w_j, q) = windows[-2:]
    moved = {op.axis[i].var, op.axis[j].var, p.var, q.var}
    rest = [x for n, x in enumerate(image.indices) if n not in (d_i, d_j)]
    rest += [x for n, x in enumerate(weights.indices) if n not in (w_i, w_j)]
    others = tuple(a for a in op.reduce_axis if a not in {p, q})
    shapes = (*op.shape, *_shape(image), *_shape(weights))
    static = all(isinstance(n, int) and n > 0 for n in shapes)
    if i == j or p is q or any(moved & set(free_vars(x)) for x in rest) or not others or not static:
        return None
    return Windowed(image, weights, (i, j), (d_i, d_j), (w_i, w_j), (p, q), others)


def _shape(load: Load) -> Sequence[int]:
    return load.buffer.shape  # type: ignore[return-value]  # of a tensor


@primitive("winograd", of_schedule=True)
class Winograd(Step):
    """`tile`: number of results that are computed together along each axis of the window."""

    tile: Number

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        op, m = stage.compute, self.tile
        w = windowed(op)
        if w is None or m not in SQUARES:
            raise ScheduleError(
                f"winograd of {stage.name} needs a float sum over k, p, q of A[.. i + p, j + q .., "
                "k] * W[p, q, k, ..], p and q in 0 .. 2, and tiles of "
                f"{' or '.join(map(str, SQUARES))}; found tiles of {m} and {op.body[0]}"
            )
        unscheduled(stage, "winograd")
        return _Rewriting(state, stage, w, m).result()


class _Rewriting:
    """The rewriting of one convolution, stage by stage."""

    def __init__(self, state: State, stage: StageState, w: Windowed, m: int) -> None:
        self.state, self.stage, self.w, self.m = state, stage, w, m
        self.op = stage.compute

    def result(self) -> State:
        w, m, t = self.w, self.m, points(self.m)
        weights = self._transformed("weights", w.weights, w.weight_dims, WINDOW, (), weight_rows)
        tiles = [-(-self._extent(p) // m) for p in w.places]
        image = self._transformed("image", w.image, w.image_dims, t, tiles, input_rows)

        axes = [IterVar(Var(a.name), a.extent) for a in self.op.axis]
        for place, n in zip(w.places, tiles, strict=True):
            axes[place] = IterVar(Var(axes[place].name), n)
        x, y = IterVar(Var("x"), t), IterVar(Var("y"), t)
        renamed: dict[Expr, Expr] = {a.var: b.var for a, b in zip(self.op.axis, axes, strict=True)}
        others = tuple(IterVar(Var(a.name), a.extent, is_reduce=True) for a in w.others)
        renamed |= {a.var: b.var for a, b in zip(w.others, others, strict=True)}
        image_at = [substitute(e, renamed) for e in _without(w.image.indices, w.image_dims)]
        weights_at = [substitute(e, renamed) for e in _without(w.weights.indices, w.weight_dims)]
        tile = [axes[p].var for p in w.places]
        value = image[x.var, y.var, *tile, *image_at] * weights[x.var, y.var, *weights_at]
        first = self.op.body[0]
        assert isinstance(first, Reduce)
        total = Reduce(first.reducer, (value,), others, 0)
        name = self._name("products")
        products = self._added(Compute(name, (x, y, *axes), (total,), others).outputs[0])
        rows = self._added(result_rows(self._name("rows"), m, products, [a.name for a in axes]))

        point: list[Expr] = [a.var for a in self.op.axis]
        i, j = (point[p] for p in w.places)
        for place in w.places:
            point[place] = point[place] // m
        new = Compute(self.op.name, self.op.axis, (result_at(m, rows, i, j, point),))
        spatial = self.stage.roots[: len(new.axis)]
        return self.state.with_operation(
            replace(
                self.stage, op=new, reads=self.state.reads_of(new), roots=spatial, leaves=spatial
            )
        )

    def _extent(self, place: int) -> int:
        extent = self.op.axis[place].extent
        assert isinstance(extent, int)
        return extent

    def _name(self, what: str) -> str:
        return self.state.unique_name(f"{self.stage.name}_{what}")

    def _added(self, tensor: Tensor) -> Tensor:
        """`tensor`, after its stage is inserted before the convolution's own stage."""
        new = make_stage(tensor.op.name, tensor.op, self.state.reads_of(tensor.op))
        self.state = self.state.with_new_stage(new, before=self.stage.name)
        return tensor

    def _transformed(
        self,
        what: str,
        load: Load,
        dims: tuple[int, int],
        size: int,
        tiles: Sequence[int],
        rows: Rows,
    ) -> Tensor:
        """The tensor that `load` reads, transformed along its dimensions `dims`: [t, t, tiles,
        other dimensions].

        If `tiles` is empty, the two dimensions are transformed as a whole.
        """
        shape = _shape(load)
        tensor = load.buffer
        assert isinstance(tensor, Tensor)

        def read(row: Any, column: Any, at: Sequence[Expr]) -> Expr:
            rest = list(at[len(tiles) :])
            index: list[Expr] = []
            inside: list[Expr] = []
            for d in range(len(shape)):
                if d not in dims:
                    index.append(rest.pop(0))
                    continue
                n = dims.index(d)
                where = as_expr((row, column)[n])
                if tiles:
                    where = at[n] * self.m + where
                    if tiles[n] * self.m + WINDOW - 1 > shape[d]:
                        inside.append(where < shape[d])
                index.append(where)
            value: Expr = tensor[tuple(index)]
            for condition in inside:
                value = select(condition, value, 0.0)
            return value

        rest: dict[str, Dim] = {f"i{d}": n for d, n in enumerate(tiles)}
        rest |= {f"d{d}": n for d, n in enumerate(shape) if d not in dims}
        names = self._name(f"{what}_rows"), self._name(f"{what}_tiles")
        half, full = transformed(names, self.m, rows, size, read, rest)
        self._added(half)
        return self._added(full)


def _without(indices: Sequence[Expr], dims: tuple[int, int]) -> list[Expr]:
    return [e for d, e in enumerate(indices) if d not in dims]
