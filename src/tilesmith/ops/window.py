"""The geometry of convolutions and pools: windows that slide over padded spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import Expr, as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules


@dataclass(frozen=True)
class Window:
    """The geometry of a window, per spatial axis.

    kernel: extent of the window in taps.
    strides: distance between positions of the window.
    dilations: distance between taps.
    begins: padding before the axis.
    ends: padding after the axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[Dim, ...]
    ends: tuple[Dim, ...]

    @staticmethod
    def of(
        op: str,
        kernel: Sequence[Dim],
        strides: Sequence[int],
        pads: Sequence[Dim],
        dilations: Sequence[int],
    ) -> Window:
        """The geometry from attributes.  `pads` has the padding before each axis, then the padding
        after each.  Empty `strides` and `dilations` are ones, empty `pads` zeros.
        """
        n = len(kernel)
        sizes = tuple(rules.static(op, k, "the kernel size") for k in kernel)
        strides = tuple(strides) or (1,) * n
        dilations = tuple(dilations) or (1,) * n
        pads = tuple(pads) or (0,) * (2 * n)
        for what, values, count, low in (
            ("kernel sizes", sizes, n, 1),
            ("strides", strides, n, 1),
            ("dilations", dilations, n, 1),
            ("pads", pads, 2 * n, None),
        ):
            bad = low is not None and any(isinstance(v, int) and v < low for v in values)
            if len(values) != count or bad:
                least = "" if low is None else f" of at least {low}"
                rules.reject(op, f"{count} {what}{least} for {n} spatial axes", values)
        return Window(sizes, strides, dilations, pads[:n], pads[n:])

    def reach(self, a: int) -> int:
        """The number of elements that the window spans along spatial axis `a`."""
        return (self.kernel[a] - 1) * self.dilations[a] + 1

    def out_extent(self, op: str, extent: Dim, a: int, ceil_mode: bool = False) -> Dim:
        """Number of positions of the window along axis `a`.

        In ceil mode the last window may extend past the end.  But it must start inside the input or
        the padding before it, as in ONNX MaxPool-22 and PyTorch.
        """
        room = extents.total((extent, self.begins[a], self.ends[a], -self.reach(a)))
        stride = self.strides[a]
        if not isinstance(room, int):
            if not ceil_mode:
                return as_dim(room // stride + 1)
            starts = extents.total((extent, self.begins[a], stride - 1))
            within = as_dim(as_expr(starts) // stride)
            return extents.smaller(as_dim((room + (stride - 1)) // stride + 1), within)
        if room < 0:
            rules.reject(
                op,
                f"an extent of at least {self.reach(a)} under the window, padding included",
                room + self.reach(a),
            )
        n = -(-room // stride) + 1 if ceil_mode else room // stride + 1
        if ceil_mode and (n - 1) * stride >= room + self.reach(a) - self.ends[a]:  # type: ignore[operator]  # numbers, as their sum is
            n -= 1
        return n

    def end(self, a: int, places: Dim) -> Dim:
        """One past the last padded position that the first `places` windows read along axis `a`."""
        stride = self.strides[a]
        return extents.total((extents.product((places, stride)), self.reach(a) - stride))

    def static_pads(self, op: str) -> tuple[list[int], list[int]]:
        """`begins` and `ends` as numbers."""
        begins, ends = (
            [rules.static(op, n, "a pad") for n in pads] for pads in (self.begins, self.ends)
        )
        return begins, ends

    def padded(self, x: np.ndarray, filler: Any, ends: Sequence[Dim] | None = None) -> np.ndarray:
        """`x` [N, C, ...] with `filler` around its spatial axes, or cut where a pad is negative.
        `ends`, if given, replaces `self.ends`.
        """
        pads = [*zip(self.begins, self.ends if ends is None else ends, strict=True)]
        sizes: list[tuple[int, int]] = pads  # type: ignore[assignment]  # numbers, like x's
        around = [(0, 0), (0, 0), *((max(b, 0), max(e, 0)) for b, e in sizes)]
        x = np.pad(x, around, constant_values=filler)
        cut = (slice(max(-b, 0), x.shape[a + 2] - max(-e, 0)) for a, (b, e) in enumerate(sizes))
        return x[(slice(None), slice(None), *cut)]

    def views(self, x: np.ndarray, places: Sequence[Dim] | None = None) -> np.ndarray:
        """All windows of the padded `x` [N, C, ...]: [N, C, places..., kernel...].  `places` is the
        number of positions per axis, by default the largest possible one.
        """
        n = len(self.kernel)
        spatial = tuple(range(2, 2 + n))
        reach = [self.reach(a) for a in range(n)]
        views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=spatial)  # type: ignore[call-overload]
        step = (slice(None, None, s) for s in (*self.strides, *self.dilations))
        most = () if places is None else (slice(p) for p in places)
        return views[(slice(None), slice(None), *step)][(slice(None), slice(None), *most)]

    def taps(self) -> list[te.IterVar]:
        """A reduction axis for each axis of the window."""
        names = spatial_names("k", len(self.kernel))
        return [te.reduce_axis(k, name) for k, name in zip(self.kernel, names, strict=True)]

    def position(self, out: Sequence[Expr], taps: Sequence[te.IterVar | Expr]) -> list[Expr]:
        """The padded position that `taps` of the window at `out` read."""
        pairs = enumerate(zip(out, map(as_expr, taps), strict=True))
        return [self.at(a, o, k) for a, (o, k) in pairs]

    def at(self, a: int, out: Expr, k: Expr) -> Expr:
        """The padded position that tap `k` of the window at `out` reads."""
        base = out * self.strides[a] if self.strides[a] != 1 else out
        return base + (k * self.dilations[a] if self.dilations[a] != 1 else k)


_SPATIAL = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}


def spatial_names(prefix: str, rank: int) -> list[str]:
    """Names of spatial axes with a prefix, such as `oh` and `ow`."""
    return [prefix + n for n in _SPATIAL.get(rank, [str(i) for i in range(rank)])]
