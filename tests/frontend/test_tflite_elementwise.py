"""TFLite's elementwise operators against its reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_cases import check_operator

RNG = np.random.default_rng(0)
FLOATS = (RNG.standard_normal((2, 3, 4)) * 4).astype(np.float32)
POSITIVE = np.abs(FLOATS) + np.float32(0.1)
INTS = RNG.integers(-9, 10, (2, 3, 4)).astype(np.int32)
BOOLS = RNG.random((2, 3, 4)) < 0.5
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49], np.float32)


def other(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of the type of `x`, none of them 0."""
    numbers = np.random.default_rng(1).integers(1, 5, shape)
    return (numbers > 2 if x.dtype == bool else numbers).astype(x.dtype)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    ("kind", "x"),
    [
        ("ABS", FLOATS),
        ("ABS", INTS),
        ("CEIL", FLOATS),
        ("COS", FLOATS),
        ("EXP", FLOATS),
        ("FLOOR", FLOATS),
        ("LOG", POSITIVE),
        ("LOGICAL_NOT", BOOLS),
        ("NEG", FLOATS),
        ("NEG", INTS),
        ("ROUND", HALVES),
        ("RSQRT", POSITIVE),
        ("SIGN", FLOATS),
        ("SIN", FLOATS),
        ("SQRT", POSITIVE),
        ("SQUARE", FLOATS),
    ],
)
def test_one_operand(kind: str, x: np.ndarray, is_open: bool) -> None:
    check_operator(kind, [x], is_open=is_open)


ARITHMETIC = [
    *(("ADD", x) for x in (FLOATS, INTS, INTS.astype(np.int64))),
    *((kind, x) for kind in ("SUB", "MUL", "DIV") for x in (FLOATS, INTS)),
    *((kind, x) for kind in ("FLOOR_DIV", "FLOOR_MOD") for x in (FLOATS, INTS)),
    *((kind, x) for kind in ("SQUARED_DIFFERENCE", "MAXIMUM") for x in (FLOATS, INTS)),
    *(("MINIMUM", x) for x in (FLOATS, INTS.astype(np.int8))),
    *(("POW", x) for x in (POSITIVE, INTS)),
    ("BITWISE_XOR", INTS),
    *(("RIGHT_SHIFT", x) for x in (INTS, INTS.astype(np.uint8))),
    ("LOGICAL_AND", BOOLS),
    ("LOGICAL_OR", BOOLS),
]


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1), ()])
@pytest.mark.parametrize(("kind", "x"), ARITHMETIC)
def test_two_operands(kind: str, x: np.ndarray, shape: tuple[int, ...]) -> None:
    check_operator(kind, [x, other(x, shape)])


@pytest.mark.parametrize("x", [FLOATS.round(), INTS, INTS.astype(np.int64), BOOLS])
@pytest.mark.parametrize("less", ["EQUAL", "LESS", "LESS_EQUAL"])
def test_comparison(less: str, x: np.ndarray) -> None:
    if x.dtype == bool and less != "EQUAL":
        return
    opposite = {"EQUAL": "NOT_EQUAL", "LESS": "GREATER", "LESS_EQUAL": "GREATER_EQUAL"}[less]
    for kind in (less, opposite):
        check_operator(kind, [x, other(x, (3, 1))], outputs=[(x.shape, bool)])


@pytest.mark.parametrize("kind", ["ADD", "MAXIMUM", "LESS", "FLOOR_DIV"])
def test_open_dimensions(kind: str) -> None:
    dtype = bool if kind == "LESS" else np.float32
    y = other(FLOATS, (3, 1))
    check_operator(kind, [FLOATS, y], outputs=[(FLOATS.shape, dtype)], stored=[1], is_open=True)


def test_shift_out_of_range() -> None:
    by = np.array([-1, 0, 31, 32, 40], np.int32)
    check_operator("RIGHT_SHIFT", [np.array([-7, 9, -7, -7, 9], np.int32), by])


def test_atan2() -> None:
    check_operator("ATAN2", [FLOATS, FLOATS[::-1].copy()])
    numbers = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf], np.float32)
    y, x = (np.ascontiguousarray(v) for v in np.meshgrid(numbers, numbers))
    check_operator("ATAN2", [y, x])


def test_add_n() -> None:
    check_operator("ADD_N", [FLOATS, POSITIVE, FLOATS])
    check_operator("ADD_N", [INTS, INTS])


@pytest.mark.parametrize("condition", [BOOLS, BOOLS[:, 0, 0], BOOLS[0, 0, 0]])
def test_select(condition: np.ndarray) -> None:
    check_operator("SELECT", [condition, FLOATS, POSITIVE], outputs=[((2, 3, 4), np.float32)])


@pytest.mark.parametrize("condition", [BOOLS, BOOLS[0, :, :1], BOOLS[0, 0, 0]])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4,)])
def test_select_broadcast(condition: np.ndarray, shape: tuple[int, ...]) -> None:
    inputs = [condition, INTS, other(INTS, shape)]
    check_operator("SELECT_V2", inputs, outputs=[((2, 3, 4), np.int32)])


TYPES = [np.float32, np.int32, np.int64, np.uint8, np.int16, bool]


@pytest.mark.parametrize("source", [*TYPES, np.int8, np.uint32, np.float16])
@pytest.mark.parametrize("to", TYPES)
def test_cast(source: Any, to: Any) -> None:
    x = RNG.integers(0, 100, (3, 4)).astype(source)
    if x.dtype.kind == "f":
        x = x - source(0.6)
    if source is not np.float16:  # no kernel
        check_operator("CAST", [x], outputs=[(x.shape, to)])


@pytest.mark.parametrize("to", [np.int32, np.int16, np.uint8])
def test_cast_out_of_range(to: Any) -> None:
    x = np.array([-3e9, -70000, -1, 0, 70000, 2147483520, 2.0**31, 3e9, np.inf], np.float32)
    check_operator("CAST", [x], outputs=[(x.shape, to)])


@pytest.mark.parametrize("to", [np.float32, np.uint32])
def test_bitcast(to: Any) -> None:
    check_operator("BITCAST", [INTS], outputs=[(INTS.shape, to)])
