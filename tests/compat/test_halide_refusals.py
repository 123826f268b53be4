"""What Halide's names refuse, and what may change between two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ExpressionError, ScheduleError, UsageError

x, y, u = hl.Var("x"), hl.Var("y"), hl.Var("u")


def _squares() -> hl.Func:
    f = hl.Func("f")
    f[x] = x * x
    return f


@pytest.mark.parametrize("high", [300, 3.5, hl.i32(x)])
def test_clamp_refuses_a_bound_that_the_type_does_not_hold(high: Any) -> None:
    with pytest.raises(ExpressionError, match="clamp of u8: expected bounds"):
        hl.clamp(hl.u8(x), 0, high)


def test_clamp_takes_bounds_of_smaller_types() -> None:
    f = hl.Func("f")
    f[x] = hl.clamp(hl.i32(x) - 2, hl.i8(0), hl.u8(3))
    assert np.asarray(f.realize([8])).tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


def test_undef_is_answered_with_the_old_value() -> None:
    with pytest.raises(UsageError, match="undef has no counterpart: use the old value"):
        hl.undef(hl.Int(32))


@pytest.mark.parametrize("value", [300, -1, 1.5, "1", True, np.int64(256)])
def test_a_parameter_refuses_a_number_that_its_type_does_not_hold(value: Any) -> None:
    with pytest.raises(UsageError, match="p: expected a number of type u8"):
        hl.Param(hl.UInt(8), "p", 0).set(value)


@pytest.mark.parametrize("given", [("p", 0, 0, 10), (0, 0, 10)])
def test_a_parameter_stays_in_its_range(given: tuple[Any, ...]) -> None:
    p = hl.Param(hl.UInt(8), *given)
    p.set(np.uint8(10))
    assert p.get() == 10
    with pytest.raises(UsageError, match="expected 0 to 10, found 11"):
        p.set(11)
    with pytest.raises(UsageError, match="expected 0 to 10, found 12"):
        hl.Param(hl.UInt(8), "p", 12, 0, 10)


def test_an_estimate_allows_other_sizes() -> None:
    image, f = hl.ImageParam(hl.Int(32), 1), hl.Func("f")
    image.set_estimates([(0, 24)])
    f[x] = image[x] + image.width()
    assert "i32[24]" in str(f.loops(4))
    image.set(hl.Buffer(np.arange(30, dtype=np.int32)))
    assert np.asarray(f.realize([3])).tolist() == [30, 31, 32]


def test_a_promise_after_a_run_holds_for_the_next_run() -> None:
    image, f = hl.ImageParam(hl.Int(32), 1), hl.Func("f")
    f[x] = image[x]
    image.set(hl.Buffer(np.arange(30, dtype=np.int32)))
    f.realize([3])
    image.dim(0).set_bounds(0, 24)
    with pytest.raises(UsageError, match="expected extent 24, found 30"):
        f.realize([3])
    image.dim(0).set_bounds(0, 30)
    f.output_buffer().dim(0).set_extent(4)
    with pytest.raises(UsageError, match="expected extent 4, found 3"):
        f.realize([3])


def test_a_condition_after_a_run_holds_for_the_next_run() -> None:
    r, f = hl.RDom([(0, 5)]), hl.Func("f")
    f[x] = 0
    f[x] += r.x
    assert np.asarray(f.realize([1])).tolist() == [10]
    r.where(r.x > 2)
    assert np.asarray(f.realize([1])).tolist() == [7]


def test_a_special_case_of_a_special_case_may_depend_on_a_parameter() -> None:
    f, p = _squares(), hl.Param(hl.Int(32), "p", 1)
    f.specialize(f.output_buffer().width() == 8).specialize(p == 1).vectorize(x, 4)
    for p_is in (1, 0):
        p.set(p_is)
        assert ("vectorized" in str(f.loops(8))) == bool(p_is)
        assert np.asarray(f.realize([8])).tolist() == [n * n for n in range(8)]


def _sums() -> hl.Func:
    f = hl.Func("f")
    f[x, y] = x + y
    return f


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda f: f.tile(x, y, x, y, 4), "tile: expected loops"),
        (lambda f: f.tile(), "tile: expected loops"),
        (lambda f: f.tile([x, y], [x, y], [4]), "tile: expected loops"),
        (lambda f: f.split(x, x, y, 0), "split: expected a whole number from 1, found 0"),
        (lambda f: f.split(x, x, y, 2.5), "factor: expected an integer, found 2.5"),
        (lambda f: f.vectorize(x, 8, "GuardWithIf"), "tail: expected a TailStrategy"),
        (lambda f: f.store_in("heap"), "memory: expected a MemoryType"),
        (lambda f: f.reorder(hl.RDom([(0, 2), (0, 2)])), "is no coordinate; use r.x"),
        (lambda f: f.set_estimates([(0, 4)]), "set_estimates: expected 2 values"),
        (lambda f: f.set_estimates([0, 4]), "bounds.*expected a tuple of 2"),
        (lambda f: f.realize([2.5, 4]), "expected sizes or a Buffer"),
        (lambda f: f.realize([-1, 4]), "expected sizes from 0"),
        (lambda f: f.realize([4]), "expected i32 in 2 dimensions"),
        (lambda f: f.realize([4, 4], target="host"), "target: expected a Target"),
        (lambda f: f.realize([4, 4], host=1), "host"),
        (lambda f: f.compile_jit(), "compile_jit has no counterpart: use realize"),
        (lambda f: f.align_storage(x, 0), "align_storage: expected a whole number from 1"),
        (lambda f: hl.RDom(0, 5, 0), "RDom: expected .min, extent."),
        (lambda f: hl.RDom(5), "RDom: expected .min, extent."),
        (lambda f: hl.Buffer(hl.Int(32), [4, -1]), "expected sizes from 0"),
        (lambda f: hl.Buffer(np.zeros(4)).height(), "has 1 dimensions, found number 1"),
        (lambda f: hl.Buffer(np.zeros(4)).set_min([1, 2]), "set_min: expected 1 values"),
        (lambda f: hl.ImageParam(hl.Int(8), 1).channels(), "has 1 dimensions, found number 2"),
        (lambda f: hl.ImageParam(hl.Int(8), 1).set_estimates([]), "expected 1 values"),
        (lambda f: hl.GeneratorParam(2).checked("size", "abc"), "size: expected 2 or the like"),
        (lambda f: hl.GeneratorParam(True).checked("on", "maybe"), "on: expected true, false, "),
        (lambda f: f.realize([True, 2]), "expected sizes or a Buffer"),
        (lambda f: hl.Buffer(hl.UInt(8), [4]).fill(300), "expected a number of type u8, found 300"),
        (lambda f: hl.Buffer(hl.UInt(8), [4]).__setitem__(0, 2.5), "of type u8, found 2.5"),
        (lambda f: hl.Param(hl.Float(16), 70000), "expected a number of type f16, found 70000"),
        (lambda f: hl.Param(hl.Float(32), "p", 10**400), "type f32, found an integer of 1329 bits"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[hl.Func], Any], message: str) -> None:
    with pytest.raises((UsageError, TypeError), match=message):
        make(_sums())


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda f: f[x, y][3], "expected the number of one of its 1 values"),
        (lambda f: hl.Expr() + 1, "which stands for none"),
        (lambda f: hl.min(), "min: expected operands, found none"),
        (lambda f: hl.mux(x, []), "mux: expected values to choose from"),
        (lambda f: hl.mux(x, 3), "values: expected a list, found 3"),
        (lambda f: hl.select(x > 2, (1, 2), (1, 2, 3)), "two tuples of one length"),
        (lambda f: hl.select(x > 2, (1, 2), 3), "two tuples of one length"),
    ],
)
def test_wrong_expressions_are_refused(make: Callable[[hl.Func], Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        make(_sums())


@pytest.mark.parametrize(
    "steps, message",
    [
        (lambda f: f.split(u, x, y, 4), "f has no loop u; its loops are"),
        (lambda f: f.split(x, u, y, 4), "split of x makes a loop y, and f has one of this name"),
        (lambda f: f.split(x, u, u, 4), "split of x makes a loop u, and f has one of this name"),
        (lambda f: f.fuse(x, x, u), "fuse of x, x: expected different loops"),
        (lambda f: f.reorder(x, y, x), "reorder of x, y, x: expected different loops"),
        (lambda f: f.rename(x, y), "rename of x makes a loop y"),
        (lambda f: f.reorder_storage(u, x), "f has no dimension u; its dimensions are x, y"),
        (lambda f: f.reorder_storage(x, x), "expected different dimensions"),
        (lambda f: f.fold_storage(u, 2), "f has no dimension u"),
        (lambda f: f.bound(u, 0, 2), "f has no dimension u"),
        (lambda f: f.bound_extent(u, 2), "f has no dimension u"),
        (lambda f: f.align_bounds(u, 2), "f has no dimension u"),
        (lambda f: f.set_estimate(u, 0, 2), "f has no dimension u"),
        (lambda f: f.compute_root().fold_storage(x, 2), "fold_storage: expected store_at"),
        (lambda f: f.compute_root().store_at(f, x), "store_at: expected compute_at"),
    ],
)
@pytest.mark.parametrize("update", [None, lambda f: f.__setitem__((hl.RDom([(0, 2)]), 0), f[1, 0])])
def test_steps_that_do_not_fit_are_refused(
    steps: Callable[[hl.Func], Any], message: str, update: Callable[[hl.Func], Any] | None
) -> None:
    f = _sums()
    if update is not None:
        update(f)
    with pytest.raises(ScheduleError, match=message):
        steps(f)
        f.realize([8, 8])


def test_numbers_of_numpy_are_numbers() -> None:
    f = _sums().split(x, x, u, np.int64(4)).vectorize(u)
    assert np.asarray(f.realize([np.int32(8), np.int32(2)])).tolist()[1] == [*range(1, 9)]


def test_an_order_of_some_dimensions_in_memory_keeps_the_others() -> None:
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y, u] = x + 10 * y + 100 * u
    g[x, y, u] = f[x, y, u] + 1
    f.compute_root().reorder_storage(y, x)
    assert "f: i32[2, 4, 3]" in str(g.loops(4, 3, 2))
    found = np.asarray(g.realize([4, 3, 2]))
    tens = np.add.outer(10 * np.arange(3), np.arange(4))
    np.testing.assert_array_equal(found, np.add.outer(100 * np.arange(2), tens) + 1)


def test_a_division_of_an_undefined_func_begins_with_1() -> None:
    f = hl.Func("f")
    f[x] /= hl.f32(x + 1)
    np.testing.assert_allclose(np.asarray(f.realize([3])), [1, 1 / 2, 1 / 3], rtol=1e-6)


def test_an_image_without_dimensions_is_an_input() -> None:
    image, f = hl.ImageParam(hl.Int(32), 0), hl.Func("f")
    f[x] = image[()] + x
    image.set(hl.Buffer(np.array(5, np.int32)))
    assert np.asarray(f.realize([3])).tolist() == [5, 6, 7]


def test_a_copy_of_a_copy_is_read() -> None:
    f, g = _squares(), hl.Func("g")
    g[x] = f[x] + 1
    f.compute_root().in_(g).compute_root().in_(g).compute_root()
    assert "f_in_g_in_g" in str(g.loops(4))
    assert np.asarray(g.realize([4])).tolist() == [1, 2, 5, 10]


def test_a_buffer_of_a_buffer_has_its_coordinates() -> None:
    first = hl.Buffer(np.arange(4))
    first.set_min([7])
    assert hl.Buffer(first)[8] == 1
    assert first.copy()[8] == 1


def test_a_buffer_with_its_axes_exchanged_exchanges_its_coordinates() -> None:
    b = hl.Buffer(np.arange(6).reshape(2, 3))
    b.set_min([10, 20])
    turned = hl.Buffer(b, reverse_axes=False)
    assert turned.mins == [20, 10]
    assert turned[21, 12] == b[12, 21] == 5


def test_rfactor_refuses_steps_that_it_would_lose() -> None:
    f, r = hl.Func("f"), hl.RDom([(0, 8)])
    f[x] = 0
    f[x] += x * r.x
    f.update().vectorize(x, 4)
    with pytest.raises(ScheduleError, match="found split of x; take this step afterwards"):
        f.update().rfactor(r.x, u)


def test_steps_without_effect_on_a_func_of_loops_give_a_warning() -> None:
    f, g, r = hl.Func("f"), hl.Func("g"), hl.RDom([(1, 7)])
    f[x] = 1
    f[r] = f[r - 1] + 1
    g[x] = f[x]
    f.compute_root().align_storage(x, 16).reorder_storage(x)
    with pytest.warns(hl.ScheduleWarning, match=r"f\.align_storage, reorder_storage: no effect"):
        assert np.asarray(g.realize([8])).tolist() == [*range(1, 9)]


def test_an_automatic_schedule_is_written_to_files(tmp_path: Path) -> None:
    f = _sums()
    f.set_estimates([(0, 64), (0, 64)])
    plain = f.compile_to_file(tmp_path / "plain").source.read_text()
    f.apply_autoscheduler()
    chosen = f.compile_to_file(tmp_path / "plain").source.read_text()
    assert chosen != plain
    assert str(f.loops()) != str(_sums().loops(64, 64))


def test_a_run_is_compiled_for_its_target() -> None:
    f = _squares()
    assert np.asarray(f.realize([4], target=hl.Target("x86-64-linux"))).tolist() == [0, 1, 4, 9]
    with pytest.raises(UsageError, match="expected host, or one of"):
        f.realize([4], target=hl.Target("riscv"))


def test_a_file_has_no_argument_that_the_pipeline_does_not_read(tmp_path: Path) -> None:
    f = _squares()
    f.set_estimates([(0, 8)])
    for unread in (hl.ImageParam(hl.Int(32), 1, "unread"), hl.Param(hl.Int(32), "unread", 1)):
        with pytest.raises(UsageError, match="arguments: the pipeline does not read unread"):
            f.compile_to_file(tmp_path / "squares", [unread])


def test_a_loop_that_is_not_there_is_named_with_the_step_that_wants_it() -> None:
    f, g = _sums(), hl.Func("g")
    g[x, y] = f[x, y]
    for place, step in ((f.compute_at, "compute_at"), (f.compute_at(g, x).store_at, "store_at")):
        place(g, u)
        with pytest.raises(UsageError, match=rf"f\.{step}: expected a loop of g"):
            g.realize([4, 4])
        f.compute_at(g, x)
