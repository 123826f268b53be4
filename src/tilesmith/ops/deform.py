"""Convolutions with data-dependent tap positions (Dai and others, 2017; Zhu and others, 2019)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Expr, all_of, as_expr, cast, maximum, minimum, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op
from .conv import Conv
from .window import Window, spatial_names


@dataclass(frozen=True)
class DeformSample(Op):
    """The elements that the taps of a deformable convolution read, [N,C,kernel...,out...].  Inputs:
    x [N,C,in...], offset [N,G K r,out...] for K taps on r axes, and an optional mask [N,G
    K,out...].

    Along each axis, tap k is moved by the offset with number (g K + k) r + axis, in pixels, where g
    is the number of the channel's group.  A group has C / G channels.  The image is interpolated
    linearly between pixels, and is zero outside.

    kernel: extents of the window.
    strides, pads, dilations: as in `conv`; `pads` must be given.
    groups: G.
    """

    heavy_reference = True

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1

    def _window(self) -> Window:
        return Window.of(self.name, self.kernel, self.strides, self.pads, self.dilations)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2, 3)
        rules.check_same_dtype(self.name, inputs)
        rules.check_kind(self.name, inputs[0], rules.FLOATS)
        x, offset = inputs[:2]
        rank, win = len(self.kernel), self._window()
        if x.rank != rank + 2 or offset.rank != x.rank:
            rules.reject(
                self.name, f"x and offset with {rank} spatial axes",
                f"{rules.shape_text(x.shape)} and {rules.shape_text(offset.shape)}",
            )  # fmt: skip
        extents = x.shape[2:]
        channels = rules.static(self.name, x.shape[1], "the channel count")
        if self.groups < 1 or channels % self.groups:
            rules.reject(self.name, f"{self.groups} groups of channels", channels)
        out = tuple(win.out_extent(self.name, d, a) for a, d in enumerate(extents))
        taps = self.groups * math.prod(self.kernel)
        for t, count in zip(inputs[1:], (taps * rank, taps), strict=False):
            if not rules.equal_shapes(self.name, t.shape, (x.shape[0], count, *out)):
                rules.reject(
                    self.name, f"offsets {(x.shape[0], taps * rank, *out)}, a mask "
                    f"{(x.shape[0], taps, *out)}", rules.shape_text(t.shape),
                )  # fmt: skip

        def body(n: Expr, c: Expr, *at: Expr) -> Expr:
            tap, place = at[:rank], at[rank:]
            number: Expr = c // (channels // self.groups) if self.groups > 1 else c * 0
            for k, size in zip(tap, self.kernel, strict=True):
                number = number * size + k
            axes = [
                _corners(
                    cast(win.at(a, place[a], tap[a]) - win.begins[a], f32)
                    + cast(offset[(n, number * rank + a, *place)], f32),
                    extents[a],
                )
                for a in range(rank)
            ]
            terms: list[Expr] = []
            for corner in itertools.product(*axes):
                value = rules.widen(x[(n, c, *(i for i, _, _ in corner))])
                inside = all_of(*(ok for _, _, ok in corner))
                weight = reduce(lambda p, q: p * q, (w for _, w, _ in corner))
                terms.append(select(inside, value, 0.0) * cast(weight, value.dtype))
            result = reduce(lambda p, q: p + q, terms)
            if len(inputs) == 3:
                result = result * rules.widen(inputs[2][(n, number, *place)])
            return cast(result, x.dtype)

        names = ["n", "c", *spatial_names("k", rank), *spatial_names("o", rank)]
        return te.compute((*x.shape[:2], *self.kernel, *out), body, self.name, names)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, offset = (rules.widen_array(i) for i in inputs[:2])
        win, rank, batch = self._window(), len(self.kernel), x.shape[0]
        out = offset.shape[2:]
        moved = offset.reshape(batch, self.groups, *self.kernel, rank, *out)
        taps, places = (np.indices(s).reshape(rank, *s) for s in (self.kernel, out))
        shares: list[list[tuple[np.ndarray, Any, np.ndarray]]] = []
        for a, extent in enumerate(x.shape[2:]):
            place = places[a] * win.strides[a] - win.begins[a]
            tap = (taps[a] * win.dilations[a]).reshape(*self.kernel, *[1] * rank)
            position = np.moveaxis(moved, 2 + rank, 0)[a].astype(np.float32) + (tap + place)
            position = np.clip(np.nan_to_num(position), -2.0, extent + 1.0)
            low = np.floor(position)
            part = position - low
            first = low.astype(np.int64)
            shares.append([
                (np.clip(i, 0, extent - 1), w, (i >= 0) & (i < extent))
                for i, w in ((first, 1 - part), (first + 1, part))
            ])  # fmt: skip
        images = x.reshape(batch, self.groups, -1, *x.shape[2:])
        result: Any = 0
        n, g = np.ogrid[:batch, : self.groups]
        lead = (slice(None), slice(None), *[None] * (2 * rank))
        for corner in itertools.product(*shares):
            pixel = (n[lead], g[lead], slice(None), *(i for i, _, _ in corner))
            weight = math.prod(w * ok for _, w, ok in corner)
            result = result + images[pixel] * np.asarray(weight)[..., None]
        if len(inputs) == 3:
            mask = rules.widen_array(inputs[2]).reshape(batch, self.groups, *self.kernel, *out)
            result = result * mask[..., None]
        values = np.moveaxis(np.asarray(result), -1, 2)
        return values.reshape(batch, -1, *self.kernel, *out).astype(inputs[0].dtype)


def _corners(position: Expr, extent: Dim) -> list[tuple[Expr, Expr, Expr]]:
    """The pixels on both sides of a position along an axis: their indices, their weights, and
    whether they are inside the image.
    """
    low = call("floor", minimum(maximum(position, -2.0), cast(as_expr(extent), f32) + 1.0))
    part, first = position - low, cast(low, i64)
    return [
        (minimum(maximum(i, 0), extent - 1), w, all_of(i >= 0, i < extent))
        for i, w in ((first, 1.0 - part), (first + 1, part))
    ]


@dataclass(frozen=True)
class DeformConv(Op):
    """Deformable convolution of x with w [OC, C/groups, kernel...]: `deform_sample` with
    `offset_groups` groups of offsets and mask, then a convolution over the samples.

    strides, pads, dilations, groups: as in `conv`.
    """

    heavy_reference = True

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    offset_groups: int = 1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 3, 4)
        x, w, *rest = inputs
        kernel = tuple(rules.static(self.name, k, "the kernel size") for k in w.type.shape[2:])
        sample = DeformSample(kernel, self.strides, self.pads, self.dilations, self.offset_groups)
        taps = b.add(sample, x, *rest)
        rank, count = len(kernel), math.prod(kernel)
        batch, channels, *_ = taps.type.shape
        out = taps.type.shape[2 + rank :]
        flat = taps.reshape(batch, channels * count, *out)
        filters, per_group = w.type.shape[:2]
        weights = w.reshape(filters, per_group * count, *[1] * rank)
        return b.add(Conv(groups=self.groups), flat, weights)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, w, offset, *mask = map(rules.exact, inputs)
        kernel, extents, out = w.shape[2:], x.shape[2:], offset.shape[2:]
        win = Window.of(self.name, kernel, self.strides, self.pads, self.dilations)
        moved = offset.reshape(x.shape[0], self.offset_groups, *kernel, len(kernel), *out)
        filters = w.reshape(self.groups, -1, *w.shape[1:])
        y = np.zeros((x.shape[0], self.groups, filters.shape[1], *out))
        for n, c, tap in itertools.product(range(len(x)), range(x.shape[1]), np.ndindex(*kernel)):
            offsets = c * self.offset_groups // x.shape[1]
            places = np.indices(out).astype(np.float64)
            for a, k in enumerate(tap):
                places[a] *= win.strides[a]
                places[a] += k * win.dilations[a] - win.begins[a] + moved[(n, offsets, *tap, a)]
            sample = np.zeros(out)
            for corner in itertools.product((0, 1), repeat=len(kernel)):
                px = [np.floor(p).astype(np.int64) + d for p, d in zip(places, corner, strict=True)]
                weight = math.prod(1 - np.abs(p - i) for p, i in zip(places, px, strict=True))
                inside = np.all([(i >= 0) & (i < e) for i, e in zip(px, extents, strict=True)], 0)
                near = tuple(np.clip(i, 0, e - 1) for i, e in zip(px, extents, strict=True))
                sample += np.where(inside, weight * x[n, c][near], 0.0)
            if mask:
                sample *= mask[0].reshape(x.shape[0], self.offset_groups, *kernel, *out)[
                    (n, offsets, *tap)
                ]
            group, channel = divmod(c, w.shape[1])
            y[n, group] += np.multiply.outer(filters[(group, slice(None), channel, *tap)], sample)
        return y.reshape(x.shape[0], -1, *out).astype(inputs[0].dtype)
