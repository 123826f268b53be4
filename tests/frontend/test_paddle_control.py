"""Paddle's loops and branches in programs of both forms."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.support.errors import ModelError, TilesmithError, UnsupportedError
from written_models.paddle import named, op, operator, pir, program, typed

X = np.array([[1.5, -2.0, 0.25]], np.float32)


def less(a, b, out):
    return operator("less_than", {"X": a, "Y": b}, {"Out": out})


def scaled(x, out, scale, bias=0.0):
    return operator("scale", {"X": x}, {"Out": out}, scale=scale, bias=bias, bias_after_scale=True)


def assign(x, out):
    return operator("assign", {"X": x}, {"Out": out})


LOOP = [
    less("i", "n", "goes_on"),
    operator(
        "while", {"Condition": "goes_on", "X": "x i n w"}, {"Out": "goes_on i x"}, sub_block=1
    ),
]
STEP = [
    operator("elementwise_mul", {"X": "x", "Y": "w"}, {"Out": "product"}, axis=-1),
    scaled("product", "moved", 2.0, 1.0),
    scaled("i", "next", 1.0, 1.0),
    less("next", "n", "again"),
    assign("next", "i"),
    assign("moved", "x"),
    assign("again", "goes_on"),
]


def test_a_loop_of_a_program_whose_trips_a_run_decides(tmp_path):
    w = np.array([[0.5, 0.25, 2.0]], np.float32)
    inputs = {"x": ("float32", (1, 3)), "i": ("int64", (1,)), "n": ("int64", (1,))}
    path = program(tmp_path, LOOP, inputs, ["x", "i"], {"w": w}, [STEP])
    exe = ts.compile(path)
    for trips in (0, 1, 4):
        found = exe.run({"x": X, "i": np.array([0]), "n": np.array([trips])})
        x = X
        for _ in range(trips):
            x = x * w * 2 + 1
        np.testing.assert_allclose(found["x"], x, 1e-6)
        np.testing.assert_array_equal(found["i"], [trips])
    assert inspect(path).operators["multiply"] == 1


def block_under(condition, out, number):
    slots = {"Cond": condition, "Input": "x"}
    return operator("conditional_block", slots, {"Out": out}, sub_block=number)


def compiled(folder, ops, results, blocks):
    kinds = {"x": ("float32", (1, 3)), "t": ("float32", (1,)), "zero": ("float32", (1,))}
    return ts.compile(program(folder, ops, kinds, results, blocks=blocks))


def run_with(exe, t):
    return exe.run({"x": X, "t": np.float32([t]), "zero": np.zeros(1, np.float32)})


CHOICE = [
    less("zero", "t", "is_true"),
    block_under("is_true", "a", 1),
    operator("logical_not", {"X": "is_true"}, {"Out": "is_false"}),
    block_under("is_false", "b", 2),
    operator("cast", {"X": "is_true"}, {"Out": "number"}, in_dtype=0, out_dtype=2),
    operator("select_input", {"X": "b a", "Mask": "number"}, {"Out": "y"}),
]
ENDLESS = [
    less("zero", "one", "on"),
    operator("while", {"Condition": "on", "X": "h"}, {"Out": "on h"}, sub_block=3),
    assign("h", "b"),
]


def test_a_choice_between_blocks_of_a_program(tmp_path):
    blocks = [[scaled("x", "h", 3.0), assign("h", "a")], [scaled("x", "b", -1.0, 0.5)]]
    exe = compiled(tmp_path, CHOICE, ["y"], blocks)
    for t, expected in ((1, X * 3), (-1, -X + 0.5)):
        np.testing.assert_allclose(run_with(exe, t)["y"], expected, 1e-6)


def test_only_the_chosen_block_runs(tmp_path):
    """The other block never ends."""
    first = [scaled("x", "a", 3.0)]
    second = [scaled("x", "h", 1.0), scaled("zero", "one", 1.0, 1.0), *ENDLESS]
    third = [scaled("h", "m", 1.0, 1.0), assign("m", "h"), assign("on", "on")]
    exe = compiled(tmp_path, CHOICE, ["y"], [first, second, third])
    np.testing.assert_allclose(run_with(exe, 1)["y"], X * 3, 1e-6)


def test_a_variable_keeps_its_value_if_the_block_does_not_run(tmp_path):
    ops = [less("zero", "t", "c"), assign("x", "y"), block_under("c", "y", 1)]
    exe = compiled(tmp_path, ops, ["y"], [[scaled("x", "y", 3.0)]])
    for t, expected in ((1, X * 3), (-1, X)):
        np.testing.assert_allclose(run_with(exe, t)["y"], expected, 1e-6)


def test_a_branch_inside_of_a_loop(tmp_path):
    """for 5 steps: if i < t: x = 2 x."""
    one = {"scale": 1.0, "bias": 1.0}
    ops = [
        assign("zero", "i"),
        scaled("zero", "five", 1.0, 5.0),
        less("i", "five", "on"),
        operator("while", {"Condition": "on", "X": "x i"}, {"Out": "on i x"}, sub_block=1),
    ]
    step = [
        less("i", "t", "c"),
        block_under("c", "x", 2),
        scaled("i", "next", **one),
        assign("next", "i"),
        less("next", "five", "again"),
        assign("again", "on"),
    ]
    exe = compiled(tmp_path, ops, ["x"], [step, [scaled("x", "d", 2.0), assign("d", "x")]])
    for t in (0, 2, 9):
        np.testing.assert_allclose(run_with(exe, t)["x"], X * 2.0 ** min(t, 5), 1e-6)


def test_a_selection_that_is_no_choice_between_two_blocks_is_refused(tmp_path):
    ops = [operator("select_input", {"X": "x x", "Mask": "t"}, {"Out": "y"})]
    with pytest.raises(UnsupportedError, match="select_input"):
        compiled(tmp_path, ops, ["y"], [])


def test_a_run_that_leaves_a_result_without_a_value_is_refused(tmp_path):
    ops = [less("zero", "t", "c"), block_under("c", "y", 1)]
    exe = compiled(tmp_path, ops, ["y"], [[scaled("x", "y", 3.0)]])
    np.testing.assert_allclose(run_with(exe, 1)["y"], X * 3, 1e-6)
    with pytest.raises(TilesmithError, match="'y' is used, which nothing before defines"):
        run_with(exe, -1)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_blocks_that_do_not_exist_or_contain_themselves_are_refused(tmp_path, number):
    step = [operator("while", {"Condition": "c"}, {"Out": "c"}, sub_block=1)]
    outer = [operator("while", {"Condition": "c"}, {"Out": "c"}, sub_block=number)]
    path = program(tmp_path, outer, {"c": ("int64", (1,))}, ["c"], blocks=[step])
    with pytest.raises(ModelError, match="expected one of 2 blocks, each in one operator"):
        ts.compile(path)


def test_blocks_that_share_blocks_are_refused_at_once(tmp_path):
    blocks = [[block_under("x", "x", n), block_under("x", "x", n)] for n in range(2, 60)]
    path = program(tmp_path, blocks[0], {"x": ("float32", (1,))}, ["x"], blocks=blocks)
    with pytest.raises(ModelError, match="each in one operator"):
        inspect(path)


def test_blocks_too_deep_are_refused(tmp_path):
    blocks = [[block_under("x", "x", n)] for n in range(2, 90)]
    path = program(tmp_path, [block_under("x", "x", 1)], {"x": ("float32", (1,))}, ["x"],
                   blocks=blocks)  # fmt: skip
    with pytest.raises(ModelError, match="more than 64 deep"):
        inspect(path)


def constant(value, result, kind="f32"):
    dtype = {"f32": "float32", "i64": "int64"}[kind]
    shape = named("shape", "1.a_intarray", [1])
    type_ = named("dtype", "1.a_dtype", dtype)
    return op("1.full", (), [typed(result, kind)], shape, named("value", "0.a_f64", value), type_)


def fetched(name, value):
    return op("1.fetch", (value,), [typed(value + 100)], named("name", "0.a_str", name))


def declared(name, result, kind="f32", dims=(1,)):
    return op("1.data", (), [typed(result, kind, dims)], named("name", "0.a_str", name))


def test_nested_loops_and_a_branch_of_pir(tmp_path):
    """while i < n: while j < i + 1: x = 2 x; then x = x - 1 or x + 5, by the sign of its sum."""
    inner = [
        op("1.add", (-5, -5), [typed(20)]),
        op("1.add", (-4, 9), [typed(21)]),
        op("1.less_equal", (21, -1), [typed(22)]),
        op("2.yield", (22, 21, 20), []),
    ]
    less_one = [
        constant(1.0, 30),
        op("1.subtract", (12, 30), [typed(31)]),
        op("2.yield", (31,), []),
    ]
    more_five = [constant(5.0, 32), op("1.add", (12, 32), [typed(33)]), op("2.yield", (33,), [])]
    outer = [
        op("1.less_equal", (2, -1), [typed(10)]),
        op("1.while", (10, 2, -2), [typed(11), typed(12)], blocks=[((-4, -5), inner)]),
        op("1.full_int_array", (), [typed(13)], named("value", "0.a_array", [])),
        op("1.sum", (12, 13), [typed(14)], named("keepdim", "0.a_bool", False)),
        op("1.greater_than", (14, 4), [typed(15)]),
        op("1.if", (15,), [typed(16)], blocks=[((), less_one), ((), more_five)]),
        op("1.add", (-1, 9), [typed(17)]),
        op("1.less_than", (17, 3), [typed(18)]),
        op("2.yield", (18, 17, 16), []),
    ]
    ops = [
        declared("x", 1, dims=(1, 3)),
        declared("zero", 2, "i64"),
        declared("n", 3, "i64"),
        declared("limit", 4, dims=()),
        constant(1, 9, "i64"),
        op("1.less_than", (2, 3), [typed(5)]),
        op("1.while", (5, 2, 1), [typed(6), typed(7)], blocks=[((-1, -2), outer)]),
        fetched("y", 7),
    ]
    exe = ts.compile(pir(tmp_path, ops, {}))
    for trips in (0, 1, 3):
        y = exe.run(
            {"x": X, "zero": np.array([0]), "n": np.array([trips]), "limit": np.float32(0)}
        )["y"]
        x = X
        for i in range(trips):
            x = x * 2.0 ** (i + 1)
            x = x - 1 if x.sum() > 0 else x + 5
        np.testing.assert_allclose(y, x, 1e-6)


@pytest.mark.parametrize("yielded", [(5,), (5, 2, 1, 1)])
def test_a_loop_of_pir_whose_block_gives_another_number_of_values_is_refused(tmp_path, yielded):
    step = [op("2.yield", yielded, [])]
    ops = [
        declared("x", 1, dims=(1, 3)),
        declared("zero", 2, "i64"),
        op("1.less_than", (2, 2), [typed(5)]),
        op("1.while", (5, 2, 1), [typed(6), typed(7)], blocks=[((-1, -2), step)]),
        fetched("y", 7),
    ]
    with pytest.raises(ModelError, match="as many arguments and results of the block as 3"):
        ts.compile(pir(tmp_path, ops, {}))
