"""Convolutions over any number of spatial axes.  x is [N, C, ...], and a bias is a separate Add.

The expression is an optional `pad` stage and one reduce stage of x * w over (ic, kernel axes...).
Without groups no index has a division; a depthwise convolution has no channel reduction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, as_expr, const
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .slicing import pad
from .window import Window, spatial_names


def _check_images(op: str, x: te.Tensor, w: te.Tensor, to: DType | None = None) -> None:
    rules.check_factors(op, x, w, to)
    if x.rank < 3 or w.rank != x.rank:
        rules.reject(
            op,
            "x [N, C, spatial...] and weights of the same rank",
            f"{rules.shape_text(x.shape)} and {rules.shape_text(w.shape)}",
        )


@dataclass(frozen=True)
class Conv(Op):
    """Convolution of x [N, IC, ...] with w [OC, IC/groups, kernel...] (cross-correlation, as in
    deep learning).

    strides: distance between positions of the window, per spatial axis; empty: ones.
    pads: zeros before each spatial axis, then zeros after each axis; empty: none.
    dilations: distance between taps, per spatial axis; empty: ones.
    groups: number of groups of channels.
    to: element type of the sums and of the result, with which operands may have any types.  None:
        the common type of the operands.  16-bit floats are added in f32 and rounded.
    """

    heavy_reference = True

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    to: DType | None = None

    def window(self, kernel: tuple[Dim, ...]) -> Window:
        return Window.of(self.name, kernel, self.strides, self.pads, self.dilations)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, w = inputs
        _check_images(self.name, x, w, self.to)
        win = self.window(w.shape[2:])
        n = len(win.kernel)
        outs = [win.out_extent(self.name, d, a) for a, d in enumerate(x.shape[2:])]
        oc, icg = w.shape[:2]
        if self.groups != 1:
            ic = rules.static(self.name, x.shape[1], "the channel count of a grouped convolution")
            oc = rules.static(self.name, oc, "the number of filters")
            fits = self.groups > 0 and oc % self.groups == 0 and same_dim(ic, icg * self.groups)
        else:
            fits = rules.equal(self.name, x.shape[1], icg)
        if not fits:
            rules.reject(
                self.name,
                f"x [N, IC, ...] and w [OC, IC/{self.groups}, ...] with {self.groups} groups",
                f"{rules.shape_text(x.shape)} and {rules.shape_text(w.shape)}",
            )
        padded = pad(
            x,
            (0, 0, *win.begins),
            (0, 0, *win.ends),
            0,
            axis_names=["n", "ic", *spatial_names("i", n)],
        )
        taps = win.taps()
        per_group = oc // self.groups if isinstance(oc, int) else oc
        channel = None if self.groups > 1 and same_dim(icg, 1) else te.reduce_axis(icg, "ic")

        def body(batch: Expr, filter_: Expr, *out: Expr) -> Expr:
            c = _channel(filter_, channel, per_group, icg, self.groups)
            position = win.position(out, taps)
            axes = taps if channel is None else [channel, *taps]
            weight = w[(filter_, const(0) if channel is None else channel, *taps)]
            x_at = rules.widen(padded[(batch, c, *position)], self.to)
            return te.sum(x_at * rules.widen(weight, self.to), axis=axes)

        names = ["n", "oc", *spatial_names("o", n)]
        result = te.compute((x.shape[0], oc, *outs), lambda *i: body(*i), self.name, names)
        return rules.narrow(result, self.to or x.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, w = (rules.widen_array(i, self.to) for i in inputs)
        win = self.window(w.shape[2:])
        result = _correlate(win.padded(x, 0), w, win, self.groups)
        return result if self.to else result.astype(inputs[0].dtype, copy=False)


def _channel(
    filter_: Expr, channel: te.IterVar | None, per_group: Dim, icg: Dim, groups: int
) -> Expr:
    """The input channel that the output channel `filter_` reads at `channel` of its group."""
    if groups == 1:
        assert channel is not None
        return channel.var
    group = filter_ if same_dim(per_group, 1) else filter_ // per_group
    return group if channel is None else group * icg + channel.var


def _correlate(x: np.ndarray, w: np.ndarray, win: Window, groups: int) -> np.ndarray:
    """Convolution of padded x, as one matrix product per group over all windows."""
    n, views = len(win.kernel), win.views(x)
    batch = x.shape[0]
    out = views.shape[2 : 2 + n]
    oc, icg = w.shape[:2]
    taps = math.prod(win.kernel)
    if (
        icg == 1 and groups == oc
    ):  # depthwise: one sum over taps instead of a matrix product per channel
        result = np.zeros((batch, oc, *out), x.dtype)
        for k in np.ndindex(*win.kernel):
            result += views[(..., *k)] * w[(slice(None), 0, *k)].reshape(1, oc, *[1] * n)
        return result
    result = np.empty((batch, oc, *out), x.dtype)
    ocg = oc // groups
    order = (0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n))
    for g in range(groups):
        part = views[:, g * icg : (g + 1) * icg].transpose(order).reshape(-1, icg * taps)
        y = part @ w[g * ocg : (g + 1) * ocg].reshape(ocg, icg * taps).T
        result[:, g * ocg : (g + 1) * ocg] = np.moveaxis(y.reshape(batch, *out, ocg), -1, 1)
    return result


@dataclass(frozen=True)
class ConvTranspose(Op):
    """The transpose of a convolution: x [N, IC, ...], w [IC, OC/groups, kernel...].

    The result's extent is stride * (in - 1) + output_padding + dilation * (kernel - 1) + 1 - pads.
    Its expression is a stage that spreads x with zeros between its elements, then a convolution
    with the mirrored kernel.

    strides, pads, dilations, groups: as in `conv`.
    output_padding: elements added at the end of each spatial axis; empty: none.
    """

    heavy_reference = True

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    output_padding: tuple[int, ...] = ()

    def _window(self, kernel: tuple[Dim, ...]) -> tuple[Window, tuple[int, ...]]:
        win = Window.of(self.name, kernel, self.strides, self.pads, self.dilations)
        extra = self.output_padding or (0,) * len(kernel)
        if len(extra) != len(kernel):
            rules.reject(self.name, f"{len(kernel)} output paddings", extra)
        return win, extra

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, w = inputs
        _check_images(self.name, x, w)
        win, extra = self._window(w.shape[2:])
        n = len(win.kernel)
        ic = rules.static(self.name, x.shape[1], "the channel count")
        ocg = rules.static(self.name, w.shape[1], "the number of filters")
        if not same_dim(w.shape[0], ic) or self.groups < 1 or ic % self.groups:
            rules.reject(
                self.name,
                f"x [N, IC, ...] and w [IC, OC/{self.groups}, ...] with {self.groups} groups",
                f"{rules.shape_text(x.shape)} and {rules.shape_text(w.shape)}",
            )
        begins, ends = win.static_pads(self.name)
        before = [win.reach(a) - 1 - begins[a] for a in range(n)]
        spread_shape: list[Dim] = []
        out_shape: list[Dim] = []
        for a, d in enumerate(x.shape[2:]):
            out = extents.total(
                (
                    extents.product((d, win.strides[a])),
                    extra[a] + win.reach(a) - win.strides[a] - begins[a] - ends[a],
                )
            )
            if isinstance(out, int) and out < 0:
                rules.reject(self.name, "pads smaller than the result", win)
            out_shape.append(out)
            spread_shape.append(extents.total((out, win.reach(a) - 1)))

        def spread(batch: Expr, c: Expr, *index: Expr) -> Expr:
            inside: list[Expr] = []
            source: list[Expr] = []
            for a, i in enumerate(index):
                stride, d = win.strides[a], x.shape[2 + a]
                distance = i - before[a] if before[a] else i
                used = extents.total((extents.product((d, stride)), 1 - stride, before[a]))
                after = extents.difference(spread_shape[a], used)
                if before[a] > 0:
                    inside.append(i >= before[a])
                if not isinstance(after, int) or after > 0:
                    inside.append(distance < as_expr((d - 1) * stride + 1))
                if stride != 1:
                    inside.append(distance % stride == 0)
                source.append(distance // stride if stride != 1 else distance)
            load = x[(batch, c, *source)]
            if not inside:
                return load
            return te.if_then_else(ir.all_of(*inside), load, const(0, x.dtype))

        names = ["n", "ic", *spatial_names("i", n)]
        wide = te.compute((*x.shape[:2], *spread_shape), lambda *i: spread(*i), "spread", names)
        taps = win.taps()
        icg = ic // self.groups
        channel = te.reduce_axis(icg, "ic")

        def body(batch: Expr, filter_: Expr, *out: Expr) -> Expr:
            c: Expr = channel.var
            f = filter_
            if self.groups > 1:
                c = (filter_ if ocg == 1 else filter_ // ocg) * icg + c
                f = const(0) if ocg == 1 else filter_ % ocg
            position = [
                o + (t.var * d if d != 1 else t.var)
                for o, t, d in zip(out, taps, win.dilations, strict=True)
            ]
            mirrored = [k - 1 - t.var for t, k in zip(taps, win.kernel, strict=True)]
            product = rules.widen(wide[(batch, c, *position)]) * rules.widen(w[(c, f, *mirrored)])
            return te.sum(product, axis=[channel, *taps])

        shape = (x.shape[0], ocg * self.groups, *out_shape)
        names = ["n", "oc", *spatial_names("o", n)]
        return rules.narrow(te.compute(shape, lambda *i: body(*i), self.name, names), x.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, w = (rules.widen_array(i) for i in inputs)
        win, extra = self._window(w.shape[2:])
        n = len(win.kernel)
        batch, ic, *dims = x.shape
        ocg, g = w.shape[1], self.groups
        _, ends = win.static_pads(self.name)
        full = [
            win.strides[a] * (d - 1) + win.reach(a) + max(extra[a] - min(ends[a], 0), 0)
            for a, d in enumerate(dims)
        ]
        result = np.zeros((batch, g * ocg, *full), x.dtype)
        for k in np.ndindex(*win.kernel):
            part = np.einsum(
                "ngi...,gio->ngo...",
                x.reshape(batch, g, ic // g, *dims),
                w[(..., *k)].reshape(g, ic // g, ocg),
                optimize=True,
            ).reshape(batch, g * ocg, *dims)
            target = (
                slice(
                    k[a] * win.dilations[a],
                    k[a] * win.dilations[a] + win.strides[a] * (dims[a] - 1) + 1,
                    win.strides[a],
                )
                for a in range(n)
            )
            result[(slice(None), slice(None), *target)] += part
        return _crop(result, dims, win, extra).astype(inputs[0].dtype, copy=False)


def _crop(full: np.ndarray, dims: list[int], win: Window, extra: tuple[int, ...]) -> np.ndarray:
    """The full transposed convolution without its pads.  A negative pad adds zeros."""
    begins, ends = win.static_pads("conv_transpose")
    for a, d in enumerate(dims):
        extent = win.strides[a] * (d - 1) + win.reach(a) + extra[a] - begins[a] - ends[a]
        places = np.arange(extent) + begins[a]
        valid = (places >= 0) & (places < full.shape[a + 2])
        full = np.take(full, np.where(valid, places, 0), a + 2)
        full = full * valid.reshape(-1, *[1] * (len(dims) - 1 - a)).astype(full.dtype)
    return full
