"""Convolutions with a 3x3 window by Winograd's minimal filtering, F(m x m, 3 x 3).

The stages are those of `te.winograd`; `te.interpolation` gives their accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.expr import Expr
from tilesmith.ir.extents import difference, product, total
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.te import tensor as te
from tilesmith.te.interpolation import SQUARES, WINDOW, input_rows, matrices
from tilesmith.te.winograd import points, result_at, result_rows, transformed

from . import rules
from .base import Op
from .slicing import pad
from .window import Window


def transform_weights(w: np.ndarray, m: int) -> np.ndarray:
    """G w G' of weights [OC, IC, 3, 3]: [t, t, OC, IC].

    It is computed in the type of the weights, as one matrix product.  Its rounding error is some
    hundredths of that of a convolution.
    """
    g = matrices(m)[1]
    both = np.einsum("xa,yb->xyab", g, g).reshape(-1, WINDOW * WINDOW).astype(w.dtype)
    t = points(m)
    return (both @ w.reshape(-1, WINDOW * WINDOW).T).reshape(t, t, *w.shape[:2])


@dataclass(frozen=True)
class WinogradConv(Op):
    """Convolution of x [N, IC, H, W] with a 3x3 window.  The weights u [t, t, OC, IC] are already
    transformed (`transform_weights`).

    m: size of a tile of results along each axis.
    pads: as in `conv`.
    """

    m: int
    pads: tuple[int, ...] = ()

    @property
    def t(self) -> int:
        """The size of a tile of inputs along each axis."""
        return points(self.m)

    @cached_property
    def window(self) -> Window:
        return Window.of(self.name, (WINDOW, WINDOW), (), self.pads, ())

    def tiles(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Number of tiles along each axis of an image."""
        extents = (self.window.out_extent(self.name, d, a) for a, d in enumerate(image))
        return tuple(as_dim((n + (self.m - 1)) // self.m) for n in extents)

    def ends(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Padding after each axis that makes all tiles whole."""
        needed = (total((product((n, self.m)), self.t - self.m)) for n in self.tiles(image))
        inside = (total(both) for both in zip(image, self.window.begins, strict=True))
        return tuple(difference(n, d) for n, d in zip(needed, inside, strict=True))

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, u = self._checked(inputs)
        m, t = self.m, self.t
        n, ic, *image = x.shape
        oc = u.shape[2]
        rows, columns = self.tiles(image)
        shape = [self.window.out_extent(self.name, d, a) for a, d in enumerate(image)]
        begins, ends = (0, 0, *self.window.begins), (0, 0, *self.ends(image))
        padded = pad(x, begins, ends, 0, axis_names=["n", "ic", "ih", "iw"])

        def tile_of(row: int, column: Expr, at: Sequence[Expr]) -> Expr:
            tile, c = at
            y, z = tile // columns % rows * m, tile % columns * m
            return padded[tile // (rows * columns), c, y + row, z + column]

        names, count = ("input_rows", "input_tiles"), product((n, rows, columns))
        _, v = transformed(names, m, input_rows, t, tile_of, {"tile": count, "c": ic})
        k = te.reduce_axis(ic, "ic")
        products = te.compute(
            (t, t, count, oc),
            lambda x, y, tile, f: te.sum(v[x, y, tile, k.var] * u[x, y, f, k.var], axis=k),
            "product",
        )
        back = result_rows("output_rows", m, products, ["tile", "f"])

        def result(batch: Expr, f: Expr, y: Expr, z: Expr) -> Expr:
            return result_at(m, back, y, z, [(batch * rows + y // m) * columns + z // m, f])

        return te.compute((n, oc, *shape), result, self.name, ["n", "oc", "oh", "ow"])

    def _checked(self, inputs: Sequence[te.Tensor]) -> tuple[te.Tensor, te.Tensor]:
        rules.check_count(self.name, inputs, 2)
        x, u = inputs
        rules.check_same_dtype(self.name, (x, u))
        fits = (
            x.rank == 4
            and u.rank == 4
            and same_dim(u.shape[3], x.shape[1])
            and x.dtype in (f32, f64)
        )
        if self.m not in SQUARES or not fits or not same_shape(u.shape[:2], (self.t, self.t)):
            rules.reject(
                self.name,
                f"f32 or f64 x [N, IC, H, W], weights [{self.t}, {self.t}, OC, IC], "
                f"m in {tuple(SQUARES)}",
                f"{x.dtype}{rules.shape_text(x.shape)}, {rules.shape_text(u.shape)}, {self.m}",
            )
        return x, u

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """The meaning in float64, so that a difference from it is the whole error of a kernel."""
        x, u = (a.astype(np.float64) for a in inputs)
        m, t = self.m, self.t
        n, ic, *image = x.shape
        rows, columns = self.tiles(image)
        x = self.window.padded(x, 0, self.ends(image))
        to, _, back = matrices(m)
        d = np.lib.stride_tricks.sliding_window_view(x, (t, t), axis=(2, 3))[:, :, ::m, ::m]
        v = np.einsum("xi,nchwij,yj->xynhwc", to, d, to, optimize=True)
        p = v.reshape(t, t, -1, ic) @ u.transpose(0, 1, 3, 2)
        p = p.reshape(t, t, n, rows, columns, -1)
        y = np.einsum("ix,xynhwo,jy->nohiwj", back, p, back, optimize=True)
        y = y.reshape(n, -1, rows * m, columns * m)
        extents = (self.window.out_extent(self.name, d, a) for a, d in enumerate(image))
        return y[(..., *(slice(e) for e in extents))].astype(inputs[0].dtype)
