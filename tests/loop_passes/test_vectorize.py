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
