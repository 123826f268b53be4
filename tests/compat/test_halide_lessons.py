"""Programs of the kind that Halide's tutorial teaches in its lessons 1 to 9."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ExpressionError, ScheduleError, UsageError

x, y, c, i = hl.Var("x"), hl.Var("y"), hl.Var("c"), hl.Var("i")
xo, yo, xi, yi = hl.Var("xo"), hl.Var("yo"), hl.Var("xi"), hl.Var("yi")


def grid(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates of each element of an image, rows first."""
    rows, columns = np.mgrid[:height, :width]
    return columns.astype(np.int32), rows.astype(np.int32)


def picture(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


# Lesson 1: functions


def test_a_gradient_has_the_sum_of_its_coordinates_at_each_point():
    gradient = hl.Func("gradient")
    e = x + y
    gradient[x, y] = e
    output = gradient.realize([80, 60])
    assert (output.width(), output.height(), output.type()) == (80, 60, hl.Int(32))
    assert output[79, 59] == 138
    columns, rows = grid(80, 60)
    np.testing.assert_array_equal(np.asarray(output), columns + rows)


# Lesson 2: images


def test_a_picture_is_brightened_and_clamped():
    image = picture(3, 20, 30)
    brighter = hl.Func("brighter")
    value = hl.cast(hl.Float(32), hl.Buffer(image)[x, y, c])
    value = hl.min(value * 1.5, 255.0)
    brighter[x, y, c] = hl.cast(hl.UInt(8), value)
    output = brighter.realize([30, 20, 3])
    wanted = np.minimum(image.astype(np.float32) * np.float32(1.5), 255).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(output), wanted)


# Lesson 3: what is computed


def test_the_loops_of_a_pipeline_are_printed(capsys):
    gradient = hl.Func("gradient")
    gradient[x, y] = x + y
    gradient.print_loop_nest([8, 4])
    assert "for y in range(4):\n        for x in range(8):" in capsys.readouterr().out


# Lesson 4: debugging


def test_tracing_and_printing_name_what_to_do_instead():
    f = hl.Func("f")
    f[x] = x
    with pytest.raises(UsageError, match=r"trace_stores has no counterpart: use .*print_loop_nest"):
        f.trace_stores()
    with pytest.raises(UsageError, match=r"hl\.print_when has no counterpart: use a realize"):
        hl.print_when(x > 3, x)


# Lesson 5: loops


def _reordered(f: hl.Func) -> None:
    f.reorder(y, x)


def _split(f: hl.Func) -> None:
    f.split(x, xo, xi, 2)


def _fused(f: hl.Func) -> None:
    f.fuse(x, y, xo)


def _tiled(f: hl.Func) -> None:
    f.split(x, xo, xi, 4).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)


def _in_vectors(f: hl.Func) -> None:
    f.split(x, xo, xi, 4).vectorize(xi)


def _unrolled(f: hl.Func) -> None:
    f.split(x, xo, xi, 2).unroll(xi)


def _uneven(f: hl.Func) -> None:
    f.split(x, xo, xi, 3, hl.TailStrategy.GuardWithIf)


def _by_threads(f: hl.Func) -> None:
    tile = hl.Var("tile")
    f.tile(x, y, xo, yo, xi, yi, 4, 4).fuse(xo, yo, tile).parallel(tile)


def _all_together(f: hl.Func) -> None:
    tile, x_pairs, y_pairs, x_vectors, y_rows = (
        hl.Var(n) for n in ("tile", "x_pairs", "y_pairs", "x_vectors", "y_rows")
    )
    f.tile(x, y, xo, yo, xi, yi, 64, 64).fuse(xo, yo, tile).parallel(tile)
    f.tile(xi, yi, x_pairs, y_pairs, x_vectors, y_rows, 4, 2).vectorize(x_vectors).unroll(y_rows)


@pytest.mark.parametrize(
    "schedule",
    [_reordered, _split, _fused, _tiled, _in_vectors, _unrolled, _uneven, _by_threads,
     _all_together],
)  # fmt: skip
def test_no_schedule_of_loops_changes_the_answer(schedule):
    gradient = hl.Func("gradient")
    gradient[x, y] = x + y
    schedule(gradient)
    columns, rows = grid(150, 90)
    np.testing.assert_array_equal(np.asarray(gradient.realize([150, 90])), columns + rows)


def test_loops_are_those_of_the_schedule():
    f = hl.Func("f")
    f[x, y] = x * y
    f.tile(x, y, xi, yi, 4, 2).vectorize(xi).unroll(yi).parallel(y)
    kinds = [line.strip() for line in str(hl.Pipeline(f).loops([8, 4])).splitlines()]
    assert kinds[1:5] == [
        "for yo in parallel(2):", "for xo in range(2):", "for yi in unrolled(2):",
        "for xi in vectorized(4):",
    ]  # fmt: skip


def test_a_loop_that_is_not_there_is_named_with_those_that_are():
    f = hl.Func("f")
    f[x, y] = x + y
    f.split(x, xo, xi, 4).parallel(x)
    with pytest.raises(ScheduleError, match="f has no loop x; its loops are y, xo, xi"):
        f.realize([8, 8])


# Lesson 6: coordinates that do not begin at 0


def test_a_buffer_says_which_coordinates_are_computed():
    f = hl.Func("f")
    f[x, y] = x + y
    shifted = hl.Buffer(hl.Int(32), [5, 7])
    shifted.set_min([100, 50])
    f.realize(shifted)
    columns, rows = grid(5, 7)
    np.testing.assert_array_equal(np.asarray(shifted), columns + rows + 150)
    assert shifted[104, 56] == 160
    with pytest.raises(UsageError, match="coordinate 0 of dimension 0: expected 100 to 104"):
        shifted[0, 0]


# Lesson 7: several stages


def test_a_blur_in_two_stages_reads_past_the_ends_only_through_a_clamp():
    image = picture(3, 17, 25)
    source = hl.Buffer(image)
    blur_x, blur_y, clamped = hl.Func("blur_x"), hl.Func("blur_y"), hl.Func("clamped")
    cx, cy = (hl.clamp(v, 0, n - 1) for v, n in ((x, source.width()), (y, source.height())))
    clamped[x, y, c] = hl.cast(hl.UInt(16), source[cx, cy, c])
    blur_x[x, y, c] = (clamped[x - 1, y, c] + 2 * clamped[x, y, c] + clamped[x + 1, y, c]) / 4
    blur_y[x, y, c] = (blur_x[x, y - 1, c] + 2 * blur_x[x, y, c] + blur_x[x, y + 1, c]) / 4
    output = hl.Func("output")
    output[x, y, c] = hl.cast(hl.UInt(8), blur_y[x, y, c])
    wide = np.pad(image.astype(np.uint16), [(0, 0), (1, 1), (1, 1)], mode="edge")
    across = (wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]) // 4
    wanted = (across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]) // 4
    found = output.realize([25, 17, 3])
    np.testing.assert_array_equal(np.asarray(found), wanted.astype(np.uint8))


def test_a_read_past_the_ends_of_an_image_is_refused():
    source = hl.Buffer(picture(4, 8))
    blur = hl.Func("blur")
    blur[x, y] = source[x - 1, y] + source[x + 1, y]
    with pytest.raises(ExpressionError, match="may leave buffer"):
        blur.realize([8, 4])
    inside = hl.Buffer(hl.UInt(8), [6, 4])
    inside.set_min([1, 0])
    blur.realize(inside)
    a = source.array
    np.testing.assert_array_equal(np.asarray(inside), a[:, :-2] + a[:, 2:])


# Lesson 8: where stages are computed and stored


def _inlined(producer: hl.Func, consumer: hl.Func) -> None:
    pass


def _at_root(producer: hl.Func, consumer: hl.Func) -> None:
    producer.compute_root()


def _at_rows(producer: hl.Func, consumer: hl.Func) -> None:
    producer.compute_at(consumer, y)


def _stored_at_root(producer: hl.Func, consumer: hl.Func) -> None:
    producer.store_root().compute_at(consumer, y)


def _stored_at_root_for_points(producer: hl.Func, consumer: hl.Func) -> None:
    producer.store_root().compute_at(consumer, x)


def _stored_at_rows(producer: hl.Func, consumer: hl.Func) -> None:
    producer.store_at(consumer, y).compute_at(consumer, x)


def _in_tiles(producer: hl.Func, consumer: hl.Func) -> None:
    consumer.tile(x, y, xo, yo, xi, yi, 4, 4)
    producer.compute_at(consumer, xo)


def _mixed(producer: hl.Func, consumer: hl.Func) -> None:
    consumer.split(y, yo, yi, 16).parallel(yo).vectorize(x, 4)
    producer.store_at(consumer, yo).compute_at(consumer, yi).vectorize(x, 4)


@pytest.mark.parametrize(
    "schedule",
    [_inlined, _at_root, _at_rows, _stored_at_root, _stored_at_root_for_points, _stored_at_rows,
     _in_tiles, _mixed],
)  # fmt: skip
def test_no_place_of_a_producer_changes_the_answer(schedule):
    producer, consumer = hl.Func("producer"), hl.Func("consumer")
    producer[x, y] = hl.sin(x * y)
    consumer[x, y] = (
        producer[x, y] + producer[x, y + 1] + producer[x + 1, y] + producer[x + 1, y + 1]
    ) / 4
    schedule(producer, consumer)
    columns, rows = grid(41, 34)
    sines = np.sin((columns * rows).astype(np.float64))
    wanted = (sines[:-1, :-1] + sines[1:, :-1] + sines[:-1, 1:] + sines[1:, 1:]) / 4
    np.testing.assert_allclose(np.asarray(consumer.realize([40, 33])), wanted, atol=1e-6)


def test_values_that_slide_are_stored_in_folded_memory():
    producer, consumer = hl.Func("producer"), hl.Func("consumer")
    producer[x, y] = x * y
    consumer[x, y] = producer[x, y - 1] + producer[x, y] + producer[x, y + 1]
    producer.store_root().compute_at(consumer, y).fold_storage(y, 3)
    assert "alloc producer: i32[3, 16]" in str(hl.Pipeline(consumer).loops([16, 16]))
    columns, rows = grid(16, 16)
    np.testing.assert_array_equal(np.asarray(consumer.realize([16, 16])), 3 * columns * rows)


# Lesson 9: updates


def test_an_update_of_one_row_and_then_of_one_column():
    f = hl.Func("f")
    f[x, y] = x + y
    f[x, 0] = f[x, 8]
    f[0, y] = f[8, y] + 2
    wanted = np.add(*grid(20, 12))
    wanted[0] = wanted[8]
    wanted[:, 0] = wanted[:, 8] + 2
    np.testing.assert_array_equal(np.asarray(f.realize([20, 12])), wanted)


def test_an_update_over_a_domain_changes_the_rows_of_the_domain():
    f = hl.Func("f")
    r = hl.RDom([(0, 50)])
    f[x, y] = (x + y) / 100.0
    f[x, r] = f[x, r] * f[x, r]
    wanted = (np.add(*grid(60, 60)) / np.float32(100)).astype(np.float32)
    wanted[:50] *= wanted[:50]
    np.testing.assert_allclose(np.asarray(f.realize([60, 60])), wanted, rtol=1e-6)


def test_a_recurrence_follows_its_domain():
    f = hl.Func("f")
    r = hl.RDom([(1, 30)], "r")
    f[x, y] = x - y
    f[x, r] = f[x, r - 1] + f[x, r]
    columns, rows = grid(9, 31)
    np.testing.assert_array_equal(np.asarray(f.realize([9, 31])), np.cumsum(columns - rows, axis=0))


def test_a_histogram_counts_the_values_of_a_picture():
    image = picture(40, 30)
    histogram = hl.Func("histogram")
    histogram[i] = 0
    r = hl.RDom([(0, 30), (0, 40)])
    histogram[hl.i32(hl.Buffer(image)[r.x, r.y])] += 1
    found = np.asarray(histogram.realize([256]))
    np.testing.assert_array_equal(found, np.bincount(image.ravel(), minlength=256))


def test_each_definition_has_a_schedule_of_its_own():
    f = hl.Func("f")
    f[x, y] = x * y
    f[x, 0] = f[x, 8]
    f[0, y] = f[8, y] + 2
    f.vectorize(x, 4).parallel(y)
    f.update(0).vectorize(x, 4)
    f.update(1).parallel(y, 4)
    wanted = np.multiply(*grid(16, 16))
    wanted[0] = wanted[8]
    wanted[:, 0] = wanted[:, 8] + 2
    np.testing.assert_array_equal(np.asarray(f.realize([16, 16])), wanted)


def _read_by_two_updates() -> tuple[hl.Func, hl.Func]:
    producer, consumer = hl.Func("producer"), hl.Func("consumer")
    producer[x, y] = x * 2 + y
    consumer[x, y] = x + y
    consumer[x, 0] = producer[x, x]
    r = hl.RDom([(0, 10)], "r")
    consumer[x, y] += producer[r, y]
    return producer, consumer


def test_a_producer_that_two_updates_read_is_computed_before_both():
    producer, consumer = _read_by_two_updates()
    producer.compute_root()
    columns, rows = grid(10, 10)
    wanted = columns + rows
    wanted[0] = 3 * np.arange(10)
    wanted += 2 * 45 + 10 * rows
    np.testing.assert_array_equal(np.asarray(consumer.realize([10, 10])), wanted)


def test_a_producer_that_two_updates_read_has_no_place_in_a_loop_of_one():
    producer, consumer = _read_by_two_updates()
    producer.compute_at(consumer, y)
    with pytest.raises(ScheduleError, match=r"its reader consumer\S* is not inside that loop"):
        consumer.realize([10, 10])


@pytest.mark.parametrize("number", [0, 1])
def test_a_producer_of_an_update_is_computed_in_its_loops(number):
    producer, consumer = hl.Func("producer"), hl.Func("consumer")
    producer[x, y] = x * 2 + y
    consumer[x, y] = x + y
    r = hl.RDom([(0, 10)], "r")
    if number:
        consumer[x, y] += producer[r, y]
        producer.compute_at(consumer, r.x)
    else:
        consumer[x, 3] = producer[x, x]
        producer.compute_at(consumer, x)
    columns, rows = grid(10, 10)
    wanted = columns + rows
    if number:
        wanted += 2 * 45 + 10 * rows
    else:
        wanted[3] = 3 * np.arange(10)
    np.testing.assert_array_equal(np.asarray(consumer.realize([10, 10])), wanted)


def test_a_sum_inside_an_expression_is_computed_where_it_is_needed():
    image = picture(20, 24)
    clamped = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
    r = hl.RDom([(-2, 5), (-2, 5)])
    local_sum = hl.Func("local_sum")
    total = hl.sum(hl.i32(clamped[x + r.x, y + r.y]))
    local_sum[x, y] = total / 25
    local_sum.vectorize(x, 8).parallel(y)
    wide = np.pad(image.astype(np.int32), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(wide, (5, 5))
    found = np.asarray(local_sum.realize([24, 20]))
    np.testing.assert_array_equal(found, windows.sum((2, 3)) // 25)


def test_spread_is_the_maximum_less_the_minimum_of_a_window():
    image = picture(40, 24)
    clamped = hl.Func("clamped")
    source = hl.Buffer(image)
    clamped[x, y] = source[hl.clamp(x, 0, source.width() - 1), hl.clamp(y, 0, source.height() - 1)]
    box = hl.RDom([(-2, 5), (-2, 5)])
    spread = hl.Func("spread")
    spread[x, y] = hl.maximum(clamped[x + box.x, y + box.y]) - hl.minimum(
        clamped[x + box.x, y + box.y]
    )
    spread.split(y, yo, yi, 4).parallel(yo).vectorize(x, 4)
    clamped.store_at(spread, yo).compute_at(spread, yi)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 2, mode="edge"), (5, 5))
    found = np.asarray(spread.realize([24, 40]))
    np.testing.assert_array_equal(found, windows.max((2, 3)) - windows.min((2, 3)))
