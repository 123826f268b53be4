"""Fixed-point arithmetic against Python's unbounded integers."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.ir.dtypes import i32
from tilesmith.ir.types import TensorType
from tilesmith.ops.fixed_point import DoublingHighMul, RoundingShift

LOW, HIGH = -(2**31), 2**31 - 1
EDGES = sorted({s * (1 << b) + d for b in (0, 1, 7, 15, 29, 30, 31) for s in (-1, 1)
                for d in (-1, 0, 1) if LOW <= s * (1 << b) + d <= HIGH})  # fmt: skip
WORD = st.one_of(st.sampled_from(EDGES), st.integers(LOW, HIGH))


def _high_mul(a: int, b: int) -> int:
    return min(floor(Fraction(a * b, 2**31) + Fraction(1, 2)), HIGH)


def _shifted(x: int, bits: int) -> int:
    magnitude = floor(Fraction(abs(x), 2**bits) + Fraction(1, 2))
    return -magnitude if x < 0 else magnitude


def _words(numbers) -> np.ndarray:
    return np.asarray(numbers, np.int32)


@given(a=WORD, b=WORD, bits=st.integers(0, 31))
def test_references_equal_exact_arithmetic(a, b, bits):
    assert DoublingHighMul().reference(_words(a), _words(b)) == _high_mul(a, b)
    assert RoundingShift().reference(_words(a), _words(bits)) == _shifted(a, bits)


def test_compiled_code_equals_exact_arithmetic_at_edges():
    b = Builder("edges")
    n = len(EDGES)
    x = b.input("x", TensorType(i32, (n, 1)))
    y, bits = b.input("y", TensorType(i32, (n,))), b.input("bits", TensorType(i32, (32,)))
    outputs = [b.add(DoublingHighMul(), x, y), b.add(RoundingShift(), x, bits)]
    # constants, alone and for each column, as requantisation has them
    multipliers = _words([m for m in EDGES if m > LOW])
    outputs.append(
        b.add(RoundingShift(), b.add(DoublingHighMul(), x, b.constant(multipliers)),
              b.constant(_words([i % 32 for i in range(len(multipliers))])))
    )  # fmt: skip
    outputs.append(b.add(RoundingShift(), x, b.constant(_words(9))))
    graph = b.finish(outputs, ["product", "shifted", "both", "nine"])
    exe = ts.compile(graph)
    edges = _words(EDGES)
    results = exe(x=edges[:, None], y=edges, bits=np.arange(32, dtype=np.int32))
    found = dict(zip(["product", "shifted", "both", "nine"], results, strict=True))
    assert found["product"].tolist() == [[_high_mul(a, c) for c in EDGES] for a in EDGES]
    assert found["shifted"].tolist() == [[_shifted(a, c) for c in range(32)] for a in EDGES]
    assert found["nine"].ravel().tolist() == [_shifted(a, 9) for a in EDGES]
    assert found["both"].tolist() == [
        [_shifted(_high_mul(a, int(m)), i % 32) for i, m in enumerate(multipliers)] for a in EDGES
    ]
