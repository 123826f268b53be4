"""Programs of the kind that Halide's tutorial teaches in its lessons 10 to 21, without a GPU."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ExpressionError, ScheduleError, UsageError

x, y, c, i, u = (hl.Var(n) for n in "xyciu")


def picture(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


# Lessons 10 and 11: compilation ahead of time


def _brighter() -> tuple[hl.Func, hl.ImageParam, hl.Param]:
    source, offset = hl.ImageParam(hl.UInt(8), 2, "source"), hl.Param(hl.UInt(8), "offset")
    brighter = hl.Func("brighter")
    brighter[x, y] = source[x, y] + offset
    brighter.vectorize(x, 16).parallel(y)
    source.set_estimates([(0, 24), (0, 10)])
    brighter.set_estimates([(0, 24), (0, 10)])
    return brighter, source, offset


def test_a_pipeline_becomes_a_function_of_c_that_another_program_calls(tmp_path):
    brighter, source, offset = _brighter()
    made = brighter.compile_to_file(tmp_path / "brighter", [source, offset])
    assert {p.suffix for p in made.files} >= {".h", ".c", ".o", ".s"}
    header = made.header.read_text()
    call = "int32_t brighter(const uint8_t *source, const uint8_t *offset, uint8_t *brighter"
    assert call in header
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "brighter.h"\nstatic uint8_t in[240], out[240];\n'
        "int main(void) { uint8_t offset = 5; for (int i = 0; i < 240; i++) in[i] = 2 * i;\n"
        "int32_t status = brighter(in, &offset, out, 0);\n"
        'printf("%d %d %d", status, out[1], out[239]); return 0; }\n'
    )
    program = tmp_path / "program"
    subprocess.run(
        ["cc", "-I", tmp_path, tmp_path / "main.c", made.object, "-o", program], check=True
    )
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert found == f"0 7 {(2 * 239 + 5) % 256}"


def test_a_parameter_is_set_before_each_run():
    brighter, source, offset = _brighter()
    image = picture(10, 24)
    source.set(image)
    for value in (5, 77):
        offset.set(value)
        found = np.asarray(brighter.realize([24, 10]))
        np.testing.assert_array_equal(found, image + np.uint8(value))


def test_a_file_for_another_processor_has_its_instructions(tmp_path):
    brighter, source, offset = _brighter()
    made = brighter.compile_to_file(
        tmp_path / "arm", [source, offset], target=hl.Target("arm-64-linux")
    )
    assert "made by tilesmith" in made.header.read_text().lower()
    assert "aarch64" in made.header.read_text()


def test_the_loops_are_written_as_text(tmp_path):
    brighter, source, offset = _brighter()
    brighter.compile_to_lowered_stmt(tmp_path / "loops.txt", [source, offset])
    assert "for y in parallel(10):" in (tmp_path / "loops.txt").read_text()


def test_sizes_and_inputs_of_a_file_must_be_stated(tmp_path):
    brighter, source, offset = _brighter()
    with pytest.raises(UsageError, match=r"expected all inputs as arguments, found source"):
        brighter.compile_to_file(tmp_path / "brighter", [offset])
    plain = hl.Func("plain")
    plain[x] = source[x, 0]
    with pytest.raises(UsageError, match=r"expected sizes, or plain\.set_estimate\(x, min, ext"):
        plain.compile_to_file(tmp_path / "plain", [source])


def test_a_gpu_is_refused_with_the_way_to_one():
    brighter, _, _ = _brighter()
    with pytest.raises(UsageError, match=r"gpu_tile has no counterpart: use tilesmith\.te"):
        brighter.gpu_tile(x, y, 8, 8)
    with pytest.raises(UsageError, match="expected a CPU, found cuda"):
        hl.Func(x + y).realize([4, 4], target=hl.Target("host-cuda"))


# Lesson 13: tuples


def test_a_func_of_a_tuple_has_several_values():
    f = hl.Func("f")
    f[x, y] = (x + y, hl.sin(x * y))
    whole, sines = f.realize([80, 60])
    rows, columns = np.mgrid[:60, :80]
    np.testing.assert_array_equal(np.asarray(whole), rows + columns)
    np.testing.assert_allclose(np.asarray(sines), np.sin(rows * columns), atol=1e-5)
    g = hl.Func("g")
    g[x, y] = hl.f32(f[x, y][0]) + f[x, y][1]
    assert g.realize([4, 4])[0, 0] == 0
    with pytest.raises(ExpressionError, match=r"f has 2 values: expected one of them"):
        f[x, y] + 1


def test_an_update_of_a_tuple_finds_the_largest_element_and_its_place():
    values = np.sin(np.arange(100, dtype=np.float32))
    source = hl.Buffer(values)
    best = hl.Func("best")
    best[()] = (0, source[0])
    r = hl.RDom([(1, 99)])
    place, value = best[()]
    better = source[r] > value
    best[()] = hl.select(better, (r, source[r]), (place, value))
    found, largest = best.realize([])
    assert (found[()], largest[()]) == (values.argmax(), values.max())
    built_in = hl.Func("built_in")
    r = hl.RDom([(0, 100)])
    built_in[()] = hl.argmax(source[r])
    found, largest = built_in.realize([])
    assert (found[()], largest[()]) == (values.argmax(), values.max())


def test_escape_times_of_the_mandelbrot_set_come_from_a_recurrence_of_complex_numbers():
    mandelbrot, escape = hl.Func("mandelbrot"), hl.Func("escape")
    t = hl.Var("t")
    real, imaginary = hl.f32(x) / 15.0 - 2.0, hl.f32(y) / 6.0 - 1.0
    mandelbrot[x, y, t] = (hl.f32(0.0), hl.f32(0.0))
    r = hl.RDom([(1, 12)])
    a, b = mandelbrot[x, y, r - 1]
    mandelbrot[x, y, r] = (a * a - b * b + real, 2.0 * a * b + imaginary)
    r = hl.RDom([(0, 12)])
    a, b = mandelbrot[x, y, r]
    escape[x, y] = hl.argmin(hl.select(a * a + b * b < 4.0, 1, 0))[0]
    mandelbrot.compute_root()
    found = np.asarray(escape.realize([40, 13]))
    rows, columns = np.mgrid[:13, :40].astype(np.float32)
    point = columns / np.float32(15) - 2 + 1j * (rows / np.float32(6) - 1)
    z, inside = np.zeros_like(point), []
    with np.errstate(all="ignore"):
        for _ in range(12):
            inside.append(np.abs(z) ** 2 < 4)
            z = z * z + point
    wanted = np.where(np.all(inside, axis=0), 0, np.argmin(inside, axis=0))
    assert np.mean(found == wanted) > 0.99  # points on the border may round otherwise


# Lesson 14: types


@pytest.mark.parametrize(
    "a, b, wanted",
    [
        (hl.u8(3), hl.u16(4), hl.UInt(16)),
        (hl.u8(3), hl.i8(4), hl.Int(8)),
        (hl.u32(3), hl.i8(4), hl.Int(32)),
        (hl.i16(3), hl.f32(4.0), hl.Float(32)),
        (hl.f32(3.0), hl.f64(4.0), hl.Float(64)),
        (hl.u8(3), 4, hl.UInt(8)),
        (hl.u8(3), 4.5, hl.Float(32)),
        (x, hl.u8(3), hl.Int(32)),
        (x, hl.Expr(2), hl.Int(32)),
    ],
)
def test_operands_of_two_types_are_promoted_as_in_halide(a, b, wanted):
    assert (a + b).type() == wanted
    assert (b + a).type() == wanted


def test_the_average_of_two_values_does_not_overflow_in_a_wider_type():
    def average(a: hl.Expr, b: hl.Expr) -> hl.Expr:
        if a.type().is_float():
            return (a + b) / 2
        wider = hl.Int(a.type().bits() * 2) if a.type().is_int() else hl.UInt(a.type().bits() * 2)
        return hl.cast(a.type(), (hl.cast(wider, a) + hl.cast(wider, b)) / 2)

    assert hl.Func(average(hl.u8(255), hl.u8(253))).realize([])[()] == 254
    assert hl.Func(average(hl.f32(3.0), hl.f32(4.0))).realize([])[()] == 3.5


@pytest.mark.parametrize("a", [7, -7, 0])
@pytest.mark.parametrize("b", [3, -3, 0])
@pytest.mark.parametrize("known", [True, False])
def test_a_quotient_leaves_a_remainder_of_at_least_0(a, b, known):
    divisor = hl.i32(b) if known else hl.Buffer(np.array([b], np.int32))[x]
    value = hl.Buffer(np.array([a], np.int32))[x]
    f = hl.Func("f")
    f[x] = (value / divisor, value % divisor)
    quotient, rest = (v[0] for v in f.realize([1]))
    if b == 0:
        assert (quotient, rest) == (0, 0)
    else:
        assert 0 <= rest < abs(b)
        assert quotient * b + rest == a


# Lessons 15 and 21: generators and autoschedulers


class Sharpened(hl.Generator):
    """Contrast around a value; by more than one thread if asked."""

    by_threads = hl.GeneratorParam(True)
    factor = hl.GeneratorParam(2.0, 0.0, 8.0)
    source = hl.InputBuffer(hl.UInt(8), 2)
    middle = hl.InputScalar(hl.UInt(8), 100)
    result = hl.OutputBuffer(hl.UInt(8), 2)

    def generate(self):
        distance = hl.f32(self.source[x, y]) - hl.f32(self.middle)
        value = hl.f32(self.middle) + distance * self.factor
        self.result[x, y] = hl.saturating_cast(hl.UInt(8), value)

    def schedule(self):
        self.result.vectorize(x, 8)
        if self.by_threads:
            self.result.parallel(y)


def _sharpened(image: np.ndarray, factor: float, middle: int) -> np.ndarray:
    distance = image.astype(np.float32) - middle
    return np.clip(middle + distance * factor, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("by_threads", [True, False])
def test_a_generator_makes_a_pipeline_for_its_parameters(by_threads):
    image = picture(9, 30)
    made = Sharpened(by_threads=by_threads, factor=1.5)
    made.source.set(image)
    found = np.asarray(made.realize([30, 9]))
    np.testing.assert_array_equal(found, _sharpened(image, 1.5, 100))
    assert ("parallel" in str(made.build_pipeline().loops([30, 9]))) is by_threads


def test_a_generator_is_called_inside_a_pipeline():
    source = hl.Buffer(picture(6, 16))
    twice = Sharpened.call(Sharpened.call(source, hl.u8(100)), hl.u8(90), factor=1.0)
    found = np.asarray(twice.realize([16, 6]))
    np.testing.assert_array_equal(found, _sharpened(source.array, 2.0, 100))


def test_a_generator_refuses_what_it_does_not_declare():
    with pytest.raises(UsageError, match="expected parameters by_threads, factor, found speed"):
        Sharpened(speed=3)
    with pytest.raises(UsageError, match=r"factor: expected 0\.0 to 8\.0, found 9\.0"):
        Sharpened(factor="9.0")

    @hl.generator("wrong_type")
    class WrongType:
        result = hl.OutputBuffer(hl.UInt(8), 1)

        def generate(self):
            self.result[x] = hl.f32(x)

    with pytest.raises(UsageError, match=r"result: expected \[<u8>\] in 1 dimensions, found"):
        WrongType().build_pipeline()


def test_the_command_line_writes_a_generator_with_its_parameters(tmp_path):
    @hl.generator("halved")
    class Halved:
        shift = hl.GeneratorParam(1)
        source = hl.InputBuffer(hl.UInt(8), 1)
        result = hl.OutputBuffer(hl.UInt(8), 1)

        def generate(self):
            self.result[x] = self.source[x] >> self.shift

        def schedule(self):
            self.source.set_estimates([(0, 64)])
            self.result.set_estimates([(0, 64)])

    hl.main(["-g", "halved", "-o", str(tmp_path), "-f", "quartered", "target=host", "shift=2"])
    assert ">> " in (tmp_path / "quartered.c").read_text()
    assert (tmp_path / "quartered.o").exists()


def test_a_schedule_is_chosen_by_rules_on_request():
    image = picture(32, 64)
    source = hl.ImageParam(hl.UInt(8), 2, "source")
    source.set(image)
    clamped = hl.BoundaryConditions.repeat_edge(source)
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = hl.u16(clamped[x - 1, y]) + clamped[x, y] + clamped[x + 1, y]
    blurred[x, y] = across[x, y - 1] + across[x, y] + across[x, y + 1]
    across.compute_root()
    pipeline = hl.Pipeline([blurred])
    pipeline.apply_autoscheduler(hl.get_host_target(), None)
    wide = np.pad(image.astype(np.uint16), 1, mode="edge")
    wanted = np.lib.stride_tricks.sliding_window_view(wide, (3, 3)).sum((2, 3))
    np.testing.assert_array_equal(np.asarray(pipeline.realize([64, 32])), wanted)


# Lesson 16: pictures whose channels lie side by side


@pytest.mark.parametrize("interleaved", [False, True])
def test_both_layouts_of_channels_have_one_pipeline(interleaved):
    image = picture(3, 12, 16)
    source, brighter = hl.ImageParam(hl.UInt(8), 3, "source"), hl.Func("brighter")
    brighter[x, y, c] = hl.u8(hl.min(hl.u16(source[x, y, c]) + 40, 255))
    if interleaved:
        source.dim(0).set_stride(3)
        source.dim(2).set_stride(1)
        source.dim(2).set_bounds(0, 3)
        brighter.output_buffer().dim(0).set_stride(3)
        brighter.output_buffer().dim(2).set_bounds(0, 3)
        brighter.reorder(c, x, y).bound(c, 0, 3).unroll(c)
        given = hl.Buffer.make_interleaved(hl.UInt(8), 16, 12, 3)
        given.array[...] = image
        output = hl.Buffer.make_interleaved(hl.UInt(8), 16, 12, 3)
        assert output.dim(0).stride() == 3
    else:
        brighter.vectorize(x, 16)
        given, output = hl.Buffer(image), hl.Buffer(hl.UInt(8), [16, 12, 3])
    source.set(given)
    brighter.realize(output)
    wanted = np.minimum(image.astype(np.uint16) + 40, 255)
    np.testing.assert_array_equal(np.asarray(output), wanted)


def test_a_promise_about_an_image_is_checked_when_it_is_read():
    source, f = hl.ImageParam(hl.UInt(8), 2, "source"), hl.Func("f")
    f[x, y] = source[x, y]
    source.dim(1).set_bounds(0, 3)
    source.set(picture(4, 8))
    with pytest.raises(UsageError, match="dimension 1 of source: expected extent 3, found 4"):
        f.realize([8, 3])
    f.bound(x, 0, 4)
    source.dim(1).set_bounds(0, 4)
    with pytest.raises(UsageError, match=r"f\.bound: x is stated as 0 to 3, and 0 to 7 is needed"):
        f.realize([8, 4])


# Lesson 17: reduction domains with conditions


def test_an_update_is_made_where_the_condition_of_its_domain_holds():
    circle = hl.Func("circle")
    circle[x, y] = x + y
    r = hl.RDom([(0, 7), (0, 7)])
    r.where((r.x - 3) * (r.x - 3) + (r.y - 3) * (r.y - 3) <= 10)
    circle[r.x, r.y] *= 2
    rows, columns = np.mgrid[:7, :7]
    inside = (columns - 3) ** 2 + (rows - 3) ** 2 <= 10
    wanted = np.where(inside, 2, 1) * (rows + columns)
    np.testing.assert_array_equal(np.asarray(circle.realize([7, 7])), wanted)


def test_several_conditions_bound_a_triangle():
    triangle = hl.Func("triangle")
    triangle[x, y] = x + y
    r = hl.RDom([(0, 8), (0, 10)])
    r.where(r.x + r.y > 5)
    r.where(3 * r.y - 2 * r.x < 15)
    r.where(4 * r.x - r.y < 20)
    triangle[r.x, r.y] = triangle[r.x, r.y] * 2
    rows, columns = np.mgrid[:10, :10]
    inside = (rows + columns > 5) & (3 * rows - 2 * columns < 15) & (4 * columns - rows < 20)
    inside[:, 8:] = False
    wanted = np.where(inside, 2, 1) * (rows + columns)
    np.testing.assert_array_equal(np.asarray(triangle.realize([10, 10])), wanted)


def test_a_condition_may_read_another_func():
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = (2 * x + y) % 5
    g[x, y] = x + y
    r = hl.RDom([(0, 6), (0, 6)])
    r.where(f[r.x, r.y] >= 3)
    g[r.x, r.y] *= 3
    rows, columns = np.mgrid[:6, :6]
    wanted = np.where((2 * columns + rows) % 5 >= 3, 3, 1) * (rows + columns)
    np.testing.assert_array_equal(np.asarray(g.realize([6, 6])), wanted)


def test_a_condition_on_the_func_itself_sees_the_updates_before():
    f = hl.Func("f")
    f[()] = 1
    r = hl.RDom([(0, 6)])
    r.where(f[()] < 8)
    f[()] += r
    assert f.realize([])[()] == 11  # 1 + 0 + 1 + 2 + 3 + 4


def test_a_sum_counts_only_the_elements_that_its_condition_allows():
    image = picture(16, 16)
    r = hl.RDom([(0, 16), (0, 16)])
    r.where(r.x >= r.y)
    total = hl.Func(hl.sum(hl.i32(hl.Buffer(image)[r.x, r.y])))
    assert total.realize([])[()] == np.triu(image.astype(int)).sum()


# Lesson 18: reductions by threads and vectors


def _histogram(image: np.ndarray) -> tuple[hl.Func, hl.RDom]:
    source = hl.Buffer(image)
    histogram = hl.Func("histogram")
    r = hl.RDom(source)
    histogram[i] = 0
    histogram[hl.i32(source[r.x, r.y]) / 32] += 1
    return histogram, r


def _rows(histogram: hl.Func, r: hl.RDom) -> None:
    partial = histogram.update().rfactor(r.y, y)
    partial.compute_root().update().parallel(y)


def _columns(histogram: hl.Func, r: hl.RDom) -> None:
    partial = histogram.update().rfactor(r.x, u)
    partial.compute_root().update().vectorize(u, 8)


def _strips(histogram: hl.Func, r: hl.RDom) -> None:
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    histogram.update().split(r.y, outer, inner, 16)
    partial = histogram.update().rfactor(outer, u)
    partial.compute_root().update().parallel(u)


def _tiles(histogram: hl.Func, r: hl.RDom) -> None:
    xo, xi, yo, yi = (hl.RVar(n) for n in ("xo", "xi", "yo", "yi"))
    v = hl.Var("v")
    histogram.update().tile(r.x, r.y, xo, yo, xi, yi, 4, 8)
    partial = histogram.update().rfactor([(xo, u), (yo, v)])
    partial.compute_root().update().parallel(v)


@pytest.mark.parametrize("schedule", [_rows, _columns, _strips, _tiles])
def test_partial_histograms_are_added_up(schedule):
    image = picture(37, 26)
    histogram, r = _histogram(image)
    schedule(histogram, r)
    wanted = np.bincount(image.ravel() // 32, minlength=8)
    np.testing.assert_array_equal(np.asarray(histogram.realize([8])), wanted)


def test_a_dot_product_is_added_up_in_lanes():
    a, b = np.random.default_rng(0).random((2, 1000), np.float32)
    r = hl.RDom([(0, 1000)], "r")
    dot = hl.Func("dot")
    dot[()] = hl.f32(0.0)
    dot[()] += hl.Buffer(a)[r.x] * hl.Buffer(b)[r.x]
    outer, lane = hl.RVar("outer"), hl.RVar("lane")
    dot.update().split(r.x, outer, lane, 8)
    partial = dot.update().rfactor(lane, u)
    partial.compute_root().update().reorder(u, outer).vectorize(u)
    np.testing.assert_allclose(dot.realize([])[()], a @ b, rtol=1e-5)
    assert "vectorized(8)" in str(hl.Pipeline(dot).loops([]))


def test_an_update_that_does_not_combine_values_has_no_partial_results():
    f = hl.Func("f")
    r = hl.RDom([(1, 7)])
    f[x] = x
    f[r] = f[r - 1] + 2
    with pytest.raises(ScheduleError, match=r"expected an update that adds, multiplies or takes"):
        f.update().rfactor(r.x, u)


# Lessons 19 and 20: copies and clones for readers


def test_a_copy_for_one_reader_has_a_schedule_of_its_own():
    f, g, h = hl.Func("f"), hl.Func("g"), hl.Func("h")
    f[x, y] = x + y
    g[x, y] = f[x, y] * 2
    h[x, y] = g[x, y] + f[y, x]
    f.compute_root()
    g.compute_root()
    f.in_(g).compute_at(g, y).vectorize(x, 4)
    rows, columns = np.mgrid[:8, :8]
    np.testing.assert_array_equal(np.asarray(h.realize([8, 8])), 3 * (rows + columns))
    assert "alloc f_in_g" in str(hl.Pipeline(h).loops([8, 8]))


def test_a_copy_of_an_image_is_loaded_in_tiles():
    image = picture(16, 16)
    source, transposed = hl.Func(hl.Buffer(image)), hl.Func("transposed")
    transposed[x, y] = source[y, x]
    xo, yo, xi, yi = (hl.Var(n) for n in ("xo", "yo", "xi", "yi"))
    transposed.tile(x, y, xo, yo, xi, yi, 8, 8).vectorize(xi).unroll(yi)
    source.in_(transposed).compute_at(transposed, xo)
    np.testing.assert_array_equal(np.asarray(transposed.realize([16, 16])), image.T)


def test_a_clone_is_computed_apart_from_what_it_was_cloned_from():
    f, g, h, out = (hl.Func(n) for n in ("f", "g", "h", "out"))
    f[x, y] = x + y
    r = hl.RDom([(1, 3)])
    f[x, y] += r * x
    g[x, y] = f[x, y] + 1
    h[x, y] = f[x, y] * 2
    out[x, y] = g[x, y] + h[x, y]
    f.compute_root()
    g.compute_root()
    f.clone_in(g).compute_at(g, y)
    rows, columns = np.mgrid[:6, :6]
    value = columns + rows + 6 * columns
    np.testing.assert_array_equal(np.asarray(out.realize([6, 6])), 3 * value + 1)
    assert "alloc f_clone" in str(hl.Pipeline(out).loops([6, 6]))


# Beyond the lessons


def test_a_special_case_is_chosen_by_sizes_and_parameters():
    f, wide = hl.Func("f"), hl.Param(hl.Int(32), "wide", 0)
    f[x] = x * 3
    f.specialize(f.output_buffer().width() >= 64).vectorize(x, 16)
    f.specialize(wide > 0).vectorize(x, 4)
    for size, value, lanes in ((100, 0, 16), (20, 1, 4), (20, 0, None)):
        wide.set(value)
        assert (f"vectorized({lanes})" if lanes else "for x in range(20)") in str(f.loops(size))
        np.testing.assert_array_equal(np.asarray(f.realize(size)), 3 * np.arange(size))


@pytest.mark.parametrize("where", [x + 1, y])
def test_an_update_has_each_coordinate_in_its_own_dimension(where):
    f = hl.Func("f")
    f[x] = x
    with pytest.raises(ExpressionError, match="which must be a coordinate in its own dimension"):
        f[where] = 3


def test_an_update_outside_of_what_is_realized_is_refused():
    f = hl.Func("f")
    r = hl.RDom([(0, 5)])
    f[x] = 0
    f[3 * r] = r + 1
    np.testing.assert_array_equal(np.asarray(f.realize([13]))[::3], np.arange(1, 6))
    with pytest.raises(UsageError, match=r"an update uses \[\(0, 12\)\]; realize these, or clamp"):
        f.realize([6])


def test_a_saturated_float_is_the_nearest_integer_of_the_type():
    values = hl.Buffer(np.array([3e9, -3e9, 1.5, np.inf], np.float32))
    f = hl.Func("f")
    f[x] = (hl.i32_sat(values[x]), hl.u8_sat(values[x]))
    whole, small = (np.asarray(v).tolist() for v in f.realize([4]))
    assert whole == [2**31 - 1, -(2**31), 1, 2**31 - 1]
    assert small == [255, 0, 1, 255]


def test_memory_of_a_func_has_another_order_of_dimensions():
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y, c] = x + 10 * y + 100 * c
    g[x, y] = f[x, y, 0] + f[x, y, 2]
    f.compute_root().reorder_storage(c, x, y)
    assert "alloc f: i32[5, 6, 3]" in str(hl.Pipeline(g).loops([6, 5]))
    rows, columns = np.mgrid[:5, :6]
    np.testing.assert_array_equal(np.asarray(g.realize([6, 5])), 2 * (columns + 10 * rows) + 200)


def test_a_coordinate_from_data_needs_a_clamp():
    table, source = hl.Func("table"), hl.Buffer(np.array([3, 900, -4], np.int32))
    table[i] = i * i
    table.compute_root()
    f = hl.Func("f")
    f[x] = table[source[x]]
    with pytest.raises(UsageError, match=r"f: the coordinate .* of table has no bounds; use hl.c"):
        f.realize([3])
    f = hl.Func("f")
    f[x] = table[hl.clamp(source[x], 0, 9)]
    np.testing.assert_array_equal(np.asarray(f.realize([3])), [9, 81, 0])


@pytest.mark.parametrize(
    "name, mode", [("repeat_edge", "edge"), ("repeat_image", "wrap"),
                   ("mirror_image", "symmetric"), ("mirror_interior", "reflect"),
                   ("constant_exterior", "constant")],
)  # fmt: skip
def test_boundary_conditions_are_those_of_numpy(name, mode):
    image = picture(5, 7)
    given = (hl.u8(9),) if mode == "constant" else ()
    f = getattr(hl.BoundaryConditions, name)(hl.Buffer(image), *given)
    wanted = np.pad(image, 4, mode=mode, **({"constant_values": 9} if given else {}))
    around = hl.Buffer(hl.UInt(8), [15, 13])
    around.set_min([-4, -4])
    f.realize(around)
    np.testing.assert_array_equal(np.asarray(around), wanted)
