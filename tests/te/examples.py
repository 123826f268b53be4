"""An example of each schedule primitive."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr

Example = Callable[[], tuple[te.Schedule, list[te.Tensor]]]


def _chain() -> tuple[te.Schedule, list[te.Tensor]]:
    x = te.placeholder((10, 12), name="X")
    y = te.compute((10, 12), lambda i, j: x[i, j] + 1.0, name="Y")
    z = te.compute((10, 12), lambda i, j: y[i, j] * 2.0, name="Z")
    return te.create_schedule(z.op), [x, y, z]


def _dot() -> tuple[te.Schedule, list[te.Tensor]]:
    x = te.placeholder((6, 10), name="X")
    k = te.reduce_axis(10, "k")
    y = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    return te.create_schedule(y.op), [x, y]


def unscheduled() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, _, z) = _chain()
    return s, [x, z]


def split() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s[y].compute_inline()
    s[z].split(s[z].axis[0], 4)
    s[z].split(s[z].axis[1], nparts=3, tail="guard")
    return s, [x, z]


def fuse() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s[y].compute_inline()
    s[z].parallel(s[z].fuse(*s[z].axis))
    return s, [x, z]


def skew() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    i, j = s[z].axis
    js = s[z].skew(j, i, factor=5, modulus=4)
    jo, _ = s[z].split(js, 4)
    s[y].compute_at(s[z], jo)
    return s, [x, z]


def tile() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s[y].compute_inline()
    _, _, ii, ji = s[z].tile(*s[z].axis, 4, 8)
    s[z].unroll(ii)
    s[z].vectorize(ji)
    return s, [x, z]


def reorder() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y) = _dot()
    s[y].reorder(*s[y].reduce_axis, *s[y].axis)
    return s, [x, y]


def compute_at() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    io, _ = s[z].split(s[z].axis[0], 4)
    s[y].compute_at(s[z], io)
    return s, [x, z]


def cache_write() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y) = _dot()
    copy = s.cache_write(y, "register")
    io, ii = s[y].split(s[y].axis[0], 4)
    s[y].unroll(ii)
    s[copy].compute_at(s[y], io)
    s[copy].reorder(*s[copy].reduce_axis, *s[copy].axis)
    s[copy].unroll(s[copy].axis[0])
    return s, [x, y]


def cache_read() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y) = _dot()
    copy = s.cache_read(x, "stack", [y])
    s[copy].compute_at(s[y], s[y].axis[0])
    return s, [x, y]


def rfactor() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y) = _dot()
    _, ki = s[y].split(s[y].reduce_axis[0], 4)
    part = s.rfactor(y, ki)
    s[part].compute_at(s[y], s[y].axis[0])
    return s, [x, y]


def winograd() -> tuple[te.Schedule, list[te.Tensor]]:
    x, w = te.placeholder((6, 5, 4), name="X"), te.placeholder((3, 3, 4, 8), name="W")
    p, q, k = te.reduce_axis(3, "p"), te.reduce_axis(3, "q"), te.reduce_axis(4, "k")
    y = te.compute(
        (4, 3, 8),
        lambda i, j, o: te.sum(x[i + p, j + q, k] * w[p, q, k, o], axis=[p, q, k]),
        name="Y",
    )
    s = te.create_schedule(y.op)
    s.winograd(y, 2)
    return s, [x, w, y]


def flatten_axes() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    flat = s.flatten_axes(y, *s[y].axis)
    po, _ = s[z].split(s[z].fuse(*s[z].axis), 16)
    s[flat].compute_at(s[z], po)
    return s, [x, z]


def unflatten_axis() -> tuple[te.Schedule, list[te.Tensor]]:
    """Each iteration of the outer loop reads every fourth element of a row."""
    s, (x, y, z) = _chain()
    parts = s.unflatten_axis(y, s[y].axis[1], 4)
    jo, ji = s[z].split(s[z].axis[1], 4)
    s[z].reorder(ji, s[z].axis[0], jo)
    s[parts].compute_at(s[z], ji)
    return s, [x, z]


def transform_layout() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s.transform_layout(x, lambda i, j: (j // 4, i, j % 4))
    s.transform_layout(y, "1 0")
    s.transform_layout(z, "1 0")
    return s, [x, z]


def roundup() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s.transform_layout(x, "0/4 1 0%4")
    s[y].split(s[y].axis[0], 4, tail="roundup")
    return s, [x, z]


def pipeline() -> tuple[te.Schedule, list[te.Tensor]]:
    s, args = double_buffer()
    s["Y"].pipeline(3)
    return s, args


def double_buffer() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s[y].compute_at(s[z], s[z].axis[0])
    s[y].double_buffer()
    return s, [x, z]


def store_at() -> tuple[te.Schedule, list[te.Tensor]]:
    """A separable blur in strips: rows of the first pass stay while the second needs them."""
    x = te.placeholder((20, 18), name="X")
    across = te.compute((20, 16), lambda y, i: x[y, i] + x[y, i + 1] + x[y, i + 2], name="across")
    blur = te.compute(
        (18, 16), lambda y, i: across[y, i] + across[y + 1, i] + across[y + 2, i], name="blur"
    )
    s = te.create_schedule(blur.op)
    yo, yi = s[blur].split(s[blur].axis[0], 6)
    s[blur].parallel(yo)
    s[across].compute_at(s[blur], yi)
    s[across].store_at(s[blur], yo)
    for stage in (across, blur):
        _, lanes = s[stage].split(s[stage].axis[1], 8)
        s[stage].vectorize(lanes)
    return s, [x, blur]


def store_root() -> tuple[te.Schedule, list[te.Tensor]]:
    """Two stages that slide, one ahead of the other; the image ends repeat."""
    x = te.placeholder((20,), name="X")
    first = te.compute((18,), lambda i: x[i] + x[i + 2], name="first")
    second = te.compute(
        (18,),
        lambda i: first[te.maximum(i - 1, 0)] + first[i] + first[te.minimum(i + 1, 17)],
        name="second",
    )
    y = te.compute((8,), lambda i: second[i * 2] + second[i * 2 + 2], name="Y")
    s = te.create_schedule(y.op)
    for stage in (second, first):
        s[stage].compute_at(s[y], s[y].axis[0])
        s[stage].store_root()
    s[second].fold_storage(s[second].axis[0], 3)
    return s, [x, y]


def scan() -> tuple[te.Schedule, list[te.Tensor]]:
    """A recurrent layer of which only the last state is read."""
    x, w = te.placeholder((9, 8), name="X"), te.placeholder((8, 8), name="W")
    state, k = te.placeholder((9, 8), name="state"), te.reduce_axis(8, "k")
    p = te.compute((9, 8), lambda t, j: te.sum(state[t - 1, k] * w[k, j], axis=k), name="P")
    step = te.compute((9, 8), lambda t, j: te.tanh(p[t, j] + x[t, j]), name="step")
    first = te.compute((1, 8), lambda t, j: te.tanh(x[0, j]), name="first")
    h = te.scan(first, step, state, name="H")
    y = te.compute((8,), lambda j: h[8, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    s[first].compute_inline()
    s[p].reorder(k, "j")
    s[p].vectorize("j")
    s[h].vectorize("i1")
    return s, [x, w, y]


def storage_align() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y, z) = _chain()
    s[y].storage_align(s[y].axis[0], 16)
    s[y].set_scope("stack")
    return s, [x, z]


def prefetch() -> tuple[te.Schedule, list[te.Tensor]]:
    s, (x, y) = _dot()
    s[y].prefetch(x, s[y].axis[0], 2)
    s[y].pragma(s[y].axis[0], "note", "rows")
    return s, [x, y]


def prefetch_over() -> tuple[te.Schedule, list[te.Tensor]]:
    """Rows by index, and rows whose elements are taken in any order, asked for line by line."""
    x, w = te.placeholder((100, 64), name="X"), te.placeholder((20, 512), name="W")
    rows, columns = te.placeholder((20,), i64, "R"), te.placeholder((64,), i64, "C")

    def element(i: Expr, j: Expr) -> Expr:
        row = te.minimum(te.maximum(rows[i], 0), 99)
        column = te.minimum(te.maximum(columns[j], 0), 511)
        return x[row, j] + w[i, column]

    y = te.compute((20, 64), element, name="Y")
    s = te.create_schedule(y.op)
    o, lanes = s[y].split(s[y].axis[1], 8)
    s[y].vectorize(lanes)
    s[y].prefetch(x, s[y].axis[0], 2, over=o)
    s[y].prefetch(w, s[y].axis[0], 1, over=o)
    return s, [x, w, rows, columns, y]


def prefetch_piece() -> tuple[te.Schedule, list[te.Tensor]]:
    """The weights of the next block of columns, asked for while tiles of this one are computed."""
    x, w = te.placeholder((9, 40), name="X"), te.placeholder((40, 64), name="W")
    k = te.reduce_axis(40, "k")
    y = te.compute((9, 64), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")
    s = te.create_schedule(y.op)
    s.transform_layout(w, "1/32 0 1%32")
    acc = s.cache_write(y, "stack")
    jo, ji = s[y].split(s[y].axis[1], 32)
    io, ii = s[y].split(s[y].axis[0], 4)
    s[y].reorder(jo, io, ii, ji)
    s[acc].compute_at(s[y], io)
    s[acc].reorder(*s[acc].reduce_axis, *s[acc].axis)
    s[acc].prefetch(w, jo, 1, over=s[acc].reduce_axis[0])
    return s, [x, w, y]


def padded_window() -> tuple[te.Schedule, list[te.Tensor]]:
    """A padding stage inside the tile of a reduction inside the tile of its elementwise reader."""
    x = te.placeholder((20,), name="X")
    k = te.reduce_axis(3, "k")
    pad = te.compute(
        (22,), lambda i: te.if_then_else(te.all(i >= 1, i < 21), x[i - 1], 0.0), name="P"
    )
    y = te.compute((20,), lambda i: te.sum(pad[i + k], axis=k), name="Y")
    z = te.compute((20,), lambda i: te.maximum(y[i], 0.0), name="Z")
    s = te.create_schedule(z.op)
    io, ii = s[z].split(s[z].axis[0], 8)
    s[z].vectorize(ii)
    s[y].compute_at(s[z], io)
    s[y].set_scope("register")
    s[y].reorder(k, *s[y].axis)
    s[y].vectorize(s[y].axis[0])
    s[pad].compute_at(s[z], io)
    return s, [x, z]


EXAMPLES: tuple[Example, ...] = (
    unscheduled, split, fuse, skew, tile, reorder, compute_at, cache_write, cache_read, rfactor,
    winograd, flatten_axes, unflatten_axis, transform_layout, roundup, double_buffer, pipeline,
    store_at, store_root, scan, storage_align, prefetch, prefetch_over, prefetch_piece,
    padded_window,
)  # fmt: skip
