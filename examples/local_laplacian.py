#!/usr/bin/env python3
"""Local Laplacian filters, Halide's best known application, scheduled by hand and by rule.

    python examples/local_laplacian.py --levels 2

The filter sharpens or softens details without halos (Paris, Hasinoff, Kautz: "Local Laplacian
Filters", 2011; the program follows Halide's `apps/local_laplacian`).  It builds a Laplacian pyramid
of the image for each of several intensities, and takes each pixel from the pyramids of the two
intensities next to its own.  Inlined, a coarse level would compute the finest one hundreds of times
over.  Stored whole, eight pyramids go through memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim
from tilesmith.support.measure import interleave, ratio
from tilesmith.te import Tensor

INTENSITIES = 8
STEPS = 256
"""Entries of the table of remapped differences between two intensities."""


def clamped(i: Expr, extent: Dim) -> Expr:
    """`i`, or the nearest index of an axis of `extent`."""
    return te.maximum(te.minimum(i, extent - 1), 0)


def downsampled(f: Tensor, name: str) -> Tensor:
    """Half the rows and columns of `f`, smoothed by the weights 1 3 3 1."""
    *others, h, w = f.shape

    def along_x(*at: Expr) -> Expr:
        a, b, c, d = (f[(*at[:-1], clamped(2 * at[-1] + i, w))] for i in (-1, 0, 1, 2))
        return (a + 3.0 * (b + c) + d) / 8.0

    narrow = te.compute((*others, h, (w + 1) // 2), along_x, f"{name}_x", _axes(f))

    def along_y(*at: Expr) -> Expr:
        *k, y, x = at
        a, b, c, d = (narrow[(*k, clamped(2 * y + i, h), x)] for i in (-1, 0, 1, 2))
        return (a + 3.0 * (b + c) + d) / 8.0

    return te.compute((*others, (h + 1) // 2, (w + 1) // 2), along_y, name, _axes(f))


def upsampled(f: Tensor, h: Dim, w: Dim, name: str) -> Tensor:
    """`f` at `h` rows and `w` columns, twice its own, interpolated."""
    *others, rows, columns = f.shape

    def along_x(*at: Expr) -> Expr:
        *k, y, x = at
        far = clamped(x // 2 - 1 + 2 * (x % 2), columns)
        return 0.25 * f[(*k, y, far)] + 0.75 * f[(*k, y, clamped(x // 2, columns))]

    wide = te.compute((*others, rows, w), along_x, f"{name}_x", _axes(f))

    def along_y(*at: Expr) -> Expr:
        *k, y, x = at
        far = clamped(y // 2 - 1 + 2 * (y % 2), rows)
        return 0.25 * wide[(*k, far, x)] + 0.75 * wide[(*k, clamped(y // 2, rows), x)]

    return te.compute((*others, h, w), along_y, name, _axes(f))


def _axes(f: Tensor) -> list[str]:
    return ["k", "y", "x"][-f.rank :]


def local_laplacian(
    h: int, w: int, levels: int, alpha: float = 1.0 / 7.0, beta: float = 1.0
) -> list[Tensor]:
    """The arguments of the filter: an image f32[3, h, w] with values from 0 to 1, and the result.

    levels: of the pyramids, at least 2.
    alpha: how much details are enhanced.
    beta: how much differences between regions are kept.
    """
    last = INTENSITIES - 1
    image = te.placeholder((3, h, w), "f32", "image")
    gray = te.compute(
        (h, w),
        lambda y, x: 0.299 * image[0, y, x] + 0.587 * image[1, y, x] + 0.114 * image[2, y, x],
        "gray",
    )

    def detail(i: Expr) -> Expr:
        d = (te.cast(i, f32) - float(INTENSITIES * STEPS)) / float(STEPS)
        return alpha * d * te.exp(d * d * -0.5)

    remap = te.compute((2 * INTENSITIES * STEPS,), detail, "remap")

    def finest(k: Expr, y: Expr, x: Expr) -> Expr:
        level = te.cast(k, f32) / float(last)
        at = te.cast(gray[y, x] * float(last * STEPS), i32)
        at = te.cast(clamped(at, last * STEPS + 1), i64) + (INTENSITIES - k) * STEPS
        return beta * (gray[y, x] - level) + level + remap[clamped(at, 2 * INTENSITIES * STEPS)]

    pyramids = [te.compute((INTENSITIES, h, w), finest, "g0")]
    images = [gray]
    for j in range(1, levels):
        pyramids.append(downsampled(pyramids[-1], f"g{j}"))
        images.append(downsampled(images[-1], f"in{j}"))
    result = None
    for j in reversed(range(levels)):
        details = pyramids[j]
        if j < levels - 1:
            details = _difference(details, _upsampled_to(pyramids[j + 1], details, f"u{j}"), j)
        picked = _picked(images[j], details, j)
        if result is None:
            result = picked
            continue
        result = _sum(picked, _upsampled_to(result, picked, f"ou{j}"), f"out{j}")
    assert result is not None
    color = _colored(image, gray, result)
    return [image, color]


def _upsampled_to(f: Tensor, like: Tensor, name: str) -> Tensor:
    *_, h, w = like.shape
    return upsampled(f, h, w, name)


def _difference(a: Tensor, b: Tensor, j: int) -> Tensor:
    return te.compute(a.shape, lambda k, y, x: a[k, y, x] - b[k, y, x], f"l{j}")


def _sum(a: Tensor, b: Tensor, name: str) -> Tensor:
    return te.compute(a.shape, lambda y, x: a[y, x] + b[y, x], name)


def _picked(image: Tensor, details: Tensor, j: int) -> Tensor:
    """Each pixel between the two intensities next to its own."""

    def between(y: Expr, x: Expr) -> Expr:
        level = image[y, x] * float(INTENSITIES - 1)
        k = clamped(te.cast(level, i32), INTENSITIES - 1)
        share = level - te.cast(k, f32)
        return (1.0 - share) * details[k, y, x] + share * details[k + 1, y, x]

    return te.compute(image.shape, between, f"ol{j}")


def _colored(image: Tensor, gray: Tensor, result: Tensor) -> Tensor:
    def color(c: Expr, y: Expr, x: Expr) -> Expr:
        return result[y, x] * (image[c, y, x] + 0.01) / (gray[y, x] + 0.01)

    return te.compute(image.shape, color, "color")


def by_hand(args: list[Tensor]) -> te.Schedule:
    """The best schedule found by hand: pyramids level by level, each in strips of rows.

    The finest level of the eight pyramids is never stored.  What the next level needs of it is
    computed in strips, and two values for each pixel of the result are computed again.
    """
    s = te.create_schedule(args[-1].op)
    stages = {st.name: st for st in s.stages if not st.state.is_placeholder}
    strip = s[s.cache_read(stages["g0"].op.outputs[0], "heap", ["g1_x"])]
    inside = {"color": ["out0", "u0", "u0_x", "ou0_x"], "g1": ["g1_x", strip.name]}
    for name in stages:
        if name[0] in "gi" and name[-1] != "x" and name not in ("gray", "g0", "g1"):
            inside[name] = [f"{name}_x"]
    placed = {n for names in inside.values() for n in names}
    for name, stage in stages.items():
        if name == "g0" or (name[0] in "ulo" and name not in placed and name[:3] != "out"):
            stage.compute_inline()
    for name, stage in stages.items():
        if name not in placed and stage.attach != "inline":
            _strips(s, stage, inside.get(name, []), rows=4 if name in ("color", "g1") else 8)
    return s


def _strips(s: te.Schedule, root: te.Stage, members: list[str], rows: int) -> None:
    """`root` in strips of rows that are shared among threads, with `members`, readers first."""
    if len(root.axis) == 1:
        return
    *outer, y, x = root.axis
    strip, row = root.split(y, factor=rows)
    root.reorder(strip, *outer, row, x)
    if outer and members and root.name != "color":  # one intensity after the other
        root.reorder(*outer, strip)
        strip = root.fuse(*outer, strip)
    root.vectorize(root.split(x, factor=8)[1])
    for name in members:
        s[name].compute_at(root, strip)
        s[name].vectorize(s[name].split(s[name].axis[-1], factor=8)[1])
    root.parallel(strip)


def main(h: int, w: int, levels: int, threads: int, rounds: int) -> None:
    args = local_laplacian(h, w, levels)
    image = np.random.default_rng(0).random((3, h, w), dtype=np.float32)
    results: dict[str, np.ndarray] = {}
    runs: dict[str, Callable[[], object]] = {}
    schedules = {"none": te.create_schedule(args[-1].op), "by hand": by_hand(args), "auto": "auto"}
    for name, schedule in schedules.items():
        start = time.perf_counter()
        f = ts.build(schedule, args, threads=threads)  # type: ignore[arg-type]  # "auto"
        print(f"{name:<8} built in {time.perf_counter() - start:.2f} s", flush=True)
        out = results[name] = np.empty_like(image)
        f(image, out)
        runs[name] = lambda f=f, out=out: f(image, out)
        if not np.allclose(out, results["none"], atol=1e-4):
            raise SystemExit(f"{name}: wrong result")
    samples = interleave(runs, rounds=rounds, turn_seconds=0.2)
    for name, taken in samples.items():
        share = ratio(taken, samples["by hand"])
        print(f"{name:<8}{taken.median * 1e3:>8.2f} ms, {share:.2f} times the schedule by hand")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--height", type=int, default=768)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--levels", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10, help="turns for each measurement")
    given = parser.parse_args()
    main(given.height, given.width, given.levels, given.threads, given.rounds)
