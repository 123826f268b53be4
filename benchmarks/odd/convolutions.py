"""Convolutions that libraries have no kernels of their own for, or only slow ones.

Activations are N H W C, weights kh kw C F (and with groups kh kw G C F).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr

from .operator import LAST, Model, Operator, Way, both_layouts, normal

FIRST = (0, 3, 1, 2)


def padded(x: te.Tensor, margin: int) -> te.Tensor:
    """`x` (N, image axes, C) with `margin` zeros around each image."""
    batch, *image, channels = x.shape

    def element(*at: Expr) -> Expr:
        inside = [te.all(i >= margin, i < n + margin) for i, n in zip(at[1:-1], image)]
        return te.if_then_else(
            te.all(*inside), x[(at[0], *(i - margin for i in at[1:-1]), at[-1])], 0.0
        )

    shape = (batch, *(n + 2 * margin for n in image), channels)
    return te.compute(shape, element, f"{x.name}_padded")


def windows(x: np.ndarray, kernel: int, margin: int, dilation: int = 1) -> np.ndarray:
    """`[N, H, W, kh, kw, C]`: what each element of a same-size convolution sees."""
    x = np.pad(x.astype(np.float64), ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    span = (kernel - 1) * dilation + 1
    seen = np.lib.stride_tricks.sliding_window_view(x, (span, span), (1, 2))
    return np.moveaxis(seen[..., ::dilation, ::dilation], 3, -1)


def oihw(w: np.ndarray) -> np.ndarray:
    """kh kw C F weights as F C kh kw."""
    return np.ascontiguousarray(w.transpose(3, 2, 0, 1))


def tensors(*arrays: np.ndarray) -> list[Any]:
    import torch

    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


@dataclass(frozen=True)
class Deformable(Operator):
    """Each tap of each position reads the image where its own offset points to, bilinearly."""

    name: ClassVar[str] = "deformable convolution"
    about: ClassVar[str] = "DCN of a key-point detector (CenterNet, DLA-34)"
    inputs: ClassVar[int] = 2
    size: int = 64
    channels: int = 64
    filters: int = 64

    def define(self) -> list[te.Tensor]:
        n, c, f = self.size, self.channels, self.filters
        x = te.placeholder((1, n, n, c), name="x")
        shift = te.placeholder((1, n, n, 9, 2), name="shift")
        w = te.placeholder((9, c, f), name="w")

        def at(b: Expr, y: Expr, z: Expr, k: Expr) -> Expr:
            inside = te.all(y >= 0, y < n, z >= 0, z < n)
            clamp = lambda v: te.maximum(te.minimum(v, n - 1), 0)  # noqa: E731
            return te.if_then_else(inside, x[b, clamp(y), clamp(z), k], 0.0)

        def sample(b: Expr, i: Expr, j: Expr, t: Expr, k: Expr) -> Expr:
            y = te.cast(i + t // 3 - 1, shift.dtype) + shift[b, i, j, t, 0]
            z = te.cast(j + t % 3 - 1, shift.dtype) + shift[b, i, j, t, 1]
            top, left = te.floor(y), te.floor(z)
            y0, z0 = te.cast(top, i64), te.cast(left, i64)
            dy, dz = y - top, z - left
            upper = at(b, y0, z0, k) * (1.0 - dz) + at(b, y0, z0 + 1, k) * dz
            lower = at(b, y0 + 1, z0, k) * (1.0 - dz) + at(b, y0 + 1, z0 + 1, k) * dz
            return upper * (1.0 - dy) + lower * dy

        taps = te.compute((1, n, n, 9, c), sample, "taps", ("b", "i", "j", "t", "k"))
        t, k = te.reduce_axis(9, "t"), te.reduce_axis(c, "k")
        y = te.compute(
            (1, n, n, f),
            lambda b, i, j, o: te.sum(taps[b, i, j, t, k] * w[t, k, o], axis=(t, k)),
            "y",
        )
        return [x, shift, w, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        n = self.size
        return [
            normal(rng, 1, n, n, self.channels),
            normal(rng, 1, n, n, 9, 2, scale=2.0),
            normal(rng, 9, self.channels, self.filters, scale=0.05),
        ]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x, shift, w = (a.astype(np.float64) for a in arrays)
        n = self.size
        grid = np.arange(n)
        tap = np.arange(9)
        y = grid[:, None, None] + tap // 3 - 1 + shift[0, ..., 0]
        z = grid[:, None] + tap % 3 - 1 + shift[0, ..., 1]
        y0, z0 = np.floor(y).astype(int), np.floor(z).astype(int)

        def at(i: np.ndarray, j: np.ndarray) -> np.ndarray:
            inside = (i >= 0) & (i < n) & (j >= 0) & (j < n)
            return x[0, i.clip(0, n - 1), j.clip(0, n - 1)] * inside[..., None]

        dy, dz = (y - y0)[..., None], (z - z0)[..., None]
        upper = at(y0, z0) * (1 - dz) + at(y0, z0 + 1) * dz
        lower = at(y0 + 1, z0) * (1 - dz) + at(y0 + 1, z0 + 1) * dz
        return [np.tensordot(upper * (1 - dy) + lower * dy, w, ((2, 3), (0, 1)))[None]]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch
        import torch.nn.functional as f

        x, shift, w = arrays
        n, c = self.size, self.channels
        weight, flat = tensors(
            oihw(w.reshape(3, 3, c, self.filters)), w.reshape(9 * c, self.filters)
        )
        image, given = tensors(x, shift)
        first = image.movedim(-1, 1)
        offsets = given.reshape(1, n, n, 18).movedim(-1, 1).contiguous()
        tap, grid = torch.arange(9), torch.arange(n)
        base = torch.stack(
            torch.broadcast_tensors(
                grid[:, None, None] + tap // 3 - 1, grid[:, None] + tap % 3 - 1
            ), -1,
        ).float()  # fmt: skip

        def library(x: Any, offsets: Any) -> Any:
            import torchvision

            return torchvision.ops.deform_conv2d(x, offsets, weight, padding=1).movedim(1, -1)

        def sampled(x: Any, shift: Any) -> Any:
            where = (base + shift[0]).permute(2, 0, 1, 3).reshape(1, 9 * n, n, 2).flip(-1)
            taps = f.grid_sample(x, (2 * where + 1) / n - 1, align_corners=False)
            taps = taps.reshape(c, 9, n * n).permute(2, 1, 0).reshape(n * n, 9 * c)
            return (taps @ flat).view(1, n, n, -1)

        def corners(shift: Any) -> tuple[Any, Any]:
            """For each tap the four positions that it reads, and their weights."""
            y, z = (base + shift[0]).reshape(-1, 2).unbind(-1)
            top, left = y.floor(), z.floor()
            dy, dz = y - top, z - left
            i = torch.stack([top, top, top + 1, top + 1], -1).long()
            j = torch.stack([left, left + 1, left, left + 1], -1).long()
            share = torch.stack([(1 - dy) * (1 - dz), (1 - dy) * dz, dy * (1 - dz), dy * dz], -1)
            inside = (i >= 0) & (i < n) & (j >= 0) & (j < n)
            return i.clamp(0, n - 1) * n + j.clamp(0, n - 1), share * inside

        def bags(x: Any, shift: Any) -> Any:
            where, share = corners(shift)
            taps = f.embedding_bag(where, x.view(n * n, c), mode="sum", per_sample_weights=share)
            return (taps.view(n * n, 9 * c) @ flat).view(1, n, n, -1)

        def gathered(x: Any, shift: Any) -> Any:
            where, share = corners(shift)
            taps = (x.view(n * n, c)[where] * share[..., None]).sum(1)
            return (taps.view(n * n, 9 * c) @ flat).view(1, n, n, -1)

        return [
            Way("torchvision", library, [first.contiguous(), offsets]),
            Way("grid_sample", sampled, [first.contiguous(), given]),
            Way("grid_sample, channels last", sampled, [first, given]),
            Way("embedding_bag", bags, [image, given]),
            Way("gather", gathered, [image, given]),
        ]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        x, shift, w = arrays
        m = Model()
        image = m.input(x.transpose(FIRST))
        offsets = m.input(shift.reshape(1, self.size, self.size, 18).transpose(FIRST))
        weight = m.weight(oihw(w.reshape(3, 3, self.channels, self.filters)))
        return [
            m.way(
                m.add("DeformConv", image, weight, offsets, pads=[1] * 4, kernel_shape=[3, 3]),
                order=LAST,
            )
        ]

    @property
    def flops(self) -> int:
        return 2 * self.size**2 * 9 * self.channels * (self.filters + 6)


@dataclass(frozen=True)
class Octave(Operator):
    """Convolution of two resolutions of one image, with exchange between them."""

    name: ClassVar[str] = "octave convolution"
    about: ClassVar[str] = "OctConv, alpha = 1/2, res2 of a classifier"
    inputs: ClassVar[int] = 2
    size: int = 56
    channels: int = 32
    """Of each resolution, in and out."""

    def define(self) -> list[te.Tensor]:
        n, c = self.size, self.channels
        high = te.placeholder((1, n, n, c), name="high")
        low = te.placeholder((1, n // 2, n // 2, c), name="low")
        w = [te.placeholder((3, 3, c, c), name=s) for s in ("hh", "lh", "hl", "ll")]

        def convolution(x: te.Tensor, w: te.Tensor, size: int, name: str) -> te.Tensor:
            p, q, k = te.reduce_axis(3, "p"), te.reduce_axis(3, "q"), te.reduce_axis(c, "k")
            return te.compute(
                (1, size, size, c),
                lambda b, i, j, o: te.sum(x[b, i + p, j + q, k] * w[p, q, k, o], axis=(p, q, k)),
                name,
            )

        pooled = te.compute(
            low.shape,
            lambda b, i, j, k: (
                (
                    (high[b, 2 * i, 2 * j, k] + high[b, 2 * i, 2 * j + 1, k])
                    + (high[b, 2 * i + 1, 2 * j, k] + high[b, 2 * i + 1, 2 * j + 1, k])
                )
                * 0.25
            ),
            "pooled",
        )
        wide = padded(low, 1)
        hh = convolution(padded(high, 1), w[0], n, "hh_sum")
        lh = convolution(wide, w[1], n // 2, "lh_sum")
        hl = convolution(padded(pooled, 1), w[2], n // 2, "hl_sum")
        ll = convolution(wide, w[3], n // 2, "ll_sum")
        up = te.compute(
            (1, n, n, c), lambda b, i, j, o: hh[b, i, j, o] + lh[b, i // 2, j // 2, o], "new_high"
        )
        down = te.compute(low.shape, lambda b, i, j, o: hl[b, i, j, o] + ll[b, i, j, o], "new_low")
        return [high, low, *w, up, down]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        n, c = self.size, self.channels
        weights = [normal(rng, 3, 3, c, c, scale=0.05) for _ in range(4)]
        return [normal(rng, 1, n, n, c), normal(rng, 1, n // 2, n // 2, c), *weights]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        high, low, hh, lh, hl, ll = (a.astype(np.float64) for a in arrays)

        def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            return np.tensordot(windows(x, 3, 1), w, 3)

        n = self.size // 2
        pooled = high.reshape(1, n, 2, n, 2, -1).mean((2, 4))
        up = convolution(low, lh).repeat(2, 1).repeat(2, 2)
        return [convolution(high, hh) + up, convolution(pooled, hl) + convolution(low, ll)]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch.nn.functional as f

        high, low, *rest = arrays
        # the convolutions of one input are one convolution
        hh, lh, hl, ll = tensors(*map(oihw, rest))
        import torch

        from_low = torch.cat([lh, ll])
        c = self.channels

        def plain(high: Any, low: Any) -> Any:
            of_low = f.conv2d(low, from_low, padding=1)
            up = f.interpolate(of_low[:, :c], scale_factor=2.0, mode="nearest")
            pooled = f.avg_pool2d(high, 2)
            new_high = f.conv2d(high, hh, padding=1) + up
            return new_high, f.conv2d(pooled, hl, padding=1) + of_low[:, c:]

        return both_layouts(plain, [high, low])

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        high, low, *rest = arrays
        m = Model()
        h, lo = m.input(high.transpose(FIRST)), m.input(low.transpose(FIRST))
        hh, lh, hl, ll = (m.weight(oihw(w)) for w in rest)

        def convolution(x: str, w: str) -> str:
            return m.add("Conv", x, w, pads=[1] * 4, kernel_shape=[3, 3])

        scales = m.weight(np.array([1, 1, 2, 2], np.float32))
        up = m.add("Resize", convolution(lo, lh), "", scales, mode="nearest",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
        pooled = m.add("AveragePool", h, kernel_shape=[2, 2], strides=[2, 2])
        new_high = m.add("Add", convolution(h, hh), up)
        new_low = m.add("Add", convolution(pooled, hl), convolution(lo, ll))
        return [m.way(new_high, new_low, order=LAST)]

    @property
    def flops(self) -> int:
        return 2 * 9 * self.channels**2 * self.size**2 * 7 // 4


@dataclass(frozen=True)
class DilatedDepthwise(Operator):
    """One 7x7 filter per channel, its taps three apart."""

    name: ClassVar[str] = "dilated depthwise 7x7"
    about: ClassVar[str] = "large kernel attention (VAN), dilation 3"
    size: int = 56
    channels: int = 64
    dilation: int = 3

    def define(self) -> list[te.Tensor]:
        n, c, d = self.size, self.channels, self.dilation
        x = te.placeholder((1, n, n, c), name="x")
        w = te.placeholder((7, 7, c), name="w")
        p, q = te.reduce_axis(7, "p"), te.reduce_axis(7, "q")
        image = padded(x, 3 * d)
        y = te.compute(
            (1, n, n, c),
            lambda b, i, j, k: te.sum(image[b, i + p * d, j + q * d, k] * w[p, q, k], axis=(p, q)),
            "y",
        )
        return [x, w, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [
            normal(rng, 1, self.size, self.size, self.channels),
            normal(rng, 7, 7, self.channels, scale=0.1),
        ]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x, w = arrays
        seen = windows(x, 7, 3 * self.dilation, self.dilation)
        return [np.einsum("nijpqk,pqk->nijk", seen, w.astype(np.float64))]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch.nn.functional as f

        x, w = arrays
        (weight,) = tensors(w.transpose(2, 0, 1)[:, None])
        c, d = self.channels, self.dilation
        return both_layouts(lambda x: f.conv2d(x, weight, padding=3 * d, dilation=d, groups=c), [x])

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        x, w = arrays
        m = Model()
        image, weight = m.input(x.transpose(FIRST)), m.weight(w.transpose(2, 0, 1)[:, None])
        d = self.dilation
        y = m.add("Conv", image, weight, pads=[3 * d] * 4, dilations=[d, d],
                  kernel_shape=[7, 7], group=self.channels)  # fmt: skip
        return [m.way(y, order=LAST)]

    @property
    def flops(self) -> int:
        return 2 * 49 * self.size**2 * self.channels


@dataclass(frozen=True)
class ShuffledGroups(Operator):
    """A grouped 1x1 convolution, the shuffle of its channels over the groups, another one."""

    name: ClassVar[str] = "channel shuffle + grouped convolution"
    about: ClassVar[str] = "ShuffleNet, stage 2, 8 groups"
    batch: int = 4
    size: int = 28
    channels: int = 384
    middle: int = 96
    groups: int = 8

    def define(self) -> list[te.Tensor]:
        g, n = self.groups, self.size
        wide, narrow = self.channels // g, self.middle // g
        x = te.placeholder((self.batch, n, n, self.channels), name="x")
        w1 = te.placeholder((g, wide, narrow), name="w1")
        w2 = te.placeholder((g, narrow, wide), name="w2")
        k1, k2 = te.reduce_axis(wide, "k1"), te.reduce_axis(narrow, "k2")
        inner = te.compute(
            (self.batch, n, n, g, narrow),
            lambda b, i, j, h, o: te.sum(x[b, i, j, h * wide + k1] * w1[h, k1, o], axis=k1),
            "inner",
        )

        def shuffled(b: Expr, i: Expr, j: Expr, channel: Expr) -> Expr:
            return inner[b, i, j, channel % g, channel // g]

        y = te.compute(
            (self.batch, n, n, g, wide),
            lambda b, i, j, h, o: te.sum(
                shuffled(b, i, j, h * narrow + k2) * w2[h, k2, o], axis=k2
            ),
            "y",
        )
        return [x, w1, w2, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        g, n = self.groups, self.size
        wide, narrow = self.channels // g, self.middle // g
        return [
            normal(rng, self.batch, n, n, self.channels),
            normal(rng, g, wide, narrow, scale=0.2),
            normal(rng, g, narrow, wide, scale=0.2),
        ]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x, w1, w2 = (a.astype(np.float64) for a in arrays)
        shape = (self.batch, self.size, self.size, self.groups, -1)
        inner = np.einsum("bijgk,gko->bijgo", x.reshape(shape), w1)
        mixed = inner.swapaxes(3, 4).reshape(shape)
        return [np.einsum("bijgk,gko->bijgo", mixed, w2).reshape(x.shape)]

    def _filters(self, w: np.ndarray) -> np.ndarray:
        """g k o weights as (g o) k 1 1."""
        return w.transpose(0, 2, 1).reshape(-1, w.shape[1], 1, 1)

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch.nn.functional as f

        x, *weights = arrays
        w1, w2 = tensors(*map(self._filters, weights))
        g = self.groups

        def plain(x: Any) -> Any:
            y = f.channel_shuffle(f.conv2d(x, w1, groups=g), g)
            return f.conv2d(y, w2, groups=g)

        return both_layouts(plain, [x])

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        x, *weights = arrays
        g, n = self.groups, self.size
        m = Model()
        image = m.input(x.transpose(FIRST))
        w1, w2 = (m.weight(self._filters(w)) for w in weights)
        y = m.add("Conv", image, w1, group=g)
        y = m.add("Reshape", y, m.weight(np.array([self.batch, g, -1, n, n])))
        y = m.add("Transpose", y, perm=[0, 2, 1, 3, 4])
        y = m.add("Reshape", y, m.weight(np.array([self.batch, -1, n, n])))
        return [m.way(m.add("Conv", y, w2, group=g), order=LAST)]

    @property
    def flops(self) -> int:
        return 4 * self.batch * self.size**2 * self.channels * self.middle // self.groups


@dataclass(frozen=True)
class Convolution3d(Operator):
    """3x3x3 over frames, rows and columns."""

    name: ClassVar[str] = "3-D convolution"
    about: ClassVar[str] = "3-D U-Net, a level of a volume of 32 slices"
    depth: int = 16
    size: int = 40
    channels: int = 16
    filters: int = 32

    def define(self) -> list[te.Tensor]:
        d, n, c, f = self.depth, self.size, self.channels, self.filters
        x = te.placeholder((1, d, n, n, c), name="x")
        w = te.placeholder((3, 3, 3, c, f), name="w")
        r, p, q = (te.reduce_axis(3, a) for a in "rpq")
        k = te.reduce_axis(c, "k")

        image = padded(x, 1)
        y = te.compute(
            (1, d, n, n, f),
            lambda b, z, i, j, o: te.sum(
                image[b, z + r, i + p, j + q, k] * w[r, p, q, k, o], axis=(r, p, q, k)
            ),
            "y",
        )
        return [x, w, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [
            normal(rng, 1, self.depth, self.size, self.size, self.channels),
            normal(rng, 3, 3, 3, self.channels, self.filters, scale=0.05),
        ]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x, w = (a.astype(np.float64) for a in arrays)
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1), (0, 0)))
        seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3, 3), (1, 2, 3))
        return [np.einsum("bzijkrpq,rpqko->bzijo", seen, w, optimize=True)]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch.nn.functional as f

        x, w = arrays
        (weight,) = tensors(w.transpose(4, 3, 0, 1, 2))
        return both_layouts(lambda x: f.conv3d(x, weight, padding=1), [x])

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        x, w = arrays
        m = Model()
        image, weight = m.input(x.transpose(0, 4, 1, 2, 3)), m.weight(w.transpose(4, 3, 0, 1, 2))
        y = m.add("Conv", image, weight, pads=[1] * 6, kernel_shape=[3, 3, 3])
        return [m.way(y, order=(0, 2, 3, 4, 1))]

    @property
    def flops(self) -> int:
        return 2 * 27 * self.depth * self.size**2 * self.channels * self.filters
