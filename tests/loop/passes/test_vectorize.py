"""Vectorised conditions: what is masked, and what need not be."""

from __future__ import annotations

import pytest

from tilesmith.ir.expr import Load, post_order
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.vectorize import vectorize
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import exprs

SMALLEST = """\
def smallest(a: f32[16], b: f32[16], y: f32[16]) -> y:
    for i in vectorized(16):
        y[i] = select(a[i] <= b[i], {yes}, {no})
"""


@pytest.mark.parametrize(
    ("yes", "no", "masks"),
    [
        ("a[i]", "b[i]", []),
        ("a[i] + y[i]", "b[i]", ["y"]),
        ("a[i]", "select(y[i] < 0.0, y[i] + b[i], a[i])", ["y"]),
    ],
)
def test_what_a_condition_has_read_needs_no_mask(yes: str, no: str, masks: list[str]) -> None:
    func = vectorize(parse_func(SMALLEST.format(yes=yes, no=no)))
    loads = {n for e in exprs(func.body) for n in post_order(e) if isinstance(n, Load)}
    assert [n.buffer.name for n in loads if n.mask is not None] == masks


@pytest.mark.parametrize(("size", "masks"), [(16, 0), (12, 1)])
def test_lanes_of_registers_are_read_as_far_as_there_are_any(size: int, masks: int) -> None:
    text = f"""\
def kept(a: f32[16], y: f32[16]) -> y:
    alloc r: f32[{size}] register
    for i in vectorized(16):
        y[i] = select(a[i] <= 0.0, r[i], 0.0)
"""
    assert print_func(vectorize(parse_func(text))).count("mask=") == masks


def test_what_an_index_reads_is_masked_too() -> None:
    text = """\
def gathered(i: i64[5], x: f32[44], y: f32[20]) -> y:
    for l in vectorized(8):
        if likely(l < 5):
            y[l * 4] = x[11 + max(min(i[l], 10), 0)]
"""
    assert print_func(vectorize(parse_func(text))).count("mask=") == 3  # y, x and i


def test_an_index_that_all_lanes_share_is_checked_once() -> None:
    """Its report names the first lane's position, as that of a vector does.  So lanes that take a
    row read it as a vector.
    """
    text = """\
def rows(i: i64[3], x: f32[80], y: f32[48]) -> y:
    for r in range(3):
        for l in vectorized(16):
            y[r * 16 + l] = x[check_index(i[r], 5, r * 16 + l) * 16 + l]
"""
    assert "x[ramp(check_index(i[r], 5, r * 16) * 16, 1, 16)]" in print_func(
        vectorize(parse_func(text))
    )


def test_an_index_of_each_lane_is_checked_for_each() -> None:
    text = """\
def taken(i: i64[16], x: f32[5], y: f32[16]) -> y:
    for l in vectorized(16):
        y[l] = x[check_index(i[l], 5, l)]
"""
    assert "broadcast(5, 16), ramp(0, 1, 16))" in print_func(vectorize(parse_func(text)))
