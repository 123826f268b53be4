"""Paddle's loops and branches in programs of both forms."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.support.errors import ModelError
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


def test_a_choice_between_blocks_of_a_program(tmp_path):
    ops = [
        less("zero", "t", "is_true"),
        operator("logical_not", {"X": "is_true"}, {"Out": "is_false"}),
        operator("conditional_block", {"Cond": "is_true", "Input": "x"}, {"Out": "a"}, sub_block=1),
        operator(
            "conditional_block", {"Cond": "is_false", "Input": "x"}, {"Out": "b"}, sub_block=2
        ),
        operator("cast", {"X": "is_true"}, {"Out": "number"}, in_dtype=0, out_dtype=2),
        operator("select_input", {"X": "b a", "Mask": "number"}, {"Out": "y"}),
    ]
    blocks = [[scaled("x", "h", 3.0), assign("h", "a")], [scaled("x", "b", -1.0, 0.5)]]
    inputs = {k: ("float32", (1, 3) if k == "x" else (1,)) for k in ("x", "t", "zero")}
    exe = ts.compile(program(tmp_path, ops, inputs, ["y"], blocks=blocks))
    zero = np.zeros(1, np.float32)
    for t, expected in ((1, X * 3), (-1, -X + 0.5)):
        y = exe.run({"x": X, "t": zero + t, "zero": zero})["y"]
        np.testing.assert_allclose(y, expected, 1e-6)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_blocks_that_do_not_exist_or_contain_themselves_are_refused(tmp_path, number):
    step = [operator("while", {"Condition": "c"}, {"Out": "c"}, sub_block=1)]
    outer = [operator("while", {"Condition": "c"}, {"Out": "c"}, sub_block=number)]
    path = program(tmp_path, outer, {"c": ("int64", (1,))}, ["c"], blocks=[step])
    with pytest.raises(ModelError, match="expected one of 2 blocks, without cycles"):
        ts.compile(path)


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
