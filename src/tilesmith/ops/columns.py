"""The elements under each position of a window as a matrix, and the inverse.

A convolution is a product with such a matrix (Chellapilla, Puri and Simard, "High Performance
Convolutional Neural Networks for Document Processing", 2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.ir.expr import Expr, all_of, const
from tilesmith.ir.types import same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .slicing import pad
from .window import Window, spatial_names


@dataclass(frozen=True)
class Im2Col(Op):
    """The elements under a window: images [N, C, ...] become [C, window..., N, places...].

    kernel: extents of the window.
    strides, pads, dilations: as in `conv`.
    """

    heavy_reference = True

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def _window(self, rank: int) -> Window:
        win = Window.of(self.name, self.kernel, self.strides, self.pads, self.dilations)
        if rank != len(win.kernel) + 2:
            rules.reject(self.name, f"a window of {max(rank - 2, 1)} axes", self.kernel)
        return win

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        rules.check_kind(self.name, x, rules.NUMBERS)
        win = self._window(x.rank)
        n = len(win.kernel)
        places = [win.out_extent(self.name, d, a) for a, d in enumerate(x.shape[2:])]
        names = ["n", "ic", *spatial_names("i", n)]
        padded = pad(x, (0, 0, *win.begins), (0, 0, *win.ends), 0, axis_names=names)

        def body(c: Expr, *rest: Expr) -> Expr:
            taps, batch, place = rest[:n], rest[n], rest[n + 1 :]
            return padded[(batch, c, *win.position(place, taps))]

        shape = (x.shape[1], *win.kernel, x.shape[0], *places)
        names = ["c", *spatial_names("k", n), "n", *spatial_names("o", n)]
        return te.compute(shape, lambda *i: body(*i), self.name, names)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        win = self._window(inputs[0].ndim)
        n = len(win.kernel)
        views = win.views(win.padded(inputs[0], 0))
        order = (1, *range(2 + n, 2 + 2 * n), 0, *range(2, 2 + n))
        return np.ascontiguousarray(views.transpose(order))


@dataclass(frozen=True)
class Col2Im(Op):
    """Columns [N, C * window, places] added up to images [N, C, `image`]; where windows overlap,
    their elements are summed.

    kernel: extents of the window.
    strides, pads, dilations: as in `conv`.
    """

    heavy_reference = True

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def _window(self) -> tuple[Window, tuple[int, ...], int, int]:
        """The window, its places along each axis, its number of elements, its number of places."""
        win = Window.of(self.name, self.kernel, self.strides, self.pads, self.dilations)
        if len(win.kernel) != len(self.image):
            rules.reject(self.name, f"a window of {len(self.image)} axes", self.kernel)
        places = tuple(
            rules.static(self.name, win.out_extent(self.name, n, a), "the places of the window")
            for a, n in enumerate(self.image)
        )
        return win, places, math.prod(win.kernel), math.prod(places)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        rules.check_kind(self.name, x, rules.NUMBERS)
        win, places, size, count = self._window()
        rows = rules.static(self.name, x.shape[1], "the rows") if x.rank == 3 else 0
        if x.rank != 3 or rows % size or not same_dim(x.shape[2], count):
            rules.reject(self.name, f"[N, C * {size}, {count}]", rules.shape_text(x.shape))
        axes = [te.reduce_axis(n, f"k{a}") for a, n in enumerate(win.kernel)]
        kernel_strides, place_strides = rules.strides_of(win.kernel), rules.strides_of(places)

        def body(n: Expr, c: Expr, *i: Expr) -> Expr:
            row, column, inside = c * size, const(0), []
            for a, k in enumerate(axes):
                begin = i[a] + win.begins[a] - k.var * win.dilations[a]
                place = begin // win.strides[a]
                inside += [begin % win.strides[a] == 0, place >= 0, place < places[a]]
                row = row + k.var * kernel_strides[a]
                column = column + place * place_strides[a]
            value = rules.widen(x[n, row, column])
            return te.sum(te.if_then_else(all_of(*inside), value, const(0, value.dtype)), axis=axes)

        result = te.compute((x.shape[0], rows // size, *self.image), body, self.name)
        return rules.narrow(result, x.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.widen_array(inputs[0])
        win, places, size, _ = self._window()
        columns = x.reshape(x.shape[0], -1, size, *places)
        begins, _ = win.static_pads(self.name)
        spanned = [
            max(s * (m - 1) + win.reach(a), b + n)
            for a, (s, m, b, n) in enumerate(
                zip(win.strides, places, begins, self.image, strict=True)
            )
        ]
        result = np.zeros((x.shape[0], columns.shape[1], *spanned), x.dtype)
        for number, k in enumerate(np.ndindex(*win.kernel)):
            where = tuple(
                slice(p * d, p * d + s * (m - 1) + 1, s)
                for p, d, s, m in zip(k, win.dilations, win.strides, places, strict=True)
            )
            result[(..., *where)] += columns[:, :, number]
        # A negative pad removes elements, which count as zero.
        before = [(max(-b, 0), 0) for b in begins]
        result = np.pad(result, [(0, 0), (0, 0), *before])
        inner = tuple(
            slice(max(b, 0), max(b, 0) + n) for b, n in zip(begins, self.image, strict=True)
        )
        return result[(..., *inner)].astype(inputs[0].dtype)
