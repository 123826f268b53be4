"""Random schedules of blocks and threads: the interpreter's answers, and those of a device.

Elements are small integers, so that sums are exact in every order and answers agree bit by bit.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from library import final, library

from tilesmith import te
from tilesmith.codegen.opencl.emit import write
from tilesmith.ir.device import Device
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Barrier, For, Func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import walk
from tilesmith.support.errors import ScheduleError
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Tensor

TOGETHER = 20
"""Kernels of one program."""

DEVICE = Device()
"""Its limits are what nearly every GPU has."""

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A legal schedule.

    func: its loops.
    plain: those of the expression without a schedule.
    given: the inputs.
    shape: of the result.
    used: the primitives in it that matter here.
    refused: how many schedules were illegal before it.
    """

    func: Func
    plain: Func
    given: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    used: frozenset[str]
    refused: int


# the expressions: inputs, stages between, and the result


def _product(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    rows, columns, depth = n(), n(), n()
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    r = te.reduce_axis(depth, "r")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    return [a, b], [], c


def _product_and_more(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    (a, b), _, c = _product(n)
    bias = te.placeholder((int(str(c.shape[1])),), name="bias")
    y = te.compute(c.shape, lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), "y")
    return [a, b, bias], [c], y


def _mirrored(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    rows, columns = n(), n()
    a = te.placeholder((rows, columns), name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j] * 2.0, "B")
    y = te.compute((rows, columns), lambda i, j: b[i, j] - b[i, columns - 1 - j], "y")
    return [a], [b], y


def _transposed(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    a = te.placeholder((n(), n()), name="A")
    return [a], [], te.compute((a.shape[1], a.shape[0]), lambda i, j: a[j, i] + 1.0, "y")


def _sums(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    rows, columns = n(), 2 * n()
    a, r = te.placeholder((rows, columns), name="A"), te.reduce_axis(columns, "r")
    return [a], [], te.compute((rows,), lambda i: te.sum(a[i, r], axis=r), "y")


def _largest(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    rows, columns = n(), 2 * n()
    a, r = te.placeholder((rows, columns), name="A"), te.reduce_axis(columns, "r")
    most = te.compute((rows,), lambda i: te.max(a[i, r], axis=r), "most")
    y = te.compute((rows, columns), lambda i, j: a[i, j] - most[i], "y")
    return [a], [most], y


def _windows(n: Callable[[], int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    rows, columns, width = n(), n(), 3
    a = te.placeholder((rows, columns + width - 1), name="A")
    w, r = te.placeholder((width,), name="W"), te.reduce_axis(width, "r")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, "B")
    y = te.compute((rows, columns), lambda i, j: te.sum(b[i, j + r] * w[r], axis=r), "y")
    return [a, w], [b], y


EXPRESSIONS = (
    _product, _product, _product_and_more, _mirrored, _transposed, _sums, _largest, _windows
)  # fmt: skip


class _Draft:
    """A schedule under construction."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.used: set[str] = set()
        self.threads: list[str] = []  # indices that loops around are bound to
        self.inputs, self.between, self.result = rng.choice(EXPRESSIONS)(lambda: rng.randint(1, 13))
        self.s: Schedule = te.create_schedule(self.result.op)

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    def build(self) -> None:
        """Add random steps.  Raises ScheduleError for an illegal one."""
        rng, s, out = self.rng, self.s, self.result
        own: Tensor | None = None
        stage = s[out]
        if s[out].reduce_axis and self.maybe(0.6):
            if self.maybe(0.5):
                (self.across_threads if self.maybe(0.5) else self.combined)(out)
                return
            own = s.cache_write(out, rng.choice(("register", "stack")))
            self.used.add("cache_write")
        reader = own if own is not None else out
        read = [t for t in self.inputs if self.maybe(0.6)]
        cached = [(t, self.cached(t, reader)) for t in read]
        spatial = self.split(stage)
        self.bind(stage, spatial)
        inner = list(stage.leaf_axes)
        if own is not None:
            s[own].compute_at(stage, rng.choice(inner))
            self.order(s[own])
            inner += s[own].leaf_axes
        for _, copy in cached:
            if copy is not None:
                where = s[reader]
                s[copy].compute_at(where, rng.choice(list(where.leaf_axes)))
                self.cooperate(s[copy])
        for t in self.between:
            self.place(t, stage)

    def cached(self, t: Tensor, reader: Tensor) -> Tensor | None:
        scope = self.rng.choice(("shared", "shared", "stack"))
        try:
            copy = self.s.cache_read(t, scope, [reader])
        except ScheduleError:  # another stage reads it
            return None
        self.used.add(f"cache_read {scope}")
        return copy

    def split(self, stage: Stage) -> list[list[Axis]]:
        """Tile the axes of a stage; the loops by level, outermost first."""
        rng = self.rng
        levels: list[list[Axis]] = [[], [], []]
        for axis in stage.axis:
            tail = rng.choice(("guard", "peel", "roundup"))
            parts: list[Axis] = [axis]
            for _ in range(rng.choice((0, 1, 1, 2))):
                outer, rest = stage.split(parts.pop(), factor=rng.randint(1, 6), tail=tail)
                parts += [outer, rest]
            for level, part in zip(levels, parts):
                level.append(part)
        serial = [*stage.reduce_axis]
        if serial and self.maybe(0.5):
            serial = [*stage.split(serial[0], factor=rng.randint(1, 5), tail="guard")]
        order = [a for level in levels for a in level] + serial
        stage.reorder(*order)
        return levels

    def bind(self, stage: Stage, levels: Sequence[Sequence[Axis]]) -> None:
        rng = self.rng
        blocks, threads = [*BLOCKS], [*THREADS]
        rng.shuffle(blocks)
        rng.shuffle(threads)
        bound: list[Axis] = []
        for axis in levels[0]:
            index = (blocks if self.maybe(0.7) else threads).pop()
            if self.maybe(0.9):
                stage.bind(axis, index)
                self.used.add(index.partition(".")[0])
                self.threads += [index] if index in THREADS else []
                bound.append(axis)
        for axis in levels[1]:
            if self.maybe(0.8) and threads:
                self.threads.append(threads.pop())
                stage.bind(axis, self.threads[-1])
                self.used.add("threadIdx")
                bound.append(axis)
        for axis in stage.leaf_axes:
            if axis not in bound and self.maybe(0.2):
                stage.unroll(axis)
                self.used.add("unroll")

    def order(self, stage: Stage) -> None:
        """Split and reorder the reduction of a stage."""
        rng = self.rng
        reduced = [*stage.reduce_axis]
        if reduced and self.maybe(0.7):
            reduced = [*stage.split(reduced[0], factor=rng.randint(1, 5), tail="guard")]
        axes = [*stage.axis]
        at = rng.randint(0, len(reduced))
        stage.reorder(*reduced[:at], *axes, *reduced[at:])
        for axis in stage.leaf_axes:
            if self.maybe(0.2):
                stage.unroll(axis)

    def cooperate(self, stage: Stage) -> None:
        """Divide a stage among the threads of its block, if all of them see it."""
        rng = self.rng
        if stage.scope != "shared":
            return
        if self.maybe(0.3):
            stage.storage_align(stage.axis[0], rng.choice((2, 4)), rng.randint(0, 1))
            self.used.add("storage_align")
        if self.maybe(0.4):
            stage.pipeline(rng.randint(2, 4))
            self.used.add("pipeline")
        if self.maybe(0.2):
            return
        axes = [*stage.axis]
        rest = stage.fuse(*axes) if len(axes) > 1 else axes[0]
        indices = self.threads if self.maybe(0.9) else [*THREADS]
        for index in rng.sample(indices, min(len(indices), rng.randint(1, 2))):
            rest, part = stage.split(rest, factor=rng.randint(1, 4), tail="guard")
            stage.bind(part, index)
            self.used.add("cooperative")

    def place(self, t: Tensor, reader: Stage) -> None:
        """Place a stage between: inside of the reader, in memory of a block or a thread, or before
        it.
        """
        rng, stage = self.rng, self.s[t]
        way = rng.choice(("inline", "shared", "stack", "root"))
        if way == "inline" and not stage.reduce_axis:
            stage.compute_inline()
        elif way in ("shared", "stack"):
            stage.compute_at(reader, rng.choice(list(reader.leaf_axes)))
            stage.set_scope(way)
            self.cooperate(stage)
        else:
            self.bind(stage, self.split(stage))
        self.used.add(f"between {way}")

    def across_threads(self, out: Tensor) -> None:
        """Threads of a block add up parts of a sum."""
        rng, s, stage = self.rng, self.s, self.s[out]
        _, inner = stage.split(stage.reduce_axis[0], factor=rng.randint(2, 6), tail="guard")
        first = s.rfactor(out, inner)
        axis = stage.fuse(*stage.axis) if len(stage.axis) > 1 else stage.axis[0]
        row, own = stage.split(axis, factor=rng.randint(1, 6), tail="guard")
        stage.bind(row, "blockIdx.x")
        self.threads = [rng.choice(THREADS[:2])]
        stage.bind(own, self.threads[0])
        s[first].compute_at(stage, row)
        s[first].set_scope("shared")
        parts = [a for a in s[first].axis if a not in s[first].reduce_axis]
        s[first].bind(rng.choice(parts), self.threads[0] if self.maybe(0.9) else "threadIdx.x")
        self.used.add("rfactor")
        for t in self.between:
            self.place(t, stage)

    def combined(self, out: Tensor) -> None:
        """Threads of a block add up terms of their own and combine the results."""
        rng, s, stage = self.rng, self.s, self.s[out]
        own = s[s.cache_write(out, rng.choice(("register", "stack")))]
        axis = stage.fuse(*stage.axis) if len(stage.axis) > 1 else stage.axis[0]
        block, rest = stage.split(axis, factor=rng.randint(1, 6), tail="guard")
        stage.bind(block, "blockIdx.x")
        self.threads = rng.sample(THREADS, 2)
        if self.maybe(0.7):
            stage.bind(rest, self.threads[0])
        own.compute_at(stage, rng.choice((block, rest)))
        parts = own.split(own.reduce_axis[0], factor=rng.randint(2, 40), tail="guard")
        own.bind(rng.choice(parts), rng.choice(self.threads))
        self.used.add("combined")
        for t in self.between:
            self.place(t, stage)


def draw(seed: int) -> Drawn:
    """The first legal schedule of a random sequence that binds a loop."""
    rng = random.Random(seed)
    refused = 0
    while True:
        draft = _Draft(rng)
        try:
            draft.build()
            args = [*draft.inputs, draft.result]
            func = te.lower(draft.s, args, f"random{seed}")
            last = final(func)
            write(last, DEVICE)
        except ScheduleError:
            refused += 1
            continue
        if not any(isinstance(s, For) and "Idx" in s.kind for s in walk(func.body)):
            continue
        verify(last, "final")
        values = np.random.default_rng(seed)
        given = tuple(
            values.integers(-4, 5, [int(str(d)) for d in t.shape]).astype(np.float32)
            for t in draft.inputs
        )
        used = draft.used | {"barrier"} if _has_barrier(func) else draft.used
        shape = tuple(int(str(d)) for d in draft.result.shape)
        plain = te.lower(te.create_schedule(draft.result.op), args, "plain")
        return Drawn(func, plain, given, shape, frozenset(used), refused)


def _has_barrier(func: Func) -> bool:
    return any(isinstance(s, Barrier) for s in walk(func.body))


def schedules(
    seeds: Sequence[int], optimise: bool = True
) -> tuple[dict[str, str | None], dict[str, int]]:
    """What is wrong with the schedule of each seed; how many use each primitive.

    optimise: whether the driver's compiler does.
    """
    found: dict[str, str | None] = {}
    used: Counter[str] = Counter()
    for first in range(0, len(seeds), TOGETHER):
        drawn = {seed: draw(seed) for seed in seeds[first : first + TOGETHER]}
        built = library({f"s{seed}": d.func for seed, d in drawn.items()}, optimise)
        for seed, d in drawn.items():
            used.update(d.used)
            used["refused before one was legal"] += d.refused
            plain, wanted, got = (np.full(d.shape, np.nan, np.float32) for _ in range(3))
            try:
                interpret(d.plain, [*d.given, plain])
                interpret(d.func, [*d.given, wanted])
                np.testing.assert_array_equal(wanted, plain)
                built[f"s{seed}"](*d.given, got)
                np.testing.assert_array_equal(got, wanted)
                found[f"schedule {seed}"] = None
            except Exception:  # whatever it is, the parent shows it
                found[f"schedule {seed}"] = f"{traceback.format_exc()}\n{d.func}"
    return found, dict(used)
