"""Random chains of stencils, with their answers in NumPy: what sliding windows are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var


@dataclass
class Chain:
    """Stages that each read the one before.

    input, stages: the tensors; the last stage is the output.
    answer: the output for an input, in NumPy.
    data: an input.
    sizes: values of the symbolic extents.
    """

    input: te.Tensor
    stages: list[te.Tensor]
    answer: Callable[[np.ndarray], np.ndarray]
    data: np.ndarray
    sizes: dict[str, int]


@dataclass
class _Window:
    """How elements are read: `y * step // down + tap` for each tap.

    step, down: stride, or factor of upsampling.
    taps: offsets.
    clamp: whether the image ends repeat; otherwise the result is smaller.
    back: whether the image is read from its end.
    """

    step: int
    down: int
    taps: list[int]
    clamp: bool
    back: bool

    def extent(self, n: int) -> int:
        """Number of results for `n` elements."""
        if self.clamp:
            return n * self.down // self.step
        return max((n - max(self.taps) - 1) * self.down // self.step + 1, 0)

    def at(self, y, tap: int, n, low: Callable, high: Callable, results):
        """The index read: for ints and for expressions."""
        base = (results - 1 - y if self.back else y) * self.step // self.down + tap
        return low(high(base, 0), n - 1) if self.clamp else base


def _window(rnd: Random) -> _Window:
    clamp = rnd.random() < 0.3
    step, down = rnd.choice([(1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2)])
    dilation = rnd.choice([1, 1, 2, 3])
    taps = [dilation * k for k in range(rnd.randint(1, 4))]
    if clamp:
        middle = taps[len(taps) // 2]
        taps = [t - middle for t in taps]
    return _Window(step, down, taps, clamp, back=rnd.random() < 0.1)


def random_chain(rnd: Random, symbolic: bool = False) -> Chain:
    """A chain of one to four stages on an image of two dimensions."""
    rows, columns = rnd.randint(14, 22), rnd.randint(12, 18)
    symbol = Var("n", i64)
    x = te.placeholder((symbol if symbolic else rows, columns), name="X")
    data = np.random.default_rng(rnd.randint(0, 99)).integers(-3, 4, (rows, columns))
    stages: list[te.Tensor] = []
    steps: list[Callable[[np.ndarray], np.ndarray]] = []
    before, shape = x, (rows, columns)
    for number in range(rnd.randint(1, 4)):
        windows = _window(rnd), _window(rnd)
        if symbolic:
            windows = _Window(1, 1, windows[0].taps, windows[0].clamp, False), windows[1]
        if min(w.extent(n) for w, n in zip(windows, shape, strict=True)) < 3:
            continue
        result = tuple(w.extent(n) for w, n in zip(windows, shape, strict=True))
        dims: Sequence = result
        if symbolic:
            rest = 0 if windows[0].clamp else max(windows[0].taps)
            dims = (before.shape[0] - rest, result[1])
        before = _stage(before, dims, windows, f"S{number}")
        stages.append(before)
        steps.append(_numpy(windows, result))
        shape = result
    if not stages:
        return random_chain(rnd, symbolic)
    last = te.compute(stages[-1].shape, lambda i, j: stages[-1][i, j] * 2.0, name="Y")

    def answer(image: np.ndarray) -> np.ndarray:
        for f in steps:
            image = f(image)
        return image * 2

    sizes = {"n": rows} if symbolic else {}
    return Chain(x, [*stages, last], answer, data.astype(np.float32), sizes)


def _stage(x: te.Tensor, shape: Sequence, windows: tuple[_Window, _Window], name: str):
    def body(i, j):
        total = te.const(0.0)
        for p in windows[0].taps:
            for q in windows[1].taps:
                at = (
                    w.at(v, t, n, te.minimum, te.maximum, m)
                    for w, v, t, n, m in zip(windows, (i, j), (p, q), x.shape, shape, strict=True)
                )
                total = total + x[tuple(at)] * float(p - q + 5)
        return total

    return te.compute(shape, body, name=name)


def _numpy(windows: tuple[_Window, _Window], shape: tuple[int, ...]):
    def apply(image: np.ndarray) -> np.ndarray:
        result = np.zeros(shape, np.float32)
        for p in windows[0].taps:
            for q in windows[1].taps:
                at = [
                    [w.at(y, tap, n, min, max, m) for y in range(m)]
                    for w, tap, n, m in zip(windows, (p, q), image.shape, shape, strict=True)
                ]
                result += image[np.ix_(*at)] * (p - q + 5)
        return result

    return apply


def random_sliding(s: te.Schedule, chain: Chain, rnd: Random) -> None:
    """Split the output's loops and keep the other stages in windows, at random.  Raises
    ScheduleError like the primitives.
    """
    out = s[chain.stages[-1]]
    outer = inner = None
    rows, columns = out.axis
    if rnd.random() < 0.6:
        outer, rows = out.split(rows, rnd.choice([2, 3, 4, 5]), tail=rnd.choice(["peel", "guard"]))
        if rnd.random() < 0.4:
            out.parallel(outer)
    loops = [rows]
    if rnd.random() < 0.5:
        columns, inner = out.split(columns, rnd.choice([3, 4, 8]))
        loops.append(columns)
        if rnd.random() < 0.4:
            out.reorder(columns, rows, inner)
            loops = [columns, rows]
        if rnd.random() < 0.5:
            out.vectorize(inner)
    elif rnd.random() < 0.3:
        out.reorder(columns, rows)
        loops = [columns, rows]
    if rnd.random() < 0.2:
        out.unroll(loops[-1])
    at = rnd.choice(loops)
    for stage in reversed(chain.stages[:-1]):
        own = s[stage]
        target = out
        if rnd.random() < 0.1:
            own.compute_inline()
            continue
        own.compute_at(target, at)
        if rnd.random() < 0.8:
            if outer is not None and rnd.random() < 0.7:
                own.store_at(out, outer)
            elif rnd.random() < 0.3:
                own.store_at(out, rnd.choice(loops))
            else:
                own.store_root()
            if rnd.random() < 0.2:
                own.fold_storage(own.axis[rnd.choice([0, 0, 1])], rnd.choice([3, 5, 7, 9]))
        if rnd.random() < 0.2:
            own.vectorize(own.split(own.axis[1], 4)[1])
        if rnd.random() < 0.1:
            own.unroll(own.axis[0])
