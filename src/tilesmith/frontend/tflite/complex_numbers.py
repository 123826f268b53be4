"""Complex numbers in TFLite models: Fourier transforms, and the operators on their results.

A tensor of complex numbers is a pair of tensors of floats.  Operators that only move elements are
applied to both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.frontend.common.slots import Complex, Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import FORMS, OPERATORS, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import same_dim
from tilesmith.ops.elementwise import Sqrt
from tilesmith.ops.fourier import Dft
from tilesmith.ops.slicing import Slice

_OF_COMPLEX = ("REAL", "IMAG", "COMPLEX_ABS", "CAST")
"""Operators that make real numbers of complex ones."""


def on_complex(n: TfliteNode, function: Callable[[TfliteNode], Result]) -> Result:
    """The results of an operator that reads complex numbers, from its import function.

    Raises UnsupportedError for an arithmetic operator outside `_OF_COMPLEX`.
    """
    name = n.operator.kind
    if name in _OF_COMPLEX:
        return _part(n, name)
    if OPERATORS.find("", name) is not FORMS.find("", name):
        n.unsupported("the operator of complex numbers is not supported")

    def part(of: Callable[[Complex], Value]) -> list[Value]:
        slots = tuple(of(s) if isinstance(s, Complex) else s for s in n.slots)
        made = function(replace(n, slots=slots))
        values = made if isinstance(made, tuple) else (made,)
        return [v for v in values if isinstance(v, Value)]

    pairs = zip(part(lambda c: c.real), part(lambda c: c.imaginary), strict=True)
    return tuple(Complex(real, imaginary) for real, imaginary in pairs)


def _part(n: TfliteNode, name: str) -> Value:
    """A real function of complex numbers; a cast drops the imaginary parts."""
    number = n.slots[0]
    if not isinstance(number, Complex):
        n.bad("expected complex numbers as the first input, found others")
    if name == "IMAG":
        return number.imaginary
    if name == "COMPLEX_ABS":
        squares = number.real * number.real + number.imaginary * number.imaginary
        return n.add(Sqrt(), squares)
    return number.real if name == "REAL" else number.real.cast(n.output_tensor().dtype)


@tflite_op("RFFT2D")
def rfft2d(n: TfliteNode) -> Result:
    """The Fourier transform of real numbers along the last two axes.  The last axis has only the
    first half of its frequencies.
    """
    x, (rows, columns) = n.input(0), n.int_list(n.input(1), "fft_length")
    rank = x.type.rank
    if rank < 2 or rows < 1 or columns < 1:
        n.bad(f"expected an input of two axes or more, and lengths of at least 1, found {x.type}")
    parts = n.reshape(x, (*x.type.shape, 1))
    parts = n.add(Dft(rank - 1, columns, onesided=True), parts)
    if rows > 1 or not same_dim(x.type.shape[rank - 2], 1):
        parts = n.add(Dft(rank - 2, rows), parts)
    shape = parts.type.shape[:-1]
    real, imaginary = (
        n.reshape(n.add(Slice((i,), (i + 1,), (rank,), (1,)), parts), shape) for i in range(2)
    )
    return Complex(real, imaginary)


@tflite_op("REAL", "IMAG", "COMPLEX_ABS")
def of_other_numbers(n: TfliteNode) -> Result:
    """Raises ModelError: these operators are for complex numbers only."""
    n.bad(f"expected complex numbers, found {n.input(0).type}")
