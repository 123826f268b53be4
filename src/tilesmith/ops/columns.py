"""Operators that write the elements under each position of a window as a matrix, and the transpose.

A convolution is a product with such a matrix (Chellapilla, Puri and Simard, "High Performance
Convolutional Neural Networks for Document Processing", 2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import Expr, all_of, as_expr, const, maximum, minimum
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .slicing import pad
from .window import Window, spatial_names


@dataclass(frozen=True)
class Im2Col(Op):
    """The elements under each position of a window: images [N, C, ...] become [C, window..., N,
    positions...].

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
    """The sum of columns [N, C * window, positions] at their places in images [N, C, `image`].
    Where windows overlap, their elements are added.

    kernel: extents of the window.  These and the extents of the image may be symbolic.  Then each
        run checks `equal_extents`.
    strides, pads, dilations: as in `conv`.
    """

    heavy_reference = True

    image: tuple[Dim, ...]
    kernel: tuple[Dim, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def _window(self) -> tuple[Window, tuple[Dim, ...]]:
        """The window, and the number of its positions per axis.  Along an axis of symbolic extent
        the window has 1 tap.
        """
        taps = [k if isinstance(k, int) else 1 for k in self.kernel]
        win = Window.of(self.name, taps, self.strides, self.pads, self.dilations)
        if len(taps) != len(self.image):
            rules.reject(self.name, f"a window of {len(self.image)} axes", self.kernel)
        more = (extents.product((extents.difference(k, t), d))
                for k, t, d in zip(self.kernel, taps, win.dilations, strict=True))  # fmt: skip
        rooms = map(extents.difference, self.image, more)
        return win, tuple(win.out_extent(self.name, room, a) for a, room in enumerate(rooms))

    def equal_extents(self, shape: tuple[Dim, ...]) -> tuple[tuple[Dim, Dim], ...]:
        """Pairs of extents that must be equal in each run, for columns of `shape`."""
        size, (_, rows, columns) = extents.product(self.kernel), shape
        whole = extents.product((_channels(rows, size), size))
        return (rows, whole), (columns, extents.product(self._window()[1]))

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        rules.check_kind(self.name, x, rules.NUMBERS)
        pairs = self.equal_extents(x.shape) if x.rank == 3 else ()
        if not pairs or any(extents.are_equal(a, b) is False for a, b in pairs):
            wanted = f"columns of windows {self.kernel} in images {self.image}"
            rules.reject(self.name, wanted, rules.shape_text(x.shape))
        win, places = self._window()
        size = extents.product(self.kernel)
        channels = _channels(x.shape[1], size)
        axes = [te.reduce_axis(n, f"k{a}") for a, n in enumerate(self.kernel)]
        kernel_strides, place_strides = rules.strides_of(self.kernel), rules.strides_of(places)

        def body(n: Expr, c: Expr, *i: Expr) -> Expr:
            row, column, inside = c * size, const(0), []
            for a, k in enumerate(axes):
                begin = i[a] + win.begins[a] - k.var * win.dilations[a]
                place = begin // win.strides[a]
                inside += [begin % win.strides[a] == 0, place >= 0, place < as_expr(places[a])]
                row = row + k.var * kernel_strides[a]
                column = column + place * place_strides[a]
            if not all(isinstance(d, int) for d in (*self.image, *self.kernel, *x.shape[1:])):
                # The run has checked the extents, so both indices are inside.  The clamps change no
                # index, but they let the compiler prove this.
                last = [as_expr(d) - 1 for d in x.shape[1:]]
                row, column = (
                    maximum(minimum(v, m), 0) for v, m in zip((row, column), last, strict=True)
                )
            value = rules.widen(x[n, row, column])
            return te.sum(te.if_then_else(all_of(*inside), value, const(0, value.dtype)), axis=axes)

        result = te.compute((x.shape[0], channels, *self.image), body, self.name)
        return rules.narrow(result, x.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.widen_array(inputs[0])
        win, numbers = self._window()
        places = [rules.static(self.name, n, "the places of the window") for n in numbers]
        image = [rules.static(self.name, n, "an extent of the image") for n in self.image]
        taps = [rules.static(self.name, n, "an extent of the window") for n in self.kernel]
        reach = [d * (k - 1) + 1 for d, k in zip(win.dilations, taps, strict=True)]
        columns = x.reshape(x.shape[0], -1, math.prod(taps), *places)
        begins, _ = win.static_pads(self.name)
        spanned = [
            max(s * (m - 1) + reach[a], b + n)
            for a, (s, m, b, n) in enumerate(zip(win.strides, places, begins, image, strict=True))
        ]
        result = np.zeros((x.shape[0], columns.shape[1], *spanned), x.dtype)
        for number, k in enumerate(np.ndindex(*taps)):
            where = tuple(
                slice(p * d, p * d + s * (m - 1) + 1, s)
                for p, d, s, m in zip(k, win.dilations, win.strides, places, strict=True)
            )
            result[(..., *where)] += columns[:, :, number]
        # A negative pad removes elements, which count as zero.
        before = [(max(-b, 0), 0) for b in begins]
        result = np.pad(result, [(0, 0), (0, 0), *before])
        inner = tuple(slice(max(b, 0), max(b, 0) + n) for b, n in zip(begins, image, strict=True))
        return result[(..., *inner)].astype(inputs[0].dtype)


def _channels(rows: Dim, size: Dim) -> Dim:
    """The number of channels of columns with `rows` rows, for windows of `size` elements."""
    return as_dim(as_expr(rows) // extents.larger(size, 1))
