"""Workloads on which cost models are trained and judged: families of computations in many shapes.

A family is a template over tensor expressions or a fused group of a graph (`graph_workloads.py`),
whose schedules are the strategies' own.  The shapes are of the kind that networks have, small
enough that a measurement takes milliseconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graph_workloads import GRAPHS
from tilesmith import te
from tilesmith.driver import Session
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config
from tilesmith.tuning.measure import Task
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.tasks import Compiled, tasks_of
from tilesmith.tuning.template import template_task

Made = tuple[te.Schedule, Sequence[te.Tensor]]
MAX_COPIES = 160
"""Of a loop body in the code."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One computation: a family, its shape, and the threads that it runs with.  `is_held_out`: the
    model in the package is not trained on it.
    """

    family: str
    shape: tuple[int, ...]
    threads: int
    is_held_out: bool = False

    @property
    def name(self) -> str:
        return f"{self.family} {'x'.join(map(str, self.shape))} t{self.threads}"

    def task(self, session: Session) -> Task:
        """What the tuner measures; labelled with the workload's name."""
        options = session.options.with_(threads=self.threads)
        session = dataclasses.replace(session, options=options)
        make = TEMPLATES.get(self.family)
        if make is not None:
            template: Callable[[Config], Made] = lambda cfg: make(cfg, *self.shape)  # noqa: E731
            task = template_task(template, self.name, session, self.threads, TuneOptions())
        else:
            graph = GRAPHS[self.family](*self.shape)
            tasks = tasks_of(Compiled.of(graph, session), session)
            own = [t for t in tasks if not t.label.startswith("relayout")]  # not those around it
            task = max(own, key=lambda t: t.seconds)
        return dataclasses.replace(task, label=self.name)


# --- templates


def tiled_matmul(cfg: Config, m: int, n: int, k: int) -> Made:
    """Two levels of tiles around a register tile that is held in registers."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "c")
    s = te.create_schedule(c.op)
    stage = s[c]
    if cfg.choice("cache", (False, True), False):
        stage = s[s.cache_write(c, "stack")]
        i, j = s[c].axis
        io, ii = cfg.split("i", s[c], i, default=(_near(m, 4),))
        jo, ji = cfg.split("j", s[c], j, default=(_near(n, 16),))
        s[c].reorder(io, jo, ii, ji)
        s[c].vectorize(ji)
        stage.compute_at(s[c], jo)
        outer, rows, columns = io, *stage.axis
        tile = {rows: ii, columns: ji}
    else:
        i, j = s[c].axis
        io, rows = cfg.split("i", s[c], i, default=(_near(m, 4),))
        jo, columns = cfg.split("j", s[c], j, default=(_near(n, 16),))
        outer, tile = io, {}
        s[c].reorder(*((io, jo) if cfg.choice("rows_outside", (True, False), True) else (jo, io)))
    ko, ki = cfg.split("k", stage, stage.reduce_axis[0], default=(1,))
    order = cfg.choice("order", ("okij", "oikj", "koij"), "okij")
    if order == "okij":
        stage.reorder(ko, ki, rows, columns)
    elif order == "oikj":
        stage.reorder(ko, rows, ki, columns)
    else:
        stage.reorder(ko, rows, columns, ki)
    cfg.annotate("rows", stage, rows, ("none", "unroll"))
    cfg.annotate("inner", stage, ki if order == "koij" else columns, ("vectorize", "none", "unroll")
                 if order != "koij" else ("none", "unroll"))  # fmt: skip
    if cfg.choice("share", (True, False), True):
        s[c].parallel(outer)
    _checked(stage, tile)
    return s, [a, b, c]


def tiled_conv(cfg: Config, size: int, channels: int, filters: int, kernel: int) -> Made:
    """A channels-last convolution without borders."""
    x = te.placeholder((size, size, channels), name="x")
    w = te.placeholder((kernel, kernel, channels, filters), name="w")
    out = size - kernel + 1
    u, v = te.reduce_axis((0, kernel), "u"), te.reduce_axis((0, kernel), "v")
    r = te.reduce_axis((0, channels), "r")
    c = te.compute(
        (out, out, filters),
        lambda i, j, f: te.sum(x[i + u, j + v, r] * w[u, v, r, f], axis=(u, v, r)),
        "c",
    )
    s = te.create_schedule(c.op)
    stage = s[s.cache_write(c, "stack")]
    i, j, f = s[c].axis
    jo, ji = cfg.split("j", s[c], j, default=(_near(out, 4),))
    fo, fi = cfg.split("f", s[c], f, default=(_near(filters, 16),))
    s[c].reorder(*((i, jo, fo) if cfg.choice("filters_inside", (True, False), True)
                   else (i, fo, jo)), ji, fi)  # fmt: skip
    s[c].vectorize(fi)
    at = fo if s[c].leaf_axes.index(fo) > s[c].leaf_axes.index(jo) else jo
    stage.compute_at(s[c], at)
    (_, columns, inner), (uu, vv, rr) = stage.axis, stage.reduce_axis
    ro, ri = cfg.split("r", stage, rr, default=(1,))
    order = cfg.choice("order", ("window", "channels", "columns"), "window")
    loops = {
        "window": (uu, vv, ro, ri, columns, inner),
        "channels": (ro, uu, vv, ri, columns, inner),
        "columns": (uu, ro, columns, vv, ri, inner),
    }[order]
    stage.reorder(*loops)
    cfg.annotate("columns", stage, columns, ("unroll", "none"))
    cfg.annotate("inner", stage, inner, ("vectorize", "none"))
    if cfg.choice("share", (True, False), True):
        s[c].parallel(i)
    _checked(stage, {columns: ji, inner: fi})
    return s, [x, w, c]


def tiled_depthwise(cfg: Config, size: int, channels: int, kernel: int, dilation: int) -> Made:
    """A depthwise convolution, channels last."""
    x = te.placeholder((size, size, channels), name="x")
    w = te.placeholder((kernel, kernel, channels), name="w")
    out = size - dilation * (kernel - 1)
    u, v = te.reduce_axis((0, kernel), "u"), te.reduce_axis((0, kernel), "v")
    c = te.compute(
        (out, out, channels),
        lambda i, j, f: te.sum(x[i + u * dilation, j + v * dilation, f] * w[u, v, f], axis=(u, v)),
        "c",
    )
    s = te.create_schedule(c.op)
    stage = s[s.cache_write(c, "stack")]
    i, j, f = s[c].axis
    io, ii = cfg.split("i", s[c], i, default=(1,))
    jo, ji = cfg.split("j", s[c], j, default=(_near(out, 4),))
    fo, fi = cfg.split("f", s[c], f, default=(_near(channels, 16),))
    s[c].reorder(*((io, jo, fo) if cfg.choice("channels_inside", (True, False), True)
                   else (fo, io, jo)), ii, ji, fi)  # fmt: skip
    s[c].vectorize(fi)
    outer = s[c].leaf_axes[0]
    stage.compute_at(s[c], s[c].leaf_axes[2])
    (rows, columns, inner), (uu, vv) = stage.axis, stage.reduce_axis
    stage.reorder(*((uu, vv, rows, columns, inner)
                    if cfg.choice("window_outside", (True, False), True)
                    else (rows, columns, uu, vv, inner)))  # fmt: skip
    cfg.annotate("columns", stage, columns, ("unroll", "none"))
    cfg.annotate("inner", stage, inner, ("vectorize", "none"))
    cfg.annotate("window", stage, vv, ("none", "unroll"))
    if cfg.choice("share", (True, False), True):
        s[c].parallel(outer)
    _checked(stage, {rows: ii, columns: ji, inner: fi})
    return s, [x, w, c]


def row_sums(cfg: Config, rows: int, columns: int) -> Made:
    """Sums of the squares of rows, in several partial sums or not."""
    x = te.placeholder((rows, columns), name="x")
    r = te.reduce_axis((0, columns), "r")
    y = te.compute((rows,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), "y")
    s = te.create_schedule(y.op)
    (i,) = s[y].axis
    io, ii = cfg.split("i", s[y], i, default=(_near(rows, 4),))
    part = cfg.choice("partial_sums", (1, 4, 8, 16, 32, 64, 128), 16)
    if part > 1:
        if columns % part:
            part = 1 << ((columns & -columns).bit_length() - 1)
        _, ki = s[y].split(s[y].reduce_axis[0], factor=part)
        f = s.rfactor(y, ki)
        stage = s[f]
        lane, row = stage.axis  # the axis of the partial results leads
        stage.compute_at(s[y], io if cfg.choice("block", (True, False), True) else ii)
        ko, ki = cfg.split("k", stage, stage.leaf_axes[-1], default=(1,))
        stage.reorder(row, ko, ki, lane)
        cfg.annotate("lanes", stage, lane, ("vectorize", "unroll", "none"))
        cfg.annotate("inner", stage, ki, ("none", "unroll"))
    else:
        ko, ki = cfg.split("k", s[y], s[y].reduce_axis[0], default=(1,))
        rows_inside = cfg.choice("rows_inside", (False, True), False)
        s[y].reorder(io, *((ko, ki, ii) if rows_inside else (ii, ko, ki)))
        cfg.annotate("inner", s[y], ii if rows_inside else ki, ("none", "unroll"))
    if cfg.choice("share", (True, False), True):
        s[y].parallel(io)
    for op in s.stages:
        _checked(op)
    return s, [x, y]


def pointwise(cfg: Config, rows: int, columns: int, heavy: int) -> Made:
    """Elementwise work with a row broadcast; `heavy`: with an exponential function."""
    x, b = te.placeholder((rows, columns), name="x"), te.placeholder((columns,), name="b")
    z = te.compute((rows, columns), lambda i, j: x[i, j] * 0.5 + b[j], "z")
    y = te.compute(
        (rows, columns),
        lambda i, j: te.exp(z[i, j]) if heavy else z[i, j] * z[i, j] + z[i, j],
        "y",
    )
    s = te.create_schedule(y.op)
    i, j = s[y].axis
    io, ii = cfg.split("i", s[y], i, default=(1,))
    jo, jm, ji = cfg.split("j", s[y], j, parts=3, default=(1, _near(columns, 16)))
    order = cfg.choice("order", ("rows", "tiles", "columns"), "rows")
    loops = {"rows": (io, ii, jo, jm), "tiles": (io, jo, ii, jm), "columns": (jo, io, ii, jm)}
    s[y].reorder(*loops[order], ji)
    where = cfg.choice("z", ("inline", "tile", "root"), "inline")
    if where == "inline":
        s[z].compute_inline()
    elif where == "tile":
        s[z].compute_at(s[y], loops[order][2])
        s[z].vectorize(s[z].split(s[z].axis[1], factor=16)[1])
    else:
        s[z].vectorize(s[z].split(s[z].axis[1], factor=16)[1])
    cfg.annotate("ji", s[y], ji, ("vectorize", "none", "unroll"))
    cfg.annotate("jm", s[y], jm, ("none", "unroll"))
    if cfg.choice("share", (True, False), True):
        s[y].parallel(loops[order][0])
    _checked(s[y])
    return s, [x, b, y]


def _checked(stage: te.Stage, tile: Mapping[te.Axis, te.Axis] | None = None) -> None:
    """Raise ScheduleError for code that is too long to be compiled in a moment.  `tile`: the loops
    whose extents those of `stage` get where it is attached.
    """
    copies = 1.0
    for a in stage.leaf_axes:
        extent = (tile or {}).get(a, a).extent
        assert isinstance(extent, int)
        copies *= {"unrolled": extent, "vectorized": max(extent / 16, 1)}.get(stage.kind(a), 1)
    if copies > MAX_COPIES:
        raise ScheduleError(f"{copies:.0f} copies of the body of {stage.name}")


def _near(extent: int, wanted: int) -> int:
    """The largest divisor of an extent up to `wanted`."""
    return max(d for d in range(1, wanted + 1) if extent % d == 0)


TEMPLATES: dict[str, Callable[..., Made]] = {
    f.__name__: f for f in (tiled_matmul, tiled_conv, tiled_depthwise, row_sums, pointwise)
}


# --- the list

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "tiled_matmul": [(128, 128, 128), (64, 256, 256), (256, 64, 512), (96, 384, 96), (49, 512, 128),
                     (16, 512, 512), (196, 96, 192), (320, 320, 64)],
    "tiled_conv": [(16, 32, 32, 3), (30, 16, 32, 3), (14, 64, 96, 1), (11, 48, 64, 5),
                   (58, 8, 16, 3), (9, 128, 64, 3)],
    "tiled_depthwise": [(30, 64, 3, 1), (16, 192, 3, 1), (24, 96, 7, 2), (58, 32, 5, 1),
                        (20, 48, 3, 2)],
    "row_sums": [(128, 1024), (1024, 128), (64, 4096), (500, 384), (2048, 64), (96, 2560),
                 (384, 512), (200, 900), (320, 1280)],
    "pointwise": [(128, 768, 1), (512, 256, 0), (64, 3072, 0), (784, 96, 1), (196, 512, 0),
                  (256, 384, 1), (400, 300, 1), (100, 1000, 1), (640, 128, 0), (224, 480, 1)],
    "dense": [(64, 256, 256), (128, 384, 128), (16, 768, 256), (196, 96, 384), (49, 512, 160),
              (1, 512, 1000), (128, 384, 384), (50, 192, 768), (256, 128, 128), (32, 1024, 128),
              (80, 256, 320), (112, 320, 256), (160, 256, 192), (72, 448, 160)],
    "batch_matmul": [(12, 128, 64, 128), (8, 50, 64, 50), (4, 196, 32, 196), (12, 64, 128, 64),
                     (16, 96, 64, 32), (8, 64, 32, 64), (6, 80, 64, 96), (10, 100, 32, 100)],
    "conv": [(56, 16, 32, 3, 2), (14, 96, 64, 5, 1), (56, 3, 32, 3, 2), (28, 64, 64, 3, 2),
             (64, 3, 16, 7, 2), (14, 128, 128, 3, 2), (28, 32, 48, 5, 1), (20, 48, 64, 5, 2),
             (28, 40, 72, 3, 2), (24, 64, 96, 3, 2), (32, 48, 64, 3, 2)],
    "conv1x1": [(14, 128, 128, 1, 1), (28, 64, 96, 1, 1), (56, 16, 96, 1, 1), (7, 320, 160, 1, 1),
                (28, 144, 32, 1, 1), (56, 64, 64, 1, 2), (14, 96, 240, 1, 1), (40, 48, 80, 1, 1),
                (24, 96, 128, 1, 1), (18, 128, 144, 1, 1)],
    "winograd": [(28, 64, 64, 3, 1), (56, 32, 32, 3, 1), (14, 128, 128, 3, 1), (40, 48, 64, 3, 1),
                 (28, 32, 64, 3, 1), (20, 48, 80, 3, 1), (35, 24, 48, 3, 1), (24, 64, 64, 3, 1),
                 (30, 80, 56, 3, 1), (17, 64, 48, 3, 1)],
    "depthwise": [(28, 96, 3, 1), (56, 32, 3, 2), (14, 192, 5, 1), (40, 72, 5, 1), (20, 240, 3, 1),
                  (33, 48, 7, 1), (56, 96, 3, 1), (40, 96, 3, 1), (28, 144, 5, 1), (48, 40, 3, 1)],
    "softmax": [(128, 256), (512, 64), (32, 1000), (1536, 128), (600, 50), (144, 300), (256, 129),
                (96, 1500), (300, 200)],
    "layer_norm": [(128, 384), (50, 768), (196, 192), (512, 256), (64, 1024), (300, 300),
                   (128, 512)],
    "row_mean": [(128, 1024), (512, 256), (2048, 49), (1000, 300), (400, 512), (200, 900),
                 (64, 1280), (300, 720)],
    "column_sums": [(256, 512), (1024, 96), (64, 4096)],
    "gelu": [(128, 1536), (50, 3072), (784, 96)],
    "sum_of_two": [(56, 64), (28, 256), (112, 24)],
    "max_pool": [(56, 64, 3, 2), (28, 128, 2, 2), (14, 256, 3, 1)],
    "mean_pool": [(28, 128, 2, 2), (14, 256, 3, 1), (56, 32, 3, 2)],
}  # fmt: skip
HELD_OUT: dict[str, list[tuple[int, ...]]] = {
    "tiled_matmul": [(112, 224, 160)],
    "tiled_conv": [(18, 24, 64, 3)],
    "tiled_depthwise": [(28, 80, 5, 1)],
    "row_sums": [(256, 640)],
    "pointwise": [(320, 384, 1)],
    "dense": [(96, 320, 192)],
    "batch_matmul": [(6, 100, 48, 100)],
    "conv": [(28, 48, 80, 3, 2)],
    "conv1x1": [(20, 112, 144, 1, 1)],
    "winograd": [(24, 96, 48, 3, 1)],
    "depthwise": [(40, 64, 3, 1)],
    "softmax": [(384, 197)],
    "layer_norm": [(100, 512)],
    "row_mean": [(320, 640)],
}

SHARED = ("column_sums", "gelu", "sum_of_two", "max_pool", "mean_pool")
"""Families whose decisions are mostly about threads."""

WORKLOADS: tuple[Workload, ...] = tuple(
    Workload(family, shape, 2 if (i % 4 == 3 or family in SHARED) else 1, held_out)
    for held_out, shapes in ((False, SHAPES), (True, HELD_OUT))
    for family, all_ in shapes.items()
    for i, shape in enumerate(all_)
)
"""Most with one thread: with more, measurements also see what else the machine does."""
